//! Cases of kernels as plans: both invocations with inputs, expected outcomes and bounds.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use lathe_device::error::Result;
use lathe_device::gpu::Checks;
use lathe_device::judge::check::{
    Case, CaseResult, ExportedOutcome, ExportedTensor, Judged, Stored, Verdict, cases, fits,
};
use lathe_device::plan::target::Target;
use lathe_device::plan::{PlanError, Subject};
use lathe_kernels::{FloatFormat, Problem, Role};
use rayon::prelude::*;
use serde::Serialize;

use crate::pool::{Data, Range, Stage, StagePlan, Texts};
use crate::{Kind, KindPlan, Request};

/// A case of a variant or a file.
#[derive(Debug, Serialize)]
pub(crate) struct CasePlan {
    kernel: &'static str,
    variant: String,
    shape: String,
    seed: u64,
    /// Command that repeats it on a device of this machine.
    repeat: String,
    /// Hash of the code.
    source: String,
    /// Bytes that an invocation must move.
    bytes: f64,
    flops: f64,
    tensors: Vec<TensorPlan>,
    stages: Vec<StagePlan>,
    /// Outcomes of both invocations.
    runs: Vec<Vec<OutcomePlan>>,
}

/// A case that devices of a kind cannot run.
#[derive(Debug, Serialize)]
pub(crate) struct Unavailable {
    kernel: &'static str,
    variant: String,
    shape: String,
    seed: u64,
    reason: String,
}

#[derive(Debug, Serialize)]
struct TensorPlan {
    name: String,
    /// `input`, `output`, `inout`, `scratch` or `counter`.
    role: &'static str,
    bytes: u64,
    /// `f32`, `f16`, `bf16`, `u32`, or `q8_0` of vectors of `head_dim` values.
    stored: &'static str,
    head_dim: Option<usize>,
    /// Content before the first and the second invocation; none for what is there.
    first: Option<Range>,
    second: Option<Range>,
    /// Weights and caches, which benchmarks rotate.
    large: bool,
}

#[derive(Debug, Serialize)]
struct OutcomePlan {
    tensor: usize,
    #[serde(flatten)]
    judged: JudgedPlan,
}

/// The rule of a tensor's judgement. Rows are 64-bit floats, words 32-bit integers; values and bounds
/// are 32-bit floats where those hold them, else 64-bit floats.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
enum JudgedPlan {
    Real {
        len: usize,
        value: Range,
        /// Negative where the kernel may overflow instead. Beside a value that is not finite: 0 if
        /// that is exact, else infinite.
        bound: Range,
        /// True if values that are not finite are no fault of the oracle.
        spreads: bool,
        largest: f64,
        nmse: f64,
        /// Squared errors allowed on top, of elements that are compared in any case.
        unavoidable: f64,
        /// Elements that may pass by overflow: pairs of an index and its error.
        overflowing: Option<Range>,
    },
    Words {
        words: Range,
    },
    Choice {
        words: Range,
        at: usize,
        allowed: Vec<u32>,
    },
    /// Rows of an index, a value and its bound each.
    Ranking {
        values: usize,
        rows: Range,
    },
}

/// A case of which nothing is in a pool yet.
struct Made {
    plan: CasePlan,
    stages: Vec<Stage>,
    tensors: Vec<ExportedTensor>,
    large: Vec<bool>,
    runs: [Vec<ExportedOutcome>; 2],
}

/// Cases of one target and problem for each kind: made, or unavailable for a reason.
type OfKinds = Vec<(usize, Result<Made, Unavailable>)>;

/// Problems whose cases are made at once and then written.
const AT_ONCE: usize = 32;

/// Adds the cases of all targets to the kinds' plans.
pub(crate) fn export(
    request: &Request<'_>,
    plans: &mut [KindPlan],
    texts: &mut Texts,
    data: &mut Data,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<()> {
    let (Some(first), kinds) = (request.kinds.first(), request.kinds) else { return Ok(()) };
    let mut work: Vec<(&Target, Problem, u64, bool)> = Vec::new();
    for target in request.targets {
        let problems = match request.shape {
            Some(text) => {
                let problems = target.problems(text, &first.caps)?.into_iter();
                problems.map(|problem| (problem, request.seed)).collect()
            }
            None => cases(target, &first.caps, request.random, request.seed),
        };
        work.extend(problems.into_iter().map(|(problem, seed)| (target, problem, seed, false)));
        if let Some(most) = request.bench_bytes {
            let all = match request.shape {
                Some(text) => target.problems(text, &first.caps)?,
                None => target.kernel.bench(),
            };
            let small = |problem: &Problem| target.kernel.cost(problem).bytes <= most as f64;
            let all = all.into_iter().filter(small);
            work.extend(all.map(|problem| (target, problem, request.seed, true)));
        }
    }
    let (done, wanted) = (AtomicUsize::new(0), request.smallest.map(|n| smallest(&work, kinds, n)));
    let work: Vec<_> = work.into_iter().enumerate().collect();
    for some in work.chunks(AT_ONCE) {
        let made = some.par_iter().map(|(at, (target, problem, seed, bench))| {
            let is_wanted = |subject: &Subject, kind: usize| {
                *bench || wanted.as_ref().is_none_or(|w| w.contains(&(*at, subject.name(), kind)))
            };
            let made = of_problem(target, problem, *seed, *bench, kinds, &is_wanted);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, work.len());
            made.map(|made| (*bench, made))
        });
        let made: Vec<Result<(bool, OfKinds)>> = made.collect();
        for result in made {
            let (bench, made) = result?;
            for (kind, case) in made {
                match case {
                    Ok(made) if bench => plans[kind].bench.push(made.pooled(texts, data)?),
                    Ok(made) if request.case_bytes.is_some_and(|most| made.bytes() > most) => {
                        let bytes = made.bytes();
                        let reason = format!("left out of this export: it has {bytes} bytes");
                        plans[kind].unavailable.push(made.unavailable(reason));
                    }
                    Ok(made) => plans[kind].check.push(made.pooled(texts, data)?),
                    Err(_) if bench => {}
                    Err(unavailable) => plans[kind].unavailable.push(unavailable),
                }
            }
        }
    }
    Ok(())
}

/// The smallest cases of each variant and kind, by the index of the problem.
fn smallest(
    work: &[(&Target, Problem, u64, bool)],
    kinds: &[Kind],
    count: usize,
) -> HashSet<(usize, String, usize)> {
    let bytes = |at: &usize| work[*at].0.kernel.cost(&work[*at].1).bytes;
    let mut order: Vec<usize> = (0..work.len()).filter(|at| !work[*at].3).collect();
    order.sort_by(|a, b| bytes(a).total_cmp(&bytes(b)));
    let (mut taken, mut wanted) = (HashMap::new(), HashSet::new());
    for at in order {
        let (target, problem, ..) = &work[at];
        for subject in &target.subjects {
            for (kind, own) in kinds.iter().enumerate() {
                let name = (target.kernel.name, subject.name(), kind);
                let taken: &mut usize = taken.entry(name).or_default();
                if *taken < count
                    && subject.plan(problem, &own.caps).is_ok()
                    && fits(subject.kernel, problem, &own.caps).is_ok()
                {
                    *taken += 1;
                    wanted.insert((at, subject.name(), kind));
                }
            }
        }
    }
    wanted
}

/// The cases of all variants of a target on one problem, for each kind. They share their inputs.
fn of_problem(
    target: &Target,
    problem: &Problem,
    seed: u64,
    bench: bool,
    kinds: &[Kind],
    is_wanted: &dyn Fn(&Subject, usize) -> bool,
) -> Result<OfKinds> {
    let (mut made, mut drawn): (OfKinds, Option<Case>) = (Vec::new(), None);
    for subject in &target.subjects {
        for (at, kind) in kinds.iter().enumerate() {
            let planned = subject.plan(problem, &kind.caps);
            let plan = match planned {
                Ok(plan) => fits(subject.kernel, problem, &kind.caps).map(|()| plan),
                Err(PlanError::Unavailable(reason)) => Err(reason),
                Err(e) => return Err(e.into_usage()),
            };
            let unavailable = |reason| Unavailable {
                kernel: subject.kernel.name,
                variant: subject.name(),
                shape: subject.kernel.show(problem),
                seed,
                reason,
            };
            let left_out = || "left out of this export: the variant has smaller cases".to_owned();
            let plan = match plan
                .and_then(|plan| is_wanted(subject, at).then_some(plan).ok_or_else(left_out))
            {
                Ok(plan) => plan,
                Err(reason) => {
                    made.push((at, Err(unavailable(reason))));
                    continue;
                }
            };
            let case = match &drawn {
                None if bench => Case::drawn_for(plan, problem, seed)?,
                None => Case::untimed_for(plan, problem, seed)?,
                Some(case) => case.with_plan(plan),
            };
            made.push((
                at,
                match case.is_reordered() {
                    true => Err(unavailable(
                        "its caches have another order, which is not exported".into(),
                    )),
                    false => Ok(Made::of(subject, &case, seed)?),
                },
            ));
            drawn.get_or_insert(case);
        }
    }
    Ok(made)
}

impl Made {
    fn of(subject: &Subject, case: &Case, seed: u64) -> Result<Self> {
        let (op, kernel) = (&case.recording.ops[0], subject.kernel);
        let stages = op.plan.stages.iter();
        let stages = stages.map(|stage| Stage::of(&op.plan, stage, &|name| op.tensor(name)));
        let exported = case.exported()?;
        let named = CaseResult {
            kernel: kernel.name.into(),
            variant: subject.variant.name.into(),
            wgsl: subject.path().map(|path| path.display().to_string()),
            shape: kernel.show(case.problem()),
            seed,
            verdict: Verdict::Unavailable { reason: String::new() },
        };
        let cost = kernel.cost(case.problem());
        let plan = CasePlan {
            kernel: kernel.name,
            variant: subject.name(),
            repeat: named.reproducer(Checks::Files),
            shape: named.shape,
            seed,
            source: op.plan.fingerprint(),
            bytes: cost.bytes,
            flops: cost.flops,
            tensors: Vec::new(),
            stages: Vec::new(),
            runs: Vec::new(),
        };
        let rotated = case.rotated();
        let ids = (0..exported.tensors.len()).map(lathe_device::plan::recording::TensorId);
        let large = ids.map(|id| rotated.contains(&id)).collect();
        let (tensors, runs) = (exported.tensors, exported.runs);
        Ok(Self { plan, stages: stages.collect::<Result<_>>()?, tensors, large, runs })
    }

    /// Bytes of inputs and of expected values with their bounds.
    fn bytes(&self) -> u64 {
        let contents = self.tensors.iter().flat_map(|t| t.first.iter().chain(&t.second));
        let outcome = |outcome: &ExportedOutcome| match &outcome.judged {
            Judged::Real { value, .. } => 12 * value.len(),
            Judged::Words(words) | Judged::Choice { words, .. } => 4 * words.len(),
            Judged::Ranking { rows, .. } => 24 * rows.len(),
        };
        let outcomes = self.runs.iter().flatten().map(outcome);
        contents.map(Vec::len).chain(outcomes).sum::<usize>() as u64
    }

    fn unavailable(self, reason: String) -> Unavailable {
        let CasePlan { kernel, variant, shape, seed, .. } = self.plan;
        Unavailable { kernel, variant, shape, seed, reason }
    }

    fn pooled(self, texts: &mut Texts, data: &mut Data) -> Result<CasePlan> {
        let stages = self.stages.into_iter().map(|stage| stage.pooled(texts)).collect();
        let mut tensors = Vec::new();
        for (tensor, large) in self.tensors.into_iter().zip(self.large) {
            let mut range = |bytes: Option<Vec<u8>>| bytes.map(|b| data.add(&b)).transpose();
            let (first, second) = (range(tensor.first)?, range(tensor.second)?);
            let (stored, head_dim) = match tensor.stored {
                Stored::Floats(FloatFormat::F32) => ("f32", None),
                Stored::Floats(FloatFormat::F16) => ("f16", None),
                Stored::Floats(FloatFormat::Bf16) => ("bf16", None),
                Stored::Words => ("u32", None),
                Stored::Quantised(vectors) => ("q8_0", Some(vectors.head_dim)),
            };
            let role = match tensor.role {
                Some(Role::Input) | None => "input",
                Some(Role::Output) => "output",
                Some(Role::InOut) => "inout",
                Some(Role::Scratch) => "scratch",
                Some(Role::Counter) => "counter",
            };
            let (name, bytes) = (tensor.name, tensor.bytes);
            tensors.push(TensorPlan { name, role, bytes, stored, head_dim, first, second, large });
        }
        let mut runs = Vec::new();
        for run in self.runs {
            let outcomes = run.into_iter().map(|outcome| pooled(outcome, data));
            runs.push(outcomes.collect::<Result<_>>()?);
        }
        Ok(CasePlan { tensors, stages, runs, ..self.plan })
    }
}

fn pooled(outcome: ExportedOutcome, data: &mut Data) -> Result<OutcomePlan> {
    let wide = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let judged = match outcome.judged {
        Judged::Real { value, bound, spreads, unavoidable, overflowing, nmse, largest } => {
            let overflowing: Vec<f64> =
                overflowing.into_iter().flat_map(|(i, error)| [i as f64, error]).collect();
            let exact = value.iter().all(|v| v.is_nan() || f64::from(*v as f32) == *v);
            let rounded: Vec<f32> = bound.iter().map(|b| rounded_up(*b)).collect();
            let fits = rounded.iter().zip(&bound).all(|(r, b)| r.is_finite() == b.is_finite());
            JudgedPlan::Real {
                len: value.len(),
                value: data.add(&if exact {
                    narrow(value.iter().map(|v| *v as f32))
                } else {
                    wide(&value)
                })?,
                bound: data.add(&if fits { narrow(rounded) } else { wide(&bound) })?,
                spreads,
                largest,
                nmse,
                unavoidable,
                overflowing: (!overflowing.is_empty())
                    .then(|| data.add(&wide(&overflowing)))
                    .transpose()?,
            }
        }
        Judged::Ranking { values, rows } => {
            let rows: Vec<f64> =
                rows.iter().flat_map(|(i, value, bound)| [f64::from(*i), *value, *bound]).collect();
            JudgedPlan::Ranking { values, rows: data.add(&wide(&rows))? }
        }
        Judged::Words(words) => JudgedPlan::Words { words: data.add(&le_bytes(&words))? },
        Judged::Choice { words, at, allowed } => {
            JudgedPlan::Choice { words: data.add(&le_bytes(&words))?, at, allowed }
        }
    };
    Ok(OutcomePlan { tensor: outcome.tensor, judged })
}

/// The f32 nearest to a bound whose size is not below its.
fn rounded_up(bound: f64) -> f32 {
    let near = bound.abs() as f32;
    let size = if f64::from(near) < bound.abs() { near.next_up() } else { near };
    size.copysign(bound as f32)
}

fn narrow(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

pub(crate) fn le_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
