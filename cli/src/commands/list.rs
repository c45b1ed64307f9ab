//! `lathe list`: kernels and variants, their requirements, and if this adapter meets them.

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::Plan;
use lathe_harness::plan::target::Target;
use lathe_kernels::{Capabilities, Kernel, KernelVariant};
use serde::Serialize;
use serde_json::json;

use crate::global::Global;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// Nothing: what is named here was meant for another command
    #[arg(hide = true)]
    target: Option<String>,
}

/// A variant and its availability; unknown without a device.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    requires: Vec<String>,
    dispatches: usize,
    available: Option<bool>,
    reason: Option<String>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    if let Some(target) = &opts.target {
        // Refused as in other commands where it is none of ours.
        let kernel = Target::one(target)?.kernel;
        return Err(Error::Usage(format!(
            "`lathe list` lists all kernels; `lathe check {target}` runs {}",
            kernel.name
        )));
    }
    let gpu = match global.open() {
        Ok(gpu) => Some(gpu),
        Err(Error::NoAdapter(reason)) if global.adapter.is_none() => {
            eprintln!("lathe: no adapter, availability unknown: {reason}");
            None
        }
        Err(e) => return Err(e),
    };
    let caps = gpu.as_ref().map(|g| &g.caps);
    let of_kernel = |kernel: &'static Kernel| {
        let lines = kernel.variants.iter().map(|variant| line(kernel, variant, caps));
        (kernel, lines.collect::<Vec<_>>())
    };
    let kernels: Vec<_> = lathe_kernels::kernels().iter().map(of_kernel).collect();
    let documented = kernels.iter().map(|(kernel, lines)| {
        let params = kernel.params.iter().chain(kernel.state);
        let params: Vec<_> = params.map(|p| json!({ "name": p.name, "doc": p.doc })).collect();
        let (name, summary) = (kernel.name, kernel.summary);
        json!({ "name": name, "summary": summary, "params": params, "variants": lines })
    });
    let adapter = gpu.as_ref().map(|gpu| &gpu.adapter.name);
    let report = json!({ "adapter": adapter, "kernels": documented.collect::<Vec<_>>() });
    global.print(&report, || print(&kernels));
    Ok(())
}

fn print(kernels: &[(&Kernel, Vec<Line>)]) {
    let mut t = table::table(&["kernel, variant", "needs", "dispatches", "here"], &[2]);
    for (kernel, lines) in kernels {
        t.add_row([kernel.name, "", "", ""]);
        for line in lines {
            let here = line.available.map_or("?", |here| if here { "yes" } else { "no" });
            t.add_row([
                &format!("  {}", line.name),
                &needs(&line.requires),
                &line.dispatches.to_string(),
                here,
            ]);
        }
    }
    out::table(t);
    for (kernel, lines) in kernels {
        for line in lines {
            if let Some(reason) = &line.reason {
                outln!("not here: {}/{}: {reason}", kernel.name, line.name);
            }
        }
    }
    for (kernel, _) in kernels {
        outln!("{}: {}", kernel.name, kernel.summary);
    }
}

/// Requirements in few characters; all sizes of cooperative matrices count as one.
fn needs(requires: &[String]) -> String {
    let mut all: Vec<&str> = requires
        .iter()
        .map(|text| match text.strip_prefix("shader-") {
            Some(short) => short,
            None if text.starts_with(MATRICES) => "matrices",
            None => text,
        })
        .collect();
    all.dedup();
    if all.is_empty() { "-".into() } else { all.join(", ") }
}

/// Prefix of a requirement of matrix units.
const MATRICES: &str = "cooperative matrices";

fn line(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    caps: Option<&Capabilities>,
) -> Line {
    let mut requires = Vec::new();
    if let Some(reflection) = lathe_kernels::reflection(kernel.name, variant.name) {
        requires.extend(reflection.needs_subgroup.then(|| "subgroup".to_owned()));
        requires.extend(reflection.needs_f16.then(|| "shader-f16".to_owned()));
        let matrices = reflection.needs_cooperative_matrix.iter();
        requires.extend(matrices.map(|m| format!("{MATRICES} {m}")));
    }
    // Available if some shape of the kernel runs: a refusal of one shape is not the adapter's.
    let tried = caps.map(|caps| {
        let mut reason = None;
        for problem in kernel.bench().into_iter().chain(kernel.cases()) {
            match Plan::of(kernel, variant, &problem.shape, caps) {
                Ok(_) => return Ok(()),
                Err(e) => reason = reason.or(Some(e.to_string())),
            }
        }
        Err(reason.unwrap_or_default())
    });
    Line {
        name: variant.name,
        requires,
        dispatches: variant.stages.len(),
        available: tried.as_ref().map(Result::is_ok),
        reason: tried.and_then(Result::err),
    }
}
