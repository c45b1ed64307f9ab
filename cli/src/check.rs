//! `lathe check`: the correctness sweep.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clap::Args;
use lathe_harness::data::AdapterSummary;
use lathe_harness::data::record::GoldenFile;
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::{Checks, Gpu, Pipelines};
use lathe_harness::judge::check::{
    Case, CaseResult, Verdict, check, check_plan, sweep, sweep_within,
};
use lathe_harness::measure::{Bench, BenchOptions, Temperature};
use lathe_harness::plan::user::{Operation, UserKernel, files_of, reflected};
use lathe_harness::plan::{Plan, PlanError};
use lathe_kernels::{Kernel, KernelBinding, KernelVariant, Problem, Role};
use serde::Serialize;

use super::Global;
use super::out;
use crate::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// KERNEL or KERNEL/VARIANT, or FILE.toml with an [operation] of your own; all without
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

/// One case to come: kernel, variant, shape, seed.
type Work = (&'static Kernel, &'static KernelVariant, Problem, u64);

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
    /// What an operation of the user's own is held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    golden: Option<GoldenFile>,
    cases: Vec<CaseResult>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let target = opts.target.as_deref();
    let watched = super::watched(global, opts.watch, opts.wgsl.as_deref(), target)?;
    let gpu = Arc::new(global.open()?);
    super::watch(&watched, || once(global, opts, &gpu))
}

fn once(global: &Global, opts: &Opts, gpu: &Arc<Gpu>) -> Result<()> {
    let operation = super::operation(opts.target.as_deref())?;
    let named = match &operation {
        Some(own) => vec![(own.kernel, own.kernel.variants.iter().collect())],
        None => super::named(opts.target.as_deref())?,
    };
    if (opts.shape.is_some() || opts.wgsl.is_some()) && named.len() != 1 {
        return Err(Error::Usage("--shape and --wgsl need a KERNEL".into()));
    }
    let file = match (&opts.wgsl, &operation) {
        (path, Some(own)) => Some(UserKernel::of(path.as_deref().unwrap_or(own.path()), own)),
        (Some(path), None) => Some(UserKernel::read(path, named[0].0)),
        (None, None) => None,
    };
    let file = file.transpose().map_err(PlanError::into_usage)?;
    let mut work: Vec<Work> = Vec::new();
    for (kernel, variants) in named {
        let seeded =
            |problems: Vec<Problem>| problems.into_iter().map(|p| (p, opts.seed)).collect();
        let problems = match (&opts.shape, &file) {
            (Some(text), file) => seeded(match (&operation, file) {
                (Some(own), _) => super::shapes::known(own, text)?,
                (None, Some(file)) => {
                    let problems = super::shapes::all(kernel, text)?;
                    super::shapes::filled(kernel, problems, text, file, &gpu.caps)?
                }
                (None, None) => super::shapes::all(kernel, text)?,
            }),
            (None, _) if operation.is_some() => seeded(kernel.cases()),
            (None, Some(file)) if file.is_choosy() => {
                sweep_within(kernel, file, &gpu.caps, opts.cases, opts.seed)
            }
            (None, _) => sweep(kernel, opts.cases, opts.seed),
        };
        let places = if opts.wgsl.is_some() { &variants[..1] } else { &variants[..] };
        for variant in places {
            work.extend(
                problems.iter().map(|(problem, seed)| (kernel, *variant, problem.clone(), *seed)),
            );
        }
    }
    let bar = global.progress(work.len() as u64, "checking", false);
    // Pipelines of a variant are asked for again by its other shapes only.
    let runs: Vec<_> = work.chunk_by(|a, b| (a.0.name, a.1.name) == (b.0.name, b.1.name)).collect();
    let stop = AtomicBool::new(false);
    let cases: Vec<Vec<CaseResult>> = side_by_side(global, gpu, &runs, |gpu, run| {
        let pipelines = Pipelines::default();
        let mut cases = Vec::with_capacity(run.len());
        for (kernel, variant, problem, seed) in *run {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let case = match &file {
                Some(file) => check_file(gpu, &pipelines, (kernel, variant), problem, *seed, file),
                None => check(gpu, &pipelines, kernel, variant, problem, *seed),
            }?;
            bar.inc(1);
            if opts.fail_fast && matches!(case.verdict, Verdict::Failed { .. }) {
                stop.store(true, Ordering::Relaxed);
            }
            cases.push(case);
        }
        Ok(cases)
    })?;
    let mut cases: Vec<CaseResult> = cases.into_iter().flatten().collect();
    let not_run = work.len() - cases.len();
    if let Some(file) = file.as_ref().filter(|_| !stop.load(Ordering::Relaxed)) {
        repeat(gpu, file, &work, &mut cases, opts.fail_fast)?;
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
        own_tolerance: file.as_ref().is_some_and(UserKernel::has_tolerance),
        golden: golden(operation.as_ref(), &cases),
        cases,
    };
    global.print(&report, || print(&report, gpu.checks));
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

/// The golden file that judged, and how many cases of it did.
fn golden(operation: Option<&Operation>, results: &[CaseResult]) -> Option<GoldenFile> {
    let Operation { kernel, golden, .. } = operation?;
    let ran = |problem: &Problem| {
        let shape = kernel.show(problem);
        let judged = |c: &&CaseResult| !matches!(c.verdict, Verdict::Unavailable { .. });
        results.iter().filter(judged).any(|c| c.shape == shape)
    };
    let problems = kernel.cases().into_iter().filter(ran);
    let cases = problems.map(|problem| golden.draws(&problem.shape)).sum();
    Some(GoldenFile { hash: golden.hash().to_owned(), cases })
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

fn check_file(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    (kernel, variant): (&'static Kernel, &'static KernelVariant),
    problem: &Problem,
    seed: u64,
    file: &UserKernel,
) -> Result<CaseResult> {
    let shown = file.path().display().to_string();
    let verdict = match file.plan(variant, problem, &gpu.caps) {
        Ok(plan) => check_plan(gpu, pipelines, plan, problem, seed)?,
        Err(PlanError::Unavailable(reason)) => Verdict::Unavailable { reason },
        Err(PlanError::Shape(reason)) => Verdict::broken(reason),
        Err(PlanError::Reflect(e)) => return Err(e.into()),
    };
    // The only variant of an operation of the user's own is named as its mapping.
    let operation = file.is_golden().then(|| variant.name.to_owned());
    Ok(CaseResult {
        kernel: kernel.name.into(),
        variant: if operation.is_some() { shown.clone() } else { variant.name.into() },
        wgsl: Some(shown),
        operation,
        shape: kernel.show(problem),
        seed,
        verdict,
    })
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
    file: &UserKernel,
    work: &[Work],
    results: &mut [CaseResult],
    fail_fast: bool,
) -> Result<()> {
    let effort = |i: usize| {
        let (kernel, _, problem, _) = &work[i];
        let cost = kernel.cost(problem);
        cost.bytes + cost.flops
    };
    let length = |i: usize| {
        let (kernel, _, problem, _) = &work[i];
        let written = |b: &&KernelBinding| matches!(b.role, Role::Output | Role::InOut);
        kernel.bindings.iter().filter(written).map(|b| b.len(problem)).max().unwrap_or(0)
    };
    let passed = |i: &usize| matches!(results[*i].verdict, Verdict::Passed { .. });
    let mut passed: Vec<usize> = (0..work.len()).filter(passed).collect();
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
        let (_, variant, problem, seed) = &work[i];
        let mut wrong = None;
        for nth in 0..RUNS {
            let plan = file.plan(variant, problem, &gpu.caps).map_err(PlanError::into_usage)?;
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

/// Whether a case failed whose text has a loop.
fn may_go_round_too_often(case: &CaseResult) -> bool {
    let files = case.wgsl.as_deref().map_or_else(Vec::new, |file| files_of(Path::new(file)));
    let texts: Vec<_> = files.iter().filter_map(|file| reflected(file).ok()).collect();
    matches!(case.verdict, Verdict::Failed { .. })
        && (texts.is_empty() || texts.iter().any(|(_, text)| text.has_loops()))
}

/// Failures of a variant that are shown one by one.
const SHOWN: usize = 8;

fn print(report: &Report, checks: Checks) {
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
    if let Some(golden) = &report.golden {
        outln!("{golden}");
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
    if report.adapter.name.contains("llvmpipe") && report.cases.iter().any(may_go_round_too_often) {
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
