//! One invocation with drawn inputs: `check` runs it once and `bench` many times.

mod exported;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lathe_kernels::{
    Draw as Drawing, Kernel, KernelBinding, KvFormat, Packing, ParamKind, Problem, Role,
    STATE_WORDS, StateWord, Tolerance,
};
use lathe_record::rng::Rng;
use lathe_sanitize::{Buffer, Options};

pub use exported::{Exported, ExportedOutcome, ExportedTensor, Judged, Stored, fits};

use super::Verdict;
use super::draw::{InputKind, draw};
use super::stress::{self, Stress};
use crate::error::{Error, Result};
use crate::execute::GpuExecutor;
use crate::execute::interpreter::Interpreter;
use crate::execute::oracle::{self, Outcomes};
use crate::execute::value::Value;
use crate::gpu::{DeviceBuffer, Gpu, Pipelines, Policy, poison};
use crate::judge::judge;
use crate::plan::Plan;
use crate::plan::layout::KvOrder;
use crate::plan::memory::UPLOAD_BYTES;
use crate::plan::recording::{Label, Recording, TensorId, TensorInit};
use crate::plan::weights::WeightRows;

/// One invocation with all its inputs, ready for either executor.
#[derive(Debug)]
pub struct Case {
    /// A recording of one operation.
    pub recording: Arc<Recording>,
    inputs: Arc<Inputs>,
    kernel: &'static Kernel,
}

/// Drawn inputs of a shape and a seed with their expected outcomes: the same for all plans.
#[derive(Debug)]
struct Inputs {
    problem: Problem,
    seed: u64,
    /// Kind of the first draw.
    kind: InputKind,
    /// Every binding but scratch, in order: its name, content and value. They are the first tensors
    /// of the recording.
    drawn: Vec<(&'static str, TensorInit)>,
    values: Vec<Value>,
    /// All draws but the first, in order of [`Draw::small`]. Large tensors are left out: they are
    /// rotated instead.
    others: [OnceLock<Vec<Value>>; DRAWS],
    /// Expected outcomes of each draw requested so far, by how the variants round.
    expected: Mutex<BTreeMap<(Draw, Rounds), Arc<Outcomes>>>,
}

/// Digits, codes apart, operands in f16 and their range, as a [`Tolerance`] has them.
type Rounds = (u32, bool, u32, bool);

/// Number of input sets per case. Benchmarks rotate through them, so a stale output of the previous
/// invocation never equals the expected one.
pub const DRAWS: usize = 4;

/// Inputs of an invocation: one draw of its large tensors (weights and caches), and one of all
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Draw {
    /// Number of the rotation of large tensors, which hold the first draw rotated by some blocks.
    pub large: usize,
    /// Number of the draw of all other inputs: below [`DRAWS`] typical ones for benchmarks, then
    /// one of stress inputs.
    pub small: usize,
}

/// The draw of stress inputs.
const STRESS: Draw = Draw { large: 0, small: DRAWS };

impl Case {
    /// Draws inputs for a planned invocation from `seed`. Fails before any is drawn if a tensor
    /// exceeds the largest binding of `gpu`.
    pub fn new(gpu: &Gpu, plan: Plan, problem: &Problem, seed: u64) -> Result<Self> {
        Self::fitting(gpu, plan, problem, seed, InputKind::Typical)
    }

    /// Same as [`Case::new`], for a case that is only checked: KV caches hold NaN where nothing may
    /// be read, and stress inputs include them.
    pub fn untimed(gpu: &Gpu, plan: Plan, problem: &Problem, seed: u64) -> Result<Self> {
        Self::fitting(gpu, plan, problem, seed, InputKind::Untimed)
    }

    fn fitting(
        gpu: &Gpu,
        plan: Plan,
        problem: &Problem,
        seed: u64,
        kind: InputKind,
    ) -> Result<Self> {
        let kernel = plan.kernel;
        if let Some(reason) = too_large(kernel, problem, gpu.caps.binding_bytes) {
            let what = format!("{} {}", kernel.name, kernel.show(problem));
            return Err(gpu.unavailable(what, reason));
        }
        Self::drawn(plan, problem, seed, kind)
    }

    /// Draws inputs for a planned invocation on a device that need not be here.
    ///
    /// # Errors
    /// The operation has no reference.
    pub fn drawn_for(plan: Plan, problem: &Problem, seed: u64) -> Result<Self> {
        Self::drawn(plan, problem, seed, InputKind::Typical)
    }

    /// Same as [`Case::untimed`] for a device that need not be here.
    ///
    /// # Errors
    /// The operation has no reference.
    pub fn untimed_for(plan: Plan, problem: &Problem, seed: u64) -> Result<Self> {
        Self::drawn(plan, problem, seed, InputKind::Untimed)
    }

    /// Same as [`Case::untimed`] for the interpreter.
    ///
    /// # Errors
    /// A tensor of more than 256 MiB.
    pub fn for_interpreter(plan: Plan, problem: &Problem, seed: u64) -> Result<Self> {
        const MOST_BYTES: u64 = 1 << 28;
        if let Some(reason) = too_large(plan.kernel, problem, MOST_BYTES) {
            let what = format!("{} {}", plan.kernel.name, plan.kernel.show(problem));
            let adapter = "the interpreter".to_owned();
            return Err(Error::Unavailable { what, adapter, reason });
        }
        Self::drawn(plan, problem, seed, InputKind::Untimed)
    }

    fn drawn(plan: Plan, problem: &Problem, seed: u64, kind: InputKind) -> Result<Self> {
        let kernel = plan.kernel;
        oracle::exists(kernel)?;
        let mut rng = Rng::new(seed);
        let (mut drawn, mut values) = (Vec::new(), Vec::new());
        for b in given(kernel) {
            let (content, value) = draw(b, problem, plan.packing, kind, &mut rng);
            drawn.push((b.name, content));
            values.push(value);
        }
        let inputs = Inputs {
            problem: problem.clone(),
            seed,
            kind,
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
    fn whole(&self, tensor: TensorId) -> TensorId {
        let (op, name) = (&self.recording.ops[0], &self.recording.tensors[tensor.0].name);
        match self.content(tensor) {
            TensorInit::WeightPart(..) => {
                let parts = &op.plan.foreign.parts;
                parts.iter().find(|part| part.name == *name).map_or(tensor, |p| op.tensor(p.of))
            }
            _ => tensor,
        }
    }

    fn content(&self, tensor: TensorId) -> &TensorInit {
        &self.recording.tensors[tensor.0].content
    }

    /// Value of a drawn tensor.
    fn value(&self, tensor: TensorId, draw: Draw) -> Value {
        let (inputs, tensor) = (&*self.inputs, self.whole(tensor));
        let first = &inputs.values[tensor.0];
        if let Some(rows) = self.replaced(tensor, draw) {
            return Value::Weights(rows.clone());
        }
        if !self.is_large(tensor) || draw == STRESS && inputs.strains(tensor) {
            return match draw.small {
                0 => first.clone(),
                _ => self.others(draw)[tensor.0].clone(),
            };
        }
        let (by, unit) = self.turn(tensor, draw);
        match first.clone() {
            Value::Weights(rows) if by > 0 => Value::Weights(rows.turned(by)),
            Value::F32(mut values) => {
                let by = unit * by % values.len().max(1);
                values.rotate_right(by);
                Value::F32(values)
            }
            other => other,
        }
    }

    /// Number of units by which a draw rotates a large tensor: rows, blocks of a single row, or the
    /// floats that stay together, whose number is returned too: a cache vector with its scales,
    /// else the two f16 values of a word.
    fn turn(&self, tensor: TensorId, draw: Draw) -> (usize, usize) {
        let unit = match self.inputs.drawn[tensor.0].1 {
            TensorInit::Kv { vectors, .. } if vectors.format == KvFormat::Q8_0 => vectors.head_dim,
            _ => 2,
        };
        let units = match &self.inputs.values[tensor.0] {
            Value::Weights(rows) if rows.rows() > 1 => rows.rows(),
            Value::Weights(rows) => rows.row_bytes() / rows.format.block_bytes(),
            Value::F32(values) => values.len() / unit,
            _ => 0,
        };
        let mut rng = Rng::derive(self.inputs.seed, &format!("turn {}", draw.large));
        let by = 1 + rng.below(units.saturating_sub(1) as u32) as usize;
        (if draw.large > 0 { by } else { 0 }, unit)
    }

    /// Device memory for a tensor that holds a draw, made from the memory of the first draw.
    pub fn of_draw(
        &self,
        gpu: &Gpu,
        first: &DeviceBuffer,
        id: TensorId,
        draw: Draw,
    ) -> Result<DeviceBuffer> {
        let name = &self.recording.tensors[id.0].name;
        let (by, unit) = match self.is_large(id) {
            true => self.turn(self.whole(id), draw),
            false => (0, 0),
        };
        let each = match self.content(id) {
            TensorInit::Weights(rows, packing) if rows.rows() > 1 => {
                rows.format.row_stride(rows.k, *packing)
            }
            TensorInit::Kv { vectors, order: KvOrder::Heads, .. } => vectors.bytes_of(unit),
            // The host lays out the others.
            _ => 0,
        };
        if by * each > 0 {
            return first.turned(gpu, name, (by * each) as u64);
        }
        let block = first.copied(gpu, name)?;
        let value = self.value(id, draw);
        gpu.caught(|| self.encode(id, &value, &mut |at, bytes| block.write(gpu, at, bytes)))?;
        Ok(block)
    }

    /// A further draw of all tensors but large ones, which are empty in it, or replaced.
    fn others(&self, wanted: Draw) -> &[Value] {
        let inputs = &*self.inputs;
        inputs.others[wanted.small - 1].get_or_init(|| {
            let mut rng = Rng::derive(inputs.seed, &format!("draw {}", wanted.small));
            let kind = match wanted.small < DRAWS {
                true => InputKind::Typical,
                false => InputKind::Stress(Stress::of(inputs.seed)),
            };
            let all = given(self.kernel).zip(&inputs.drawn).enumerate();
            let drawn = all.map(|(i, (b, (_, content)))| {
                let strains = wanted == STRESS && inputs.strains(TensorId(i));
                match is_large(content) && !strains {
                    true => Value::U32(Vec::new()),
                    false => draw(b, &inputs.problem, Packing::Blocks, kind, &mut rng).1,
                }
            });
            let mut drawn: Vec<Value> = drawn.collect();
            if kind == InputKind::Stress(Stress::NotFinite) {
                self.spoil(&mut drawn, &mut rng);
            }
            drawn
        })
    }

    /// Makes one input not finite, of those that promise that it shows.
    fn spoil(&self, drawn: &mut [Value], rng: &mut Rng) {
        let first = &self.inputs.values;
        let spreads = given(self.kernel)
            .enumerate()
            .filter(|(i, b)| b.spreads && matches!(first[*i], Value::F32(_) | Value::Weights(_)))
            // A cache has it from the start, before its values are rounded.
            .filter(|(i, _)| !self.inputs.strains(TensorId(*i)));
        let spreads: Vec<usize> = spreads.map(|(i, _)| i).collect();
        let Some(&at) = spreads.get(rng.below(spreads.len() as u32) as usize) else { return };
        match (&mut drawn[at], &first[at]) {
            (drawn, Value::Weights(rows)) => *drawn = Value::Weights(stress::spoiled(rows, rng)),
            (Value::F32(values), _) => stress::spoil(values, rng),
            _ => {}
        }
    }

    /// Weights that stress inputs replace, which are those of the first draw otherwise.
    fn replaced(&self, tensor: TensorId, draw: Draw) -> Option<&WeightRows> {
        if draw.small < DRAWS || Stress::of(self.inputs.seed) != Stress::NotFinite {
            return None;
        }
        match &self.others(draw)[self.whole(tensor).0] {
            Value::Weights(rows) => Some(rows),
            _ => None,
        }
    }

    /// Expected outcomes of an invocation on a draw over fresh memory; computed once for all plans.
    fn expected(&self, draw: Draw) -> Result<Arc<Outcomes>> {
        let lock = || self.inputs.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let op = &self.recording.ops[0];
        let tolerance = op.plan.tolerance(&self.inputs.problem);
        let Tolerance { digits, apart, f16_operands, f16_range, .. } = tolerance;
        let key = (draw, (digits, apart, f16_operands, f16_range));
        if let Some(known) = lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let computed = match draw {
            // Large tensors are not copied for it.
            Draw { large: 0, small: 0 } => oracle::judged(op, &self.inputs.values)?,
            _ => oracle::judged(op, &self.values(draw))?,
        };
        let computed = Arc::new(computed);
        lock().insert(key, Arc::clone(&computed));
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
        let drawn = (0..self.inputs.values.len()).map(TensorId);
        for id in drawn.filter(|id| !other.holds(&executor.shared(*id))) {
            executor.gpu.caught(|| self.write_drawn(&executor, id))?;
        }
        Ok(executor)
    }

    /// The case in the interpreter with its inputs written. Outputs and scratch memory are not.
    pub fn interpreter(&self, options: Options) -> Interpreter {
        let mut executor = Interpreter::new(Arc::clone(&self.recording), options);
        for id in (0..self.recording.tensors.len()).map(TensorId) {
            let block = executor.block(id);
            match self.role(id) {
                Some(Role::Output | Role::Scratch) => {
                    *block = Buffer::unwritten(vec![poison(); block.words.len()]);
                }
                Some(Role::Counter) => block.words.fill(0),
                // Weights and tables are there already.
                _ => {
                    block.written = None;
                    if let Some(value @ (Value::F32(_) | Value::U32(_))) =
                        self.inputs.values.get(id.0)
                    {
                        // Padding is undefined: a result made of it is no number.
                        block.words.fill(poison());
                        self.encode(id, value, &mut |at, bytes| executor.write(id, at, bytes));
                    }
                }
            }
        }
        executor
    }

    /// Gives one more run of the interpreter stress inputs, as [`Case::stress_inputs`] does.
    pub(crate) fn stress_interpreted(&self, executor: &mut Interpreter) -> Draw {
        let draw = STRESS;
        for id in self.renewed(draw) {
            let value = self.value(id, draw);
            self.encode(id, &value, &mut |at, bytes| executor.write(id, at, bytes));
        }
        draw
    }

    /// [`Case::judge_found`] of the interpreter's memory.
    pub(crate) fn judge_interpreted(
        &self,
        executor: &Interpreter,
        draw: Draw,
        found: &[(TensorId, Vec<u8>)],
    ) -> Result<Verdict> {
        self.judge_left(draw, found, &|id| Ok((executor.read(id), None)))
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
        for i in 0..self.recording.tensors.len() {
            let id = TensorId(i);
            let block = executor.block(id);
            match self.role(id) {
                Some(Role::Input) if self.replaced(id, STRESS).is_some() => {
                    let first = self.value(id, Draw::default());
                    let gpu = &executor.gpu;
                    self.encode(id, &first, &mut |at, bytes| block.write(gpu, at, bytes));
                }
                Some(Role::Input) if self.is_large(id) && !all => {}
                // What an earlier run or another variant left there must not pass for a result.
                Some(Role::Output | Role::Scratch) => block.poison(&executor.gpu),
                Some(Role::Counter) => {
                    block.write(&executor.gpu, 0, &vec![0; block.bytes as usize]);
                }
                _ => self.write_drawn(executor, id),
            }
        }
        Ok(())
    }

    /// Writes the first draw of a tensor. Weights are there since they were allocated.
    fn write_drawn(&self, executor: &GpuExecutor, id: TensorId) {
        match self.inputs.values.get(id.0) {
            None | Some(Value::Weights(_)) => {}
            Some(value) => {
                let (gpu, block) = (&executor.gpu, executor.block(id));
                self.encode(id, value, &mut |at, bytes| block.write(gpu, at, bytes));
            }
        }
    }

    /// The tensors that a cold benchmark rotates: weights and caches, which decode reads from
    /// device memory; for kernels without any, all inputs. An output stays shared, so each
    /// invocation depends on the one before, as in a decode step.
    pub fn rotated(&self) -> Vec<TensorId> {
        // A cache that is written only rotates beside an output that does not.
        let waits = self.written().into_iter().any(|id| !self.is_large(id));
        let is_read = |role| role == Role::Input || role == Role::InOut && waits;
        let large: Vec<_> =
            self.bound(is_read).into_iter().filter(|id| self.is_large(*id)).collect();
        if large.is_empty() { self.small_inputs() } else { large }
    }

    /// The inputs that a benchmark does not rotate.
    pub fn given(&self) -> Vec<TensorId> {
        let rotated = self.rotated();
        let mut given = self.small_inputs();
        // A table of angles follows from the shape.
        given.retain(|id| {
            !rotated.contains(id) && !matches!(self.content(*id), TensorInit::Rope(_))
        });
        given
    }

    fn small_inputs(&self) -> Vec<TensorId> {
        let mut inputs = self.bound(|role| role == Role::Input);
        inputs.retain(|id| !self.is_large(*id));
        inputs
    }

    /// The tensors a variant writes, scratch memory included.
    pub fn written(&self) -> Vec<TensorId> {
        self.bound(|role| role != Role::Input)
    }

    /// The written tensors that it also reads: their outcome depends on their previous content.
    pub fn read_and_written(&self) -> Vec<TensorId> {
        self.bound(|role| role == Role::InOut)
    }

    /// The tensors of some roles.
    pub fn bound(&self, wanted: impl Fn(Role) -> bool) -> Vec<TensorId> {
        let all = (0..self.recording.tensors.len()).map(TensorId);
        all.filter(|id| self.role(*id).is_some_and(&wanted)).collect()
    }

    /// The kernel's role of a tensor. None where the plan gives the content, such as uniforms, and
    /// for weights that are bound as their parts.
    pub fn role(&self, tensor: TensorId) -> Option<Role> {
        let op = &self.recording.ops[0];
        match self.content(tensor) {
            TensorInit::Apart(_) | TensorInit::Uniform(_) => None,
            TensorInit::WeightPart(..) => Some(Role::Input),
            _ => match op.bindings.iter().find(|(_, id)| *id == tensor) {
                Some((name, _)) => self.kernel.binding(name).map(|b| b.role),
                // Memory that only a user's file has.
                None => Some(Role::Scratch),
            },
        }
    }

    pub(crate) fn is_large(&self, tensor: TensorId) -> bool {
        is_large(self.content(tensor))
    }

    /// A value as bytes of the device, by parts with their offsets.
    fn encode(&self, tensor: TensorId, value: &Value, write: &mut dyn FnMut(u64, &[u8])) {
        match (value, self.content(tensor)) {
            // In pieces: a matrix may be large.
            (Value::Weights(rows), TensorInit::Weights(_, packing)) => {
                rows.pack(*packing, UPLOAD_BYTES as usize, write);
            }
            (value, content) => {
                if let Some(bytes) = value.device_bytes(content) {
                    write(0, &bytes);
                }
            }
        }
    }

    /// Gives one more invocation stress inputs, over the results of the invocations before it. Most
    /// kinds renew tensors that are read and written. Positions and indices are always drawn anew: a
    /// growing position would leave the tensors, and a list of candidates must not name one twice.
    pub(super) fn stress_inputs(&self, executor: &GpuExecutor) -> Result<Draw> {
        let (gpu, draw) = (&executor.gpu, STRESS);
        for id in self.renewed(draw) {
            let (block, value) = (executor.block(id), self.value(id, draw));
            gpu.caught(|| self.encode(id, &value, &mut |at, bytes| block.write(gpu, at, bytes)))?;
        }
        Ok(draw)
    }

    /// Tensors that stress inputs are drawn for.
    fn renewed(&self, draw: Draw) -> Vec<TensorId> {
        let goes_on = self.counts() || Stress::of(self.inputs.seed).renews();
        let renewed = |id: &TensorId| match self.role(*id) {
            Some(Role::Input | Role::InOut) if self.inputs.strains(self.whole(*id)) => true,
            Some(Role::Input) => !self.is_large(*id) || self.replaced(*id, draw).is_some(),
            Some(Role::InOut) => goes_on && !self.is_large(*id),
            _ => false,
        };
        let mut ids = self.bound(|_| true);
        ids.retain(renewed);
        ids
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
        let mut continued = self.read_and_written().into_iter();
        continued.any(|id| matches!(self.content(id), TensorInit::Words(_)))
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
        self.judge_left(draw, found, &|id| match policy {
            Policy::Plain => Ok((executor.block(id).read(&executor.gpu)?, None)),
            Policy::Guarded => executor.block(id).read_guarded(&executor.gpu),
        })
    }

    /// Compares what an executor left in memory, which `read` returns with the place of a word
    /// outside of the tensor that was written.
    fn judge_left(
        &self,
        draw: Draw,
        found: &[(TensorId, Vec<u8>)],
        read: &dyn Fn(TensorId) -> Result<(Vec<u8>, Option<i64>)>,
    ) -> Result<Verdict> {
        let op = &self.recording.ops[0];
        let mut state = self.inputs.problem.state;
        let expected = match found {
            [] => self.expected(draw)?,
            found => {
                let mut values = self.values(draw);
                for (tensor, bytes) in found {
                    values[tensor.0] = match self.content(*tensor) {
                        TensorInit::Words(_) => Value::U32(bytemuck::pod_collect_to_vec(bytes)),
                        content => Value::F32(content.values(bytes)),
                    };
                }
                if self.kernel.state_binding(&op.shape).is_some() {
                    state = oracle::state(op, &values);
                }
                Arc::new(oracle::judged(op, &values)?)
            }
        };
        let (poison, mut left) = (poison().to_le_bytes(), BTreeMap::new());
        for (i, tensor) in self.recording.tensors.iter().enumerate() {
            let (name, id) = (&tensor.name, TensorId(i));
            let role = self.role(id);
            // Bound to be read only: nothing can have changed there.
            if role == Some(Role::Input) {
                continue;
            }
            let (bytes, touched) = read(id)?;
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
        Ok(judge(&self.recording, op, state, &expected, &left))
    }
}

impl Inputs {
    /// Returns true for a KV cache of which stress inputs hold other values.
    fn strains(&self, tensor: TensorId) -> bool {
        let content = self.drawn.get(tensor.0).map(|(_, content)| content);
        self.kind == InputKind::Untimed && matches!(content, Some(TensorInit::Kv { .. }))
    }
}

/// Bindings that a caller provides, in order: all but scratch and counters.
fn given(kernel: &'static Kernel) -> impl Iterator<Item = &'static KernelBinding> {
    kernel.bindings.iter().filter(|b| !b.role.is_own())
}

/// Returns true for weights and caches, which decode reads from device memory, not from a cache.
fn is_large(content: &TensorInit) -> bool {
    use TensorInit::{Apart, Kv, WeightPart, Weights};
    matches!(content, Weights(..) | Apart(_) | WeightPart(..) | Kv { .. })
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
