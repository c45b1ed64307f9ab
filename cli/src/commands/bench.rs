//! `lathe bench`: GPU time, cold and warm, against the measured copy bandwidth.

mod decode;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use lathe_harness::data::record::{Bench, BenchCase, Body, Environment, Record};
use lathe_harness::error::{Error, Result};
use lathe_harness::measure::{Outcome, Request, Session};
use lathe_harness::plan::shapes::brief;
use lathe_harness::plan::tuned::{Store, Tuned};

use crate::global::Global;
use crate::processes::Processes;
use crate::saved::Saved;
use crate::wgsl::{WgslOpts, watch};
use crate::{out, table};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Opts {
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

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
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
    /// Only the variant that decoding would select for each shape
    #[arg(long, conflicts_with = "wgsl")]
    selected: bool,
    /// With --selected: leave tuned choices out
    #[arg(long, requires = "selected")]
    untuned: bool,
    /// Only the first of a kernel's benchmark shapes
    #[arg(long, conflicts_with = "shape")]
    first: bool,
    #[command(flatten)]
    wgsl: WgslOpts,
    #[command(flatten)]
    processes: Processes,
    /// Draw inputs from this seed, and not from a new one
    #[arg(long)]
    seed: Option<u64>,
    /// Save the run as a record; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Let a software adapter save records
    #[arg(long)]
    allow_software: bool,
}

fn kernels(global: &Global, opts: &KernelOpts) -> Result<()> {
    let watched = opts.wgsl.watched(global)?;
    if opts.wgsl.watch && opts.processes.is_asked() {
        return Err(Error::Usage("--watch does not go with --processes".into()));
    }
    let gpu = Arc::new(global.open()?);
    let saved = || Saved::of_speed(opts.save.as_deref(), &gpu, opts.allow_software);
    saved()?;
    if let Some(record) = opts.processes.record()? {
        return saved()?.end(global, &record, || print(&record));
    }
    let session = &mut Session::new(&gpu)?;
    session.options.seed = opts.seed.unwrap_or(session.options.seed);
    watch(watched, || once(global, opts, session, saved()?))
}

fn once(
    global: &Global,
    opts: &KernelOpts,
    session: &mut Session,
    mut saved: Saved<'_>,
) -> Result<()> {
    let targets = opts.wgsl.targets(&opts.targets)?;
    let tuned = match opts.selected && !opts.untuned {
        true => Store::read(&Store::default_path())?.of(&session.gpu.platform()),
        false => Tuned::default(),
    };
    let request = Request {
        targets: &targets,
        shape: opts.wgsl.shape(&targets)?,
        first: opts.first,
        selected: opts.selected.then_some(&tuned),
    };
    let (planned, mut unavailable) = session.plan(&request)?;
    let count = planned.len();
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
                saved.keep(|| record(session, bench.clone()))?;
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
    saved.end(global, &record, || print(&record))?;
    match failed {
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!(
            "{n} of {} cases gave no result, see FAILED above",
            n + measured
        ))),
    }
}

fn record(session: &Session, bench: Bench) -> Record {
    Record::new(session.environment(), Body::Bench(bench))
}

fn print(record: &Record) {
    let Body::Bench(Bench { cases, .. }) = &record.body else { return };
    let environment = &record.environment;
    for cases in cases.chunk_by(|a, b| a.kernel == b.kernel) {
        print_kernel(cases, environment);
    }
    let over = match environment.processes {
        Some(n) => format!("± half the 95 % interval of the mean of {n} processes"),
        None => "± half the median's 95 % interval within one run, which says less than \
                 --processes"
            .into(),
    };
    outln!(
        "{}: copy {:.0} GB/s (read + write), read bandwidth {}; dependent launches, medians, \
         {over}; run-time checks of built-in kernels {}; canary drift {:.1} %",
        environment.adapter,
        environment.copy_gb_s.unwrap_or(f64::NAN),
        environment.read_gb_s.map_or("not measured".into(), |gb_s| format!("{gb_s:.0}")),
        if environment.runtime_checks == "on" { "on" } else { "off" },
        100.0 * environment.canary_drift.unwrap_or(0.0)
    );
    if let (Some(step), Some(cache)) = (environment.timestamp_quantum_ns, environment.cache_bytes) {
        outln!(
            "timestamp resolution {step:.0} ns; last-level cache {}",
            match cache {
                0 => "not measured".to_owned(),
                bytes => format!("about {}", table::bytes(bytes)),
            }
        );
    }
    if environment.software {
        outln!("A software adapter: these times say nothing about a GPU.");
    }
}

/// Prints the cases of a kernel, under a heading with all that they have in common.
fn print_kernel(cases: &[BenchCase], environment: &Environment) {
    let kernel = &cases[0].kernel;
    let shapes: Vec<String> = cases.iter().map(|case| brief(kernel, &case.shape)).collect();
    let common: Vec<&str> = shapes[0]
        .split(',')
        .filter(|part| shapes.iter().all(|s| s.split(',').any(|p| p == *part)))
        .collect();
    let own = |shape: &str| -> String {
        shape.split(',').filter(|part| !common.contains(part)).collect::<Vec<_>>().join(",")
    };
    let several = shapes.iter().any(|shape| !own(shape).is_empty());
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
        t.add_row(row);
        let name = [c.variant.clone(), own(shape)].join(" ");
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
    out::table(t);
    for note in notes {
        outln!("{note}");
    }
    outln!();
}

/// A rate in three digits, from a tensor core's hundreds down to a vector kernel's fractions.
fn tflop_s(t: f64) -> String {
    match t {
        t if t >= 99.95 => format!("{t:.0}"),
        t if t >= 9.995 => format!("{t:.1}"),
        t => format!("{t:.2}"),
    }
}
