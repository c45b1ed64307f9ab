//! `lathe list`: kernels and variants, their requirements, and if this adapter meets them.

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::Plan;
use lathe_harness::plan::target::Target;
use lathe_kernels::{Capabilities, Kernel, KernelVariant};
use serde::Serialize;

use crate::global::Global;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// Nothing: what is named here was meant for another command
    #[arg(hide = true)]
    target: Option<String>,
}

#[derive(Serialize)]
struct Report {
    adapter: Option<String>,
    kernels: Vec<KernelLine>,
}

#[derive(Serialize)]
struct KernelLine {
    name: &'static str,
    summary: &'static str,
    params: Vec<ParamLine>,
    variants: Vec<VariantLine>,
}

#[derive(Serialize)]
struct ParamLine {
    name: &'static str,
    doc: &'static str,
}

#[derive(Serialize)]
struct VariantLine {
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
    // The list itself needs no device; without one, availability is unknown.
    let gpu = match global.open() {
        Ok(gpu) => Some(gpu),
        Err(Error::NoAdapter(reason)) if global.adapter.is_none() => {
            eprintln!("lathe: no adapter, availability unknown: {reason}");
            None
        }
        Err(e) => return Err(e),
    };
    let caps = gpu.as_ref().map(|g| &g.caps);
    let report = Report {
        adapter: gpu.as_ref().map(|g| g.adapter.name.clone()),
        kernels: lathe_kernels::kernels().iter().map(|k| kernel_line(k, caps)).collect(),
    };
    if global.json {
        out::json(&report);
        return Ok(());
    }
    let mut t = table::table(&["kernel, variant", "needs", "dispatches", "here"], &[2]);
    let mut reasons: Vec<String> = Vec::new();
    for k in &report.kernels {
        t.add_row(vec![k.name, "", "", ""]);
        for v in &k.variants {
            if let Some(reason) = &v.reason {
                reasons.push(format!("{}/{}: {reason}", k.name, v.name));
            }
            t.add_row(vec![
                format!("  {}", v.name),
                needs(&v.requires),
                v.dispatches.to_string(),
                match v.available {
                    Some(true) => "yes".to_owned(),
                    Some(false) => "no".to_owned(),
                    None => "?".to_owned(),
                },
            ]);
        }
    }
    out::table(t);
    for reason in reasons {
        outln!("not here: {reason}");
    }
    for k in &report.kernels {
        outln!("{}: {}", k.name, k.summary);
    }
    Ok(())
}

/// Requirements in few characters; all sizes of cooperative matrices count as one.
fn needs(requires: &[String]) -> String {
    let short = |text: &String| match text.as_str() {
        "shader-f16" => "f16".to_owned(),
        text if text.starts_with(MATRICES) => "matrices".to_owned(),
        text => text.to_owned(),
    };
    let mut all: Vec<String> = requires.iter().map(short).collect();
    all.dedup();
    if all.is_empty() { "-".into() } else { all.join(", ") }
}

/// Prefix of a requirement of matrix units.
const MATRICES: &str = "cooperative matrices";

fn kernel_line(kernel: &'static Kernel, caps: Option<&Capabilities>) -> KernelLine {
    KernelLine {
        name: kernel.name,
        summary: kernel.summary,
        params: kernel
            .params
            .iter()
            .chain(kernel.state)
            .map(|p| ParamLine { name: p.name, doc: p.doc })
            .collect(),
        variants: kernel.variants.iter().map(|v| variant_line(kernel, v, caps)).collect(),
    }
}

fn variant_line(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    caps: Option<&Capabilities>,
) -> VariantLine {
    let mut requires = Vec::new();
    if let Some(reflection) = lathe_kernels::reflection(kernel.name, variant.name) {
        if reflection.needs_subgroup {
            requires.push("subgroup".to_owned());
        }
        if reflection.needs_f16 {
            requires.push("shader-f16".to_owned());
        }
        let matrices = reflection.needs_cooperative_matrix.iter();
        requires.extend(matrices.map(|m| format!("{MATRICES} {m}")));
    }
    // Whether some shape of the kernel runs: a refusal of one shape is not one of the adapter.
    let tried = caps.map(|caps| {
        let problems = kernel.bench().into_iter().chain(kernel.cases());
        let mut reason = None;
        for problem in problems {
            match Plan::of(kernel, variant, &problem.shape, caps) {
                Ok(_) => return Ok(()),
                Err(e) => reason = reason.or(Some(e.to_string())),
            }
        }
        Err(reason.unwrap_or_default())
    });
    VariantLine {
        name: variant.name,
        requires,
        dispatches: variant.stages.len(),
        available: tried.as_ref().map(Result::is_ok),
        reason: tried.and_then(Result::err),
    }
}
