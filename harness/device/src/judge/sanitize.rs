//! Checks in the interpreter: every variant of some targets on its cases, at each subgroup size.

use std::path::Path;

use lathe_kernels::{Capabilities, CooperativeMatrix, MatrixScalar, Problem};
use lathe_sanitize::Options;
use rayon::prelude::*;
use serde::Serialize;

use super::Verdict;
use super::check::{Case, sweep};
use crate::error::{Error, Result};
use crate::execute::Execute;
use crate::execute::interpreter::{Found, Interpreter};
use crate::plan::backend_text::generous;
use crate::plan::recording::Part;
use crate::plan::target::Target;
use crate::plan::{PlanError, Subject};

/// Subgroup sizes of today's adapters.
pub const SIZES: [u32; 5] = [4, 8, 16, 32, 64];

/// Contents of a run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Kernels, variants or files.
    pub targets: &'a [Target],
    /// Shapes of a `--shape`, which replace the fixed cases.
    pub shape: Option<&'a str>,
    /// Random shapes per kernel in addition to its fixed cases.
    pub random: usize,
    /// The smallest case alone that a variant can run.
    pub smallest: bool,
    /// Subgroup sizes.
    pub widths: &'a [u32],
    /// Seed of inputs and schedules.
    pub seed: u64,
}

/// One variant on one problem at one subgroup size.
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
    /// Seed of the inputs and of the schedule.
    pub seed: u64,
    /// Invocations of a subgroup; none where the kernel has no subgroup operations.
    pub subgroup_size: Option<u32>,
    /// Faults.
    pub findings: Vec<Found>,
    /// The judge's word on the outputs.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl CaseResult {
    /// Returns true if the outputs are right and nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && matches!(self.verdict, Verdict::Passed { .. })
    }

    /// Name of the file, or of the variant.
    pub fn shown(&self) -> &str {
        self.wgsl.as_ref().unwrap_or(&self.variant)
    }

    /// The command that repeats this case alone.
    pub fn reproducer(&self) -> String {
        let file = self.wgsl.as_ref().map(|f| format!(" --wgsl {f}")).unwrap_or_default();
        let size = self.subgroup_size.map(|n| format!(" --subgroup-size {n}")).unwrap_or_default();
        let Self { kernel, variant, shape, seed, .. } = self;
        format!("lathe sanitize {kernel}/{variant} --shape {shape} --seed {seed}{file}{size}")
    }
}

/// Outcome of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Seed of the request.
    pub seed: u64,
    /// Cases without a fault.
    pub passed: usize,
    /// Cases with a fault or a wrong output.
    pub failed: usize,
    /// Cases that exclude their subgroup size.
    pub unavailable: usize,
    /// All cases.
    pub cases: Vec<CaseResult>,
}

/// Capabilities of a machine that lacks nothing and has subgroups of `width` invocations.
pub fn capabilities(width: u32) -> Capabilities {
    use MatrixScalar::{F16, F32};
    let matrices = [8, 16].into_iter().flat_map(|n| {
        let types = [(F16, F16), (F16, F32), (F32, F32)];
        types.map(|(inputs, sums)| CooperativeMatrix { m: n, n, k: n, inputs, sums })
    });
    Capabilities {
        subgroup: Some((width, width)),
        workgroup_memory: 64 << 10,
        storage_buffers: 64,
        cooperative_matrices: matrices.collect(),
        ..generous()
    }
}

/// Runs a WGSL file, or a mapping of one, in the place of `KERNEL/VARIANT` on the shapes of a
/// `--shape`, at all [`SIZES`].
///
/// ```no_run
/// # fn main() -> lathe_device::error::Result<()> {
/// use lathe_device::judge::sanitize;
///
/// let report = sanitize::file("mine.wgsl".as_ref(), "rms_norm/workgroup", "ROWS=2,N=300")?;
/// for case in &report.cases {
///     case.findings.iter().for_each(|found| println!("{found}"));
/// }
/// assert_eq!(report.failed, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`sanitize`].
pub fn file(path: &Path, kernel: &str, shape: &str) -> Result<Report> {
    let targets = [Target::one(kernel)?.with_file(path)?];
    let (shape, random, smallest, seed) = (Some(shape), 0, false, 42);
    let request = Request { targets: &targets, shape, random, smallest, widths: &SIZES, seed };
    sanitize(&request, &|_, _| {})
}

/// Runs all cases of a request, on all cores. `done` receives each case and their number.
///
/// # Errors
/// An invalid shape or file; not a case that fails.
pub fn sanitize(
    request: &Request<'_>,
    done: &(dyn Fn(&CaseResult, usize) + Sync),
) -> Result<Report> {
    let mut cases = Vec::new();
    for target in request.targets {
        for (i, width) in request.widths.iter().enumerate() {
            let caps = capabilities(*width);
            let mut problems: Vec<(Problem, u64)> = match request.shape {
                Some(text) => {
                    let problems = target.problems(text, &caps)?.into_iter();
                    problems.map(|problem| (problem, request.seed)).collect()
                }
                None => sweep::cases(target, &caps, request.random, request.seed),
            };
            let bytes = |problem: &Problem| target.kernel.cost(problem).bytes;
            problems.sort_by(|(a, _), (b, _)| bytes(a).total_cmp(&bytes(b)));
            for subject in &target.subjects {
                let can_run = |(problem, _): &&(Problem, u64)| subject.plan(problem, &caps).is_ok();
                let smallest = problems.iter().filter(|_| request.smallest).find(can_run);
                let chosen = smallest.map_or(problems.as_slice(), std::slice::from_ref);
                cases.extend(chosen.iter().map(|(p, seed)| (subject, p.clone(), *seed, *width, i)));
            }
        }
    }
    // In the order of the declarations, whatever the number of sizes.
    cases.sort_by_key(|(subject, ..)| {
        let mut all = request.targets.iter().flat_map(|target| &target.subjects);
        all.position(|other| std::ptr::eq(other, *subject))
    });
    let total = cases.len();
    let run = |(subject, problem, seed, width, i): &(&Subject, Problem, u64, u32, usize)| {
        let options = Options { width: *width, seed: *seed, ..Options::default() };
        let result = case(subject, problem, options, *i == 0)?;
        if let Some(result) = &result {
            done(result, total);
        }
        Ok(result)
    };
    let results: Result<Vec<_>> = cases.par_iter().map(run).collect();
    let mut results = results?;
    // Results that are right at some subgroup sizes alone depend on operations of subgroups: a
    // second run says on which.
    let at_some = |wrong: &CaseResult| {
        let same = |other: &&CaseResult| {
            (&other.kernel, &other.variant, &other.wgsl, &other.shape, other.seed)
                == (&wrong.kernel, &wrong.variant, &wrong.wgsl, &wrong.shape, wrong.seed)
        };
        let sizes = results.iter().flatten().filter(same).filter(|case| case.is_clean());
        let sizes: Vec<_> =
            sizes.filter_map(|case| Some(case.subgroup_size?.to_string())).collect();
        let only_wrong =
            wrong.findings.is_empty() && !matches!(wrong.verdict, Verdict::Unavailable { .. });
        (only_wrong && !wrong.is_clean() && !sizes.is_empty()).then(|| sizes.join(", "))
    };
    let sizes: Vec<_> = results.iter().map(|case| case.as_ref().and_then(at_some)).collect();
    for ((result, sizes), (subject, problem, seed, width, _)) in
        results.iter_mut().zip(sizes).zip(&cases)
    {
        let (Some(result), Some(sizes)) = (result, sizes) else { continue };
        let options = Options { width: *width, seed: *seed, traces: true, ..Options::default() };
        let traced = case(subject, problem, options, true)?;
        result.findings = traced.map_or_else(Vec::new, |case| case.findings);
        for found in &mut result.findings {
            found.what = format!(
                "the output depends on this operation; it is right with subgroups of {sizes} and \
                 wrong with {width}"
            );
        }
    }
    let cases: Vec<CaseResult> = results.into_iter().flatten().collect();
    let is_unavailable = |c: &&CaseResult| matches!(c.verdict, Verdict::Unavailable { .. });
    let unavailable = cases.iter().filter(is_unavailable).count();
    let passed = cases.iter().filter(|case| case.is_clean()).count();
    Ok(Report {
        seed: request.seed,
        passed,
        failed: cases.len() - passed - unavailable,
        unavailable,
        cases,
    })
}

/// Runs one case. None where the size of subgroups matters to nothing and is not the first asked for.
fn case(
    subject: &Subject,
    problem: &Problem,
    options: Options,
    first: bool,
) -> Result<Option<CaseResult>> {
    let Options { width, seed, .. } = options;
    let result = |subgroup_size, findings, verdict| {
        Some(CaseResult {
            kernel: subject.kernel.name.into(),
            variant: subject.variant.name.into(),
            wgsl: subject.path().map(|path| path.display().to_string()),
            shape: subject.kernel.show(problem),
            seed,
            subgroup_size,
            findings,
            verdict,
        })
    };
    let plan = match subject.plan(problem, &capabilities(width)) {
        Ok(plan) => plan,
        Err(PlanError::Unavailable(reason)) => {
            return Ok(result(Some(width), Vec::new(), Verdict::Unavailable { reason }));
        }
        Err(PlanError::Reflect(e)) if subject.path().is_some() => return Err(e.into()),
        Err(e) => return Ok(result(Some(width), Vec::new(), Verdict::broken(e.to_string()))),
    };
    let needs_subgroup = plan.stages.iter().any(|stage| stage.code.reflection.needs_subgroup);
    if !needs_subgroup && !first {
        return Ok(None);
    }
    let subgroup_size = needs_subgroup.then_some(width);
    let case = match Case::for_interpreter(plan, problem, seed) {
        Err(Error::Unavailable { reason, .. }) => {
            return Ok(result(subgroup_size, Vec::new(), Verdict::Unavailable { reason }));
        }
        other => other?,
    };
    let mut interpreter = case.interpreter(options);
    let mut verdict = verdict(&case, &mut interpreter)?;
    // Other orders of invocations, where the order may matter.
    for order in 1..ORDERS {
        if !interpreter.has_atomics() || !matches!(verdict, Verdict::Passed { .. }) {
            break;
        }
        let seed = seed.wrapping_add(order);
        let mut other = case.interpreter(Options { seed, ..options });
        verdict = match self::verdict(&case, &mut other)? {
            Verdict::Failed { reason, nmse, worst } => {
                let reason = format!("{reason}: right in one order of invocations, not in another");
                Verdict::Failed { reason, nmse, worst }
            }
            other => verdict.and(other),
        };
        other.found.into_iter().for_each(|found| interpreter.note(found));
    }
    Ok(result(subgroup_size, interpreter.found, verdict))
}

/// Orders of invocations that a kernel with atomics runs in.
const ORDERS: u64 = 4;

fn verdict(case: &Case, interpreter: &mut Interpreter) -> Result<Verdict> {
    match runs(case, interpreter) {
        Err(Error::Unavailable { reason, .. }) => Ok(Verdict::Unavailable { reason }),
        Err(e @ (Error::Reflect(_) | Error::CheckFailed(_))) => Ok(Verdict::broken(e.to_string())),
        other => other,
    }
}

/// Runs a case as `check` does: on typical inputs, then on stress inputs over what it has left.
fn runs(case: &Case, interpreter: &mut Interpreter) -> Result<Verdict> {
    interpreter.run(&[Part::Steps(1)])?;
    let first = case.judge_interpreted(interpreter, Default::default(), &[])?;
    if !matches!(first, Verdict::Passed { .. }) {
        return Ok(first);
    }
    let draw = case.stress_interpreted(interpreter);
    let read = |id| (id, interpreter.read(id));
    let found: Vec<_> = case.read_and_written().into_iter().map(read).collect();
    let typical = interpreter.found.len();
    interpreter.run(&[Part::Steps(1)])?;
    let verdict = first.and(case.judge_interpreted(interpreter, draw, &found)?);
    if matches!(verdict, Verdict::Passed { .. }) {
        // Stress inputs hold NaN and values that no f16 has: the judge knows what becomes of them.
        let mut at = 0..;
        interpreter.found.retain(|found| {
            let is_of_inputs = matches!(found.fault, "conversion" | "f16_overflow");
            at.next().is_some_and(|at| at < typical) || !is_of_inputs
        });
    }
    Ok(verdict)
}
