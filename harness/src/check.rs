//! Correctness: one kernel invocation on the device between guard words, held against the
//! reference. The same case serves `lathe check`, the property tests and the benches' validation.

use std::sync::{Arc, OnceLock};

use lathe_kernels::{
    Binding, Elem, Format, Kernel, Order, Packing, ParamKind, Role, RopeSpec, Shape, StateWord,
    Tolerance, Variant,
};
use lathe_reference as reference;
use serde::Serialize;

use crate::data::rng::Rng;
use crate::error::{Error, Result};
use crate::execute::gpu::decode_values;
use crate::execute::oracle;
use crate::execute::value::{Outcome, Value};
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{Gpu, POISON, Pipelines, Policy};
use crate::plan::{Plan, PlanError};
use crate::recording::{Content, FloatFormat, Label, Recording, TensorId};
use crate::weights::WeightRows;

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

/// The element closest to (or farthest past) its bound.
#[derive(Clone, Debug, Serialize)]
pub struct WorstElement {
    /// Binding.
    pub tensor: String,
    /// Element.
    pub index: usize,
    /// What the device computed.
    pub got: f64,
    /// What the reference says.
    pub expected: f64,
    /// Largest allowed difference.
    pub bound: f64,
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

/// One invocation with all its inputs, ready for either executor.
#[derive(Debug)]
pub struct Case {
    /// A recording of one operation.
    pub recording: Arc<Recording>,
    inputs: Arc<Inputs>,
    kernel: &'static Kernel,
    tolerance: Tolerance,
}

/// What was drawn for a shape and a seed, and what should come of it: the same for every plan.
#[derive(Debug)]
struct Inputs {
    shape: Shape,
    /// Every binding but scratch, in order: its name, content and value. The first tensors of the
    /// recording.
    drawn: Vec<(&'static str, Content)>,
    values: Vec<Value>,
    expected: OnceLock<Vec<(TensorId, Outcome)>>,
}

impl Case {
    /// Draws inputs for a planned invocation from `seed`. An error when a tensor exceeds what
    /// `gpu` can bind: that is asked before any of it is made.
    pub fn new(gpu: &Gpu, plan: Plan, shape: &Shape, seed: u64) -> Result<Self> {
        let kernel = plan.kernel;
        if let Some(reason) = too_large(kernel, shape, gpu.caps.binding_bytes) {
            return Err(Error::Unavailable {
                what: format!("{} {}", kernel.name, shape.show(kernel.params)),
                adapter: gpu.adapter.name.clone(),
                reason,
            });
        }
        let mut rng = Rng::new(seed);
        let (mut drawn, mut values) = (Vec::new(), Vec::new());
        for b in kernel.bindings.iter().filter(|b| !b.role.is_own()) {
            let (content, value) = draw(b, shape, plan.packing, &mut rng);
            drawn.push((b.name, content));
            values.push(value);
        }
        let shape = shape.clone();
        let inputs = Inputs { shape, drawn, values, expected: OnceLock::new() };
        Ok(Self::over(Arc::new(inputs), plan))
    }

    /// The same inputs for another plan of the same kernel and shape.
    pub fn with_plan(&self, plan: Plan) -> Self {
        Self::over(Arc::clone(&self.inputs), plan)
    }

    fn over(inputs: Arc<Inputs>, plan: Plan) -> Self {
        let (kernel, packing) = (plan.kernel, plan.packing);
        let mut recording = Recording::default();
        let bound: Vec<_> = inputs
            .drawn
            .iter()
            .map(|(name, content)| {
                let content = match content {
                    Content::Weights(rows, _) => Content::Weights(rows.clone(), packing),
                    other => other.clone(),
                };
                (*name, recording.tensor(*name, content))
            })
            .collect();
        let shape = inputs.shape.clone();
        let tolerance = (plan.tolerance)(&shape);
        recording.op(Label { layer: None, op: kernel.name }, plan, shape, &bound);
        Self { recording: Arc::new(recording), inputs, kernel, tolerance }
    }

    /// What the invocation should leave behind; computed once for all plans.
    fn expected(&self) -> &[(TensorId, Outcome)] {
        let op = &self.recording.ops[0];
        self.inputs.expected.get_or_init(|| oracle::expected(op, &self.inputs.values))
    }

    /// The case on a device with its inputs written, not yet run.
    pub fn prepare(
        &self,
        gpu: &Arc<Gpu>,
        pipelines: &Pipelines,
        policy: Policy,
    ) -> Result<GpuExecutor> {
        let recording = Arc::clone(&self.recording);
        let mut executor =
            GpuExecutor::new(Arc::clone(gpu), pipelines, recording, policy, &mut |_, _| {})?;
        self.write_inputs(&mut executor)?;
        Ok(executor)
    }

    /// Writes every input, zeros into counters, and poison into every output and scratch tensor.
    fn write_inputs(&self, executor: &mut GpuExecutor) -> Result<()> {
        self.write(executor, true)
    }

    /// Undoes a run: what it may have written is as [`Case::prepare`] left it. Inputs that are
    /// only read still are; caches of a long context would take longer to write than to attend to.
    pub fn reset(&self, executor: &mut GpuExecutor) -> Result<()> {
        self.write(executor, false)
    }

    fn write(&self, executor: &mut GpuExecutor, inputs: bool) -> Result<()> {
        for (i, tensor) in self.recording.tensors.iter().enumerate() {
            if self.is(i, Role::Input) && !inputs {
                continue;
            }
            let block = executor.block(TensorId(i));
            if self.is(i, Role::Output) || self.is(i, Role::Scratch) {
                // What an earlier run or another variant left there must not pass for a result.
                block.poison(&executor.gpu);
                continue;
            }
            if self.is(i, Role::Counter) {
                block.write(&executor.gpu, 0, &vec![0; block.bytes as usize]);
                continue;
            }
            let Some(value) = self.inputs.values.get(i) else { continue };
            match (value, &tensor.content) {
                (Value::U32(words), Content::Words(_)) => {
                    executor.write_words(TensorId(i), 0, words)?;
                }
                (
                    Value::F32(values),
                    Content::Kv { format, .. } | Content::Activation { format, .. },
                ) => {
                    block.write(&executor.gpu, 0, &format.encode(values));
                }
                (Value::F32(values), Content::Values(_)) => {
                    block.write(&executor.gpu, 0, bytemuck::cast_slice(values));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The tensors a cold benchmark rotates: weights and caches, which decode finds in device
    /// memory; for kernels without any, all inputs. An output stays shared, so that each invocation
    /// waits for the one before, as in a decode step.
    pub fn rotated(&self) -> Vec<TensorId> {
        let op = &self.recording.ops[0];
        let bindings =
            || op.bindings.iter().filter_map(|(name, id)| Some((self.kernel.binding(name)?, *id)));
        let is_large = |b: &Binding| matches!(b.elem, Elem::Weights | Elem::Kv);
        // A cache that is written only rotates beside an output that does not.
        let waits = bindings().any(|(b, _)| b.role != Role::Input && !is_large(b));
        let inputs = |large: bool| {
            bindings().filter_map(move |(b, id)| {
                let is_read =
                    b.role == Role::Input || (b.role == Role::InOut && is_large(b) && waits);
                (is_read && (is_large(b) || !large)).then_some(id)
            })
        };
        let large: Vec<_> = inputs(true).collect();
        if large.is_empty() { inputs(false).collect() } else { large }
    }

    /// The tensors a variant writes, scratch memory included.
    pub fn written(&self) -> Vec<TensorId> {
        let op = &self.recording.ops[0];
        let writes = |name| self.kernel.binding(name).is_some_and(|b| b.role != Role::Input);
        op.bindings.iter().filter(|(name, _)| writes(name)).map(|(_, id)| *id).collect()
    }

    fn is(&self, tensor: usize, role: Role) -> bool {
        let name = self.recording.ops[0]
            .bindings
            .iter()
            .find(|(_, id)| id.0 == tensor)
            .and_then(|(name, _)| self.kernel.binding(name));
        name.is_some_and(|b| b.role == role)
    }

    /// Holds what the device left behind against the reference.
    pub fn judge(&self, executor: &GpuExecutor, policy: Policy) -> Result<Verdict> {
        let mut contents = Vec::new();
        for (i, tensor) in self.recording.tensors.iter().enumerate() {
            // Bound to be read only: nothing can have changed there.
            if self.is(i, Role::Input) {
                contents.push(Vec::new());
                continue;
            }
            let bytes = match policy {
                Policy::Plain => executor.block(TensorId(i)).read(&executor.gpu)?,
                Policy::Guarded => {
                    let (bytes, touched) =
                        executor.block(TensorId(i)).read_guarded(&executor.gpu)?;
                    if let Some(at) = touched {
                        let reason = format!(
                            "{}: wrote outside the tensor, at byte {at} of {}",
                            tensor.name,
                            bytes.len()
                        );
                        return Ok(Verdict::broken(reason));
                    }
                    bytes
                }
            };
            if self.is(i, Role::Counter) && bytes.iter().any(|byte| *byte != 0) {
                let reason = format!("{}: the counter was not left at zero", tensor.name);
                return Ok(Verdict::broken(reason));
            }
            contents.push(bytes);
        }
        let mut nmse = 0.0f64;
        let mut worst: Option<(f64, WorstElement)> = None;
        let mut chosen = None;
        for (tensor, outcome) in self.expected() {
            let name = &self.recording.tensors[tensor.0].name;
            let bytes = &contents[tensor.0];
            if self.is(tensor.0, Role::Output) {
                let unwritten = bytes.chunks_exact(4).position(|word| word == POISON.to_le_bytes());
                if let Some(index) = unwritten {
                    let reason = format!("{name}[{index}] was never written");
                    return Ok(Verdict::broken(reason));
                }
            }
            match &outcome {
                Outcome::Choice { .. } => {
                    let got: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
                    if let Err(m) = outcome.choice(&got, &mut chosen) {
                        return Ok(Verdict::broken(format!("{name}: {m}")));
                    }
                }
                Outcome::Ranking { values, rows, .. } => {
                    let got: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
                    let content = &self.recording.tensors[values.0].content;
                    let values = decode_values(content, &contents[values.0]);
                    let tolerance = tolerance(&self.tolerance, content);
                    if let Err(m) = reference::lm_head_topk::judge(rows, &tolerance, &values, &got)
                    {
                        return Ok(Verdict::broken(format!("{name}: {m}")));
                    }
                }
                Outcome::Words(words) => {
                    let got: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
                    if let Err(m) = reference::compare_exact(words, &got) {
                        return Ok(Verdict::broken(format!("{name}: {m}")));
                    }
                }
                Outcome::Real(expected) => {
                    let content = &self.recording.tensors[tensor.0].content;
                    let got = decode_values(content, bytes);
                    let tolerance = tolerance(&self.tolerance, content);
                    let element = |w: &reference::Worst| WorstElement {
                        tensor: name.clone(),
                        index: w.index,
                        got: w.got,
                        expected: w.expected,
                        bound: w.bound,
                    };
                    match reference::compare(expected, &got, &tolerance) {
                        Err(m) => {
                            let same_length = expected.value.len() == got.len();
                            let error = same_length.then(|| {
                                let got = got.iter().map(|v| f64::from(*v));
                                reference::nmse(expected.value.iter().copied(), got)
                            });
                            return Ok(Verdict::Failed {
                                reason: format!("{name}: {m}"),
                                nmse: error,
                                worst: m.worst().map(element),
                            });
                        }
                        Ok(agreement) => {
                            nmse = nmse.max(agreement.nmse);
                            let w = agreement.worst;
                            if worst.as_ref().is_none_or(|(ratio, _)| w.ratio() > *ratio) {
                                worst = Some((w.ratio(), element(&w)));
                            }
                        }
                    }
                }
            }
        }
        Ok(Verdict::Passed { nmse, worst: worst.map(|(_, w)| w) })
    }
}

/// A plan's tolerance for an output, with the rounding of the type it is stored in.
pub fn tolerance(of: &Tolerance, stored: &Content) -> reference::Tolerance {
    let tolerance = reference::Tolerance { k: of.k, rounding: of.rounding, nmse: of.nmse };
    match stored {
        Content::Activation { format: FloatFormat::F16, .. } => tolerance.stored_as_f16(),
        // WGSL leaves the direction of f32 to f16 rounding open: a whole step of f16.
        Content::Kv { format: FloatFormat::F16, .. } => reference::Tolerance {
            rounding: tolerance.rounding.max(1.0 / 1024.0),
            nmse: tolerance.nmse.max(1e-6),
            ..tolerance
        },
        _ => tolerance,
    }
}

/// Checks one variant on one shape.
pub fn check(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    kernel: &'static Kernel,
    variant: &'static Variant,
    shape: &Shape,
    seed: u64,
) -> Result<CaseResult> {
    let verdict = match Plan::of(kernel, variant, shape, &gpu.caps) {
        Ok(plan) => check_plan(gpu, pipelines, plan, shape, seed)?,
        Err(PlanError::Unavailable(reason)) => Verdict::Unavailable { reason },
        Err(e @ PlanError::Reflect(_)) => Verdict::broken(e.to_string()),
    };
    Ok(CaseResult {
        kernel: kernel.name.into(),
        variant: variant.name.into(),
        wgsl: None,
        shape: shape.show(kernel.params),
        seed,
        verdict,
    })
}

/// Checks one planned invocation, whatever its source.
pub fn check_plan(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    plan: Plan,
    shape: &Shape,
    seed: u64,
) -> Result<Verdict> {
    match Case::new(gpu, plan, shape, seed) {
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
    executor.run(1)?;
    case.judge(&executor, Policy::Guarded)
}

/// The shapes a sweep checks: the kernel's own cases, then `random` drawn ones, each with its
/// seed. The same for every variant of a kernel.
pub fn sweep(kernel: &Kernel, random: usize, seed: u64) -> Vec<(Shape, u64)> {
    let mut shapes = (kernel.cases)();
    let mut rng = Rng::derive(seed, kernel.name);
    for _ in 0..random {
        shapes.push(kernel.draw_shape(&mut |n| rng.below(n)));
    }
    shapes.into_iter().map(|shape| (shape, rng.next_u64() >> 16)).collect()
}

/// Why a shape has tensors that no binding holds.
fn too_large(kernel: &Kernel, shape: &Shape, limit: u64) -> Option<String> {
    // Lengths are products of sizes; beyond 2^53 elements they are not even computed.
    let sizes = kernel.params.iter().filter(|p| {
        matches!(p.kind, ParamKind::Dim { .. } | ParamKind::OneOf(_)) && p.name != "GIVEN"
    });
    let all: f64 = sizes.filter_map(|p| shape.get(p.name)).product();
    if all > 9.0e15 {
        return Some("its sizes multiply beyond what can be addressed".into());
    }
    kernel.bindings.iter().find_map(|b| {
        let bytes = 4 * (b.len)(shape) as u64;
        // At least half of that is stored, whatever the format.
        (bytes / 2 > limit).then(|| {
            format!("{} needs at least {} bytes, the largest binding is {limit}", b.name, bytes / 2)
        })
    })
}

fn draw(b: &Binding, shape: &Shape, packing: Packing, rng: &mut Rng) -> (Content, Value) {
    let (name, len) = (b.name, (b.len)(shape));
    let format = |param: &str| FloatFormat::from_code(shape.dim(param));
    match b.elem {
        Elem::F32 if b.role == Role::Output => {
            let format = FloatFormat::F32;
            (Content::Activation { len, format }, Value::F32(vec![f32::NAN; len]))
        }
        Elem::Act | Elem::Floats(_) => {
            let format = match b.elem {
                Elem::Floats(param) => format(param),
                _ => format("ACTS"),
            };
            let mut values = match b.role {
                Role::Output => vec![f32::NAN; len],
                _ => rng.normals(len),
            };
            values.iter_mut().for_each(|v| *v = format.round(*v));
            (Content::Activation { len, format }, Value::F32(values))
        }
        Elem::F32 => {
            let mut values: Vec<f32> = if name == "logits" {
                // Few distinct values, so that ties happen.
                (0..len).map(|_| rng.below(4096) as f32 / 64.0 - 32.0).collect()
            } else {
                rng.normals(len)
            };
            if let ("best_value" | "top_values", Some(k)) = (name, shape.get("K")) {
                // Logits of an earlier part, in order, above and below those to come.
                values.iter_mut().for_each(|v| *v *= 3.0 * k.sqrt() as f32);
                values.sort_by(|a, b| b.total_cmp(a));
            }
            (Content::Values(values.as_slice().into()), Value::F32(values))
        }
        Elem::U32 => {
            let words: Vec<u32> = if name == "state" {
                let mut state = vec![0; len];
                state[StateWord::Position as usize] = shape.get("SEEN").map_or(0, |s| s as u32 - 1);
                state[StateWord::Given as usize] = shape.get("GIVEN").map_or(1, |g| g as u32);
                state[StateWord::Seed as usize] = rng.next_u64() as u32;
                state
            } else if name == "top_indices" {
                // Tokens of an earlier part.
                (0..len as u32).map(|i| 0x10_0000 + i).collect()
            } else {
                let vocab = shape.get("VOCAB").map_or(1000, |v| v as u32);
                (0..len).map(|_| rng.below(vocab)).collect()
            };
            (Content::Words(len), Value::U32(words))
        }
        Elem::Weights => {
            let format = Format::of(shape);
            let k = shape.get("K").or(shape.get("HIDDEN")).map_or(1, |k| k as usize);
            // Where an activation follows, products of about one: far below zero it leaves nothing.
            let gain = if shape.get("ACT").is_some() { (k as f32).sqrt().recip() } else { 1.0 };
            let mut values = rng.normals(len);
            if gain != 1.0 {
                values.iter_mut().for_each(|v| *v *= gain);
            }
            if shape.get("PART").is_some() {
                // Some rows of a head are equal, near each other and far apart: ties happen.
                for row in 0..len / k {
                    let other = match row % 8 {
                        5 => row - 5,
                        3 => row / 2,
                        _ => row,
                    };
                    values.copy_within(other * k..(other + 1) * k, row * k);
                }
            }
            let rows = WeightRows::from_f32(format, Order::of(shape), k, &values);
            (Content::Weights(rows.clone(), packing), Value::Weights(rows))
        }
        Elem::Kv => {
            let format = format("KV");
            let mut values = rng.normals(len);
            values.iter_mut().for_each(|v| *v = format.round(*v));
            (Content::Kv { len, format }, Value::F32(values))
        }
        Elem::Rope => {
            let head_dim = shape.dim("HEAD_DIM");
            let factors = (shape.dim("FACTORS") == 1)
                .then(|| (0..head_dim / 2).map(|i| 1.0 + 31.0 * (i % 7) as f32 / 6.0).collect());
            let spec = RopeSpec {
                base: shape.float("BASE") as f32,
                head_dim,
                positions: shape.dim("SEEN"),
                freq_factors: factors,
            };
            (Content::Rope(spec.clone()), Value::Rope(spec))
        }
    }
}
