//! Correctness: one kernel invocation on the device between guard words, held against the
//! reference. The same case serves `lathe check`, the property tests and the benches' validation.

mod case;
mod draw;

use std::sync::Arc;

use lathe_kernels::{Kernel, KernelVariant, Problem};
use serde::Serialize;

pub use case::Case;

use crate::data::rng::Rng;
use crate::error::{Error, Result};
use crate::execute::Execute;
use crate::gpu::{Gpu, Pipelines, Policy};
use crate::judge::WorstElement;
use crate::plan::{Plan, PlanError};

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
    /// A failure that is no matter of one element.
    fn broken(reason: String) -> Self {
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
    /// The command that repeats this case alone.
    pub fn reproducer(&self) -> String {
        let file = self.wgsl.as_ref().map(|f| format!(" --wgsl {f}")).unwrap_or_default();
        format!(
            "lathe check {}/{} --shape {} --seed {}{file}",
            self.kernel, self.variant, self.shape, self.seed
        )
    }
}

/// Checks one variant on one problem.
pub fn check(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    problem: &Problem,
    seed: u64,
) -> Result<CaseResult> {
    let verdict = match Plan::of(kernel, variant, &problem.shape, &gpu.caps) {
        Ok(plan) => check_plan(gpu, pipelines, plan, problem, seed)?,
        Err(PlanError::Unavailable(reason)) => Verdict::Unavailable { reason },
        Err(e @ PlanError::Reflect(_)) => Verdict::broken(e.to_string()),
    };
    Ok(CaseResult {
        kernel: kernel.name.into(),
        variant: variant.name.into(),
        wgsl: None,
        shape: kernel.show(problem),
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
    match Case::new(gpu, plan, problem, seed) {
        Ok(case) => check_case(gpu, pipelines, &case),
        Err(Error::Unavailable { what, reason, .. }) => {
            Ok(Verdict::Unavailable { reason: format!("{what}: {reason}") })
        }
        Err(e) => Err(e),
    }
}

/// Checks one case.
pub fn check_case(gpu: &Arc<Gpu>, pipelines: &Pipelines, case: &Case) -> Result<Verdict> {
    let mut executor = match case.prepare(gpu, pipelines, Policy::Guarded) {
        Ok(prepared) => prepared,
        // One pipeline that the driver refuses is one failure, not the end of a sweep.
        Err(e @ (Error::Gpu { .. } | Error::Reflect(_))) => {
            return Ok(Verdict::broken(e.to_string()));
        }
        Err(Error::Unavailable { what, reason, .. }) => {
            return Ok(Verdict::Unavailable { reason: format!("{what}: {reason}") });
        }
        Err(e) => return Err(e),
    };
    executor.run(&[crate::plan::recording::Part::Steps(1)])?;
    case.judge(&executor, Policy::Guarded)
}

/// The problems a sweep checks: the kernel's own cases, then `random` drawn ones, each with its
/// seed. The same for every variant of a kernel.
pub fn sweep(kernel: &Kernel, random: usize, seed: u64) -> Vec<(Problem, u64)> {
    let mut problems = kernel.cases();
    let mut rng = Rng::derive(seed, kernel.name);
    for _ in 0..random {
        problems.push(kernel.draw(&mut |n| rng.below(n)));
    }
    problems.into_iter().map(|problem| (problem, rng.next_u64() >> 16)).collect()
}
