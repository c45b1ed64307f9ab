//! `lathe validate --limits`: which adapters a text fits that are not here.

use std::path::Path;

use lathe_harness::data::bytes;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::limits::{Profile, lacking, profiles};
use lathe_harness::plan::target::{Target, meant};
use lathe_harness::plan::user::{Operation, UserKernel, reflected};
use lathe_harness::plan::{Plan, PlanError, backend_text};
use lathe_kernels::{Capabilities, Kernel, KernelVariant, Shape};
use serde::Serialize;

use super::{Opts, settings};
use crate::table;
use crate::{Global, out};

/// What a profile is named in [`Opts::limits`] that stands for all.
const ALL: &str = "all";

#[derive(Serialize)]
struct Report {
    profiles: Vec<ProfileLine>,
    /// Entry points of a file, or variants.
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct ProfileLine {
    #[serde(flatten)]
    profile: Profile,
    storage_buffers: u32,
    workgroup_memory: u32,
    invocations: u32,
    subgroup_size: Option<(u32, u32)>,
    f16: bool,
}

/// What an entry point or a variant asks, and who offers it.
#[derive(Default, Serialize)]
struct Row {
    name: String,
    /// Largest of its entry points, at the shape that needs most.
    storage_buffers: usize,
    workgroup_memory: u32,
    invocations: u32,
    needs: Vec<&'static str>,
    /// One entry a profile.
    fits: Vec<Fit>,
}

/// How far something fits an adapter.
#[derive(Serialize)]
struct Fit {
    profile: &'static str,
    /// Shapes that run; of a file it is one.
    shapes: usize,
    of: usize,
    /// Why others do not, each reason once.
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

    fn add(&mut self, reason: String) {
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }
}

pub(super) fn run(global: &Global, opts: &Opts, file: Option<&Path>) -> Result<()> {
    let profiles = asked(&opts.limits)?;
    let rows = match file {
        Some(file) => of_file(opts, file, &profiles)?,
        None => {
            let mut rows = Vec::new();
            for Target { kernel, variants, .. } in Target::parse(opts.target.as_deref())? {
                for variant in variants {
                    rows.push(of_variant(kernel, variant, &profiles));
                }
            }
            rows
        }
    };
    let line = |profile: Profile| ProfileLine {
        storage_buffers: profile.caps.storage_buffers,
        workgroup_memory: profile.caps.workgroup_memory,
        invocations: profile.caps.invocations,
        subgroup_size: profile.caps.subgroup,
        f16: profile.caps.f16,
        profile,
    };
    let report = Report { profiles: profiles.into_iter().map(line).collect(), rows };
    global.print(&report, || print(&report, file.is_some()));
    let misfits = report.rows.iter().filter(|row| row.fits.iter().any(|fit| fit.shapes == 0));
    match (file, misfits.count()) {
        // Of the built-in ones every kernel has a variant that fits; a file is alone.
        (None, _) | (_, 0) => Ok(()),
        (Some(file), n) => {
            let what = if n == 1 { "1 entry point does" } else { &format!("{n} entry points do") };
            let file = file.display();
            Err(Error::CheckFailed(format!("{file}: {what} not fit all of these")))
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

/// The features that a text needs.
fn needs(reflection: &lathe_kernels::Reflection) -> Vec<&'static str> {
    let mut needs = Vec::new();
    needs.extend(reflection.needs_subgroup.then_some("subgroups"));
    needs.extend(reflection.needs_f16.then_some("f16"));
    needs.extend((!reflection.needs_cooperative_matrix.is_empty()).then_some("matrices"));
    needs
}

/// A row for each entry point of a file.
fn of_file(opts: &Opts, path: &Path, profiles: &[Profile]) -> Result<Vec<Row>> {
    let shown = path.display().to_string();
    if path.extension().is_some_and(|e| e == "toml") {
        return of_operation(path, profiles).map(|row| vec![row]);
    }
    let (_, reflection) = reflected(path).map_err(PlanError::into_usage)?;
    let constants = settings(&reflection, &opts.set, &shown)?;
    if reflection.entries.is_empty() {
        return Err(Error::CheckFailed(format!("{shown}: has no entry point")));
    }
    let mut rows = Vec::new();
    for entry in &reflection.entries {
        let workgroup = reflection
            .workgroup(&entry.name, &constants)
            .map_err(|e| Error::CheckFailed(format!("{shown}: {}: {e}", entry.name)))?;
        let fit = |profile: &Profile| {
            let reasons = lacking(&reflection, &entry.name, workgroup, &profile.caps);
            Fit { profile: profile.name, shapes: usize::from(reasons.is_empty()), of: 1, reasons }
        };
        rows.push(Row {
            name: entry.name.clone(),
            storage_buffers: entry.buffers.len(),
            workgroup_memory: workgroup.0,
            invocations: workgroup.1,
            needs: needs(&reflection),
            fits: profiles.iter().map(fit).collect(),
        });
    }
    Ok(rows)
}

/// A variant over its kernel's shapes: of those that it can run anywhere, how many run there, with
/// the constants that it takes there.
fn of_variant(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    profiles: &[Profile],
) -> Row {
    let generous = backend_text::generous();
    let name = format!("{}/{}", kernel.name, variant.name);
    let needs = lathe_kernels::reflection(kernel.name, variant.name)
        .map_or_else(Vec::new, |reflection| needs(&reflection));
    let shapes: Vec<_> = kernel
        .bench()
        .into_iter()
        .chain(kernel.cases())
        .map(|problem| problem.shape)
        .filter(|shape| variant.unsupported(shape, &generous).is_none())
        .collect();
    let plan = |shape: &Shape, caps: &Capabilities| Plan::of(kernel, variant, shape, caps);
    row(name, needs, &shapes, profiles, plan)
}

/// A user's operation over the shapes of its golden file.
fn of_operation(path: &Path, profiles: &[Profile]) -> Result<Row> {
    let operation = Operation::read(path).map_err(PlanError::into_usage)?;
    let file = UserKernel::of(path, &operation).map_err(PlanError::into_usage)?;
    let variant = &operation.kernel.variants[0];
    let shapes: Vec<_> = operation.kernel.cases().into_iter().map(|p| p.shape).collect();
    let mut all = Vec::new();
    for shape in &shapes {
        if let Ok(plan) = file.plan_of_step(variant, shape, &backend_text::generous()) {
            all.extend(plan.stages.iter().flat_map(|stage| needs(plan.code(stage).reflection)));
        }
    }
    all.sort_unstable();
    all.dedup();
    let name = path.display().to_string();
    Ok(row(name, all, &shapes, profiles, |shape, caps| file.plan_of_step(variant, shape, caps)))
}

/// Of some shapes as many as each profile runs, and why not the others.
fn row(
    name: String,
    needs: Vec<&'static str>,
    shapes: &[Shape],
    profiles: &[Profile],
    plan: impl Fn(&Shape, &Capabilities) -> Result<Plan, PlanError>,
) -> Row {
    let mut row = Row { name, needs, ..Row::default() };
    for profile in profiles {
        let mut fit =
            Fit { profile: profile.name, shapes: 0, of: shapes.len(), reasons: Vec::new() };
        for shape in shapes {
            match plan(shape, &profile.caps) {
                Ok(plan) => {
                    fit.shapes += 1;
                    for stage in &plan.stages {
                        let code = plan.code(stage);
                        let entry = code.reflection.entry(&stage.entry);
                        let buffers = entry.map_or(0, |entry| entry.buffers.len());
                        row.storage_buffers = row.storage_buffers.max(buffers);
                        let workgroup = code.reflection.workgroup(&stage.entry, code.constants);
                        let (memory, invocations) = workgroup.unwrap_or_default();
                        row.workgroup_memory = row.workgroup_memory.max(memory);
                        row.invocations = row.invocations.max(invocations);
                    }
                }
                Err(PlanError::Unavailable(reason)) => fit.add(reason),
                Err(e) => fit.add(e.to_string()),
            }
        }
        row.fits.push(fit);
    }
    row
}

fn print(report: &Report, is_file: bool) {
    // What a row asks and who offers it are two tables: one alone is too wide for a terminal.
    let first = if is_file { "entry" } else { "kernel, variant" };
    let mut asks = table::table(&[first, "buffers", "memory", "invocations", "needs"], &[1, 2, 3]);
    let header = [first].into_iter().chain(report.profiles.iter().map(|line| line.profile.name));
    let mut fits = table::table(&header.collect::<Vec<_>>(), &[]);
    let mut kernel = "";
    for row in &report.rows {
        let name = match row.name.split_once('/').filter(|_| !is_file) {
            Some((own, variant)) => {
                if own != kernel {
                    kernel = own;
                    asks.add_row(vec![own, "", "", "", ""]);
                    fits.add_row([own].into_iter().chain(row.fits.iter().map(|_| "")));
                }
                // One blank: the longest name fits so.
                format!(" {variant}")
            }
            None => row.name.clone(),
        };
        // Of what fits nowhere nobody knows what it would take.
        let known = |text: String| if row.invocations == 0 { "-".to_owned() } else { text };
        asks.add_row(vec![
            name.clone(),
            known(row.storage_buffers.to_string()),
            known(bytes(row.workgroup_memory.into())),
            known(row.invocations.to_string()),
            if row.needs.is_empty() { "-".into() } else { row.needs.join("\n") },
        ]);
        fits.add_row([name].into_iter().chain(row.fits.iter().map(Fit::text)));
    }
    out::fitted(fits);
    outln!();
    out::fitted(asks);
    for row in &report.rows {
        for fit in &row.fits {
            for reason in &fit.reasons {
                outln!("{} on {}: {reason}", row.name, fit.profile);
            }
        }
    }
    for line in &report.profiles {
        let ProfileLine { profile, .. } = line;
        let subgroups = line.subgroup_size.map_or_else(
            || "no subgroups".into(),
            |(min, max)| format!("subgroups of {min} to {max}"),
        );
        outln!(
            "{}: {}; {} storage buffers, {} of workgroup memory, {} invocations, {subgroups}, {}",
            profile.name,
            profile.what,
            line.storage_buffers,
            bytes(line.workgroup_memory.into()),
            line.invocations,
            if line.f16 { "f16" } else { "no f16" },
        );
        for source in profile.sources {
            outln!("  {source}");
        }
    }
}
