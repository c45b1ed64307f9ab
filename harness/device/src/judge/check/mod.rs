//! Correctness: one kernel invocation on the device between guard words, held against the
//! reference. The same case serves `lathe check`, the property tests and the benches' validation.

mod case;
mod change;
mod draw;

use std::sync::Arc;

use lathe_kernels::{Capabilities, Kernel, ParamKind, Problem};
use lathe_record::rng::Rng;
use serde::Serialize;

pub use case::{Case, DRAWS, Draw};
pub use change::Change;
pub use draw::TOKENS_BEYOND;

use crate::error::{Error, Result};
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{Checks, Gpu, Pipelines, Policy};
use crate::judge::WorstElement;
use crate::plan::recording::Part;
use crate::plan::{Plan, PlanError, Subject};

/// What became of one case.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Verdict {
    /// Every element within its bound, nothing else touched.
    Passed {
        /// Largest normalised mean squared error of the outputs.
        nmse: f64,
        /// The element closest to its bound.
        worst: Option<WorstElement>,
        /// What is wrong by a little, where that is let pass.
        #[serde(skip_serializing_if = "Option::is_none")]
        outside: Option<String>,
    },
    /// Something is wrong.
    Failed {
        /// What.
        reason: String,
        /// NMSE of the output that is off, where it could be compared at all.
        nmse: Option<f64>,
        /// The element farthest past its bound.
        worst: Option<WorstElement>,
    },
    /// It cannot run here, which is not a pass.
    Unavailable {
        /// Why.
        reason: String,
    },
}

impl Verdict {
    /// This and what became of another invocation, which ran as `when` says.
    fn and(self, next: Self, when: &str) -> Self {
        match (self, next) {
            (
                Self::Passed { nmse, worst, outside },
                Self::Passed { nmse: other, worst: next, outside: again },
            ) => {
                let ratio = |w: &Option<WorstElement>| w.as_ref().map_or(0.0, WorstElement::ratio);
                let worst = if ratio(&next) > ratio(&worst) { next } else { worst };
                Self::Passed { nmse: nmse.max(other), worst, outside: outside.or(again) }
            }
            (Self::Passed { .. }, Self::Failed { reason, nmse, worst }) => {
                Self::Failed { reason: format!("{reason}, {when}"), nmse, worst }
            }
            (Self::Passed { .. }, other) | (other, _) => other,
        }
    }

    /// A failure that is no matter of one element.
    pub fn broken(reason: String) -> Self {
        Verdict::Failed { reason, nmse: None, worst: None }
    }
}

/// One case with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// A file that stood in the variant's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wgsl: Option<String>,
    /// Parameters.
    pub shape: String,
    /// Seed of the inputs.
    pub seed: u64,
    /// Outcome.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl CaseResult {
    /// The command that repeats this case alone, as it was compiled.
    pub fn reproducer(&self, checks: Checks) -> String {
        let flag = match checks {
            Checks::Files => "",
            Checks::Everywhere => " --runtime-checks",
            Checks::Nowhere => " --unchecked-files",
        };
        let file = self.wgsl.as_ref().map(|f| format!(" --wgsl {f}")).unwrap_or_default();
        format!(
            "lathe check {}/{} --shape {} --seed {}{file}{flag}",
            self.kernel, self.variant, self.shape, self.seed
        )
    }
}

/// Checks a variant, or a user's file in its place, on one problem.
///
/// # Errors
/// A file does not fit the kernel, or the device is lost.
pub fn check(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    subject: &Subject,
    problem: &Problem,
    seed: u64,
) -> Result<CaseResult> {
    let path = subject.path();
    let verdict = match subject.plan(problem, &gpu.caps) {
        Ok(plan) => check_plan(gpu, pipelines, plan, problem, seed)?,
        Err(PlanError::Unavailable(reason)) => Verdict::Unavailable { reason },
        Err(PlanError::Reflect(e)) if path.is_some() => return Err(e.into()),
        Err(e) => Verdict::broken(e.to_string()),
    };
    Ok(CaseResult {
        kernel: subject.kernel.name.into(),
        variant: subject.variant.name.into(),
        wgsl: path.map(|path| path.display().to_string()),
        shape: subject.kernel.show(problem),
        seed,
        verdict,
    })
}

/// Checks one planned invocation, whatever its source.
pub fn check_plan(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    plan: Plan,
    problem: &Problem,
    seed: u64,
) -> Result<Verdict> {
    let prepared = Case::new(gpu, plan, problem, seed).and_then(|case| {
        let executor = case.prepare(gpu, pipelines, Policy::Guarded)?;
        Ok((case, executor))
    });
    match prepared {
        Ok((case, mut executor)) => check_prepared(&case, &mut executor),
        // One pipeline that the driver refuses is one failure, not the end of a sweep.
        Err(e @ (Error::Gpu { .. } | Error::Reflect(_))) => Ok(Verdict::broken(e.to_string())),
        Err(Error::Unavailable { what, reason, .. }) => {
            Ok(Verdict::Unavailable { reason: format!("{what}: {reason}") })
        }
        Err(e) => Err(e),
    }
}

/// Runs a case that was prepared or reset, between guard words: once as it is, once more with other
/// inputs over whatever the first invocation left behind, and, where a user's file runs, with a
/// change in these. A kernel that only works on fresh memory, takes an earlier result for its own,
/// or is fitted to what is timed, fails the second; one that tells its inputs by a few of them
/// fails the third.
pub(crate) fn check_prepared(case: &Case, executor: &mut GpuExecutor) -> Result<Verdict> {
    executor.run(&[Part::Steps(1)])?;
    let mut all = case.judge(executor, Policy::Guarded)?;
    let mut draw = Draw::default();
    for is_changed in [false, true] {
        let is_built_in = case.recording.ops[0].plan.built_in;
        if !matches!(all, Verdict::Passed { .. }) || is_changed && is_built_in {
            break;
        }
        let (change, when) = if is_changed {
            let change = case.next_change(executor, draw)?;
            (change, "when it ran again with a stretch of an input changed")
        } else {
            draw = case.next_inputs(executor)?;
            (None, "when it ran again with other inputs over what it had left")
        };
        let found = case.found(executor)?;
        executor.run(&[Part::Steps(1)])?;
        let change = change.as_ref();
        let next = case.judge_found(executor, Policy::Guarded, draw, &found, change)?;
        if let Some(change) = change {
            executor.gpu.caught(|| case.write_changed(executor, draw, change, true))?;
        }
        all = all.and(next, when);
    }
    Ok(all)
}

/// Other shapes that a user's file is checked on before it is timed on one.
const OTHERS: usize = 8;

/// Most bytes that such a shape moves.
const OTHER_BYTES: f64 = 2.56e8;

/// Shapes like those `timed` with other sizes. Formats and what is 0 or 1 stay: a file may be for
/// one weight type and one vector. What a power of two up to 256 divides, it divides still: a file
/// may be for whole tiles.
fn like(kernel: &Kernel, timed: &[Problem]) -> Vec<Problem> {
    let mut rng = Rng::fresh();
    let mut others: Vec<Problem> = Vec::new();
    for attempt in 0..8 * OTHERS {
        let Some(base) = timed.get(attempt % timed.len().max(1)) else { break };
        let sizes = kernel.params.iter().filter_map(|param| {
            let ParamKind::Dim { .. } = param.kind else { return None };
            let size = base.shape.get(param.name).filter(|size| *size > 1.0)? as u64;
            let tile = 1 << size.trailing_zeros().min(8);
            let tiles = size / tile;
            // The first is larger in every size.
            let most = if attempt == 0 { 0 } else { (2 * tiles).max(3) as u32 };
            let other = if most == 0 { 2 * tiles } else { 1 + u64::from(rng.below(most)) };
            Some(format!("{}={}", param.name, other * tile))
        });
        let text = sizes.collect::<Vec<_>>().join(",");
        let Ok(problem) = kernel.parse_over(base, &text) else { continue };
        let small = kernel.cost(&problem).bytes <= OTHER_BYTES;
        if small && !timed.contains(&problem) && !others.contains(&problem) {
            others.push(problem);
        }
        if others.len() == OTHERS {
            break;
        }
    }
    others
}

/// What the check on other shapes came to.
#[derive(Debug, Default)]
pub struct Others {
    /// Shapes that it was: those that a file refuses count for nothing, and one that refuses all is
    /// known on the one alone.
    pub checked: usize,
    /// What was wrong by a little, where that is let pass.
    pub outside: Option<String>,
}

/// Checks a user's file on shapes beside those that are to be timed: what is right for one shape
/// alone is no kernel.
///
/// # Errors
/// It is wrong on one of them, or does not fit the kernel.
pub fn check_others(gpu: &Arc<Gpu>, file: &Subject, timed: &[Problem]) -> Result<Others> {
    let (mut rng, mut others) = (Rng::fresh(), Others::default());
    let pipelines = Pipelines::default();
    for problem in like(file.kernel, timed) {
        let result = check(gpu, &pipelines, file, &problem, rng.next_u64() >> 16)?;
        match &result.verdict {
            Verdict::Unavailable { .. } => continue,
            Verdict::Passed { outside, .. } => {
                let at = |why: &String| format!("{why} at {}", result.shape);
                others.outside = others.outside.take().or(outside.as_ref().map(at));
            }
            Verdict::Failed { reason, .. } => {
                return Err(Error::CheckFailed(format!(
                    "{} is wrong for another shape: {reason}\n  repeat: {}\n  --one-shape times it \
                     for the one alone, and says so",
                    file.name(),
                    result.reproducer(gpu.checks)
                )));
            }
        }
        others.checked += 1;
    }
    Ok(others)
}

/// The problems that a sweep checks, each with its seed: the kernel's own cases, then `random` drawn
/// ones. They are the same for every variant of a kernel.
pub fn sweep(kernel: &Kernel, random: usize, seed: u64) -> Vec<(Problem, u64)> {
    let mut rng = Rng::derive(seed, kernel.name);
    let mut problems = kernel.cases();
    problems.extend((0..random).map(|_| kernel.draw(&mut |n| rng.below(n))));
    problems.into_iter().map(|problem| (problem, rng.next_u64() >> 16)).collect()
}

/// The problems that a sweep of a user's file checks: cases and drawn problems are moved inside what
/// it takes, and drawn again where its conditions fail all the same.
pub fn sweep_within(
    file: &Subject,
    caps: &Capabilities,
    random: usize,
    seed: u64,
) -> Vec<(Problem, u64)> {
    /// Problems drawn for one that is wanted.
    const DRAWS_A_CASE: usize = 500;
    let kernel = file.kernel;
    if !file.is_choosy() {
        return sweep(kernel, random, seed);
    }
    let mut rng = Rng::derive(seed, kernel.name);
    let mut problems: Vec<Problem> = Vec::new();
    for problem in kernel.cases() {
        let problem = file.within(problem, caps, &mut |n| rng.below(n));
        problems.extend(problem.filter(|problem| !problems.contains(problem)));
    }
    let wanted = problems.len() + random;
    for _ in 0..DRAWS_A_CASE * random {
        if problems.len() == wanted {
            break;
        }
        let problem = kernel.draw(&mut |n| rng.below(n));
        let problem = file.within(problem, caps, &mut |n| rng.below(n));
        problems.extend(problem.filter(|problem| !problems.contains(problem)));
    }
    problems.into_iter().map(|problem| (problem, rng.next_u64() >> 16)).collect()
}
