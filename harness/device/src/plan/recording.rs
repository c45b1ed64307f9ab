//! A decode step (or a single check) as plain data: tensors, and the operations over them.
//!
//! Position and token live in a tensor, so one recording serves every step. The GPU executor, the
//! CPU executor, the profiler and `lathe diff` all walk the same list.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use lathe_kernels::layout::TENSOR_ALIGN;
use lathe_kernels::{
    Elem, FloatFormat, Grid, Kernel, KvVectors, Packing, Problem, Role, RopeSpec, Shape, State,
};

use crate::error::{Error, Result};
use crate::plan::layout::{KvOrder, PartLayout, WeightPart};
use crate::plan::memory::UPLOAD_BYTES;
use crate::plan::weights::WeightRows;
use crate::plan::{Code, Plan};

/// A tensor of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub usize);

/// Content of a tensor when the recording starts.
#[derive(Clone, Debug)]
pub enum TensorInit {
    /// `len` values written by the recording itself.
    Activation {
        /// Values.
        len: usize,
        /// Format in memory.
        format: FloatFormat,
    },
    /// `len` u32 words, zero at first: step state, tokens, indices.
    Words(usize),
    /// `len` u32 words with which the workgroups of a dispatch synchronise, zero at first. An
    /// operation restores them; a persistent kernel leaves multiples of its workgroups.
    Counter(usize),
    /// Given f32 values.
    Values(Arc<[f32]>),
    /// Weight rows, packed for the kernels at upload.
    Weights(WeightRows, Packing),
    /// Weight rows that the device has only as [`TensorInit::WeightPart`]s.
    Apart(WeightRows),
    /// Weight rows in the layout of a variable of a user's file.
    WeightPart(WeightRows, PartLayout),
    /// KV cache of `len` values, zero at first.
    Kv {
        /// Values.
        len: usize,
        /// Format in memory.
        vectors: KvVectors,
        /// Order of vectors on the device.
        order: KvOrder,
    },
    /// Fields of a user kernel's uniform buffer.
    Uniform(Vec<u8>),
    /// Rotary table, derived from its specification.
    Rope(RopeSpec),
}

impl TensorInit {
    /// Returns true for the tensor of an alternative that was not chosen: it has no memory.
    pub fn is_unused(&self) -> bool {
        matches!(self, TensorInit::Words(0))
    }

    /// Bytes on the device, before padding to whole vectors.
    pub fn device_bytes(&self) -> u64 {
        let bytes = match self {
            TensorInit::Words(len) | TensorInit::Counter(len) => 4 * len,
            // Whole words: an odd last f16 has a neighbour of padding.
            TensorInit::Activation { len, format } => (len * format.bytes()).next_multiple_of(4),
            TensorInit::Values(values) => 4 * values.len(),
            TensorInit::Weights(w, packing) => w.format.packed_bytes(w.rows(), w.k, *packing),
            TensorInit::Apart(_) => 0,
            TensorInit::WeightPart(w, layout) => return layout.device_bytes(w),
            TensorInit::Kv { len, vectors, .. } => vectors.bytes_of(*len),
            TensorInit::Uniform(bytes) => bytes.len(),
            TensorInit::Rope(spec) => 4 * spec.positions * spec.head_dim,
        };
        bytes as u64
    }

    /// Passes the bytes that a tensor holds at first to `sink`, in pieces with their offsets.
    /// Tensors that are zero at first pass none, but for counters, which have to be.
    pub fn initial(&self, mut sink: impl FnMut(u64, &[u8])) {
        match self {
            TensorInit::Counter(len) => sink(0, &vec![0; 4 * len]),
            TensorInit::Activation { .. } | TensorInit::Words(_) | TensorInit::Kv { .. } => {}
            TensorInit::Apart(_) => {}
            TensorInit::WeightPart(rows, layout) => sink(0, &layout.bytes(rows)),
            TensorInit::Values(values) => sink(0, bytemuck::cast_slice(values)),
            TensorInit::Weights(rows, packing) => rows.pack(*packing, UPLOAD_BYTES as usize, sink),
            TensorInit::Rope(spec) => sink(0, bytemuck::cast_slice(&spec.table())),
            TensorInit::Uniform(bytes) => sink(0, bytes),
        }
    }

    /// Bytes as stored on the device, widened to `f32`.
    pub fn values(&self, bytes: &[u8]) -> Vec<f32> {
        match self {
            TensorInit::Kv { len, vectors, order } => {
                let bytes = &bytes[..bytes.len().min(vectors.bytes_of(*len))];
                vectors.decode(&order.from_device(bytes, vectors.bytes()), *len)
            }
            TensorInit::Activation { len, format } => format.decode(bytes, *len),
            _ => FloatFormat::F32.decode(bytes, bytes.len() / 4),
        }
    }
}

/// Bytes that a tensor occupies on a device: whole vectors, at least one.
pub fn padded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(TENSOR_ALIGN as u64)
}

/// A tensor with its name for errors and reports.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name, such as `l3.k_cache`.
    pub name: String,
    /// Content.
    pub content: TensorInit,
}

impl Tensor {
    /// True for the rows of a prompt's chunks.
    pub fn is_of_chunk(&self) -> bool {
        self.name.starts_with("chunk.")
    }
}

/// Position of an operation in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Layer, if it belongs to one.
    pub layer: Option<usize>,
    /// Role in the step, such as `ffn_down`.
    pub op: &'static str,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "l{layer}.{}", self.op),
            None => f.write_str(self.op),
        }
    }
}

/// One kernel invocation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Position in the model.
    pub label: Label,
    /// Its parameters.
    pub shape: Shape,
    /// The specialised variant.
    pub plan: Plan,
    /// Tensor of each binding of the kernel, by name.
    pub bindings: Vec<(&'static str, TensorId)>,
    /// Tensors that only a user's file has, by the plan's names: uniforms, scratch memory, parts
    /// of weights.
    pub own: Vec<(String, TensorId)>,
}

impl Op {
    /// The kernel.
    pub fn kernel(&self) -> &'static Kernel {
        self.plan.kernel
    }

    /// Length that the kernel declares for a tensor it binds, which may be larger.
    pub fn declared_len(&self, tensor: TensorId, problem: &Problem) -> Option<usize> {
        let (name, _) = self.bindings.iter().find(|(_, id)| *id == tensor)?;
        let binding = self.kernel().bindings.iter().find(|b| b.name == *name)?;
        Some(binding.len(problem))
    }

    /// The tensor bound to a name. Panics when there is none: recordings are checked when built.
    pub fn tensor(&self, binding: &str) -> TensorId {
        self.bindings
            .iter()
            .find(|(name, _)| *name == binding)
            .map(|(_, id)| *id)
            .or_else(|| self.own.iter().find(|(name, _)| name == binding).map(|(_, id)| *id))
            .unwrap_or_else(|| panic!("{}: nothing bound to {binding}", self.label))
    }
}

/// Operations that take a chunk of a prompt through all layers.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Tokens it has room for.
    pub tokens: usize,
    /// Operations in order.
    pub ops: Vec<Op>,
}

/// Part of a recording; several can run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Decode steps, one token each.
    Steps(usize),
    /// The chunk of this index.
    Chunk(usize),
    /// Operations of a decode step after its last layer; they run after the last chunk of a prompt.
    Tail,
}

impl Part {
    /// One step.
    pub fn one(self) -> Self {
        match self {
            Part::Steps(_) => Part::Steps(1),
            other => other,
        }
    }

    /// Number of times that its operations run.
    pub fn times(self) -> usize {
        match self {
            Part::Steps(steps) => steps,
            Part::Chunk(_) | Part::Tail => 1,
        }
    }
}

/// A persistent kernel: consecutive operations of a step in one dispatch.
#[derive(Clone, Debug)]
pub struct PersistentKernel {
    /// Range of its operations in the step.
    pub ops: Range<usize>,
    /// Number of layers it covers.
    pub layers: usize,
    /// Number of dispatches it replaces.
    pub stages: usize,
    /// Its workgroups.
    pub grid: Grid,
    /// Its code, without overrides. Equal kernels share it.
    pub code: Arc<Code>,
    /// Target of each variable.
    pub bound: Vec<(String, Stack)>,
    /// The counters of its grid barrier.
    pub arrivals: TensorId,
}

impl PersistentKernel {
    /// Target of a variable. Panics if it has none: every variable of a text is bound.
    pub fn bound(&self, variable: &str) -> &Stack {
        let found = self.bound.iter().find(|(name, _)| name == variable);
        found.map_or_else(|| panic!("nothing bound to {variable}"), |(_, bound)| bound)
    }
}

/// A tensor, or tensors of consecutive layers in one buffer, which a persistent kernel indexes by
/// layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The tensors in the order of the layers, all of one length.
    pub tensors: Vec<TensorId>,
    /// Bytes from one tensor to the next.
    pub stride: u64,
}

/// Alignment of the tensors of a stack, at which any adapter can bind them.
const STACK_ALIGN: u64 = 256;

impl Stack {
    /// A tensor in a buffer of its own.
    pub(super) fn one(tensor: TensorId) -> Self {
        Self { tensors: vec![tensor], stride: 0 }
    }

    /// Returns true if tensors share the buffer.
    pub fn is_shared(&self) -> bool {
        self.tensors.len() > 1
    }

    /// A stack of tensors of `bytes` bytes each.
    pub(super) fn new(tensors: Vec<TensorId>, bytes: u64) -> Self {
        Self { tensors, stride: padded(bytes).next_multiple_of(STACK_ALIGN) }
    }

    /// Bytes of all its tensors.
    pub fn bytes(&self) -> u64 {
        self.stride * self.tensors.len() as u64
    }
}

/// Tensors and operations of one step, and of chunks of a prompt over the same tensors.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// All tensors.
    pub tensors: Vec<Tensor>,
    /// Operations of a step in order.
    pub ops: Vec<Op>,
    /// Index of the first operation after the last layer.
    pub tail: usize,
    /// Chunks of a prompt, the largest first.
    pub chunks: Vec<Chunk>,
    /// Persistent kernels, each for consecutive operations of a step, in order.
    pub persistent: Vec<PersistentKernel>,
    /// Groups of tensors that share a buffer.
    pub stacks: Vec<Stack>,
}

impl Recording {
    /// Adds a tensor.
    pub fn tensor(&mut self, name: impl Into<String>, content: TensorInit) -> TensorId {
        self.tensors.push(Tensor { name: name.into(), content });
        TensorId(self.tensors.len() - 1)
    }

    /// Adds an operation to the step; see [`Recording::bound`].
    pub fn op(
        &mut self,
        label: Label,
        plan: Plan,
        shape: Shape,
        bindings: &[(&'static str, TensorId)],
    ) {
        let op = self.bound(label, plan, shape, bindings);
        self.ops.push(op);
    }

    /// An operation over tensors. Every binding of the kernel but scratch and counters must be
    /// given. Missing ones that the variant declares are added here and shared with equal ones of
    /// the same kernel, whose operations never run at the same time.
    pub fn bound(
        &mut self,
        label: Label,
        plan: Plan,
        shape: Shape,
        bindings: &[(&'static str, TensorId)],
    ) -> Op {
        let mut bindings = bindings.to_vec();
        let problem = Problem { shape: shape.clone(), state: State::default() };
        for b in plan.kernel.bindings {
            if bindings.iter().any(|(name, _)| *name == b.name) {
                continue;
            }
            assert!(b.role.is_own(), "{label}: {} is not bound", b.name);
            if !plan.binds(b.name) {
                continue;
            }
            let (len, name) = (b.len(&problem), format!("scratch.{}.{}", plan.kernel.name, b.name));
            let content = match (b.role, b.elem(&problem)) {
                (Role::Counter, _) => TensorInit::Counter(len),
                (_, Elem::U32) => TensorInit::Words(len),
                _ => TensorInit::Activation { len, format: FloatFormat::F32 },
            };
            bindings.push((b.name, self.shared(name, content)));
        }
        for (name, id) in &bindings {
            if let TensorInit::Weights(rows, packing) = &self.tensors[id.0].content {
                let same = rows.format.is_dense() || *packing == plan.packing;
                assert!(same, "{label}: {name} is packed as {packing:?}, not {:?}", plan.packing);
            }
        }
        let mut own = Vec::new();
        let foreign = &plan.foreign;
        for (name, bytes) in &foreign.uniforms {
            own.push((name.clone(), self.tensor(name.clone(), TensorInit::Uniform(bytes.clone()))));
        }
        for WeightPart { name, of, layout } in &foreign.parts {
            let (_, whole) = bindings.iter().find(|(name, _)| name == of).expect("an input");
            let (TensorInit::Apart(rows) | TensorInit::Weights(rows, _)) =
                &self.tensors[whole.0].content
            else {
                panic!("{label}: {of} holds no weights");
            };
            let content = TensorInit::WeightPart(rows.clone(), layout.clone());
            own.push((name.clone(), self.tensor(name.clone(), content)));
        }
        for (name, bytes) in &foreign.scratch {
            let len = (*bytes / 4) as usize;
            let content = TensorInit::Activation { len, format: FloatFormat::F32 };
            own.push((name.clone(), self.shared(name.clone(), content)));
        }
        Op { own, label, shape, plan, bindings }
    }

    /// The tensor of this name and size, or a new one.
    fn shared(&mut self, name: String, content: TensorInit) -> TensorId {
        let bytes = content.device_bytes();
        let same = |t: &Tensor| t.name == name && t.content.device_bytes() == bytes;
        match self.tensors.iter().position(same) {
            Some(i) => TensorId(i),
            None => self.tensor(name, content),
        }
    }

    /// Operations of a part, for one of its repetitions.
    pub fn part(&self, part: Part) -> &[Op] {
        match part {
            Part::Steps(_) => &self.ops,
            Part::Chunk(index) => &self.chunks[index].ops,
            Part::Tail => &self.ops[self.tail..],
        }
    }

    /// Fails if the recording has persistent kernels, since `what` handles operations one by one.
    pub fn refuse_persistent(&self, what: &str) -> Result<()> {
        match self.persistent.first() {
            None => Ok(()),
            Some(_) => Err(Error::Usage(format!(
                "{what} needs a dispatch a stage: --persistent off, in a library Persistent::Off"
            ))),
        }
    }

    /// Dispatches of one step.
    pub fn dispatches(&self) -> usize {
        let apart: usize = self.ops.iter().map(|op| op.plan.stages.len()).sum();
        apart - self.persistent.iter().map(|kernel| kernel.stages - 1).sum::<usize>()
    }

    /// Bytes of all tensors on the device.
    pub fn device_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.content.device_bytes()).sum()
    }
}
