//! Correctness: one kernel invocation on the device between guard words, compared with the
//! reference. `lathe check`, the property tests and the validation of benchmarks share these cases.

mod cache;
mod case;
mod draw;
mod stress;
pub(crate) mod sweep;

use std::sync::Arc;

use lathe_kernels::Problem;
use serde::Serialize;

pub use case::{
    Case, DRAWS, Draw, Exported, ExportedOutcome, ExportedTensor, Judged, Stored, fits,
};
pub use stress::Stress;
pub use sweep::{Report, Request, cases, sweep, takes_one_shape};

use crate::error::{Error, Result};
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{Checks, Gpu, Pipelines, Policy};
pub use crate::judge::Verdict;
use crate::plan::recording::Part;
use crate::plan::{Plan, PlanError, Subject};

/// One case with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// A file that replaced the variant.
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
    /// Name of the file, or of the variant.
    pub fn shown(&self) -> &str {
        self.wgsl.as_ref().unwrap_or(&self.variant)
    }

    /// The command that repeats this case alone, compiled in the same way.
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

/// Checks a variant, or the file that replaces it, on one problem.
pub fn check(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    subject: &Subject,
    problem: &Problem,
    seed: u64,
) -> Result<CaseResult> {
    let verdict = match subject.plan(problem, &gpu.caps) {
        Ok(plan) => check_plan(gpu, pipelines, plan, problem, seed)?,
        Err(PlanError::Unavailable(reason)) => Verdict::Unavailable { reason },
        Err(PlanError::Reflect(e)) if subject.path().is_some() => return Err(e.into()),
        Err(e) => Verdict::broken(e.to_string()),
    };
    Ok(CaseResult {
        kernel: subject.kernel.name.into(),
        variant: subject.variant.name.into(),
        wgsl: subject.path().map(|path| path.display().to_string()),
        shape: subject.kernel.show(problem),
        seed,
        verdict,
    })
}

/// Checks one planned invocation, of a variant or a file.
pub fn check_plan(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    plan: Plan,
    problem: &Problem,
    seed: u64,
) -> Result<Verdict> {
    let prepared = Case::untimed(gpu, plan, problem, seed).and_then(|case| {
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

/// Runs a prepared or reset case between guard words: once on typical inputs, then on stress inputs
/// over the first invocation's results. A kernel that works on fresh memory alone, or mistakes an
/// earlier result for its own, fails there.
pub(crate) fn check_prepared(case: &Case, executor: &mut GpuExecutor) -> Result<Verdict> {
    executor.run(&[Part::Steps(1)])?;
    let first = case.judge(executor, Policy::Guarded)?;
    if !matches!(first, Verdict::Passed { .. }) {
        return Ok(first);
    }
    let draw = case.stress_inputs(executor)?;
    let found = case.found(executor)?;
    executor.run(&[Part::Steps(1)])?;
    let mut next = case.judge_found(executor, Policy::Guarded, draw, &found)?;
    if let Verdict::Failed { reason, .. } = &mut next {
        reason.push_str(", when it ran again with other inputs over what it had left");
    }
    Ok(first.and(next))
}
