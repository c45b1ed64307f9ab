//! `lathe validate`: every variant, or a file of the user's, through naga and each back end's
//! writer, or against the limits of adapters that are not here. Needs no device.

use std::path::Path;

use clap::Args;
use lathe_harness::error::{Error, Result, meant};
use lathe_harness::plan::backend_text::{self, Language, Limitation};
use lathe_harness::plan::limits::{Profile, lacking, profiles};
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::{is_file, reflected};
use lathe_harness::plan::{Plan, PlanError};
use lathe_kernels::{Constants, Kernel, KernelVariant, Problem, Reflection};
use serde::Serialize;
use serde_json::json;

use crate::global::Global;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
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

/// Name in [`Opts::limits`] that stands for all profiles.
const ALL: &str = "all";

/// A variant at all shapes of its kernel, with the overrides of each applied; or an entry point of
/// a file.
#[derive(Serialize)]
struct Row {
    name: String,
    shapes: usize,
    /// Largest of its entry points, at the shape that needs most.
    storage_buffers: usize,
    workgroup_memory: u32,
    invocations: u32,
    /// Optional features that the text needs.
    needs: Vec<&'static str>,
    /// Back ends that took it; none where it was held to limits alone.
    back_ends: Vec<&'static str>,
    /// Back ends that cannot express it.
    unsupported: Vec<Limitation>,
    errors: Vec<String>,
    /// Fit on each profile.
    fits: Vec<Fit>,
}

/// Shapes of a row that an adapter can run.
#[derive(Serialize)]
struct Fit {
    profile: &'static str,
    /// Shapes that run; of a file it is one.
    shapes: usize,
    of: usize,
    /// Reasons why the other shapes do not run, each once.
    reasons: Vec<String>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let file = opts.target.as_deref().filter(|target| is_file(target));
    if !opts.set.is_empty() && file.is_none() {
        return Err(Error::Usage("--set goes with a WGSL file".into()));
    }
    let profiles = asked(&opts.limits)?;
    let rows = match file {
        Some(file) => of_file(file, &opts.set, &profiles)?,
        None => {
            let mut rows = Vec::new();
            for Target { kernel, subjects } in Target::parse(opts.target.as_deref())? {
                rows.extend(subjects.iter().map(|s| of_variant(kernel, s.variant, &profiles)));
            }
            rows
        }
    };
    let failed = rows.iter().filter(|row| !row.errors.is_empty()).count();
    let profile = |profile: &Profile| {
        let caps = &profile.caps;
        json!({
            "name": profile.name, "what": profile.what, "sources": profile.sources,
            "storage_buffers": caps.storage_buffers, "workgroup_memory": caps.workgroup_memory,
            "invocations": caps.invocations, "subgroup_size": caps.subgroup, "f16": caps.f16,
        })
    };
    let about: Vec<_> = profiles.iter().map(profile).collect();
    let passed = rows.len() - failed;
    let report = json!({
        "file": file, "passed": passed, "failed": failed, "profiles": about, "rows": rows,
    });
    global.print(&report, || print(&profiles, &rows, file.is_some()));
    let misfits = rows.iter().filter(|row| row.fits.iter().any(|fit| fit.shapes == 0)).count();
    let (what, failed) = match (file, failed, misfits) {
        // Of the built-in ones every kernel has a variant that fits; a file is alone.
        (None, 0, _) | (Some(_), 0, 0) => return Ok(()),
        (None, n, _) => ("variants that do not validate".to_owned(), n),
        (Some(file), 0, n) => (format!("{file}: entry points that do not fit all of these"), n),
        (Some(file), n, _) => (format!("{file}: entry points that do not validate"), n),
    };
    Err(Error::CheckFailed(format!("{what}: {failed}")))
}

/// The profiles of these names.
fn asked(names: &[String]) -> Result<Vec<Profile>> {
    let all = profiles();
    if names.iter().any(|name| name == ALL) {
        return Ok(all);
    }
    let known: Vec<_> = all.iter().map(|profile| profile.name).chain([ALL]).collect();
    let one = |name: &String| {
        let found = all.iter().find(|profile| profile.name == name);
        let why = || Error::Usage(format!("no limits `{name}`; {}", meant(name, &known)));
        found.cloned().ok_or_else(why)
    };
    names.iter().map(one).collect()
}

impl Row {
    fn new(name: String, reflection: &Reflection) -> Self {
        let features = [
            (reflection.needs_subgroup, "subgroups"),
            (reflection.needs_f16, "shader-f16"),
            (!reflection.needs_cooperative_matrix.is_empty(), "cooperative matrices"),
        ];
        Self {
            name,
            shapes: 0,
            storage_buffers: 0,
            workgroup_memory: 0,
            invocations: 0,
            needs: features.into_iter().filter(|(needed, _)| *needed).map(|(_, n)| n).collect(),
            back_ends: Vec::new(),
            unsupported: Vec::new(),
            errors: Vec::new(),
            fits: Vec::new(),
        }
    }

    /// Names the back ends, of which those that can express the text are to take it.
    fn written(mut self, reflection: &Reflection) -> Self {
        for language in Language::ALL {
            match language.limitation(reflection) {
                Some(limitation) => self.unsupported.push(limitation),
                None => self.back_ends.push(language.name()),
            }
        }
        self
    }

    /// Counts what an entry point takes, and writes it for every back end. Returns all errors.
    fn entry(
        &mut self,
        reflection: &Reflection,
        entry: &str,
        constants: &Constants,
    ) -> Vec<String> {
        let taken = match reflection.workgroup(entry, constants) {
            Ok(taken) => taken,
            Err(e) => return vec![e.to_string()],
        };
        let is_storage = |i: &&usize| reflection.buffers[**i].uniform.is_none();
        let buffers = reflection.entry(entry).map_or(&[][..], |entry| &entry.buffers);
        self.storage_buffers = self.storage_buffers.max(buffers.iter().filter(is_storage).count());
        self.workgroup_memory = self.workgroup_memory.max(taken.0);
        self.invocations = self.invocations.max(taken.1);
        if self.back_ends.is_empty() {
            return Vec::new();
        }
        let (module, info) = match reflection.resolved(entry, constants) {
            Ok(resolved) => resolved,
            Err(e) => return vec![e.to_string()],
        };
        let mut errors = Vec::new();
        for language in Language::ALL {
            if language.limitation(reflection).is_some() {
                continue;
            }
            let wrong = match language.write(&module, &info, entry) {
                // What naga writes must be WGSL again.
                Ok(text) if language == Language::Wgsl => {
                    match naga::front::wgsl::parse_str(&backend_text::for_naga(&text)) {
                        Ok(_) => continue,
                        Err(e) => format!("does not parse back: {e}"),
                    }
                }
                Ok(_) => continue,
                Err(e) => e,
            };
            self.back_ends.retain(|name| *name != language.name());
            errors.push(format!("{} ({entry}): {wrong}", language.name()));
        }
        errors
    }
}

/// A row for each entry point of a file, with values of all its overrides.
fn of_file(shown: &str, set: &[String], profiles: &[Profile]) -> Result<Vec<Row>> {
    let path = Path::new(shown);
    if path.extension().is_some_and(|e| e == "toml") {
        let why = format!("{shown}: a mapping; validate the WGSL that it names");
        return Err(Error::Usage(why));
    }
    let (_, reflection) = reflected(path).map_err(PlanError::into_usage)?;
    let constants = settings(&reflection, set, shown)?;
    if reflection.entries.is_empty() {
        return Err(Error::CheckFailed(format!("{shown}: has no entry point")));
    }
    let rows = reflection.entries.iter().map(|entry| {
        let mut row = Row { shapes: 1, ..Row::new(entry.name.clone(), &reflection) };
        if profiles.is_empty() {
            row = row.written(&reflection);
        }
        row.errors = row.entry(&reflection, &entry.name, &constants);
        let taken = (row.workgroup_memory, row.invocations);
        let fit = |profile: &Profile| {
            let reasons = lacking(&reflection, &entry.name, taken, &profile.caps);
            Fit { profile: profile.name, shapes: usize::from(reasons.is_empty()), of: 1, reasons }
        };
        row.fits = profiles.iter().map(fit).collect();
        row
    });
    Ok(rows.collect())
}

/// A variant over those of its kernel's shapes that it can run anywhere: with the constants of a
/// generous adapter through the writers, or the number that run on each profile.
fn of_variant(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    profiles: &[Profile],
) -> Row {
    let name = format!("{}/{}", kernel.name, variant.name);
    let caps = backend_text::generous();
    let reflection = lathe_kernels::reflection(kernel.name, variant.name);
    let reflection = reflection.expect("the build script has reflected every variant");
    let mut row = Row::new(name, &reflection);
    if profiles.is_empty() {
        row = row.written(&reflection);
    }
    let problems = kernel.bench().into_iter().chain(kernel.cases());
    let runs = |problem: &Problem| variant.unsupported(&problem.shape, &caps).is_none();
    let problems: Vec<_> = problems.filter(runs).collect();
    row.shapes = problems.len();
    for problem in &problems {
        let tuned = variant.constants(&problem.shape, &caps);
        let errors = match reflection.constants(problem.shape.iter().chain(tuned)) {
            Ok(constants) => variant
                .stages
                .iter()
                .flat_map(|stage| row.entry(&reflection, stage.entry, &constants))
                .collect(),
            Err(e) => vec![e.to_string()],
        };
        row.errors.extend(errors.first().map(|e| format!("{}: {e}", kernel.show(problem))));
    }
    for profile in profiles {
        let mut fit = Fit { profile: profile.name, shapes: 0, of: row.shapes, reasons: Vec::new() };
        for problem in &problems {
            match Plan::of(kernel, variant, &problem.shape, &profile.caps) {
                Ok(_) => fit.shapes += 1,
                Err(e) if fit.reasons.contains(&e.to_string()) => {}
                Err(e) => fit.reasons.push(e.to_string()),
            }
        }
        row.fits.push(fit);
    }
    row
}

fn print(profiles: &[Profile], rows: &[Row], is_file: bool) {
    // Outcomes and demands of a row are two tables: one alone is too wide for a terminal.
    let first = if is_file { "entry" } else { "kernel, variant" };
    let mut outcomes = match profiles {
        [] => table::table(&[first, "shapes", "SPIR-V, MSL, HLSL, WGSL"], &[1]),
        _ => {
            let header = [first].into_iter().chain(profiles.iter().map(|profile| profile.name));
            table::table(&header.collect::<Vec<_>>(), &[])
        }
    };
    let mut demands =
        table::table(&[first, "buffers", "memory", "invocations", "needs"], &[1, 2, 3]);
    let mut kernel = "";
    for row in rows {
        let name = match row.name.split_once('/').filter(|_| !is_file) {
            Some((own, variant)) => {
                if own != kernel {
                    kernel = own;
                    demands.add_row([own, "", "", "", ""]);
                    outcomes.add_row([own].into_iter().chain(vec![
                        "";
                        if profiles.is_empty() {
                            2
                        } else {
                            profiles.len()
                        }
                    ]));
                }
                // One blank: the longest name fits so.
                format!(" {variant}")
            }
            None => row.name.clone(),
        };
        match profiles {
            [] => outcomes.add_row([name.clone(), row.shapes.to_string(), row.found()]),
            _ => outcomes.add_row([name.clone()].into_iter().chain(row.fits.iter().map(Fit::text))),
        };
        // In short, for the table to be narrow.
        let needs = row.needs.iter().filter_map(|need| need.rsplit([' ', '-']).next());
        let needs = needs.collect::<Vec<_>>().join("\n");
        demands.add_row([
            name,
            row.storage_buffers.to_string(),
            table::bytes(row.workgroup_memory.into()),
            row.invocations.to_string(),
            if needs.is_empty() { "-".into() } else { needs },
        ]);
    }
    out::fitted(outcomes);
    if is_file || !profiles.is_empty() {
        outln!();
        out::fitted(demands);
    }
    for row in rows {
        for fit in &row.fits {
            for reason in &fit.reasons {
                outln!("{} on {}: {reason}", row.name, fit.profile);
            }
        }
    }
    for profile in profiles {
        let caps = &profile.caps;
        let subgroups = caps.subgroup.map_or_else(
            || "no subgroups".into(),
            |(min, max)| format!("subgroups of {min} to {max}"),
        );
        outln!(
            "{}: {}; {} storage buffers, {} of workgroup memory, {} invocations, {subgroups}, {}",
            profile.name,
            profile.what,
            caps.storage_buffers,
            table::bytes(caps.workgroup_memory.into()),
            caps.invocations,
            if caps.f16 { "f16" } else { "no f16" },
        );
        for source in profile.sources {
            outln!("  {source}");
        }
    }
    let failed = rows.iter().filter(|row| !row.errors.is_empty()).count();
    outln!("{} valid, {failed} not", rows.len() - failed);
}

impl Row {
    /// The outcome of the writers.
    fn found(&self) -> String {
        let missing = self.unsupported.iter().map(|l| format!("; unsupported by {l}"));
        match self.errors.as_slice() {
            [] => self.back_ends.join(", ") + &missing.collect::<String>(),
            [first] => first.clone(),
            [first, ..] => format!("{} errors; {first}", self.errors.len()),
        }
    }
}

impl Fit {
    fn text(&self) -> String {
        match (self.shapes, self.of) {
            (runs, of) if runs == of => "yes".into(),
            (0, _) => "no".into(),
            (runs, of) => format!("{runs} of {of}"),
        }
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
