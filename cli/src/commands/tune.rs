//! `lathe tune`: a checked search for the fastest variant and constants.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lathe_harness::data::Ratio;
use lathe_harness::data::processes::CLAIM;
use lathe_harness::decode::Model;
use lathe_harness::error::{Error, Result};
use lathe_harness::measure::tune::{Answer, Candidate, Found, Request, Trials, TuneOptions, tune};
use lathe_harness::plan::shapes;
use lathe_harness::plan::target::Target;
use lathe_harness::plan::tuned::Store;
use lathe_kernels::Problem;
use serde::Serialize;

use crate::args;
use crate::global::Global;
use crate::out;
use crate::processes::program;
use crate::saved::refuse_software;
use crate::table;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// KERNEL or KERNEL/VARIANT; with --model, only that one's shapes
    kernel: Option<String>,
    /// Shapes; what is not named keeps the kernel's default. Lists and ranges as for `bench`
    #[arg(long)]
    shape: Option<String>,
    /// Tune every kernel and shape that decoding this file needs
    #[arg(long, value_name = "FILE", conflicts_with = "shape")]
    model: Option<PathBuf>,
    /// Show stored choices and do nothing
    #[arg(long)]
    show: bool,
    /// A WGSL file among the candidates, in the place of VARIANT (else of the first); may be
    /// repeated. It is never stored
    #[arg(long, value_name = "[VARIANT=]FILE")]
    candidate: Vec<String>,
    /// Seconds a candidate may take
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    time_out: f64,
    /// Seconds after which no further candidate of a shape is checked
    #[arg(long, default_value_t = 3600.0, value_name = "SECONDS")]
    within: f64,
    /// Fresh processes in each of which the winner has to be faster, at least 3
    #[arg(long, default_value_t = CLAIM, value_name = "N", value_parser = args::within::<CLAIM, 100>)]
    processes: usize,
    /// File of stored choices (also LATHE_TUNED)
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Let a software adapter be tuned
    #[arg(long)]
    allow_software: bool,
}

/// The child process that tries candidates.
#[derive(Debug, Args)]
pub(crate) struct CandidatesOpts {
    kernel: String,
    shape: String,
}

#[derive(Serialize)]
struct Report {
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    store: PathBuf,
    found: Vec<Found>,
}

/// Answers requests from stdin on stdout, one a line.
pub(crate) fn candidates(global: &Global, opts: &CandidatesOpts) -> Result<()> {
    let kernel = Target::one(&opts.kernel)?.kernel;
    let problem = shapes::one(kernel, Some(&opts.shape))?;
    let mut trials = Trials::new(Arc::new(global.open()?), kernel, problem);
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| Error::Usage(format!("candidates on stdin: {e}")))?;
        let request: Request =
            serde_json::from_str(&line).map_err(|e| Error::Usage(format!("{line}: {e}")))?;
        let answer = trials.answer(&request)?;
        outln!("{}", serde_json::to_string(&answer).map_err(|e| Error::Usage(e.to_string()))?);
        if matches!(answer, Answer::Rejected { alive: false, .. }) {
            break;
        }
    }
    Ok(())
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    for (name, value) in [("--time-out", opts.time_out), ("--within", opts.within)] {
        if !value.is_finite() || value < 0.0 {
            return Err(Error::Usage(format!("{name} {value}")));
        }
    }
    let path = opts.store.clone().unwrap_or_else(Store::default_path);
    if opts.show {
        return show(global, &Store::read(&path)?);
    }
    let gpu = Arc::new(global.open()?);
    refuse_software(&gpu, opts.allow_software, "tuning", "tunes")?;
    if opts.kernel.is_none() && !opts.candidate.is_empty() {
        return Err(Error::Usage("--candidate goes with a KERNEL".into()));
    }
    let mut work: Vec<(Target, Problem)> = Vec::new();
    match (&opts.kernel, &opts.model) {
        (Some(name), None) => {
            let target = Target::one(name)?;
            let problems = shapes::all(target.kernel, opts.shape.as_deref().unwrap_or_default())?;
            work.extend(problems.into_iter().map(|problem| (target.clone(), problem)));
        }
        (name, Some(model)) => {
            let targets = Target::parse(name.as_deref())?;
            for (kernel, problem) in Model::open(model)?.problems(&gpu.caps)? {
                let target = targets.iter().find(|target| target.kernel.name == kernel.name);
                work.extend(target.map(|target| (target.clone(), problem)));
            }
        }
        (None, None) => return Err(Error::Usage("give a KERNEL or --model FILE".into())),
    }
    let mut store = Store::read(&path)?;
    let mut options = TuneOptions {
        time_out: Duration::from_secs_f64(opts.time_out.clamp(0.1, 3600.0)),
        processes: opts.processes,
        files: Vec::new(),
        within: Duration::from_secs_f64(opts.within.min(1e6)),
    };
    let program = program()?;
    let mut all = Vec::new();
    for (Target { kernel, subjects }, problem) in work {
        let variants: Vec<_> = subjects.iter().map(|subject| subject.variant).collect();
        options.files.clear();
        for text in &opts.candidate {
            let side = Target::side(kernel, text)?;
            let file =
                side.path().ok_or_else(|| Error::Usage(format!("{text}: not a .wgsl file")))?;
            options.files.push((side.variant, file.to_owned()));
        }
        let count =
            lathe_harness::measure::tune::candidates(&variants, &options.files).len() as u64;
        let bar = global.progress(count, &format!("tuning {}", kernel.name), false);
        let trials = || {
            let mut command = Command::new(&program);
            command.args(global.runtime_checks.then_some("--runtime-checks"));
            command.args(global.unchecked_files.then_some("--unchecked-files"));
            command.args(global.mask_args());
            command.args(["--adapter", &gpu.adapter.index.to_string(), "tune-candidates"]);
            command.args([kernel.name, &kernel.show(&problem)]);
            command
        };
        let mut on_trial = |candidate: &Candidate, rejected: Option<&str>| {
            bar.inc(1);
            if let Some(reason) = rejected {
                tracing::info!("rejected {}: {reason}", candidate.show());
            }
        };
        let found = tune(&gpu, kernel, &variants, &problem, &options, &trials, &mut on_trial)?;
        bar.finish_and_clear();
        if let Some(entry) = &found.stored {
            store.put(entry.clone());
            store.write(&path)?;
        }
        if !global.json {
            print(&found);
        }
        all.push(found);
    }
    if global.json {
        out::json(&Report { store: path, found: all });
    } else {
        outln!("stored choices: {}", path.display());
    }
    Ok(())
}

fn print(f: &Found) {
    let left_out = match f.skipped {
        0 => String::new(),
        n => format!(", {n} left out for time"),
    };
    let rejected = f.rejected.len();
    outln!("{} {}: {} candidates, {rejected} rejected{left_out}", f.kernel, f.shape, f.tried);
    for (candidate, reason) in &f.rejected {
        let first = reason.lines().next().unwrap_or_default();
        outln!("  rejected {candidate}: {first}");
    }
    let mut t = table::table(&["finalist", "cold"], &[1]);
    for (name, us) in &f.finalists {
        t.add_row(vec![name.clone(), table::micros(*us)]);
    }
    out::table(t);
    if f.comparisons.is_empty() {
        outln!("the incumbent, {}, stays", f.incumbent);
    }
    for (nth, c) in f.comparisons.iter().enumerate() {
        let Ratio { median, low, high } = c.ratio;
        outln!(
            "process {}: {} against {}: {} {median:.4} [{low:.4}, {high:.4}]",
            nth + 1,
            f.winner,
            f.incumbent,
            c.verdict,
        );
    }
    match (&f.stored, f.comparisons.len()) {
        (Some(_), n) => outln!("FASTER in each of {n} processes: stored"),
        (None, 0) => {}
        (None, _) => outln!("not stored"),
    }
}

fn show(global: &Global, store: &Store) -> Result<()> {
    if global.json {
        out::json(store);
        return Ok(());
    }
    if store.entries.is_empty() {
        outln!("nothing is stored; `lathe tune gemv` searches for a choice");
        return Ok(());
    }
    // Broken after commas where they are longer than a column.
    let broken = |text: &str| text.replace(',', ", ");
    for own in store.entries.chunk_by(|a, b| (&a.adapter, &a.driver) == (&b.adapter, &b.driver)) {
        outln!("{}, {}", own[0].adapter, own[0].driver);
        let header = ["kernel, shape", "variant, constants", "time over", "of", "date"];
        let mut t = table::table(&header, &[2]);
        for e in own {
            let set: Vec<_> = e.constants.iter().map(|(n, v)| format!("{n}={v}")).collect();
            let shape = shapes::brief(&e.kernel, &e.shape);
            t.add_row(vec![
                broken(format!("{} {shape}", e.kernel).trim_end()),
                broken(format!("{} {}", e.variant, set.join(",")).trim_end()),
                format!("{:.4}", e.ratio.median),
                broken(&e.incumbent),
                // The day; the time of the day is in --json.
                e.date.split('T').next().unwrap_or_default().to_owned(),
            ]);
        }
        out::fitted(t);
    }
    Ok(())
}
