//! `lathe validate --limits`: which adapters a text fits that are not here.

use lathe_harness::data::bytes;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::limits::{Profile, lacking, profiles};
use lathe_harness::plan::target::{Target, meant};
use lathe_harness::plan::{Plan, backend_text};
use lathe_kernels::{Kernel, KernelVariant, Shape};
use serde::Serialize;
use serde_json::json;

use super::{File, Opts, needs};
use crate::table;
use crate::{Global, out};

/// Name in [`Opts::limits`] that stands for all profiles.
const ALL: &str = "all";

/// Demands of an entry point or a variant, and who meets them.
#[derive(Default, Serialize)]
struct Row {
    name: String,
    /// Largest of its entry points, at the shape that needs most.
    storage_buffers: usize,
    workgroup_memory: u32,
    invocations: u32,
    needs: Vec<&'static str>,
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

impl Fit {
    fn text(&self) -> String {
        match (self.shapes, self.of) {
            (runs, of) if runs == of => "yes".into(),
            (0, _) => "no".into(),
            (runs, of) => format!("{runs} of {of}"),
        }
    }
}

pub(super) fn run(global: &Global, opts: &Opts, file: Option<&File>) -> Result<()> {
    let profiles = asked(&opts.limits)?;
    let rows = match file {
        Some(file) => of_file(file, &profiles)?,
        None => {
            let mut rows = Vec::new();
            for Target { kernel, subjects } in Target::parse(opts.target.as_deref())? {
                rows.extend(subjects.iter().map(|s| of_variant(kernel, s.variant, &profiles)));
            }
            rows
        }
    };
    let profile = |profile: &Profile| {
        let caps = &profile.caps;
        json!({
            "name": profile.name, "what": profile.what, "sources": profile.sources,
            "storage_buffers": caps.storage_buffers, "workgroup_memory": caps.workgroup_memory,
            "invocations": caps.invocations, "subgroup_size": caps.subgroup, "f16": caps.f16,
        })
    };
    let about: Vec<_> = profiles.iter().map(profile).collect();
    let report = json!({ "profiles": about, "rows": rows });
    global.print(&report, || print(&profiles, &rows, file.is_some()));
    let misfits = rows.iter().filter(|row| row.fits.iter().any(|fit| fit.shapes == 0));
    match (file, misfits.count()) {
        // Of the built-in ones every kernel has a variant that fits; a file is alone.
        (None, _) | (_, 0) => Ok(()),
        (Some(file), n) => {
            let what = if n == 1 { "1 entry point does" } else { &format!("{n} entry points do") };
            Err(Error::CheckFailed(format!("{}: {what} not fit all of these", file.shown)))
        }
    }
}

/// The profiles of these names.
fn asked(names: &[String]) -> Result<Vec<Profile>> {
    let all = profiles();
    if names.iter().any(|name| name == ALL) {
        return Ok(all);
    }
    let known: Vec<_> = all.iter().map(|profile| profile.name).chain([ALL]).collect();
    let one = |name: &String| {
        all.iter()
            .find(|profile| profile.name == name)
            .cloned()
            .ok_or_else(|| Error::Usage(format!("no limits `{name}`; {}", meant(name, &known))))
    };
    names.iter().map(one).collect()
}

/// A row for each entry point of a file.
fn of_file(file: &File, profiles: &[Profile]) -> Result<Vec<Row>> {
    let File { shown, reflection, constants } = file;
    let row = |entry: &lathe_kernels::reflect::Entry| {
        let workgroup = reflection
            .workgroup(&entry.name, constants)
            .map_err(|e| Error::CheckFailed(format!("{shown}: {}: {e}", entry.name)))?;
        let fit = |profile: &Profile| {
            let reasons = lacking(reflection, &entry.name, workgroup, &profile.caps);
            Fit { profile: profile.name, shapes: usize::from(reasons.is_empty()), of: 1, reasons }
        };
        Ok(Row {
            name: entry.name.clone(),
            storage_buffers: file.storage_buffers(entry),
            workgroup_memory: workgroup.0,
            invocations: workgroup.1,
            needs: needs(reflection),
            fits: profiles.iter().map(fit).collect(),
        })
    };
    reflection.entries.iter().map(row).collect()
}

/// A variant over its kernel's shapes: the number that run on each profile, of those that it can
/// run anywhere, with the constants that it takes there.
fn of_variant(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    profiles: &[Profile],
) -> Row {
    let generous = backend_text::generous();
    let reflection = lathe_kernels::reflection(kernel.name, variant.name);
    let mut row = Row {
        name: format!("{}/{}", kernel.name, variant.name),
        needs: reflection.map_or_else(Vec::new, |reflection| needs(&reflection)),
        ..Row::default()
    };
    let problems = kernel.bench().into_iter().chain(kernel.cases());
    let shapes = problems.map(|problem| problem.shape);
    let runs = |shape: &Shape| variant.unsupported(shape, &generous).is_none();
    let shapes: Vec<_> = shapes.filter(runs).collect();
    for profile in profiles {
        let (name, of) = (profile.name, shapes.len());
        let mut fit = Fit { profile: name, shapes: 0, of, reasons: Vec::new() };
        for shape in &shapes {
            match Plan::of(kernel, variant, shape, &profile.caps) {
                Ok(plan) => {
                    fit.shapes += 1;
                    row.add(&plan);
                }
                Err(e) => {
                    let reason = e.to_string();
                    if !fit.reasons.contains(&reason) {
                        fit.reasons.push(reason);
                    }
                }
            }
        }
        row.fits.push(fit);
    }
    row
}

impl Row {
    /// Counts the resources of a plan's dispatches.
    fn add(&mut self, plan: &Plan) {
        for stage in &plan.stages {
            let code = &stage.code;
            let buffers = code.reflection.entry(&stage.entry).map_or(0, |e| e.buffers.len());
            let workgroup = code.reflection.workgroup(&stage.entry, &code.constants);
            let (memory, invocations) = workgroup.unwrap_or_default();
            self.storage_buffers = self.storage_buffers.max(buffers);
            self.workgroup_memory = self.workgroup_memory.max(memory);
            self.invocations = self.invocations.max(invocations);
        }
    }
}

fn print(profiles: &[Profile], rows: &[Row], is_file: bool) {
    // Demands of a row and who meets them are two tables: one alone is too wide for a terminal.
    let first = if is_file { "entry" } else { "kernel, variant" };
    let mut asks = table::table(&[first, "buffers", "memory", "invocations", "needs"], &[1, 2, 3]);
    let header = [first].into_iter().chain(profiles.iter().map(|profile| profile.name));
    let mut fits = table::table(&header.collect::<Vec<_>>(), &[]);
    let mut kernel = "";
    for row in rows {
        let name = match row.name.split_once('/').filter(|_| !is_file) {
            Some((own, variant)) => {
                if own != kernel {
                    kernel = own;
                    asks.add_row([own, "", "", "", ""]);
                    fits.add_row([own].into_iter().chain(row.fits.iter().map(|_| "")));
                }
                // One blank: the longest name fits so.
                format!(" {variant}")
            }
            None => row.name.clone(),
        };
        // In short, for the table to be narrow.
        let needs = row.needs.iter().filter_map(|need| need.rsplit([' ', '-']).next());
        let needs = needs.collect::<Vec<_>>().join("\n");
        let needs = if needs.is_empty() { "-".into() } else { needs };
        // Of what fits nowhere nobody knows what it would take.
        let known = |text: String| if row.invocations == 0 { "-".to_owned() } else { text };
        asks.add_row([
            name.clone(),
            known(row.storage_buffers.to_string()),
            known(bytes(row.workgroup_memory.into())),
            known(row.invocations.to_string()),
            needs,
        ]);
        fits.add_row([name].into_iter().chain(row.fits.iter().map(Fit::text)));
    }
    out::fitted(fits);
    outln!();
    out::fitted(asks);
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
            bytes(caps.workgroup_memory.into()),
            caps.invocations,
            if caps.f16 { "f16" } else { "no f16" },
        );
        for source in profile.sources {
            outln!("  {source}");
        }
    }
}
