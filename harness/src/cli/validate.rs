//! `lathe validate`: every variant through naga and each back end's writer, with the overrides of
//! every benchmark and check shape applied. Needs no device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lathe_kernels::{Capabilities, Constants, Kernel, KernelVariant, ParamKind, Reflection, Shape};
use naga::back::{hlsl, msl, spv, wgsl};
use serde::Serialize;

use super::Global;
use crate::error::{Error, Result};
use crate::plan::{Plan, PlanError};
use crate::report::{browser, json, table};

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// KERNEL or KERNEL/VARIANT; all without
    target: Option<String>,
    /// Write a page that validates them in the browser that opens it, by its own compiler
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    passed: usize,
    failed: usize,
    variants: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    kernel: &'static str,
    variant: &'static str,
    shapes: usize,
    back_ends: Vec<&'static str>,
    /// Back ends that have no way to say what the variant does.
    unsupported: Vec<Limitation>,
    errors: Vec<String>,
}

/// A back end that cannot write a variant, known beforehand.
#[derive(Serialize)]
struct Limitation {
    back_end: &'static str,
    reason: &'static str,
}

impl std::fmt::Display for Limitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.back_end, self.reason)
    }
}

/// Why naga 30 cannot write a source for a back end. Its writers end with a panic or with text that
/// no compiler takes, so that they are not asked.
fn limitation(back_end: &'static str, source: &Reflection) -> Option<Limitation> {
    let matrices = &source.needs_cooperative_matrix;
    let reason = match back_end {
        "HLSL" if !matrices.is_empty() => "HLSL has no cooperative matrices",
        "MSL" if matrices.iter().any(|c| [c.m, c.n, c.k] != [8; 3]) => {
            "Metal's simdgroup matrices are 8x8"
        }
        _ => return None,
    };
    Some(Limitation { back_end, reason })
}

type Writer = fn(&naga::Module, &naga::valid::ModuleInfo, &str) -> Result<usize, String>;

/// Every back end a browser or engine may compile these kernels for.
const WRITERS: [(&str, Writer); 4] =
    [("SPIR-V", write_spirv), ("MSL", write_msl), ("HLSL", write_hlsl), ("WGSL", write_wgsl)];

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    if let Some(path) = &opts.page {
        return page(global, opts, path);
    }
    let mut lines = Vec::new();
    for (kernel, variants) in super::named(opts.target.as_deref())? {
        for variant in variants {
            lines.push(validate(kernel, variant));
        }
    }
    let failed = lines.iter().filter(|l| !l.errors.is_empty()).count();
    let report = Report { passed: lines.len() - failed, failed, variants: lines };
    if global.json {
        json::print(&report);
    } else {
        let mut t = table::table(&["kernel", "variant", "shapes", "SPIR-V, MSL, HLSL, WGSL"], &[2]);
        for l in &report.variants {
            t.add_row(vec![
                l.kernel.to_owned(),
                l.variant.to_owned(),
                l.shapes.to_string(),
                if l.errors.is_empty() {
                    let missing = l.unsupported.iter();
                    let missing = missing.map(|l| format!("; unsupported by {l}"));
                    format!("ok{}", missing.collect::<String>())
                } else {
                    format!("{} of {} shapes; {}", l.errors.len(), l.shapes, l.errors[0])
                },
            ]);
        }
        println!("{t}");
        println!("{} variants valid, {} not", report.passed, report.failed);
    }
    match failed {
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{n} variant(s) do not validate"))),
    }
}

/// Writes the page for a browser.
fn page(global: &Global, opts: &Opts, path: &Path) -> Result<()> {
    let mut modules = Vec::new();
    let mut left_out = Vec::new();
    for (kernel, variants) in super::named(opts.target.as_deref())? {
        for variant in variants {
            let name = format!("{}/{}", kernel.name, variant.name);
            match browser_module(kernel, variant, &name)? {
                Some(module) => modules.push(module),
                None => left_out.push(name),
            }
        }
    }
    let page = browser::render(&modules);
    super::write_page(path, &page)?;
    let pipelines: usize = modules.iter().map(|m| m.pipelines.len()).sum();
    if global.json {
        json::print(&serde_json::json!({
            "output": path, "bytes": page.len(), "variants": modules.len(), "pipelines": pipelines,
            "left_out": left_out,
        }));
    } else {
        println!(
            "{}: {} variants, {pipelines} pipelines; open it in a browser with WebGPU",
            path.display(),
            modules.len()
        );
        for name in left_out {
            println!("left out {name}: no browser has cooperative matrices");
        }
    }
    Ok(())
}

/// A variant with the pipelines that its benchmark and check shapes make on an adapter of default
/// limits, as many as show every value of what is no size. None where no browser has what it needs.
fn browser_module(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    name: &str,
) -> Result<Option<browser::Module>> {
    let reflection = lathe_kernels::reflection(kernel.name, variant.name);
    let source = lathe_kernels::source(kernel.name, variant.name);
    let (Some(reflection), Some(source)) = (reflection, source) else {
        return Err(Error::CheckFailed(format!("{name}: no WGSL file")));
    };
    if !reflection.needs_cooperative_matrix.is_empty() {
        return Ok(None);
    }
    let mut features = Vec::new();
    let mut code = String::new();
    if reflection.needs_subgroup {
        features.push("subgroups");
        code.push_str("enable subgroups;\n");
    }
    if reflection.needs_f16 {
        features.push("shader-f16");
    }
    code.push_str(source.text);
    let caps = Capabilities {
        subgroup: Some((32, 32)),
        f16: reflection.needs_f16,
        ..Capabilities::minimal()
    };
    let is_size = |name: &str| {
        let kind = kernel.param(name).map(|p| p.kind);
        !matches!(kind, None | Some(ParamKind::Choice { .. }))
    };
    let mut seen = BTreeSet::new();
    let mut pipelines = Vec::new();
    for problem in kernel.bench().into_iter().chain(kernel.cases()) {
        let plan = match Plan::of(kernel, variant, &problem.shape, &caps) {
            Ok(plan) => plan,
            Err(PlanError::Unavailable(_)) => continue,
            Err(PlanError::Reflect(e)) => return Err(e.into()),
        };
        for stage in &plan.stages {
            let kinds = plan.constants.iter().filter(|(name, _)| !is_size(name));
            let kinds = kinds.map(|(name, value)| (stage.entry.clone(), format!("{name}={value}")));
            let before = seen.len();
            seen.extend(kinds.chain([(stage.entry.clone(), String::new())]));
            if seen.len() > before {
                pipelines.push(browser::Pipeline {
                    entry: stage.entry.clone(),
                    shape: kernel.show(&problem),
                    constants: plan.constants.clone(),
                });
            }
        }
    }
    Ok(Some(browser::Module { name: name.to_owned(), code, features, pipelines }))
}

fn validate(kernel: &'static Kernel, variant: &'static KernelVariant) -> Line {
    // A generous adapter: what is validated is the code, not one machine's limits.
    let caps = Capabilities {
        subgroup: Some((32, 32)),
        f16: true,
        workgroup_memory: 32 << 10,
        invocations: 1024,
        binding_bytes: 1 << 31,
        storage_buffers: 16,
        grid_dimension: 65535,
        cooperative_matrices: Vec::new(),
    };
    let mut line = Line {
        kernel: kernel.name,
        variant: variant.name,
        shapes: 0,
        back_ends: WRITERS.map(|w| w.0).to_vec(),
        unsupported: Vec::new(),
        errors: Vec::new(),
    };
    let Some(reflection) = lathe_kernels::reflection(kernel.name, variant.name) else {
        line.errors.push("no WGSL file".into());
        return line;
    };
    line.unsupported = WRITERS.iter().filter_map(|w| limitation(w.0, &reflection)).collect();
    line.back_ends.retain(|name| !line.unsupported.iter().any(|l| l.back_end == *name));
    for problem in kernel.bench().into_iter().chain(kernel.cases()) {
        if variant.unsupported(&problem.shape, &caps).is_some() {
            continue;
        }
        line.shapes += 1;
        if let Err(e) = write_all(&reflection, variant, &problem.shape, &caps) {
            line.errors.push(format!("{}: {e}", kernel.show(&problem)));
        }
    }
    line
}

fn write_all(
    reflection: &Reflection,
    variant: &'static KernelVariant,
    shape: &Shape,
    caps: &Capabilities,
) -> Result<(), String> {
    let tuned = variant.constants(shape, caps);
    let constants: Constants =
        reflection.constants(shape.iter().chain(tuned)).map_err(|e| e.to_string())?;
    for stage in &variant.stages {
        let (module, info) =
            reflection.resolved(stage.entry, &constants).map_err(|e| e.to_string())?;
        for (name, write) in WRITERS {
            if limitation(name, reflection).is_some() {
                continue;
            }
            let written = write(&module, &info, stage.entry)
                .map_err(|e| format!("{name} ({}): {e}", stage.entry))?;
            if written == 0 {
                return Err(format!("{name} ({}): wrote nothing", stage.entry));
            }
        }
    }
    Ok(())
}

fn write_spirv(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    entry: &str,
) -> Result<usize, String> {
    let options = spv::Options { lang_version: (1, 3), ..Default::default() };
    let pipeline = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: entry.into(),
    };
    spv::write_vec(module, info, &options, Some(&pipeline))
        .map(|words| words.len())
        .map_err(|e| e.to_string())
}

fn write_msl(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    entry: &str,
) -> Result<usize, String> {
    let options =
        msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..Default::default() };
    let pipeline = msl::PipelineOptions {
        entry_point: Some((naga::ShaderStage::Compute, entry.into())),
        ..Default::default()
    };
    msl::write_string(module, info, &options, &pipeline)
        .map(|(text, _)| text.len())
        .map_err(|e| e.to_string())
}

fn write_hlsl(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    entry: &str,
) -> Result<usize, String> {
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_2,
        fake_missing_bindings: true,
        ..Default::default()
    };
    let pipeline =
        hlsl::PipelineOptions { entry_point: Some((naga::ShaderStage::Compute, entry.into())) };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &pipeline)
        .write(module, info, None)
        .map_err(|e| e.to_string())?;
    Ok(text.len())
}

fn write_wgsl(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    _: &str,
) -> Result<usize, String> {
    let text =
        wgsl::write_string(module, info, wgsl::WriterFlags::empty()).map_err(|e| e.to_string())?;
    // What naga writes must be WGSL again.
    naga::front::wgsl::parse_str(&text)
        .map(|_| text.len())
        .map_err(|e| format!("does not parse back: {e}"))
}
