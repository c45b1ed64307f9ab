//! `lathe validate`: every variant through naga and each back end's writer, with the overrides of
//! every benchmark and check shape applied. Needs no device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lathe_kernels::{Capabilities, Constants, Kernel, KernelVariant, ParamKind, Reflection, Shape};
use serde::Serialize;

use super::Global;
use super::out;
use crate::error::{Error, Result};
use crate::plan::backend_text::{self, Language, Limitation, Written};
use crate::plan::{Plan, PlanError};
use crate::report::{browser, table};

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
        out::json(&report);
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
        outln!("{t}");
        outln!("{} variants valid, {} not", report.passed, report.failed);
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
        out::json(&serde_json::json!({
            "output": path, "bytes": page.len(), "variants": modules.len(), "pipelines": pipelines,
            "left_out": left_out,
        }));
    } else {
        outln!(
            "{}: {} variants, {pipelines} pipelines; open it in a browser with WebGPU",
            path.display(),
            modules.len()
        );
        for name in left_out {
            outln!("left out {name}: no browser has cooperative matrices");
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
            Err(PlanError::Shape(reason)) => return Err(Error::Usage(reason)),
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
    let caps = backend_text::generous();
    let mut line = Line {
        kernel: kernel.name,
        variant: variant.name,
        shapes: 0,
        back_ends: Language::ALL.map(Language::name).to_vec(),
        unsupported: Vec::new(),
        errors: Vec::new(),
    };
    let Some(reflection) = lathe_kernels::reflection(kernel.name, variant.name) else {
        line.errors.push("no WGSL file".into());
        return line;
    };
    line.unsupported = Language::ALL.iter().filter_map(|l| l.limitation(&reflection)).collect();
    line.back_ends.retain(|name| !line.unsupported.iter().any(|l| l.back_end() == *name));
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
        for language in Language::ALL {
            if language.limitation(reflection).is_some() {
                continue;
            }
            let name = language.name();
            let written = language
                .write(&module, &info, stage.entry)
                .map_err(|e| format!("{name} ({}): {e}", stage.entry))?;
            if written.is_empty() {
                return Err(format!("{name} ({}): wrote nothing", stage.entry));
            }
            // What naga writes must be WGSL again.
            if let (Language::Wgsl, Written::Text(text)) = (language, &written) {
                naga::front::wgsl::parse_str(text)
                    .map_err(|e| format!("{name} ({}): does not parse back: {e}", stage.entry))?;
            }
        }
    }
    Ok(())
}
