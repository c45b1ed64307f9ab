//! `lathe check`: the correctness sweep.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clap::Args;
use lathe_harness::data::AdapterSummary;
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::{Checks, Gpu, Pipelines};
use lathe_harness::judge::check::{Case, CaseResult, Verdict, check, sweep_within};
use lathe_harness::measure::{Bench, BenchOptions, Temperature};
use lathe_harness::plan::{Plan, PlanError, Subject};
use lathe_kernels::{KernelBinding, Problem, Role};
use serde::Serialize;

use super::Global;
use super::out;
use crate::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// KERNEL or KERNEL/VARIANT; all without
    target: Option<String>,
    /// Random shapes a variant, besides the kernel's fixed cases
    #[arg(long, default_value_t = 16)]
    cases: usize,
    /// Seed of the shapes and inputs; with --shape, of that case's inputs
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Shapes instead of the sweep, such as ROWS=1152,K=6912,WEIGHT=bf16, with lists
    /// (ROWS=[64,128]) and ranges (K=64..=1024*2, K=64..=256+64); what is not named keeps the
    /// kernel's default, or is what a file takes
    #[arg(long)]
    shape: Option<String>,
    /// A WGSL file with the bindings of KERNEL/VARIANT (or a TOML beside it that maps its own),
    /// checked in that variant's place; KERNEL alone stands for its first variant
    #[arg(long, visible_alias = "mapping", value_name = "FILE")]
    wgsl: Option<std::path::PathBuf>,
    /// Stop at the first case that fails
    #[arg(long)]
    fail_fast: bool,
    /// Check again whenever your file is saved, its TOML, or what that one names
    #[arg(long)]
    watch: bool,
}

/// Cases to come of a variant or a file, each with its seed.
type Work = (Subject, Vec<(Problem, u64)>);

#[derive(Serialize)]
struct Report {
    adapter: AdapterSummary,
    runtime_checks: &'static str,
    seed: u64,
    passed: usize,
    failed: usize,
    unavailable: usize,
    /// Cases left out after one that failed (`--fail-fast`).
    not_run: usize,
    /// A user's file was held to the tolerance of its mapping.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    own_tolerance: bool,
    cases: Vec<CaseResult>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let watched = super::watched(global, opts.watch, opts.wgsl.as_deref())?;
    let gpu = Arc::new(global.open()?);
    super::watch(watched, || once(global, opts, &gpu))
}

fn once(global: &Global, opts: &Opts, gpu: &Arc<Gpu>) -> Result<()> {
    let named = super::named(opts.target.as_deref())?;
    if (opts.shape.is_some() || opts.wgsl.is_some()) && named.len() != 1 {
        return Err(Error::Usage("--shape and --wgsl need a KERNEL".into()));
    }
    let mut work: Vec<Work> = Vec::new();
    for (kernel, variants) in named {
        let subjects = match &opts.wgsl {
            Some(file) => vec![super::compiled(kernel, variants[0], file)?],
            None => variants.into_iter().map(|v| Subject::of(kernel, v)).collect(),
        };
        for subject in subjects {
            let problems = match &opts.shape {
                Some(text) => {
                    let problems = super::shapes::all(kernel, text)?;
                    let problems = super::shapes::filled(problems, text, &subject, &gpu.caps)?;
                    problems.into_iter().map(|problem| (problem, opts.seed)).collect()
                }
                None => sweep_within(&subject, &gpu.caps, opts.cases, opts.seed),
            };
            work.push((subject, problems));
        }
    }
    let total: usize = work.iter().map(|(_, problems)| problems.len()).sum();
    let bar = global.progress(total as u64, "checking", false);
    let stop = AtomicBool::new(false);
    let cases: Vec<Vec<CaseResult>> =
        side_by_side(global, gpu, &work, |gpu, (subject, problems)| {
            // Pipelines of a variant are asked for again by its other shapes only.
            let pipelines = Pipelines::default();
            let mut cases = Vec::with_capacity(problems.len());
            for (problem, seed) in problems {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let case = check(gpu, &pipelines, subject, problem, *seed)?;
                bar.inc(1);
                if opts.fail_fast && matches!(case.verdict, Verdict::Failed { .. }) {
                    stop.store(true, Ordering::Relaxed);
                }
                cases.push(case);
            }
            Ok(cases)
        })?;
    let mut cases: Vec<CaseResult> = cases.into_iter().flatten().collect();
    let not_run = total - cases.len();
    let file = work.iter().find(|(subject, _)| subject.path().is_some());
    if let Some((file, problems)) = file.filter(|_| !stop.load(Ordering::Relaxed)) {
        repeat(gpu, file, problems, &mut cases, opts.fail_fast)?;
    }
    bar.finish_and_clear();
    let count = |f: fn(&Verdict) -> bool| cases.iter().filter(|c| f(&c.verdict)).count();
    let report = Report {
        adapter: gpu.adapter.clone(),
        runtime_checks: gpu.checks.name(),
        seed: opts.seed,
        passed: count(|v| matches!(v, Verdict::Passed { .. })),
        failed: count(|v| matches!(v, Verdict::Failed { .. })),
        unavailable: count(|v| matches!(v, Verdict::Unavailable { .. })),
        not_run,
        own_tolerance: file.is_some_and(|(file, _)| file.has_tolerance()),
        cases,
    };
    let has_loops = file.is_none_or(|(file, _)| file.has_loops());
    global.print(&report, || print(&report, gpu.checks, has_loops));
    match report.failed {
        0 if report.passed == 0 => Err(Error::Unavailable {
            what: opts.target.clone().unwrap_or_else(|| "every variant".into()),
            adapter: report.adapter.name.clone(),
            reason: match report.cases.iter().find_map(|case| match &case.verdict {
                Verdict::Unavailable { reason } => Some(reason),
                _ => None,
            }) {
                Some(reason) => format!("no case could run, the first because {reason}"),
                None => "no case could run".into(),
            },
        }),
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{n} of {} cases failed", report.cases.len()))),
    }
}

/// Most devices at once.
const DEVICES: usize = 8;

/// Runs `one` over all runs, on as many devices as there are processors, and returns what comes of
/// each in their order. Compiling is what a sweep spends its time on, and a device compiles for one
/// caller at a time.
fn side_by_side<R: Sync, T: Send>(
    global: &Global,
    gpu: &Arc<Gpu>,
    runs: &[R],
    one: impl Fn(&Arc<Gpu>, &R) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(runs.len())));
    let failed = OnceLock::new();
    let work = |gpu: &Arc<Gpu>| {
        while failed.get().is_none() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(index) else { break };
            match one(gpu, run) {
                Ok(result) => {
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
                // The first is told; others are its consequences, or come again.
                Err(e) => drop(failed.set(e)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..processors.min(DEVICES).min(runs.len()) {
            scope.spawn(|| match global.open() {
                Ok(gpu) => work(&Arc::new(gpu)),
                Err(e) => tracing::warn!("another device: {e}; fewer check side by side"),
            });
        }
        work(gpu);
    });
    if let Some(e) = failed.into_inner() {
        return Err(e);
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Cases of a file that are run over and over: from the largest on, evenly by what they take.
const REPEATED: usize = 4;

/// Most invocations of a sample then. On a software adapter each costs what the check of a case
/// does.
const INVOCATIONS: u64 = 16;
const INVOCATIONS_IN_SOFTWARE: u64 = 4;

/// Bytes and operations of the largest such case on a software adapter, as long as there are enough
/// smaller ones.
const EFFORT_IN_SOFTWARE: f64 = 2e6;

/// Results that such a case has at least, where the kernel has cases of so many: the error of a
/// few that all but cancel is no small part of them, however honest they are.
const RESULTS: usize = 64;

/// Runs, each over inputs of its own, in each of which a case must be wrong: a bound that an honest
/// kernel misses once is hardly missed three times.
const RUNS: u64 = 3;

/// Runs a file over and over on cases that it passed, as what times it does, and judges what that
/// leaves: one that is right when it runs once may be wrong then. Stops at the first that is, if
/// told so.
fn repeat(
    gpu: &Arc<Gpu>,
    file: &Subject,
    problems: &[(Problem, u64)],
    results: &mut [CaseResult],
    fail_fast: bool,
) -> Result<()> {
    let kernel = file.kernel;
    let effort = |i: usize| {
        let cost = kernel.cost(&problems[i].0);
        cost.bytes + cost.flops
    };
    let length = |i: usize| {
        let problem = &problems[i].0;
        let written = |b: &&KernelBinding| matches!(b.role, Role::Output | Role::InOut);
        kernel.bindings.iter().filter(written).map(|b| b.len(problem)).max().unwrap_or(0)
    };
    let passed = |i: &usize| matches!(results[*i].verdict, Verdict::Passed { .. });
    let mut passed: Vec<usize> = (0..problems.len()).filter(passed).collect();
    let least = passed.iter().map(|i| length(*i)).max().unwrap_or(0).min(RESULTS);
    passed.retain(|i| length(*i) >= least);
    passed.sort_by(|a, b| effort(*b).total_cmp(&effort(*a)));
    if gpu.adapter.software {
        let large = passed.partition_point(|i| effort(*i) > EFFORT_IN_SOFTWARE);
        passed.drain(..large.min(passed.len().saturating_sub(REPEATED)));
    }
    let wanted = passed.len().min(REPEATED);
    let every = passed.len().div_ceil(REPEATED).max(1);
    let (first, others): (Vec<_>, Vec<_>) =
        passed.into_iter().enumerate().partition(|(nth, _)| nth % every == 0);
    // Several copies take more memory than one: where a case has none, a small one takes its place.
    let candidates = first.into_iter().chain(others.into_iter().rev()).map(|(_, i)| i);
    let mut ran = 0;
    'cases: for i in candidates {
        if ran == wanted {
            break;
        }
        let (problem, seed) = &problems[i];
        let mut wrong = None;
        for nth in 0..RUNS {
            let plan = file.plan(problem, &gpu.caps).map_err(PlanError::into_usage)?;
            match run_over_and_over(gpu, plan, problem, seed.wrapping_add(nth)) {
                Err(Error::CheckFailed(reason)) => wrong = Some(reason),
                Err(e @ (Error::Unavailable { .. } | Error::Memory(_))) => {
                    tracing::debug!("not run over and over: {}: {e}", results[i].shape);
                    continue 'cases;
                }
                right => {
                    right?;
                    wrong = None;
                    break;
                }
            }
        }
        ran += 1;
        if let Some(reason) = wrong {
            let reason = format!("run over and over, {RUNS} times of {RUNS}: {reason}");
            results[i].verdict = Verdict::broken(reason);
            if fail_fast {
                return Ok(());
            }
        }
    }
    if ran < wanted {
        tracing::warn!("{ran} of {wanted} cases were run over and over; no others have room");
    }
    Ok(())
}

fn run_over_and_over(gpu: &Arc<Gpu>, plan: Plan, problem: &Problem, seed: u64) -> Result<()> {
    let case = Case::new(gpu, plan, problem, seed)?;
    let rotate = BenchOptions::of(gpu).rotate_bytes;
    let mut bench = Bench::new(gpu, &Pipelines::default(), case, rotate)?.validated()?;
    bench.renew()?;
    let most = if gpu.adapter.software { INVOCATIONS_IN_SOFTWARE } else { INVOCATIONS };
    bench.time(most, Temperature::Cold)?;
    bench.judge_sampled(most, Temperature::Cold).map(drop)
}

/// The name of the file that was checked, if it was one in a variant's place.
fn file_name(case: &CaseResult) -> Option<&str> {
    Path::new(case.wgsl.as_deref()?).file_name()?.to_str()
}

/// Failures of a variant that are shown one by one.
const SHOWN: usize = 8;

fn print(report: &Report, checks: Checks, has_loops: bool) {
    let mut t = table::table(
        &["kernel, variant", "passed", "failed", "n/a", "NMSE", "of bound"],
        &[1, 2, 3, 4, 5],
    );
    let mut kernel = "";
    let same = |a: &CaseResult, b: &CaseResult| (&a.kernel, &a.variant) == (&b.kernel, &b.variant);
    for group in report.cases.chunk_by(same) {
        let first = &group[0];
        let (mut counts, mut nmse, mut ratio) = ([0; 3], 0f64, 0f64);
        for case in group {
            match &case.verdict {
                Verdict::Passed { nmse: n, worst, .. } => {
                    counts[0] += 1;
                    nmse = nmse.max(*n);
                    if let Some(w) = worst {
                        ratio = ratio.max(w.ratio());
                    }
                }
                Verdict::Failed { .. } => counts[1] += 1,
                Verdict::Unavailable { .. } => counts[2] += 1,
            }
        }
        if first.kernel != kernel {
            kernel = &first.kernel;
            t.add_row(vec![kernel, "", "", "", "", ""]);
        }
        t.add_row(vec![
            format!("  {}", file_name(first).unwrap_or(&first.variant)),
            counts[0].to_string(),
            counts[1].to_string(),
            counts[2].to_string(),
            if counts[0] > 0 { format!("{nmse:.1e}") } else { "-".into() },
            if counts[0] > 0 { format!("{:.0} %", 100.0 * ratio) } else { "-".into() },
        ]);
    }
    out::table(t);
    if report.own_tolerance {
        outln!("held to the tolerance of its mapping, not to the variant's");
    }
    let mut reasons: Vec<String> = Vec::new();
    let mut failures: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for case in &report.cases {
        match &case.verdict {
            Verdict::Failed { reason, .. } => {
                let failed = failures.entry((&case.kernel, &case.variant)).or_default();
                *failed += 1;
                if *failed <= SHOWN {
                    out::verdict(out::Tone::Bad, &format!("FAILED {reason}"));
                    outln!("  repeat: {}", case.reproducer(checks));
                }
            }
            Verdict::Unavailable { reason } => {
                let line = format!("unavailable {}/{}: {reason}", case.kernel, case.variant);
                if !reasons.contains(&line) {
                    reasons.push(line);
                }
            }
            Verdict::Passed { .. } => {}
        }
    }
    for ((kernel, variant), failed) in failures.into_iter().filter(|(_, failed)| *failed > SHOWN) {
        outln!("{kernel}/{variant}: {} more failed; --json has them all", failed - SHOWN);
    }
    if report.adapter.name.contains("llvmpipe") && report.failed > 0 && has_loops {
        outln!(
            "llvmpipe ends the loops of an invocation after 65535 rounds without an error \
             (docs/findings/llvmpipe-ends-long-loops.md): a kernel that goes round more often may \
             be right and fail here; another adapter tells"
        );
    }
    for line in reasons {
        outln!("{line}");
    }
    let tone = match (report.failed, report.passed) {
        (0, 0) => out::Tone::Unclear,
        (0, _) => out::Tone::Good,
        _ => out::Tone::Bad,
    };
    let not_run = match report.not_run {
        0 => String::new(),
        n => format!(", {n} not run"),
    };
    let summary = format!(
        "{}: {} passed, {} failed, {} unavailable{not_run} (seed {})",
        report.adapter.name, report.passed, report.failed, report.unavailable, report.seed
    );
    out::verdict(tone, &summary);
}
