//! The recording on the device: pipelines and bind groups prepared once, encoded any number of
//! times.

mod content;
mod op_timer;
mod stream;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use content::alike;
use lathe_kernels::ReflectError;

use super::{Batch, Execute, Kernels, Stream};
use crate::error::{Error, Result};
use crate::gpu::{Bound, DeviceBuffer, Gpu, Pipeline, Pipelines, Policy};
use crate::plan::PlannedStage;
use crate::plan::memory::Memory;
use crate::plan::recording::{Op, Part, PersistentKernel, Recording, Tensor, TensorId, TensorInit};

pub use op_timer::{OpTimer, TimedStep};

/// A prepared recording.
#[derive(Debug)]
pub struct GpuExecutor {
    /// The device.
    pub gpu: Arc<Gpu>,
    /// The recording it executes.
    pub recording: Arc<Recording>,
    blocks: Vec<Arc<DeviceBuffer>>,
    /// Dispatches of a step.
    dispatches: Vec<Dispatch>,
    /// Index of the first dispatch after the last layer.
    tail: usize,
    /// Dispatches of each chunk, once prepared.
    chunks: Vec<Option<Vec<Dispatch>>>,
    pipelines: Pipelines,
}

#[derive(Debug)]
struct Dispatch {
    op: usize,
    pipeline: Arc<Pipeline>,
    bind_groups: Vec<wgpu::BindGroup>,
    groups: [u32; 3],
}

impl GpuExecutor {
    /// Allocates and fills all tensors and compiles all pipelines. `progress` receives the bytes
    /// uploaded and their total.
    ///
    /// # Errors
    /// The tensors do not fit the device's memory, in which case none was allocated; the device
    /// refuses one of them or a pipeline, or is lost.
    pub fn new(
        gpu: Arc<Gpu>,
        pipelines: &Pipelines,
        recording: Arc<Recording>,
        policy: Policy,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let begun = Instant::now();
        let shared = vec![None; recording.tensors.len()];
        let blocks = allocated(&gpu, &recording, &shared, policy, progress)?;
        gpu.finish_uploads()?;
        let (total, seconds) = (recording.device_bytes(), begun.elapsed().as_secs_f64());
        tracing::info!("{total} bytes of tensors in {seconds:.2} s");
        Self::assemble(gpu, pipelines, recording, blocks)
    }

    /// A tensor's memory, to be shared.
    pub(crate) fn shared(&self, tensor: TensorId) -> Arc<DeviceBuffer> {
        Arc::clone(&self.blocks[tensor.0])
    }

    /// Returns true if this memory belongs to one of its tensors.
    pub(crate) fn holds(&self, block: &Arc<DeviceBuffer>) -> bool {
        self.blocks.iter().any(|own| Arc::ptr_eq(own, block))
    }

    /// Another executor of the same recording with different memory for some tensors and the rest
    /// shared.
    pub(crate) fn with_blocks<'a>(
        &self,
        other: impl IntoIterator<Item = &'a (TensorId, Arc<DeviceBuffer>)>,
    ) -> Result<Self> {
        let mut blocks = self.blocks.clone();
        for (tensor, block) in other {
            blocks[tensor.0] = Arc::clone(block);
        }
        let (gpu, recording) = (Arc::clone(&self.gpu), Arc::clone(&self.recording));
        Self::assemble(gpu, &self.pipelines, recording, blocks)
    }

    /// Returns true if every stack of another recording can share this one's memory.
    pub fn lays_out(&self, recording: &Recording) -> bool {
        let shared = self.shared_with(recording);
        recording.stacks.iter().all(|stack| shared[stack.tensors[0].0].is_some())
    }

    /// The memory of each tensor of another recording that has this one's name and size.
    fn shared_with(&self, recording: &Recording) -> Vec<Option<&Arc<DeviceBuffer>>> {
        let same = |tensor: &Tensor| {
            let same = self.recording.tensors.iter().position(|t| {
                let own = matches!(tensor.content, TensorInit::Uniform(_));
                !own && t.name == tensor.name && alike(&t.content, &tensor.content)
            });
            same.map(|i| &self.blocks[i])
        };
        let mut shared: Vec<_> = recording.tensors.iter().map(same).collect();
        for stack in &recording.stacks {
            let first = shared[stack.tensors[0].0];
            let lies = |(i, tensor): (u64, &TensorId)| {
                let (block, first) = (shared[tensor.0]?, first?);
                block.follows(first, i * stack.stride).then_some(())
            };
            // A stack is one buffer: shared as a whole or not at all.
            if (0..).zip(&stack.tensors).any(|tensor| lies(tensor).is_none()) {
                stack.tensors.iter().for_each(|tensor| shared[tensor.0] = None);
            }
        }
        shared
    }

    /// An executor of another recording that shares every tensor of the same name and size with
    /// this one. Two variants compared over the same memory differ in nothing but their code:
    /// the same weights elsewhere in memory can be a percent slower.
    pub fn sharing(
        &self,
        pipelines: &Pipelines,
        recording: Arc<Recording>,
        policy: Policy,
    ) -> Result<Self> {
        let shared = self.shared_with(&recording);
        let blocks = allocated(&self.gpu, &recording, &shared, policy, &mut |_, _| {})?;
        Self::assemble(Arc::clone(&self.gpu), pipelines, recording, blocks)
    }

    /// Like [`GpuExecutor::sharing`], with this executor's pipelines too, for a recording that
    /// differs in code alone.
    pub fn beside(&self, recording: Arc<Recording>) -> Result<Self> {
        self.sharing(&self.pipelines, recording, Policy::Plain)
    }

    fn assemble(
        gpu: Arc<Gpu>,
        pipelines: &Pipelines,
        recording: Arc<Recording>,
        blocks: Vec<Arc<DeviceBuffer>>,
    ) -> Result<Self> {
        let dispatches = prepared(&gpu, pipelines, &recording.ops, &recording.persistent, &blocks)?;
        let tail = dispatches.partition_point(|d| d.op < recording.tail);
        let chunks = recording.chunks.iter().map(|_| None).collect();
        let pipelines = pipelines.clone();
        Ok(Self { gpu, recording, blocks, dispatches, tail, chunks, pipelines })
    }

    /// The device memory of a tensor.
    pub fn block(&self, tensor: TensorId) -> &DeviceBuffer {
        &self.blocks[tensor.0]
    }

    /// Dispatches of a prepared part, and the number of its first operation.
    fn part(&self, part: Part) -> (&[Dispatch], usize) {
        match part {
            Part::Steps(_) => (&self.dispatches, 0),
            Part::Tail => (&self.dispatches[self.tail..], self.recording.tail),
            Part::Chunk(index) => {
                (self.chunks[index].as_deref().expect("prepared before it runs"), 0)
            }
        }
    }

    /// Encodes prepared parts of the recording.
    fn encode_parts(&self, pass: &mut wgpu::ComputePass<'_>, parts: &[Part]) {
        for part in parts {
            let (dispatches, _) = self.part(*part);
            for _ in 0..part.times() {
                for dispatch in dispatches {
                    dispatch.encode(pass);
                }
            }
        }
    }

    /// Encodes one step.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        for dispatch in &self.dispatches {
            dispatch.encode(pass);
        }
    }

    /// Runs one operation of a prepared part and waits for it.
    pub fn run_op(&self, part: Part, op: usize) -> Result<()> {
        let (dispatches, first) = self.part(part);
        self.submit_pass(|pass| {
            for dispatch in dispatches.iter().filter(|d| d.op == first + op) {
                dispatch.encode(pass);
            }
        })
    }

    /// Buffer whose first word counts timed-out waits at grid barriers.
    fn gave_up(&self) -> Option<&DeviceBuffer> {
        self.recording.persistent.first().map(|kernel| self.block(kernel.arrivals))
    }

    /// Fails if any of a run's waits at grid barriers timed out, `waits` of them, and resets the
    /// barrier's counters.
    fn check_barriers(&self, waits: u32) -> Result<()> {
        let Some(block) = self.gave_up().filter(|_| waits > 0) else { return Ok(()) };
        block.write(&self.gpu, 0, &vec![0; block.bytes as usize]);
        Err(Error::GridBarrier { adapter: self.gpu.adapter.name.clone(), waits })
    }

    fn submit_pass(&self, encode: impl FnOnce(&mut wgpu::ComputePass<'_>)) -> Result<()> {
        let submission = self.gpu.caught(|| {
            self.gpu.submit(|encoder| encode(&mut encoder.begin_compute_pass(&Default::default())))
        })?;
        self.gpu.wait(Some(submission))
    }

    /// Bytes of device memory held.
    pub fn device_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().zip(&self.recording.tensors);
        blocks.filter(|(_, tensor)| !tensor.content.is_unused()).map(|(b, _)| b.size()).sum()
    }

    /// The content of a tensor as `f32`s.
    pub fn read_values(&self, tensor: TensorId) -> Result<Vec<f32>> {
        let bytes = self.blocks[tensor.0].read(&self.gpu)?;
        Ok(self.recording.tensors[tensor.0].content.values(&bytes))
    }
}

impl Kernels for GpuExecutor {
    fn read_bytes(&mut self, tensor: TensorId) -> Result<Vec<u8>> {
        self.blocks[tensor.0].read(&self.gpu)
    }
}

/// The memory of each tensor of a recording: shared, or its own and filled. `progress` receives the
/// bytes uploaded and the recording's total.
fn allocated(
    gpu: &Gpu,
    recording: &Recording,
    shared: &[Option<&Arc<DeviceBuffer>>],
    policy: Policy,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Arc<DeviceBuffer>>> {
    let is_own = |tensor: TensorId| shared[tensor.0].is_none();
    gpu.admit(recording, &Memory::of_those(recording, is_own))?;
    let mut stacked = HashMap::new();
    for stack in recording.stacks.iter().filter(|stack| is_own(stack.tensors[0])) {
        let Tensor { name, content } = &recording.tensors[stack.tensors[0].0];
        let (bytes, count) = (content.device_bytes(), stack.tensors.len());
        let name = format!("{name} and its like, of {count} layers");
        let own = DeviceBuffer::stacked(gpu, &name, bytes, stack.stride, count)?;
        stacked.extend(stack.tensors.iter().copied().zip(own));
    }
    let (total, mut done) = (recording.device_bytes(), 0);
    let mut blocks = Vec::with_capacity(recording.tensors.len());
    for (i, Tensor { name, content }) in recording.tensors.iter().enumerate() {
        // No operation binds an unused tensor. Memory of its own would move the tensors behind it,
        // and where weights lie is worth a percent.
        let known = shared[i].or_else(|| blocks.first().filter(|_| content.is_unused()));
        if let Some(block) = known {
            blocks.push(Arc::clone(block));
            continue;
        }
        let block = match stacked.remove(&TensorId(i)) {
            Some(block) => block,
            None => DeviceBuffer::new(gpu, name, content.device_bytes(), policy)?,
        };
        let mut written = done;
        let mut write = |offset, bytes: &[u8]| {
            block.write(gpu, offset, bytes);
            written += bytes.len() as u64;
            progress(written, total);
        };
        gpu.caught(|| content.initial(&mut write))?;
        done += content.device_bytes();
        progress(done, total);
        gpu.check_faults()?;
        blocks.push(Arc::new(block));
    }
    Ok(blocks)
}

/// Pipelines and bind groups of operations, including persistent kernels.
fn prepared(
    gpu: &Gpu,
    pipelines: &Pipelines,
    ops: &[Op],
    runs: &[PersistentKernel],
    blocks: &[Arc<DeviceBuffer>],
) -> Result<Vec<Dispatch>> {
    let mut dispatches = Vec::new();
    let block = |tensor: TensorId| blocks[tensor.0].binding();
    let mut runs = runs.iter().peekable();
    let mut index = 0;
    while let Some(op) = ops.get(index) {
        if let Some(kernel) = runs.next_if(|kernel| kernel.ops.start == index) {
            let bound = |name: &str| match kernel.bound(name) {
                one if !one.is_shared() => block(one.tensors[0]),
                stack => blocks[stack.tensors[0].0].binding_of(stack.bytes()),
            };
            let (pipeline, groups) =
                (pipelines.of_persistent(gpu, kernel)?, [kernel.grid.groups, 1, 1]);
            dispatches.push(Dispatch::new(gpu, (index, op), pipeline, groups, &bound)?);
            index = kernel.ops.end;
            continue;
        }
        for (stage, pipeline) in op.plan.stages.iter().zip(pipelines.of(gpu, &op.plan)?) {
            check_declared(op, stage, blocks)?;
            let bound = |name: &str| block(op.tensor(stage.code.binding(name)));
            dispatches.push(Dispatch::new(gpu, (index, op), pipeline, stage.groups, &bound)?);
        }
        index += 1;
    }
    Ok(dispatches)
}

/// Fails if a buffer is smaller than its declaration in WGSL demands, such as an array of fixed
/// length.
fn check_declared(op: &Op, stage: &PlannedStage, blocks: &[Arc<DeviceBuffer>]) -> Result<()> {
    let code = &*stage.code;
    let reflection = &code.reflection;
    let used = reflection.entry(&stage.entry).map(|e| e.buffers.as_slice()).unwrap_or_default();
    for buffer in used.iter().map(|&i| &reflection.buffers[i]) {
        let own = code.binding(&buffer.name);
        let block = &blocks[op.tensor(own).0];
        // What is declared in vectors may reach into the padding.
        if block.binding().size.is_none_or(|size| buffer.least_bytes > size.get()) {
            let bytes = block.bytes;
            let (path, name, least) = (op.plan.variant.clone(), &buffer.name, buffer.least_bytes);
            let reason =
                format!("`{name}` is declared with {least} bytes, {own} has {bytes} in this shape");
            return Err(ReflectError::User { path, reason }.into());
        }
    }
    Ok(())
}

impl Dispatch {
    /// A dispatch of `first` with the memory that `bound` gives each variable.
    fn new(
        gpu: &Gpu,
        (op, first): (usize, &Op),
        pipeline: Arc<Pipeline>,
        groups: [u32; 3],
        bound: &Bound<'_>,
    ) -> Result<Self> {
        let bind_groups = pipeline.bind(gpu, &first.label.to_string(), bound)?;
        Ok(Self { op, pipeline, bind_groups, groups })
    }

    fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.pipeline.encode(pass, &self.bind_groups, self.groups);
    }
}

impl Execute for GpuExecutor {
    fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    fn apart(&self) -> Result<Option<Box<dyn Execute>>> {
        if self.recording.persistent.is_empty() {
            return Ok(None);
        }
        let apart = Recording { persistent: Vec::new(), ..(*self.recording).clone() };
        Ok(Some(Box::new(self.beside(Arc::new(apart))?)))
    }

    fn run_op(&mut self, part: Part, op: usize) -> Result<()> {
        Self::run_op(self, part, op)
    }

    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()> {
        let block = &self.blocks[tensor.0];
        self.gpu.caught(|| block.write(&self.gpu, 4 * at as u64, bytemuck::cast_slice(words)))?;
        self.gpu.check_faults()
    }

    fn clear(&mut self, tensor: TensorId) -> Result<()> {
        let block = &self.blocks[tensor.0];
        let bytes = block.bytes.next_multiple_of(4);
        self.gpu.caught(|| {
            self.gpu.submit(|encoder| {
                encoder.clear_buffer(&block.buffer, block.offset(), Some(bytes));
            })
        })?;
        self.gpu.check_faults()
    }

    fn prepare(&mut self, parts: &[Part]) -> Result<()> {
        for part in parts {
            let Part::Chunk(index) = *part else { continue };
            if self.chunks[index].is_none() {
                let ops = &self.recording.chunks[index].ops;
                let dispatches = prepared(&self.gpu, &self.pipelines, ops, &[], &self.blocks)?;
                self.chunks[index] = Some(dispatches);
            }
        }
        Ok(())
    }

    fn run(&mut self, parts: &[Part]) -> Result<()> {
        self.prepare(parts)?;
        self.submit_pass(|pass| self.encode_parts(pass, parts))?;
        let Some(block) = self.gave_up() else { return Ok(()) };
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&block.read(&self.gpu)?[..4]);
        self.check_barriers(words[0])
    }

    fn stream(
        &mut self,
        stream: &Stream,
        on: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<()> {
        for submission in &stream.submissions {
            self.prepare(&submission.parts)?;
        }
        self.run_stream(stream, on)
    }

    fn read_words(&mut self, tensor: TensorId) -> Result<Vec<u32>> {
        let bytes = self.blocks[tensor.0].read(&self.gpu)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    fn read_f32(&mut self, tensor: TensorId) -> Result<Vec<f32>> {
        self.read_values(tensor)
    }
}
