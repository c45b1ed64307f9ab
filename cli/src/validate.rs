//! `lathe validate`: every variant, or a file of the user's, through naga and each back end's
//! writer, with the overrides of every benchmark and check shape applied. Needs no device.

mod limits;

use std::path::Path;

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::PlanError;
use lathe_harness::plan::backend_text::{self, Language, Limitation};
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::{is_file, reflected};
use lathe_kernels::reflect::Entry;
use lathe_kernels::{Constants, Kernel, KernelVariant, Reflection, Shape};
use serde::Serialize;

use super::Global;
use super::out;
use super::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// KERNEL or KERNEL/VARIANT, or any WGSL file; all kernels without
    target: Option<String>,
    /// Value of an override of the file that has no default, or another one. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Say which of these adapters they fit, none of which need be here: minimal (what every WebGPU
    /// adapter offers), adreno, uhd620, apple, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    limits: Vec<String>,
}

/// A WGSL file with values of all its overrides.
struct File {
    shown: String,
    reflection: Reflection,
    constants: Constants,
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
    /// Back ends that cannot express the variant.
    unsupported: Vec<Limitation>,
    errors: Vec<String>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let path = opts.target.as_deref().filter(|target| is_file(target)).map(Path::new);
    if !opts.set.is_empty() && path.is_none() {
        return Err(Error::Usage("--set goes with a WGSL file".into()));
    }
    let file = path.map(|path| File::read(path, &opts.set)).transpose()?;
    match &file {
        _ if !opts.limits.is_empty() => limits::run(global, opts, file.as_ref()),
        Some(file) => validate_file(global, file),
        None => validate_variants(global, opts),
    }
}

fn validate_variants(global: &Global, opts: &Opts) -> Result<()> {
    let mut lines = Vec::new();
    for Target { kernel, subjects } in Target::parse(opts.target.as_deref())? {
        lines.extend(subjects.iter().map(|subject| validate(kernel, subject.variant)));
    }
    let failed = lines.iter().filter(|l| !l.errors.is_empty()).count();
    let report = Report { passed: lines.len() - failed, failed, variants: lines };
    global.print(&report, || {
        let mut t = table::table(&["kernel", "variant", "shapes", "SPIR-V, MSL, HLSL, WGSL"], &[2]);
        for l in &report.variants {
            let found = match l.errors.as_slice() {
                [] => format!("ok{}", missing(&l.unsupported)),
                [first, ..] => format!("{} of {} shapes; {first}", l.errors.len(), l.shapes),
            };
            t.add_row([l.kernel, l.variant, &l.shapes.to_string(), &found]);
        }
        out::fitted(t);
        outln!("{} variants valid, {} not", report.passed, report.failed);
    });
    match failed {
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{n} variant(s) do not validate"))),
    }
}

/// Back ends that are left out, for a table.
fn missing(unsupported: &[Limitation]) -> String {
    unsupported.iter().map(|l| format!("; unsupported by {l}")).collect()
}

fn validate(kernel: &'static Kernel, variant: &'static KernelVariant) -> Line {
    let caps = backend_text::generous();
    let mut line = Line {
        kernel: kernel.name,
        variant: variant.name,
        shapes: 0,
        back_ends: Vec::new(),
        unsupported: Vec::new(),
        errors: Vec::new(),
    };
    let Some(reflection) = lathe_kernels::reflection(kernel.name, variant.name) else {
        line.errors.push("no WGSL file".into());
        return line;
    };
    for language in Language::ALL {
        match language.limitation(&reflection) {
            Some(limitation) => line.unsupported.push(limitation),
            None => line.back_ends.push(language.name()),
        }
    }
    for problem in kernel.bench().into_iter().chain(kernel.cases()) {
        if variant.unsupported(&problem.shape, &caps).is_some() {
            continue;
        }
        line.shapes += 1;
        let write = |shape: &Shape| -> Result<(), String> {
            let tuned = variant.constants(shape, &caps);
            let constants = reflection.constants(shape.iter().chain(tuned));
            let constants = constants.map_err(|e| e.to_string())?;
            variant.stages.iter().try_for_each(|stage| {
                let (_, mut errors) = write_all(&reflection, stage.entry, &constants);
                if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(0)) }
            })
        };
        if let Err(e) = write(&problem.shape) {
            line.errors.push(format!("{}: {e}", kernel.show(&problem)));
        }
    }
    line
}

/// Writes an entry point in every language that can say it. Returns those that did, and errors.
fn write_all(
    reflection: &Reflection,
    entry: &str,
    constants: &Constants,
) -> (Vec<&'static str>, Vec<String>) {
    let (mut back_ends, mut errors) = (Vec::new(), Vec::new());
    let (module, info) = match reflection.resolved(entry, constants) {
        Ok(resolved) => resolved,
        Err(e) => return (back_ends, vec![e.to_string()]),
    };
    for language in Language::ALL {
        if language.limitation(reflection).is_some() {
            continue;
        }
        let wrong = match language.write(&module, &info, entry) {
            // What naga writes must be WGSL again.
            Ok(text) if language == Language::Wgsl => match naga::front::wgsl::parse_str(&text) {
                Ok(_) => String::new(),
                Err(e) => format!("does not parse back: {e}"),
            },
            Ok(_) => String::new(),
            Err(e) => e,
        };
        match wrong.is_empty() {
            true => back_ends.push(language.name()),
            false => errors.push(format!("{} ({entry}): {wrong}", language.name())),
        }
    }
    (back_ends, errors)
}

/// An entry point of a file.
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
fn validate_file(global: &Global, file: &File) -> Result<()> {
    let File { shown, reflection, constants } = file;
    let lines: Vec<_> = reflection.entries.iter().map(|entry| file.line(entry)).collect();
    let needs = needs(reflection);
    let report = serde_json::json!({
        "file": shown, "needs": needs, "constants": constants, "entries": lines,
    });
    global.print(&report, || {
        let titles = ["entry", "workgroup", "workgroup memory", "storage buffers", "back ends"];
        let mut t = table::table(&titles, &[2, 3]);
        for line in &lines {
            let [x, y, z] = line.workgroup_size;
            let found = match line.errors.as_slice() {
                [] => line.back_ends.join(", ") + &missing(&line.unsupported),
                errors => errors.join("; "),
            };
            t.add_row([
                line.entry.clone(),
                format!("{x}×{y}×{z}"),
                table::bytes(line.workgroup_bytes.into()),
                line.storage_buffers.to_string(),
                found,
            ]);
        }
        out::fitted(t);
        let needs = if needs.is_empty() { "no optional feature" } else { &needs.join(", ") };
        outln!("{shown}: needs {needs}");
    });
    match lines.iter().filter(|line| !line.errors.is_empty()).count() {
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{shown}: entry points that do not validate: {n}"))),
    }
}

/// Optional features that a text needs.
fn needs(reflection: &Reflection) -> Vec<&'static str> {
    let features = [
        (reflection.needs_subgroup, "subgroups"),
        (reflection.needs_f16, "shader-f16"),
        (!reflection.needs_cooperative_matrix.is_empty(), "cooperative matrices"),
    ];
    features.into_iter().filter(|(needed, _)| *needed).map(|(_, name)| name).collect()
}

impl File {
    fn read(path: &Path, set: &[String]) -> Result<Self> {
        let shown = path.display().to_string();
        if path.extension().is_some_and(|e| e == "toml") {
            let why = format!("{shown}: a mapping; validate the WGSL that it names");
            return Err(Error::Usage(why));
        }
        let (_, reflection) = reflected(path).map_err(PlanError::into_usage)?;
        let constants = settings(&reflection, set, &shown)?;
        match reflection.entries.is_empty() {
            true => Err(Error::CheckFailed(format!("{shown}: has no entry point"))),
            false => Ok(Self { shown, reflection, constants }),
        }
    }

    fn line(&self, entry: &Entry) -> EntryLine {
        let Self { reflection, constants, .. } = self;
        let (back_ends, mut errors) = write_all(reflection, &entry.name, constants);
        let limitations = Language::ALL.iter().filter_map(|l| l.limitation(reflection));
        let mut workgroup_size = [0; 3];
        if let Ok((module, _)) = reflection.resolved(&entry.name, constants) {
            let point = module.entry_points.iter().find(|p| p.name == entry.name);
            workgroup_size = point.map_or([0; 3], |p| p.workgroup_size);
        }
        let (workgroup_bytes, _) =
            reflection.workgroup(&entry.name, constants).unwrap_or_else(|e| {
                errors.push(e.to_string());
                errors.dedup();
                (0, 0)
            });
        EntryLine {
            entry: entry.name.clone(),
            workgroup_size,
            workgroup_bytes,
            storage_buffers: self.storage_buffers(entry),
            back_ends,
            unsupported: limitations.collect(),
            errors,
        }
    }

    fn storage_buffers(&self, entry: &Entry) -> usize {
        let is_storage = |i: &&usize| self.reflection.buffers[**i].uniform.is_none();
        entry.buffers.iter().filter(is_storage).count()
    }
}

/// All overrides with their values: defaults, overridden by `--set`.
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
