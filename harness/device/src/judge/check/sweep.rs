//! The correctness sweep: every variant of some targets on a kernel's fixed cases and on random
//! shapes, on as many devices as there are processors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lathe_kernels::{Capabilities, Kernel, ParamKind, Problem};
use lathe_record::AdapterSummary;
use lathe_record::rng::Rng;
use serde::Serialize;

use super::stress::Stress;
use super::{CaseResult, Verdict, check};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Pipelines};
use crate::plan::target::Target;
use crate::plan::{PlanError, Subject};

/// Contents of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Kernels, variants or files to check.
    pub targets: &'a [Target],
    /// Shapes of a `--shape`, which replace fixed cases and random ones.
    pub shape: Option<&'a str>,
    /// Random shapes per kernel in addition to its fixed cases. Its variants share them.
    pub random: usize,
    /// Seed of random shapes and of all inputs.
    pub seed: u64,
    /// Stop at the first case that fails.
    pub fail_fast: bool,
}

/// Outcome of a sweep.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Device.
    pub adapter: AdapterSummary,
    /// Name of the [`Checks`](crate::gpu::Checks): the shaders that carried wgpu's run-time checks.
    pub runtime_checks: &'static str,
    /// Seed of the request.
    pub seed: u64,
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases that cannot run on this device.
    pub unavailable: usize,
    /// Cases left out after one that failed.
    pub not_run: usize,
    /// A file was judged by the tolerance of its own mapping.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_tolerance: bool,
    /// All cases, by target, variant and shape.
    pub cases: Vec<CaseResult>,
}

/// Cases of one variant or file, which share compiled pipelines.
struct Group<'a> {
    subject: &'a Subject,
    problems: Arc<[(Problem, u64)]>,
}

/// Checks all cases of a request. `another` opens a further device; `done` receives each case and
/// the total number of cases.
///
/// # Errors
/// An invalid shape or file, and a lost device; not a case that fails.
pub fn sweep(
    gpu: &Arc<Gpu>,
    request: &Request<'_>,
    another: &(dyn Fn() -> Result<Gpu> + Sync),
    done: &(dyn Fn(&CaseResult, usize) + Sync),
) -> Result<Report> {
    let mut groups = Vec::new();
    for target in request.targets {
        let problems: Arc<[(Problem, u64)]> = match request.shape {
            Some(text) => {
                let problems = target.problems(text, &gpu.caps)?.into_iter();
                problems.map(|problem| (problem, request.seed)).collect()
            }
            None => cases(target, &gpu.caps, request.random, request.seed).into(),
        };
        let group = |subject| Group { subject, problems: Arc::clone(&problems) };
        groups.extend(target.subjects.iter().map(group));
    }
    let total: usize = groups.iter().map(|group| group.problems.len()).sum();
    let stop = AtomicBool::new(false);
    let cases = side_by_side(gpu, another, &groups, |gpu, group| {
        let pipelines = Pipelines::default();
        let mut cases = Vec::with_capacity(group.problems.len());
        for (problem, seed) in &*group.problems {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let case = check(gpu, &pipelines, group.subject, problem, *seed)?;
            done(&case, total);
            if request.fail_fast && matches!(case.verdict, Verdict::Failed { .. }) {
                stop.store(true, Ordering::Relaxed);
            }
            cases.push(case);
        }
        Ok(cases)
    })?;
    let cases: Vec<CaseResult> = cases.into_iter().flatten().collect();
    let count = |f: fn(&Verdict) -> bool| cases.iter().filter(|c| f(&c.verdict)).count();
    let mut subjects = request.targets.iter().flat_map(|target| &target.subjects);
    Ok(Report {
        adapter: gpu.adapter.clone(),
        runtime_checks: gpu.checks.name(),
        seed: request.seed,
        passed: count(|v| matches!(v, Verdict::Passed { .. })),
        failed: count(|v| matches!(v, Verdict::Failed { .. })),
        unavailable: count(|v| matches!(v, Verdict::Unavailable { .. })),
        not_run: total - cases.len(),
        own_tolerance: subjects.any(Subject::has_tolerance),
        cases,
    })
}

/// Most devices at once.
const DEVICES: usize = 8;

/// Runs `one` over all groups, on as many devices as there are processors, and returns the results
/// in order. A sweep spends its time on compiling, and a device compiles for one caller at a time.
fn side_by_side<R: Sync, T: Send>(
    gpu: &Arc<Gpu>,
    another: &(dyn Fn() -> Result<Gpu> + Sync),
    groups: &[R],
    one: impl Fn(&Arc<Gpu>, &R) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(groups.len())));
    let failed = OnceLock::new();
    let work = |gpu: &Arc<Gpu>| {
        while failed.get().is_none() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(group) = groups.get(index) else { break };
            match one(gpu, group) {
                Ok(result) => {
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
                // The first is told; others are its consequences, or come again.
                Err(e) => drop(failed.set(e)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..processors.min(DEVICES).min(groups.len()) {
            scope.spawn(|| match another() {
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

/// A kernel's fixed cases, then `random` drawn ones, each with the seed of its inputs; the same for
/// all variants. A problem that a file's mapping does not support is moved to the nearest one that
/// it does, or drawn again.
pub fn cases(
    target: &Target,
    caps: &Capabilities,
    random: usize,
    seed: u64,
) -> Vec<(Problem, u64)> {
    /// Problems drawn at most for each one that a file supports.
    const DRAWS_PER_CASE: usize = 500;
    let (kernel, file) = (target.kernel, target.subjects.first().filter(|s| s.is_choosy()));
    let mut rng = Rng::derive(seed, kernel.name);
    let mut problems: Vec<Problem> = Vec::new();
    let mut add = |problem: Problem, rng: &mut Rng| {
        let Some(file) = file else {
            problems.push(problem);
            return true;
        };
        let taken = file.within(problem, caps, &mut |n| rng.below(n));
        let new = taken.filter(|problem| !problems.contains(problem));
        let is_new = new.is_some();
        problems.extend(new);
        is_new
    };
    for problem in kernel.cases() {
        add(problem, &mut rng);
    }
    let mut missing = random;
    for _ in 0..random * if file.is_some() { DRAWS_PER_CASE } else { 1 } {
        if missing == 0 {
            break;
        }
        let problem = kernel.draw(&mut |n| rng.below(n));
        missing -= usize::from(add(problem, &mut rng));
    }
    // Problems take turns with the kinds of stress inputs.
    let first = rng.below(Stress::TURNS.len() as u32) as usize;
    let turns = problems.into_iter().enumerate();
    turns.map(|(i, problem)| (problem, Stress::turn(rng.next_u64() >> 16, first + i))).collect()
}

/// Checks a user's file on a shape other than those that are timed: a file that is right for one
/// shape alone is not a kernel. Returns true if the file supports no other; built-in variants are
/// checked elsewhere.
///
/// # Errors
/// [`Error::CheckFailed`] if the file is wrong on it.
pub fn takes_one_shape(gpu: &Arc<Gpu>, file: &Subject, timed: &[Problem]) -> Result<bool> {
    if file.path().is_none() {
        return Ok(false);
    }
    let (mut rng, pipelines) = (Rng::fresh(), Pipelines::default());
    for problem in timed.iter().flat_map(|problem| others(file.kernel, problem)) {
        if timed.contains(&problem) {
            continue;
        }
        // What makes a file no kernel at all is said here too.
        match file.plan(&problem, &gpu.caps) {
            Err(PlanError::Unavailable(_)) => continue,
            Err(PlanError::Reflect(e)) => return Err(e.into()),
            _ => {}
        }
        let case = check(gpu, &pipelines, file, &problem, rng.next_u64() >> 16)?;
        match &case.verdict {
            Verdict::Passed { .. } => return Ok(false),
            Verdict::Unavailable { .. } => {}
            Verdict::Failed { reason, .. } => {
                let (file, repeat) = (case.shown(), case.reproducer(gpu.checks));
                return Err(Error::CheckFailed(format!(
                    "{file} is wrong for another shape: {reason}\n  repeat: {repeat}"
                )));
            }
        }
    }
    Ok(true)
}

/// Shapes with other sizes than a timed one, larger ones first. Formats stay, and so do sizes of 1:
/// a file may support one weight type and one vector. Powers of two up to 256 that divide a size
/// still divide it: a file may support whole tiles alone.
fn others(kernel: &'static Kernel, timed: &Problem) -> impl Iterator<Item = Problem> {
    /// Maximum number of bytes that such a shape moves.
    const MOST_BYTES: f64 = 2.56e8;
    let other = move |(times, over): (u64, u64)| {
        let sizes = kernel.params.iter().filter_map(|param| {
            let ParamKind::Dim { .. } = param.kind else { return None };
            let size = timed.shape.get(param.name).filter(|size| *size > 1.0)? as u64;
            let tile = 1 << size.trailing_zeros().min(8);
            Some(format!("{}={}", param.name, (size / tile * times).div_ceil(over) * tile))
        });
        let text = sizes.collect::<Vec<_>>().join(",");
        kernel.parse_over(timed, &text).ok()
    };
    let factors = [(2, 1), (3, 1), (3, 2), (1, 2), (1, 3), (1, 8), (1, 64)];
    factors
        .into_iter()
        .filter_map(other)
        .filter(move |problem| kernel.cost(problem).bytes <= MOST_BYTES)
        .collect::<Vec<_>>()
        .into_iter()
}
