//! `lathe bench`: GPU time, cold and warm, against the measured copy bandwidth.

mod axes;
mod decode;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use lathe_harness::data::record::{Bench, BenchCase, Body, Environment, Record, StageTiming};
use lathe_harness::data::row::{self, Run};
use lathe_harness::error::{Error, Result};
use lathe_harness::measure::{BenchOptions, Outcome, Session};
use lathe_harness::plan::select::{Hints, select};
use lathe_harness::plan::tuned::{Store, Tuned};
use lathe_harness::plan::{Plan, PlanError, Subject};
use lathe_kernels::Problem;

use super::Global;
use super::out;
use super::processes::Processes;
use super::table;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal.
    Table,
    /// The same, for a Markdown page.
    Md,
    /// One document.
    Json,
    /// Comma-separated rows, as `lathe merge` keeps them.
    Csv,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Opts {
    #[command(subcommand)]
    whole: Option<Whole>,
    #[command(flatten)]
    kernels: KernelOpts,
}

#[derive(Debug, Subcommand)]
enum Whole {
    /// Prompts and generation with a checkpoint: llama-bench's tests
    Decode(decode::Opts),
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    match &opts.whole {
        Some(Whole::Decode(opts)) => decode::run(global, opts),
        None => kernels(global, &opts.kernels),
    }
}

#[derive(Debug, Args)]
struct KernelOpts {
    /// KERNEL or KERNEL/VARIANT; all without
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Of every shape only the variant that decoding would select
    #[arg(long, conflicts_with = "wgsl")]
    selected: bool,
    /// With --selected: leave tuned choices out
    #[arg(long, requires = "selected")]
    untuned: bool,
    /// Only the first of a kernel's benchmark shapes
    #[arg(long, conflicts_with = "shape")]
    first: bool,
    /// Time invocations that overlap too, each with its own outputs
    #[arg(long)]
    overlapped: bool,
    /// Where an invocation is several dispatches, time each of them alone too
    #[arg(long)]
    stages: bool,
    /// Shapes of one kernel instead of its benchmark shapes, such as ROWS=1152,K=6912, with lists
    /// (ROWS=[64,128]) and ranges (K=64..=1024*2, K=64..=256+64); what is not named keeps the
    /// kernel's default, or is what a file takes
    #[arg(long)]
    shape: Option<String>,
    /// A WGSL file with the bindings of KERNEL/VARIANT, timed in that variant's place
    #[arg(long, visible_alias = "mapping", value_name = "FILE")]
    wgsl: Option<PathBuf>,
    /// Time a file that is right for --shape alone: it is not checked on others, and the result
    /// says so
    #[arg(long, requires = "shape")]
    one_shape: bool,
    /// Run again whenever your file is saved, its TOML, or what that one names
    #[arg(long, conflicts_with = "processes")]
    watch: bool,
    #[command(flatten)]
    processes: Processes,
    /// Draw inputs from this seed, and not from a new one
    #[arg(long)]
    seed: Option<u64>,
    /// How to print results
    #[arg(long, default_value = "table")]
    format: Format,
    /// Save the run as a record; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Let a software adapter save records
    #[arg(long)]
    allow_software: bool,
}

fn kernels(global: &Global, opts: &KernelOpts) -> Result<()> {
    let watched = super::watched(global, opts.watch, opts.wgsl.as_deref())?;
    if opts.one_shape && opts.wgsl.is_none() {
        return Err(Error::Usage("--one-shape needs a file of yours: --wgsl FILE".into()));
    }
    let gpu = Arc::new(global.open()?);
    let allowed = opts.save.is_none() || opts.allow_software;
    super::refuse_software(&gpu, allowed, "a speed record", "saves")?;
    super::refuse_overwriting(opts.save.as_ref())?;
    if let Some(record) = opts.processes.record()? {
        return super::save_and_print(&record, opts.save.as_deref(), || {
            print(&record, if global.json { Format::Json } else { opts.format });
        });
    }
    let session = &mut Session::new(&gpu)?;
    session.options.seed = opts.seed.unwrap_or(session.options.seed);
    session.options.overlapped = opts.overlapped;
    session.options.stages = opts.stages;
    super::watch(watched, || once(global, opts, session))
}

fn once(global: &Global, opts: &KernelOpts, session: &mut Session) -> Result<()> {
    let mut named = Vec::new();
    for target in &opts.targets {
        named.extend(super::named(Some(target))?);
    }
    if opts.targets.is_empty() {
        named = super::named(None)?;
    }
    if opts.wgsl.is_some() && named.len() != 1 {
        return Err(Error::Usage("--wgsl needs a KERNEL".into()));
    }
    if opts.shape.is_some() && named.iter().any(|(kernel, ..)| kernel.name != named[0].0.name) {
        return Err(Error::Usage("--shape needs a KERNEL, or variants of one".into()));
    }
    let tuned = match opts.selected && !opts.untuned {
        true => Store::read(&Store::default_path())?.of(&session.gpu.place()),
        false => Tuned::default(),
    };
    let tuned = opts.selected.then_some(tuned);
    let (mut planned, mut unavailable) = (Vec::new(), Vec::new());
    for (kernel, variants) in named {
        // A file stands in the place of one variant.
        let mut subjects: Vec<_> = match &opts.wgsl {
            Some(file) => vec![super::compiled(kernel, variants[0], file)?],
            None => variants.into_iter().map(|v| Subject::of(kernel, v)).collect(),
        };
        let problems = match &opts.shape {
            Some(text) => {
                let problems = super::shapes::all(kernel, text)?;
                super::shapes::filled(problems, text, &subjects[0], &session.gpu.caps)?
            }
            None if opts.first => vec![kernel.default_problem()],
            None => kernel.bench(),
        };
        for subject in &mut subjects {
            subject.one_shape = opts.one_shape;
            super::check_others(&session.gpu, subject, &problems)?;
        }
        for problem in problems {
            let plans = plans(session, tuned.as_ref(), &subjects, &problem, &mut unavailable)?;
            planned.extend(plans.into_iter().map(|plan| (plan, problem.clone())));
        }
    }
    let count = planned.len();
    if let Some(what) = what_comes(count, &session.options) {
        eprintln!("lathe: {what}");
    }
    let bar = global.progress(count as u64, "timing", false);
    let (bench, left_out) = session.measure_all(planned, &mut |session, name, outcome| {
        bar.inc(1);
        match outcome {
            Outcome::Unavailable => {}
            Outcome::Failed(reason) => {
                bar.suspend(|| eprintln!("FAILED {}", out::escaped(reason)));
            }
            Outcome::Measured(case, bench) => {
                let us = table::micros(case.cold.median_us);
                bar.suspend(|| eprintln!("{us:>9}  {name}"));
                // A run that is cut short leaves what it had.
                if let Some(path) = &opts.save {
                    let record = record(session, bench.clone());
                    match bench.cases.len() {
                        1 => record.write(path)?,
                        _ => record.rewrite(path)?,
                    }
                }
            }
        }
        Ok(())
    })?;
    unavailable.extend(left_out);
    bar.finish_and_clear();
    for line in &unavailable {
        eprintln!("unavailable {line}");
    }
    let (measured, failed) = (bench.cases.len(), bench.failed.len());
    if measured + failed == 0 {
        return Err(Error::Unavailable {
            what: match opts.targets.is_empty() {
                true => "every variant".into(),
                false => opts.targets.join(", "),
            },
            adapter: session.gpu.adapter.name.clone(),
            reason: unavailable.join("; "),
        });
    }
    let record = record(session, bench);
    if let Some(path) = &opts.save {
        match measured {
            0 => record.write(path)?,
            _ => record.rewrite(path)?,
        }
        eprintln!("saved {}", path.display());
    }
    print(&record, if global.json { Format::Json } else { opts.format });
    match failed {
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!(
            "{n} of {} cases gave no result, see FAILED above",
            n + measured
        ))),
    }
}

/// Plans of a problem: of each variant or file, or of what decoding would take of these. Why others
/// cannot run here is added to `unavailable`.
fn plans(
    session: &Session,
    tuned: Option<&Tuned>,
    subjects: &[Subject],
    problem: &Problem,
    unavailable: &mut Vec<String>,
) -> Result<Vec<Plan>> {
    let (caps, shape, kernel) = (&session.gpu.caps, &problem.shape, subjects[0].kernel);
    if let Some(tuned) = tuned {
        let selection = select(kernel, shape, caps, &Hints::new(), Some(tuned))
            .map_err(|e| Error::Usage(e.to_string()))?;
        tracing::info!("{} {}: {}", kernel.name, selection.plan.variant, selection.why);
        let is_asked = subjects.iter().any(|s| s.variant.name == selection.plan.variant);
        return Ok(Vec::from_iter(is_asked.then_some(selection.plan)));
    }
    let mut plans = Vec::new();
    for subject in subjects {
        match subject.plan(problem, caps) {
            Ok(plan) => plans.push(plan),
            Err(PlanError::Unavailable(reason)) => {
                let (name, text) = (subject.variant.name, kernel.show_brief(problem));
                unavailable.push(format!("{}/{name} {text}: {reason}", kernel.name));
            }
            Err(e) => return Err(e.into_usage()),
        }
    }
    Ok(plans)
}

/// How many cases come and how long they take at most, where that is long enough to be asked.
fn what_comes(cases: usize, options: &BenchOptions) -> Option<String> {
    /// Seconds that nobody asks about.
    const SHORT: f64 = 10.0;
    // Cold and warm, and overlapped where asked for, each until the median is known or for so
    // long; compiling and the reference come on top.
    let timings = 2.0 + f64::from(u8::from(options.overlapped));
    let seconds = cases as f64 * timings * options.time_out.as_secs_f64();
    if seconds < SHORT {
        return None;
    }
    let most = humantime::format_duration(Duration::from_secs(seconds.ceil() as u64));
    let less = if cases > 20 { "; --first takes one shape a kernel" } else { "" };
    Some(format!("{cases} cases, up to {most} of timing and what compiling takes{less}"))
}

fn record(session: &Session, bench: Bench) -> Record {
    Record::new(session.environment(), Body::Bench(bench))
}

fn print(record: &Record, format: Format) {
    let Body::Bench(Bench { cases, .. }) = &record.body else { return };
    let environment = &record.environment;
    let copy_gb_s = environment.copy_gb_s.unwrap_or(f64::NAN);
    match format {
        Format::Json => out::document(record),
        Format::Csv => match row::table(&[Run::of("run", record)]) {
            Ok((rows, _)) => out::text(&String::from_utf8_lossy(&rows)),
            Err(e) => out::end(&std::io::Error::other(e.to_string())),
        },
        Format::Table | Format::Md => {
            for cases in cases.chunk_by(|a, b| a.kernel == b.kernel) {
                print_kernel(cases, environment, format);
            }
            let over = match environment.processes {
                Some(n) => format!("± half the 95 % interval of the mean of {n} processes"),
                None => "± half the median's 95 % interval within one run, which says less than \
                         --processes"
                    .into(),
            };
            outln!(
                "{}: copy {copy_gb_s:.0} GB/s (read + write), read bandwidth {}; dependent launches, \
                 medians, {over}; run-time checks of built-in kernels {}; canary drift {:.1} %",
                environment.adapter,
                environment.read_gb_s.map_or("not measured".into(), |gb_s| format!("{gb_s:.0}")),
                if environment.runtime_checks == "on" { "on" } else { "off" },
                100.0 * environment.canary_drift.unwrap_or(0.0)
            );
            if let (Some(step), Some(cache)) =
                (environment.timestamp_quantum_ns, environment.cache_bytes)
            {
                outln!(
                    "timestamp resolution {step:.0} ns; last-level cache {}",
                    match cache {
                        0 => "not measured".to_owned(),
                        bytes => format!("about {}", table::bytes(bytes)),
                    }
                );
            }
            if record.environment.software {
                outln!("A software adapter: these times say nothing about a GPU.");
            }
        }
    }
}

/// Prints the cases of a kernel, under a heading with all that they have in common.
fn print_kernel(cases: &[BenchCase], environment: &Environment, format: Format) {
    let kernel = &cases[0].kernel;
    let shapes: Vec<String> =
        cases.iter().map(|case| super::shapes::brief(kernel, &case.shape)).collect();
    let common: Vec<&str> = shapes[0]
        .split(',')
        .filter(|part| shapes.iter().all(|s| s.split(',').any(|p| p == *part)))
        .collect();
    let own = |shape: &str| -> String {
        shape.split(',').filter(|part| !common.contains(part)).collect::<Vec<_>>().join(",")
    };
    let several = shapes.iter().any(|shape| !own(shape).is_empty());
    let overlapped = cases.iter().any(|c| c.overlapped.is_some());
    let best_gb_s =
        environment.copy_gb_s.unwrap_or(f64::NAN).max(environment.read_gb_s.unwrap_or(0.0));
    let floor = |c: &BenchCase| table::micros(c.bytes / best_gb_s / 1e3);
    let mut header = Vec::new();
    if several {
        header.push("shape");
    }
    header.push("variant");
    let text = header.len();
    if several {
        header.push("floor");
    }
    header.extend(["cold", "±", "warm", "GB/s", "% of copy", "TFLOP/s"]);
    if overlapped {
        header.push("overlapped");
    }
    let numbers: Vec<usize> = (text..header.len()).collect();
    let mut t = table::table(&header, &numbers);
    // What a case has that no column is for.
    let mut notes = Vec::new();
    for (c, shape) in cases.iter().zip(&shapes) {
        let mut row = Vec::new();
        if several {
            row.push(own(shape));
        }
        row.push(c.variant.clone());
        if several {
            row.push(floor(c));
        }
        row.extend([
            table::micros(c.cold.median_us),
            format!("{:.1} %", 100.0 * c.cold.noise),
            table::micros(c.warm.median_us),
            format!("{:.0}", c.gb_s),
            format!("{:.1} %", 100.0 * c.fraction_of_copy),
            tflop_s(c.tflop_s),
        ]);
        if overlapped {
            let us = c.overlapped.as_ref().map(|t| t.median_us);
            row.push(us.map(table::micros).unwrap_or_default());
        }
        t.add_row(row);
        let name = [c.variant.clone(), own(shape)].join(" ");
        let stage = |s: &StageTiming| match &s.cold {
            Some(timing) => format!("{} {}", s.entry, table::micros(timing.median_us)),
            None => format!("{} no time (it does something else when repeated)", s.entry),
        };
        let stages: Vec<_> = c.stages.iter().map(stage).collect();
        if !stages.is_empty() {
            notes.push(format!("{}: each dispatch alone: {}", name.trim_end(), stages.join(", ")));
        }
        if !c.flags.is_empty() {
            let flags: Vec<_> = c.flags.iter().map(ToString::to_string).collect();
            notes.push(format!("{}: {}", name.trim_end(), flags.join(", ")));
        }
    }
    let mut heading = format!("{kernel} {}", common.join(",")).trim_end().to_owned();
    if !several {
        heading.push_str(&format!("; floor {}", floor(&cases[0])));
    }
    outln!("{heading}");
    // A list of lines ends a Markdown table only after an empty one.
    let between = if format == Format::Md { "\n" } else { "" };
    match format {
        Format::Md => outln!("\n{t}"),
        _ => out::table(t),
    }
    for note in notes {
        outln!("{between}{note}");
    }
    outln!();
}

/// Three digits: from a tensor core's hundreds to what a vector kernel does on the side.
fn tflop_s(t: f64) -> String {
    match t {
        t if t >= 99.95 => format!("{t:.0}"),
        t if t >= 9.995 => format!("{t:.1}"),
        t => format!("{t:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_says_so_first() {
        let mut options = BenchOptions {
            rotate_bytes: 1,
            sample: Duration::from_millis(2),
            noise: 0.002,
            time_out: Duration::from_secs(3),
            samples: 25,
            overlapped: false,
            stages: false,
            seed: 1,
        };
        assert_eq!(what_comes(1, &options), None);
        let twelve = "12 cases, up to 1m 12s of timing and what compiling takes";
        assert_eq!(what_comes(12, &options).as_deref(), Some(twelve));
        options.overlapped = true;
        let said = what_comes(200, &options).unwrap_or_default();
        assert!(
            said.starts_with("200 cases, up to 30m of") && said.ends_with("one shape a kernel")
        );
    }
}
