//! One invocation with drawn inputs: `check` runs it once and `bench` many times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lathe_kernels::{
    Draw as Drawing, Elem, Kernel, KernelBinding, KvFormat, Packing, ParamKind, Problem, Role,
    STATE_WORDS, State, StateWord,
};
use lathe_record::rng::Rng;

use super::Verdict;
use super::draw::{InputKind, draw};
use crate::error::Result;
use crate::execute::GpuExecutor;
use crate::execute::oracle::{self, Outcomes};
use crate::execute::value::Value;
use crate::gpu::{DeviceBuffer, Gpu, Pipelines, Policy, poison};
use crate::judge::{Within, judge};
use crate::plan::Plan;
use crate::plan::layout::KvOrder;
use crate::plan::memory::UPLOAD_BYTES;
use crate::plan::recording::{Label, Recording, Tensor, TensorId, TensorInit};

/// One invocation with all its inputs, ready for either executor.
#[derive(Debug)]
pub struct Case {
    /// A recording of one operation.
    pub recording: Arc<Recording>,
    inputs: Arc<Inputs>,
    kernel: &'static Kernel,
}

/// Drawn inputs of a shape and a seed with their expected outcomes: the same for every plan.
#[derive(Debug)]
struct Inputs {
    problem: Problem,
    seed: u64,
    /// Every binding but scratch, in order: its name, content and value. They are the first tensors
    /// of the recording.
    drawn: Vec<(&'static str, TensorInit)>,
    values: Vec<Value>,
    /// All draws but the first, in order of [`Draw::small`]. Large tensors are left out: they are
    /// rotated instead.
    others: [OnceLock<Vec<Value>>; DRAWS - 1 + InputKind::CHECKED.len()],
    /// Expected outcomes of each draw requested so far.
    expected: Mutex<BTreeMap<Draw, Arc<Outcomes>>>,
}

/// Number of input sets per case. Benchmarks rotate through them, so a stale output of the previous
/// invocation never equals the expected one.
pub const DRAWS: usize = 4;

/// Inputs of an invocation: one draw of its large tensors (weights and caches), and one of all
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Draw {
    /// Number of the rotation of large tensors, which hold the first draw rotated by some blocks.
    pub large: usize,
    /// Number of the draw of all other inputs: below [`DRAWS`] for benchmarks, from there on one
    /// for each kind of [`InputKind::CHECKED`].
    pub small: usize,
}

impl Draw {
    /// Kind of the small tensors.
    fn kind(self) -> InputKind {
        self.small.checked_sub(DRAWS).map_or(InputKind::Typical, |nth| InputKind::CHECKED[nth])
    }
}

impl Case {
    /// Draws inputs for a planned invocation from `seed`. Fails before any is drawn if a tensor
    /// exceeds the largest binding of `gpu`.
    pub fn new(gpu: &Gpu, plan: Plan, problem: &Problem, seed: u64) -> Result<Self> {
        let kernel = plan.kernel;
        oracle::exists(kernel)?;
        if let Some(reason) = too_large(kernel, problem, gpu.caps.binding_bytes) {
            let what = format!("{} {}", kernel.name, kernel.show(problem));
            return Err(gpu.unavailable(what, reason));
        }
        let mut rng = Rng::new(seed);
        let (mut drawn, mut values) = (Vec::new(), Vec::new());
        for b in given(kernel) {
            let (content, value) = draw(b, problem, plan.packing, InputKind::Typical, &mut rng);
            drawn.push((b.name, content));
            values.push(value);
        }
        let inputs = Inputs {
            problem: problem.clone(),
            seed,
            drawn,
            values,
            others: Default::default(),
            expected: Mutex::default(),
        };
        Ok(Self::over(Arc::new(inputs), plan))
    }

    /// The parameters and the state that inputs were drawn for.
    pub fn problem(&self) -> &Problem {
        &self.inputs.problem
    }

    /// Seed of the inputs.
    pub fn seed(&self) -> u64 {
        self.inputs.seed
    }

    /// A case with the same inputs for another plan of the same kernel and shape.
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
                let is_apart = plan.foreign.parts.iter().any(|part| part.of == *name);
                let content = match content {
                    TensorInit::Weights(rows, _) if is_apart => TensorInit::Apart(rows.clone()),
                    TensorInit::Weights(rows, _) => TensorInit::Weights(rows.clone(), packing),
                    TensorInit::Kv { len, vectors, .. } => {
                        let order = plan.foreign.kv_orders.get(name).copied().unwrap_or_default();
                        TensorInit::Kv { len: *len, vectors: *vectors, order }
                    }
                    other => other.clone(),
                };
                (*name, recording.tensor(*name, content))
            })
            .collect();
        let shape = inputs.problem.shape.clone();
        recording.op(Label { layer: None, op: kernel.name }, plan, shape, &bound);
        Self { recording: Arc::new(recording), inputs, kernel }
    }

    /// Values of all drawn tensors.
    fn values(&self, draw: Draw) -> Vec<Value> {
        (0..self.inputs.values.len()).map(|i| self.value(TensorId(i), draw)).collect()
    }

    /// The drawn tensor that a device tensor holds, or holds a part of.
    fn drawn(&self, tensor: TensorId) -> TensorId {
        let op = &self.recording.ops[0];
        let named = op.own.iter().find(|(_, id)| *id == tensor).map(|(name, _)| name);
        let part =
            named.and_then(|name| op.plan.foreign.parts.iter().find(|part| part.name == *name));
        part.map_or(tensor, |part| op.tensor(part.of))
    }

    /// Value of a drawn tensor.
    fn value(&self, tensor: TensorId, draw: Draw) -> Value {
        let (inputs, tensor) = (&*self.inputs, self.drawn(tensor));
        let first = &inputs.values[tensor.0];
        if !self.is_large(tensor) {
            return match draw.small {
                0 => first.clone(),
                _ => self.others(draw)[tensor.0].clone(),
            };
        }
        match draw.large {
            0 => first.clone(),
            _ => turned(first, self.turn(tensor, draw), self.unit(tensor)),
        }
    }

    /// Number of units by which a large tensor is rotated, see [`turns`].
    fn turn(&self, tensor: TensorId, draw: Draw) -> usize {
        let mut rng = Rng::derive(self.inputs.seed, &format!("turn {}", draw.large));
        let most = turns(&self.inputs.values[tensor.0], self.unit(tensor)).saturating_sub(1);
        1 + rng.below(most as u32) as usize
    }

    /// Number of values of a drawn tensor that stay together when it is rotated: a cache vector
    /// with its scales, else the two f16 values of a word.
    fn unit(&self, tensor: TensorId) -> usize {
        match self.inputs.drawn[tensor.0].1 {
            TensorInit::Kv { vectors, .. } if vectors.format == KvFormat::Q8_0 => vectors.head_dim,
            _ => 2,
        }
    }

    /// Device memory for a tensor that holds a draw, made from the memory of the first draw.
    pub fn of_draw(
        &self,
        gpu: &Gpu,
        first: &DeviceBuffer,
        id: TensorId,
        draw: Draw,
    ) -> Result<DeviceBuffer> {
        let tensor = &self.recording.tensors[id.0];
        let each = match &tensor.content {
            TensorInit::Weights(rows, packing) if rows.rows() > 1 => {
                rows.format.row_stride(rows.k, *packing)
            }
            TensorInit::Kv { vectors, order: KvOrder::Heads, .. } => {
                vectors.bytes_of(self.unit(self.drawn(id)))
            }
            // The host lays out the others.
            _ => 0,
        };
        if draw.large > 0 && each > 0 && self.is_large(id) {
            let by = (self.turn(id, draw) * each) as u64;
            return first.turned(gpu, &tensor.name, by);
        }
        let block = first.copied(gpu, &tensor.name)?;
        let value = self.value(id, draw);
        gpu.caught(|| self.write_value(gpu, &block, id, &value))?;
        Ok(block)
    }

    /// A further draw of all tensors but large ones, which are empty in it.
    fn others(&self, wanted: Draw) -> &[Value] {
        let inputs = &*self.inputs;
        inputs.others[wanted.small - 1].get_or_init(|| {
            let mut rng = Rng::derive(inputs.seed, &format!("draw {}", wanted.small));
            let drawn = given(self.kernel).map(|b| match is_large(b, &inputs.problem) {
                true => Value::U32(Vec::new()),
                false => draw(b, &inputs.problem, Packing::Blocks, wanted.kind(), &mut rng).1,
            });
            drawn.collect()
        })
    }

    /// Expected outcomes of an invocation on a draw over fresh memory; computed once for all plans.
    fn expected(&self, draw: Draw) -> Result<Arc<Outcomes>> {
        let lock = || self.inputs.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&draw) {
            return Ok(Arc::clone(known));
        }
        let op = &self.recording.ops[0];
        let computed = match draw {
            // Large tensors are not copied for it.
            Draw { large: 0, small: 0 } => oracle::expected(op, &self.inputs.values)?,
            _ => oracle::expected(op, &self.values(draw))?,
        };
        let computed = Arc::new(computed);
        lock().insert(draw, Arc::clone(&computed));
        Ok(computed)
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
        self.write(&mut executor, true)?;
        Ok(executor)
    }

    /// The case on the device over the memory of another of the same inputs. Tensors that this plan
    /// lays out differently have memory of their own.
    pub fn prepare_beside(
        &self,
        other: &GpuExecutor,
        pipelines: &Pipelines,
        policy: Policy,
    ) -> Result<GpuExecutor> {
        let executor = other.sharing(pipelines, Arc::clone(&self.recording), policy)?;
        for (i, value) in self.inputs.values.iter().enumerate() {
            let id = TensorId(i);
            if !other.holds(&executor.shared(id)) && !is_weights(&self.recording.tensors[i]) {
                let block = executor.block(id);
                executor.gpu.caught(|| self.write_value(&executor.gpu, block, id, value))?;
            }
        }
        Ok(executor)
    }

    /// Undoes a run: restores the state of [`Case::prepare`] of all tensors that are written, and
    /// of small inputs. Large inputs are unchanged: writing the caches of a long context would take
    /// longer than attending to them.
    pub fn reset(&self, executor: &mut GpuExecutor) -> Result<()> {
        self.write(executor, false)
    }

    /// Writes inputs, `all` of them or small ones, zeros into counters, and poison into every
    /// output and scratch tensor.
    fn write(&self, executor: &mut GpuExecutor, all: bool) -> Result<()> {
        for (i, tensor) in self.recording.tensors.iter().enumerate() {
            let id = TensorId(i);
            let block = executor.block(id);
            match self.role(id) {
                Some(Role::Input) if self.is_large(id) && !all => {}
                // What an earlier run or another variant left there must not pass for a result.
                Some(Role::Output | Role::Scratch) => block.poison(&executor.gpu),
                Some(Role::Counter) => {
                    block.write(&executor.gpu, 0, &vec![0; block.bytes as usize]);
                }
                _ => {
                    // Weights, and their parts, are there since they were allocated.
                    let value = self.inputs.values.get(i).filter(|_| !is_weights(tensor));
                    if let Some(value) = value {
                        self.write_value(&executor.gpu, block, id, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// The tensors that a cold benchmark rotates: weights and caches, which decode reads from
    /// device memory; for kernels without any, all inputs. An output stays shared, so each
    /// invocation depends on the one before, as in a decode step.
    pub fn rotated(&self) -> Vec<TensorId> {
        let large = |id: &TensorId| self.is_large(*id);
        let all = || self.bound().map(|(_, id)| id);
        // A cache that is written only rotates beside an output that does not.
        let waits = all().any(|id| self.role(id) != Some(Role::Input) && !large(&id));
        let is_read = |id: &TensorId| match self.role(*id) {
            Some(Role::Input) => true,
            Some(Role::InOut) => large(id) && waits,
            _ => false,
        };
        let found: Vec<_> = all().filter(large).filter(is_read).collect();
        if found.is_empty() {
            all().filter(|id| !large(id)).filter(is_read).collect()
        } else {
            found
        }
    }

    /// The inputs that a benchmark does not rotate.
    pub fn given(&self) -> Vec<TensorId> {
        let rotated = self.rotated();
        // A table of angles follows from the shape.
        let fixed = |id: &TensorId| matches!(self.inputs.values[self.drawn(*id).0], Value::Rope(_));
        let input = |id: &TensorId| {
            self.role(*id) == Some(Role::Input) && !rotated.contains(id) && !fixed(id)
        };
        self.bound().map(|(_, id)| id).filter(input).collect()
    }

    /// The tensors a variant writes, scratch memory included.
    pub fn written(&self) -> Vec<TensorId> {
        let writes = |id: &TensorId| self.role(*id).is_some_and(|role| role != Role::Input);
        self.bound().map(|(_, id)| id).filter(writes).collect()
    }

    /// The written tensors that it also reads: their outcome depends on their previous content.
    pub fn read_and_written(&self) -> Vec<TensorId> {
        self.bound().map(|(_, id)| id).filter(|id| self.role(*id) == Some(Role::InOut)).collect()
    }

    /// The kernel's bindings on the device, with weights that are split replaced by their parts,
    /// and scratch memory that only a user's file has.
    fn bound(&self) -> impl Iterator<Item = (&str, TensorId)> {
        let op = &self.recording.ops[0];
        let own = op.own.iter().map(|(name, id)| (name.as_str(), *id));
        let own = own.filter(|(_, id)| self.role(*id).is_some());
        let is_apart =
            |id: &TensorId| matches!(self.recording.tensors[id.0].content, TensorInit::Apart(_));
        op.bindings.iter().copied().filter(move |(_, id)| !is_apart(id)).chain(own)
    }

    /// The kernel's role of a tensor; none where the plan gives the content, such as uniforms.
    pub fn role(&self, tensor: TensorId) -> Option<Role> {
        let op = &self.recording.ops[0];
        if let Some((name, _)) = op.bindings.iter().find(|(_, id)| *id == tensor) {
            return self.kernel.binding(name).map(|b| b.role);
        }
        let (name, _) = op.own.iter().find(|(_, id)| *id == tensor)?;
        if op.plan.foreign.parts.iter().any(|part| part.name == *name) {
            return Some(Role::Input);
        }
        op.plan.foreign.scratch.iter().any(|(scratch, _)| scratch == name).then_some(Role::Scratch)
    }

    pub(crate) fn is_large(&self, tensor: TensorId) -> bool {
        let binding = given(self.kernel).nth(self.drawn(tensor).0);
        binding.is_some_and(|b| is_large(b, &self.inputs.problem))
    }

    fn write_value(&self, gpu: &Gpu, block: &DeviceBuffer, tensor: TensorId, value: &Value) {
        match (value, &self.recording.tensors[tensor.0].content) {
            (Value::U32(words), _) => block.write(gpu, 0, bytemuck::cast_slice(words)),
            (Value::F32(values), TensorInit::Kv { vectors, order, .. }) => {
                block.write(gpu, 0, &order.to_device(vectors.encode(values), vectors.bytes()));
            }
            (Value::F32(values), TensorInit::Activation { format, .. }) => {
                block.write(gpu, 0, &format.encode(values));
            }
            (Value::Weights(rows), TensorInit::WeightPart(_, layout)) => {
                block.write(gpu, 0, &layout.bytes(rows));
            }
            (Value::F32(values), _) => block.write(gpu, 0, bytemuck::cast_slice(values)),
            (Value::Weights(rows), TensorInit::Weights(_, packing)) => {
                rows.pack(*packing, UPLOAD_BYTES as usize, |offset, bytes| {
                    block.write(gpu, offset, bytes);
                });
            }
            // A table of angles follows from the shape.
            _ => {}
        }
    }

    /// Gives one more invocation inputs of the `nth` kind of [`InputKind::CHECKED`], over the
    /// results of the invocations before it. Positions and indices are drawn anew too: a growing
    /// position would leave the tensors, and a list of candidates must not name one twice.
    pub(super) fn next_inputs(&self, executor: &GpuExecutor, nth: usize) -> Result<Draw> {
        let draw = Draw { large: 0, small: DRAWS + nth };
        let (gpu, goes_on) = (&executor.gpu, self.counts());
        for (_, id) in self.bound() {
            let is_given = match self.role(id) {
                Some(Role::Input) => true,
                Some(Role::InOut) => goes_on,
                _ => false,
            };
            if is_given && id.0 < self.inputs.values.len() && !self.is_large(id) {
                let (block, value) = (executor.block(id), self.value(id, draw));
                gpu.caught(|| self.write_value(gpu, block, id, &value))?;
            }
        }
        Ok(draw)
    }

    /// The step state that an invocation reads and writes, and the byte offsets of its seeds, one
    /// per sequence.
    pub fn seeds(&self) -> Option<(TensorId, impl Iterator<Item = u64> + use<>)> {
        let inputs = &*self.inputs;
        let is_state = |id: &TensorId| {
            let binding = inputs.drawn.get(id.0).and_then(|(name, _)| self.kernel.binding(name));
            binding.is_some_and(|b| b.draw(&inputs.problem.shape) == Drawing::SeededState)
        };
        let id = self.read_and_written().into_iter().find(is_state)?;
        let Value::U32(words) = &inputs.values[id.0] else { return None };
        let seeds = (StateWord::Seed as usize..words.len()).step_by(STATE_WORDS);
        Some((id, seeds.map(|word| 4 * word as u64)))
    }

    /// Returns true if an invocation continues from positions or indices that it reads.
    pub fn counts(&self) -> bool {
        let words =
            |id: &TensorId| matches!(self.recording.tensors[id.0].content, TensorInit::Words(_));
        self.read_and_written().iter().any(words)
    }

    /// Contents of the tensors that an invocation will read and write; to be called before it.
    pub fn found(&self, executor: &GpuExecutor) -> Result<Vec<(TensorId, Vec<u8>)>> {
        let read = |id: TensorId| Ok((id, executor.block(id).read(&executor.gpu)?));
        self.read_and_written().into_iter().map(read).collect()
    }

    /// Compares the result on the device with the reference, for an invocation on the first draw:
    /// guards, counters and unwritten outputs first, then [`judge`](crate::judge::judge).
    pub fn judge(&self, executor: &GpuExecutor, policy: Policy) -> Result<Verdict> {
        self.judge_found(executor, policy, Draw::default(), &[])
    }

    /// Same as [`Case::judge`] for an invocation on this draw with the contents `found` of the
    /// tensors that it reads and writes.
    pub fn judge_found(
        &self,
        executor: &GpuExecutor,
        policy: Policy,
        draw: Draw,
        found: &[(TensorId, Vec<u8>)],
    ) -> Result<Verdict> {
        let own = self.inputs.problem.state;
        if found.is_empty() {
            return self.judge_against(executor, policy, own, &*self.expected(draw)?);
        }
        let mut values = self.values(draw);
        for (tensor, bytes) in found {
            values[tensor.0] = match &self.recording.tensors[tensor.0].content {
                TensorInit::Words(_) => Value::U32(bytemuck::pod_collect_to_vec(bytes)),
                content => Value::F32(content.values(bytes)),
            };
        }
        let op = &self.recording.ops[0];
        let state = match self.kernel.state_binding(&op.shape) {
            Some(_) => oracle::state(op, &values),
            None => own,
        };
        let expected = oracle::expected(op, &values)?;
        self.judge_against(executor, policy, state, &expected)
    }

    fn judge_against(
        &self,
        executor: &GpuExecutor,
        policy: Policy,
        state: State,
        expected: &Outcomes,
    ) -> Result<Verdict> {
        let (poison, mut left) = (poison().to_le_bytes(), BTreeMap::new());
        for (i, tensor) in self.recording.tensors.iter().enumerate() {
            let (name, id) = (&tensor.name, TensorId(i));
            let role = self.role(id);
            // Bound to be read only: nothing can have changed there.
            if role == Some(Role::Input) {
                continue;
            }
            let (bytes, touched) = match policy {
                Policy::Plain => (executor.block(id).read(&executor.gpu)?, None),
                Policy::Guarded => executor.block(id).read_guarded(&executor.gpu)?,
            };
            if let Some(at) = touched {
                let len = bytes.len();
                let reason = format!("{name}: wrote outside the tensor, at byte {at} of {len}");
                return Ok(Verdict::broken(reason));
            }
            if role == Some(Role::Counter) && bytes.iter().any(|byte| *byte != 0) {
                return Ok(Verdict::broken(format!("{name}: the counter was not left at zero")));
            }
            if role == Some(Role::Output)
                && let Some(index) = bytes.chunks_exact(4).position(|word| word == poison)
            {
                return Ok(Verdict::broken(format!(
                    "{name}[{index}] was never written, or is made of what lies behind the end of an input"
                )));
            }
            left.insert(id, bytes);
        }
        let op = &self.recording.ops[0];
        Ok(match judge(&self.recording, op, state, expected, &left) {
            Ok(Within { nmse, worst }) => Verdict::Passed { nmse, worst },
            Err(fault) => {
                Verdict::Failed { reason: fault.to_string(), nmse: fault.nmse, worst: fault.worst }
            }
        })
    }
}

/// Bindings that a caller provides, in order: all but scratch and counters.
fn given(kernel: &'static Kernel) -> impl Iterator<Item = &'static KernelBinding> {
    kernel.bindings.iter().filter(|b| !b.role.is_own())
}

/// Returns true for weights and caches, which decode reads from device memory, not from a cache.
fn is_large(binding: &KernelBinding, problem: &Problem) -> bool {
    matches!(binding.elem(problem), Elem::Weights(_) | Elem::Kv(_))
}

/// Number of units that a large tensor can be rotated by: rows, or blocks of a single row; units of
/// floats.
fn turns(value: &Value, unit: usize) -> usize {
    match value {
        Value::Weights(rows) if rows.rows() > 1 => rows.rows(),
        Value::Weights(rows) => rows.row_bytes() / rows.format.block_bytes(),
        Value::F32(values) => values.len() / unit,
        _ => 0,
    }
}

fn turned(value: &Value, by: usize, unit: usize) -> Value {
    match value {
        Value::Weights(rows) => Value::Weights(rows.turned(by)),
        Value::F32(values) => {
            let mut values = values.clone();
            let by = unit * by % values.len().max(1);
            values.rotate_right(by);
            Value::F32(values)
        }
        other => other.clone(),
    }
}

fn is_weights(tensor: &Tensor) -> bool {
    matches!(tensor.content, TensorInit::Weights(..))
}

/// The reason why a problem's tensors exceed the largest binding, if they do.
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
