//! One invocation with drawn inputs: what `check` runs once and `bench` many times.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use lathe_kernels::{Elem, Kernel, KernelBinding, ParamKind, Problem, Role};

use super::Verdict;
use super::draw::draw;
use crate::data::rng::Rng;
use crate::error::{Error, Result};
use crate::execute::oracle::{self, Outcomes};
use crate::execute::value::Value;
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{Gpu, POISON, Pipelines, Policy};
use crate::judge::{Within, judge};
use crate::plan::Plan;
use crate::plan::recording::{Content, Label, Recording, TensorId};

/// One invocation with all its inputs, ready for either executor.
#[derive(Debug)]
pub struct Case {
    /// A recording of one operation.
    pub recording: Arc<Recording>,
    inputs: Arc<Inputs>,
    kernel: &'static Kernel,
}

/// What was drawn for a shape and a seed, and what should come of it: the same for every plan.
#[derive(Debug)]
struct Inputs {
    problem: Problem,
    /// Every binding but scratch, in order: its name, content and value. The first tensors of the
    /// recording.
    drawn: Vec<(&'static str, Content)>,
    values: Vec<Value>,
    expected: OnceLock<Outcomes>,
}

impl Case {
    /// Draws inputs for a planned invocation from `seed`. An error when a tensor exceeds what
    /// `gpu` can bind: that is asked before any of it is made.
    pub fn new(gpu: &Gpu, plan: Plan, problem: &Problem, seed: u64) -> Result<Self> {
        let kernel = plan.kernel;
        oracle::exists(kernel)?;
        if let Some(reason) = too_large(kernel, problem, gpu.caps.binding_bytes) {
            return Err(Error::Unavailable {
                what: format!("{} {}", kernel.name, kernel.show(problem)),
                adapter: gpu.adapter.name.clone(),
                reason,
            });
        }
        let mut rng = Rng::new(seed);
        let (mut drawn, mut values) = (Vec::new(), Vec::new());
        for b in kernel.bindings.iter().filter(|b| !b.role.is_own()) {
            let (content, value) = draw(b, problem, plan.packing, &mut rng);
            drawn.push((b.name, content));
            values.push(value);
        }
        let problem = problem.clone();
        let inputs = Inputs { problem, drawn, values, expected: OnceLock::new() };
        Ok(Self::over(Arc::new(inputs), plan))
    }

    /// The parameters and the state that inputs were drawn for.
    pub fn problem(&self) -> &Problem {
        &self.inputs.problem
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
        let shape = inputs.problem.shape.clone();
        recording.op(Label { layer: None, op: kernel.name }, plan, shape, &bound);
        Self { recording: Arc::new(recording), inputs, kernel }
    }

    /// What the invocation should leave behind; computed once for all plans.
    fn expected(&self) -> Result<&Outcomes> {
        let Inputs { values, expected, .. } = &*self.inputs;
        if let Some(known) = expected.get() {
            return Ok(known);
        }
        let computed = oracle::expected(&self.recording.ops[0], values)?;
        Ok(expected.get_or_init(|| computed))
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
        let is_large = |b: &KernelBinding| {
            matches!(b.elem(&self.inputs.problem), Elem::Weights(_) | Elem::Kv(_))
        };
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

    /// Holds what the device left behind against the reference: guards, counters and outputs that
    /// were never written first, then [`judge`](crate::judge::judge).
    pub fn judge(&self, executor: &GpuExecutor, policy: Policy) -> Result<Verdict> {
        let mut left = BTreeMap::new();
        for (i, tensor) in self.recording.tensors.iter().enumerate() {
            // Bound to be read only: nothing can have changed there.
            if self.is(i, Role::Input) {
                continue;
            }
            let block = executor.block(TensorId(i));
            let broken = |reason: String| Verdict::broken(format!("{}{reason}", tensor.name));
            let bytes = match policy {
                Policy::Plain => block.read(&executor.gpu)?,
                Policy::Guarded => {
                    let (bytes, touched) = block.read_guarded(&executor.gpu)?;
                    if let Some(at) = touched {
                        let len = bytes.len();
                        return Ok(broken(format!(
                            ": wrote outside the tensor, at byte {at} of {len}"
                        )));
                    }
                    bytes
                }
            };
            if self.is(i, Role::Counter) && bytes.iter().any(|byte| *byte != 0) {
                return Ok(broken(": the counter was not left at zero".into()));
            }
            if self.is(i, Role::Output) {
                let poison = POISON.to_le_bytes();
                if let Some(index) = bytes.chunks_exact(4).position(|word| word == poison) {
                    return Ok(broken(format!("[{index}] was never written")));
                }
            }
            left.insert(TensorId(i), bytes);
        }
        let (op, state) = (&self.recording.ops[0], self.inputs.problem.state);
        Ok(match judge(&self.recording, op, state, self.expected()?, &left) {
            Ok(Within { nmse, worst }) => Verdict::Passed { nmse, worst },
            Err(fault) => {
                Verdict::Failed { reason: fault.to_string(), nmse: fault.nmse, worst: fault.worst }
            }
        })
    }
}

/// Why a problem has tensors that no binding holds.
fn too_large(kernel: &Kernel, problem: &Problem, limit: u64) -> Option<String> {
    // Lengths are products of sizes; beyond 2^53 elements they are not even computed.
    let sizes = kernel
        .params
        .iter()
        .filter(|p| matches!(p.kind, ParamKind::Dim { .. } | ParamKind::OneOf(_)));
    let sizes: f64 = sizes.filter_map(|p| problem.shape.get(p.name)).product();
    let all = sizes * if kernel.state.is_empty() { 1.0 } else { problem.state.n_kv as f64 };
    if all > 9.0e15 {
        return Some("its sizes multiply beyond what can be addressed".into());
    }
    kernel.bindings.iter().find_map(|b| {
        let bytes = 4 * b.len(problem) as u64;
        // At least half of that is stored, whatever the format.
        (bytes / 2 > limit).then(|| {
            format!("{} needs at least {} bytes, the largest binding is {limit}", b.name, bytes / 2)
        })
    })
}
