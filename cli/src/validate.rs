//! `lathe validate`: every variant, or a file of the user's, through naga and each back end's
//! writer, with the overrides of every benchmark and check shape applied. Needs no device.

mod operation;
mod portability;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::backend_text::{self, Language, Limitation, Written};
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::{is_file, reflected};
use lathe_harness::plan::{Plan, PlanError};
use lathe_harness::report::browser;
use lathe_kernels::reflect::Entry;
use lathe_kernels::{Capabilities, Constants, Kernel, KernelVariant, ParamKind, Reflection, Shape};
use serde::Serialize;

use super::Global;
use super::out;
use super::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// KERNEL or KERNEL/VARIANT, any WGSL file, or FILE.toml with an [operation] of your own; all
    /// kernels without
    target: Option<String>,
    /// Value of an override of the file that has no default, or another one. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Say which of these adapters they fit, none of which need be here: minimal (what every WebGPU
    /// adapter offers), adreno, uhd620, apple, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "page")]
    limits: Vec<String>,
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
    let file = opts.target.as_deref().filter(|target| is_file(target)).map(Path::new);
    let is_toml = file.is_some_and(|file| file.extension().is_some_and(|e| e == "toml"));
    if !opts.set.is_empty() && (file.is_none() || is_toml) {
        let none = file.map_or(String::new(), |file| format!("; {} is none", file.display()));
        return Err(Error::Usage(format!("--set goes with a WGSL file{none}")));
    }
    match file {
        _ if !opts.limits.is_empty() => return portability::run(global, opts, file),
        Some(file) if is_toml => return operation::run(global, opts, file),
        Some(file) => return validate_file(global, opts, file),
        None => {}
    }
    if let Some(path) = &opts.page {
        return page(global, opts, path);
    }
    let mut lines = Vec::new();
    for Target { kernel, variants, .. } in Target::parse(opts.target.as_deref())? {
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
        out::fitted(t);
        outln!("{} variants valid, {} not", report.passed, report.failed);
    }
    match failed {
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{n} variant(s) do not validate"))),
    }
}

/// What is said of an entry point of a file.
#[derive(Serialize)]
struct EntryLine {
    entry: String,
    workgroup_size: [u32; 3],
    workgroup_bytes: u32,
    storage_buffers: usize,
    /// Back ends that took it.
    back_ends: Vec<&'static str>,
    unsupported: Vec<Limitation>,
    errors: Vec<String>,
}

/// Any WGSL file through naga and each back end's writer, entry by entry.
fn validate_file(global: &Global, opts: &Opts, path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    let (text, reflection) = reflected(path).map_err(PlanError::into_usage)?;
    let constants = settings(&reflection, &opts.set, &shown)?;
    if reflection.entries.is_empty() {
        return Err(Error::CheckFailed(format!("{shown}: has no entry point")));
    }
    let lines: Vec<_> =
        reflection.entries.iter().map(|e| entry_line(&reflection, e, &constants)).collect();
    let failed = lines.iter().filter(|line| !line.errors.is_empty()).count();
    if let Some(page) = &opts.page {
        write_file_page(page, &shown, &text, &reflection, &constants)?;
    }
    let needs = needs_of(&reflection);
    if global.json {
        out::json(&serde_json::json!({
            "file": shown, "needs": needs, "constants": constants, "entries": lines,
        }));
    } else {
        print_entries(&lines, &needs, &shown);
        if let Some(page) = &opts.page {
            outln!("{}: open it in a browser with WebGPU", page.display());
        }
    }
    match failed {
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{shown}: entry points that do not validate: {n}"))),
    }
}

/// The optional features that a text needs.
fn needs_of(reflection: &Reflection) -> Vec<&'static str> {
    let mut needs = Vec::new();
    needs.extend(reflection.needs_subgroup.then_some("subgroups"));
    needs.extend(reflection.needs_f16.then_some("shader-f16"));
    needs.extend(
        (!reflection.needs_cooperative_matrix.is_empty()).then_some("cooperative matrices"),
    );
    needs
}

fn print_entries(lines: &[EntryLine], needs: &[&str], shown: &str) {
    let titles = ["entry", "workgroup", "workgroup memory", "storage buffers", "back ends"];
    let mut t = table::table(&titles, &[2, 3]);
    for line in lines {
        let [x, y, z] = line.workgroup_size;
        let missing = line.unsupported.iter().map(|l| format!("; unsupported by {l}"));
        let found = match line.errors.as_slice() {
            [] => format!("{}{}", line.back_ends.join(", "), missing.collect::<String>()),
            errors => errors.join("; "),
        };
        t.add_row(vec![
            line.entry.clone(),
            format!("{x}×{y}×{z}"),
            table::bytes(line.workgroup_bytes.into()),
            line.storage_buffers.to_string(),
            found,
        ]);
    }
    out::fitted(t);
    match needs {
        [] => outln!("{shown}: needs no optional feature"),
        some => outln!("{shown}: needs {}", some.join(", ")),
    }
}

/// All overrides with their values: defaults, and what `--set` gives.
fn settings(reflection: &Reflection, set: &[String], shown: &str) -> Result<Constants> {
    let mut given = Vec::new();
    for text in set {
        let pair = text.split_once('=');
        let pair = pair.and_then(|(name, value)| Some((name, value.parse::<f64>().ok()?)));
        let Some((name, value)) = pair.filter(|(_, value)| value.is_finite()) else {
            return Err(Error::Usage(format!("--set {text}: expected NAME=NUMBER")));
        };
        if !reflection.has_override(name) {
            let known: Vec<_> = reflection.overrides.iter().map(|(n, _)| n.as_str()).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            return Err(Error::Usage(format!("{shown}: no override `{name}`; there are {known}")));
        }
        given.push((name, value));
    }
    reflection
        .constants(given)
        .map_err(|e| Error::Usage(format!("{shown}: {e}; give it with --set NAME=VALUE")))
}

fn entry_line(reflection: &Reflection, entry: &Entry, constants: &Constants) -> EntryLine {
    let storage = |i: &&usize| reflection.buffers[**i].uniform.is_none();
    let mut line = EntryLine {
        entry: entry.name.clone(),
        workgroup_size: [0; 3],
        workgroup_bytes: 0,
        storage_buffers: entry.buffers.iter().filter(storage).count(),
        back_ends: Vec::new(),
        unsupported: Vec::new(),
        errors: Vec::new(),
    };
    let resolved = reflection.resolved(&entry.name, constants);
    let (module, info) = match &resolved {
        Ok(resolved) => resolved,
        Err(e) => {
            line.errors.push(e.to_string());
            return line;
        }
    };
    if let Some(point) = module.entry_points.iter().find(|p| p.name == entry.name) {
        line.workgroup_size = point.workgroup_size;
    }
    match reflection.workgroup(&entry.name, constants) {
        Ok((bytes, _)) => line.workgroup_bytes = bytes,
        Err(e) => line.errors.push(e.to_string()),
    }
    for language in Language::ALL {
        match language.limitation(reflection) {
            Some(limitation) => line.unsupported.push(limitation),
            None => match language.write(module, info, &entry.name) {
                Ok(written) if !written.is_empty() => line.back_ends.push(language.name()),
                Ok(_) => line.errors.push(format!("{}: wrote nothing", language.name())),
                Err(e) => line.errors.push(format!("{}: {e}", language.name())),
            },
        }
    }
    line
}

/// A page that validates a file in a browser.
fn write_file_page(
    path: &Path,
    name: &str,
    text: &str,
    reflection: &Reflection,
    constants: &Constants,
) -> Result<()> {
    if !reflection.needs_cooperative_matrix.is_empty() {
        return Err(Error::Usage(format!("{name}: no browser has cooperative matrices")));
    }
    let (code, features) = for_browsers(reflection, text);
    let pipelines = reflection.entries.iter().map(|entry| browser::Pipeline {
        entry: entry.name.clone(),
        shape: name.to_owned(),
        constants: constants.clone(),
    });
    let module =
        browser::Module { name: name.to_owned(), code, features, pipelines: pipelines.collect() };
    super::write_page(path, &browser::render(&[module]))
}

/// Writes the page for a browser.
fn page(global: &Global, opts: &Opts, path: &Path) -> Result<()> {
    let mut modules = Vec::new();
    let mut left_out = Vec::new();
    for Target { kernel, variants, .. } in Target::parse(opts.target.as_deref())? {
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

/// A text as browsers want it, and the features that it needs there.
fn for_browsers(reflection: &Reflection, text: &str) -> (String, Vec<&'static str>) {
    let (mut code, mut features) = (String::new(), Vec::new());
    if reflection.needs_subgroup {
        features.push("subgroups");
        code.push_str("enable subgroups;\n");
    }
    if reflection.needs_f16 {
        features.push("shader-f16");
    }
    (code + text, features)
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
    let (code, features) = for_browsers(&reflection, source.text);
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
            Err(e) => return Err(e.into_usage()),
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
    for stage in variant.stages {
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
