//! The recording on the device: pipelines and bind groups prepared once, encoded any number of
//! times.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Batch, Execute, Stream};
use crate::error::Result;
use crate::gpu::{Block, Gpu, Pipeline, Pipelines, Policy};
use crate::recording::{Content, Recording, TensorId};

/// Bytes packed at a time on the way to the device.
const PIECE: usize = 16 << 20;

/// A prepared recording.
#[derive(Debug)]
pub struct GpuExecutor {
    /// The device.
    pub gpu: Arc<Gpu>,
    /// What is executed.
    pub recording: Arc<Recording>,
    blocks: Vec<Arc<Block>>,
    dispatches: Vec<Dispatch>,
}

#[derive(Debug)]
struct Dispatch {
    op: usize,
    pipeline: Arc<Pipeline>,
    bind_group: wgpu::BindGroup,
    groups: [u32; 3],
}

impl GpuExecutor {
    /// Allocates and fills all tensors and compiles all pipelines. `progress` hears the bytes
    /// uploaded and their total.
    pub fn new(
        gpu: Arc<Gpu>,
        pipelines: &Pipelines,
        recording: Arc<Recording>,
        policy: Policy,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let total = recording.device_bytes();
        let mut done = 0;
        let mut blocks = Vec::with_capacity(recording.tensors.len());
        for tensor in &recording.tensors {
            let block = Block::new(&gpu, &tensor.name, tensor.content.device_bytes(), policy)?;
            fill(&gpu, &block, &tensor.content);
            done += tensor.content.device_bytes();
            progress(done, total);
            gpu.check_faults()?;
            blocks.push(Arc::new(block));
        }
        Self::assemble(gpu, pipelines, recording, blocks)
    }

    /// Another executor of the same recording with its own copies of the tensors `own` names and
    /// the rest shared: what rotates in a cold benchmark.
    pub fn sibling(&self, pipelines: &Pipelines, own: &[TensorId]) -> Result<Self> {
        let blocks = self
            .blocks
            .iter()
            .enumerate()
            .map(|(i, block)| {
                if !own.contains(&TensorId(i)) {
                    return Ok(Arc::clone(block));
                }
                let name = &self.recording.tensors[i].name;
                let copy = Block::new(&self.gpu, name, block.bytes, Policy::Plain)?;
                let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
                let bytes = block.bytes.next_multiple_of(4);
                encoder.copy_buffer_to_buffer(
                    &block.buffer,
                    block.offset(),
                    &copy.buffer,
                    0,
                    bytes,
                );
                self.gpu.queue.submit([encoder.finish()]);
                Ok(Arc::new(copy))
            })
            .collect::<Result<_>>()?;
        Self::assemble(Arc::clone(&self.gpu), pipelines, Arc::clone(&self.recording), blocks)
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
        let blocks = recording
            .tensors
            .iter()
            .map(|tensor| {
                let same = self.recording.tensors.iter().position(|t| {
                    let own = matches!(tensor.content, Content::Uniform(_));
                    !own && t.name == tensor.name && alike(&t.content, &tensor.content)
                });
                if let Some(i) = same {
                    return Ok(Arc::clone(&self.blocks[i]));
                }
                let bytes = tensor.content.device_bytes();
                let block = Block::new(&self.gpu, &tensor.name, bytes, policy)?;
                fill(&self.gpu, &block, &tensor.content);
                Ok(Arc::new(block))
            })
            .collect::<Result<_>>()?;
        Self::assemble(Arc::clone(&self.gpu), pipelines, recording, blocks)
    }

    fn assemble(
        gpu: Arc<Gpu>,
        pipelines: &Pipelines,
        recording: Arc<Recording>,
        blocks: Vec<Arc<Block>>,
    ) -> Result<Self> {
        let mut dispatches = Vec::with_capacity(recording.dispatches());
        for (index, op) in recording.ops.iter().enumerate() {
            for (stage, pipeline) in op.plan.stages.iter().zip(pipelines.of(&gpu, &op.plan)?) {
                let entries: Vec<_> = pipeline
                    .bindings
                    .iter()
                    .map(|(binding, name)| wgpu::BindGroupEntry {
                        binding: *binding,
                        resource: wgpu::BindingResource::Buffer(
                            blocks[op.tensor(op.plan.binding(name)).0].binding(),
                        ),
                    })
                    .collect();
                let bind_group = gpu.scoped(&op.label.to_string(), |device| {
                    device.create_bind_group(&wgpu::BindGroupDescriptor {
                        label: None,
                        layout: &pipeline.layout,
                        entries: &entries,
                    })
                })?;
                dispatches.push(Dispatch { op: index, pipeline, bind_group, groups: stage.groups });
            }
        }
        Ok(Self { gpu, recording, blocks, dispatches })
    }

    /// The device memory of a tensor.
    pub fn block(&self, tensor: TensorId) -> &Block {
        &self.blocks[tensor.0]
    }

    /// Whether a block is one of this executor's tensors.
    pub(crate) fn holds(&self, block: &Block) -> bool {
        self.blocks.iter().any(|own| std::ptr::eq(&raw const **own, block))
    }

    /// Encodes the whole recording once.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        for dispatch in &self.dispatches {
            dispatch.encode(pass);
        }
    }

    /// Dispatches of the whole recording.
    pub(crate) fn dispatches(&self) -> usize {
        self.dispatches.len()
    }

    /// Encodes one dispatch of the recording.
    pub(crate) fn encode_dispatch(&self, pass: &mut wgpu::ComputePass<'_>, dispatch: usize) {
        self.dispatches[dispatch].encode(pass);
    }

    /// Encodes one operation.
    pub fn encode_op(&self, pass: &mut wgpu::ComputePass<'_>, op: usize) {
        for dispatch in self.dispatches.iter().filter(|d| d.op == op) {
            dispatch.encode(pass);
        }
    }

    /// Runs one operation and waits for it.
    pub fn run_op(&self, op: usize) -> Result<()> {
        self.submit(|pass| self.encode_op(pass, op))
    }

    fn submit(&self, encode: impl FnOnce(&mut wgpu::ComputePass<'_>)) -> Result<()> {
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        encode(&mut pass);
        drop(pass);
        let submission = self.gpu.queue.submit([encoder.finish()]);
        self.gpu.wait(Some(submission))
    }

    /// Bytes of device memory held.
    pub fn device_bytes(&self) -> u64 {
        self.blocks.iter().map(|b| b.buffer.size()).sum()
    }

    /// The content of a tensor as `f32`s.
    pub fn read_values(&self, tensor: TensorId) -> Result<Vec<f32>> {
        let bytes = self.blocks[tensor.0].read(&self.gpu)?;
        Ok(self.recording.tensors[tensor.0].content.values(&bytes))
    }
}

/// Batches on their way at once: one runs while the next is recorded.
const IN_FLIGHT: usize = 2;

/// What one batch in flight needs for itself.
#[derive(Debug)]
struct StreamSlot {
    words: wgpu::Buffer,
    timing: Option<(wgpu::QuerySet, wgpu::Buffer, wgpu::Buffer)>,
}

impl StreamSlot {
    fn new(gpu: &Gpu, per_submit: usize) -> Result<Self> {
        let buffer = |size, usage| wgpu::BufferDescriptor {
            label: Some("stream"),
            size,
            usage,
            mapped_at_creation: false,
        };
        let read = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let resolve = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        gpu.scoped("stream buffers", |d| Self {
            words: d.create_buffer(&buffer(4 * per_submit.max(1) as u64, read)),
            timing: gpu.adapter.timestamps.then(|| {
                let queries = d.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("stream"),
                    ty: wgpu::QueryType::Timestamp,
                    count: 2,
                });
                (queries, d.create_buffer(&buffer(16, resolve)), d.create_buffer(&buffer(16, read)))
            }),
        })
    }

    fn harvest(&self, gpu: &Gpu, count: usize) -> Result<(Vec<u32>, Option<Duration>)> {
        let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(&gpu.mapped(&self.words)?);
        words.truncate(count);
        let Some((_, _, staging)) = &self.timing else { return Ok((words, None)) };
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&gpu.mapped(staging)?);
        // A timestamp that did not advance is no measurement.
        let gpu_time = ticks[1]
            .checked_sub(ticks[0])
            .filter(|t| *t > 0)
            .map(|t| Duration::from_nanos((t as f64 * gpu.timestamp_period) as u64));
        Ok((words, gpu_time))
    }
}

impl GpuExecutor {
    fn submit_batch(
        &self,
        slot: &StreamSlot,
        stream: &Stream,
        first: usize,
        count: usize,
    ) -> wgpu::SubmissionIndex {
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let timestamp_writes =
            slot.timing.as_ref().map(|(queries, _, _)| wgpu::ComputePassTimestampWrites {
                query_set: queries,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            });
        let mut pass = encoder
            .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        for _ in 0..count {
            self.encode(&mut pass);
        }
        drop(pass);
        let block = &self.blocks[stream.words.0];
        let from = block.offset() + 4 * (stream.from + first) as u64;
        encoder.copy_buffer_to_buffer(&block.buffer, from, &slot.words, 0, 4 * count as u64);
        if let Some((queries, resolved, staging)) = &slot.timing {
            encoder.resolve_query_set(queries, 0..2, resolved, 0);
            encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, 16);
        }
        let submission = self.gpu.queue.submit([encoder.finish()]);
        slot.words.map_async(wgpu::MapMode::Read, .., |_| {});
        if let Some((_, _, staging)) = &slot.timing {
            staging.map_async(wgpu::MapMode::Read, .., |_| {});
        }
        submission
    }
}

/// Queries for timing every operation of a step on its own.
#[derive(Debug)]
pub struct OpTimer {
    /// Sets of at most [`OPS_A_SET`] operations, two timestamps each, with where they resolve to.
    sets: Vec<(wgpu::QuerySet, wgpu::Buffer, wgpu::Buffer, usize)>,
}

/// wgpu allows 4096 queries in a set.
const OPS_A_SET: usize = 2048;

/// One step, timed operation by operation.
#[derive(Clone, Debug)]
pub struct TimedStep {
    /// GPU time of each operation, microseconds.
    pub us: Vec<f64>,
    /// CPU time of recording the commands.
    pub record: Duration,
    /// CPU time of submitting them.
    pub submit: Duration,
    /// CPU time of waiting for the result.
    pub wait: Duration,
}

impl GpuExecutor {
    /// Allocates queries for [`GpuExecutor::timed_step`]; an error without timestamps.
    pub fn op_timer(&self) -> Result<OpTimer> {
        if !self.gpu.adapter.timestamps {
            return Err(crate::Error::Unavailable {
                what: "a profile by operation".into(),
                adapter: self.gpu.adapter.name.clone(),
                reason: "it has no GPU timestamps".into(),
            });
        }
        let count = self.recording.ops.len();
        let sizes = (0..count.div_ceil(OPS_A_SET)).map(|i| (count - i * OPS_A_SET).min(OPS_A_SET));
        let sets = self.gpu.scoped("timestamp queries", |device| {
            sizes
                .map(|ops| {
                    let buffer = |usage| {
                        device.create_buffer(&wgpu::BufferDescriptor {
                            label: Some("op timestamps"),
                            size: 16 * ops as u64,
                            usage,
                            mapped_at_creation: false,
                        })
                    };
                    let set = device.create_query_set(&wgpu::QuerySetDescriptor {
                        label: Some("ops"),
                        ty: wgpu::QueryType::Timestamp,
                        count: 2 * ops as u32,
                    });
                    let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
                    let read = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                    (set, buffer(usage), buffer(read), ops)
                })
                .collect()
        })?;
        Ok(OpTimer { sets })
    }

    /// Runs one step with every operation in a pass of its own between two timestamps. The labels
    /// of the recording say what each is.
    pub fn timed_step(&self, timer: &OpTimer) -> Result<TimedStep> {
        let begun = Instant::now();
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let mut dispatches = self.dispatches.iter().peekable();
        for op in 0..self.recording.ops.len() {
            let at = 2 * (op % OPS_A_SET) as u32;
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: &timer.sets[op / OPS_A_SET].0,
                    beginning_of_pass_write_index: Some(at),
                    end_of_pass_write_index: Some(at + 1),
                }),
            });
            while let Some(dispatch) = dispatches.next_if(|d| d.op == op) {
                dispatch.encode(&mut pass);
            }
        }
        for (set, resolved, staging, ops) in &timer.sets {
            encoder.resolve_query_set(set, 0..2 * *ops as u32, resolved, 0);
            encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, 16 * *ops as u64);
        }
        let commands = encoder.finish();
        let record = begun.elapsed();
        let submission = self.gpu.queue.submit([commands]);
        let submit = begun.elapsed() - record;
        for (_, _, staging, _) in &timer.sets {
            staging.map_async(wgpu::MapMode::Read, .., |_| {});
        }
        self.gpu.wait(Some(submission))?;
        let wait = begun.elapsed() - record - submit;
        let mut us = Vec::with_capacity(self.recording.ops.len());
        for (_, _, staging, _) in &timer.sets {
            let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&self.gpu.mapped(staging)?);
            us.extend(ticks.chunks_exact(2).map(|pair| {
                // A pass whose timestamps run backwards was not measured.
                let ticks = pair[1].checked_sub(pair[0]).map_or(f64::NAN, |t| t as f64);
                // Whole nanoseconds, which is what a record of thousands of them holds.
                (ticks * self.gpu.timestamp_period).round() / 1e3
            }));
        }
        if us.iter().any(|t| t.is_nan()) {
            return Err(crate::Error::Gpu {
                adapter: self.gpu.adapter.name.clone(),
                what: "a profile".into(),
                reason: "timestamps ran backwards".into(),
            });
        }
        Ok(TimedStep { us, record, submit, wait })
    }
}

impl Dispatch {
    fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.pipeline.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        let [x, y, z] = self.groups;
        pass.dispatch_workgroups(x, y, z);
    }
}

impl Execute for GpuExecutor {
    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()> {
        self.blocks[tensor.0].write(&self.gpu, 4 * at as u64, bytemuck::cast_slice(words));
        self.gpu.check_faults()
    }

    fn clear(&mut self, tensor: TensorId) -> Result<()> {
        let block = &self.blocks[tensor.0];
        let bytes = block.bytes.next_multiple_of(4);
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        encoder.clear_buffer(&block.buffer, block.offset(), Some(bytes));
        self.gpu.queue.submit([encoder.finish()]);
        self.gpu.check_faults()
    }

    fn run(&mut self, steps: usize) -> Result<()> {
        self.submit(|pass| {
            for _ in 0..steps {
                self.encode(pass);
            }
        })
    }

    fn stream(
        &mut self,
        stream: &Stream,
        on: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<()> {
        let begun = Instant::now();
        let longest = stream.batches.iter().copied().max().unwrap_or(0);
        let mut slots = VecDeque::new();
        for _ in 0..IN_FLIGHT.min(stream.batches.len()) {
            slots.push_back(StreamSlot::new(&self.gpu, longest)?);
        }
        let mut flying: VecDeque<(StreamSlot, wgpu::SubmissionIndex, usize)> = VecDeque::new();
        let mut batches = stream.batches.iter();
        let mut submitted = 0;
        let mut stop = false;
        loop {
            while !stop && !slots.is_empty() {
                let Some(&count) = batches.next() else { break };
                let Some(slot) = slots.pop_front() else { break };
                let submission = self.submit_batch(&slot, stream, submitted, count);
                flying.push_back((slot, submission, count));
                submitted += count;
            }
            let Some((slot, submission, count)) = flying.pop_front() else { break };
            self.gpu.wait(Some(submission))?;
            let at = begun.elapsed();
            let (words, gpu) = slot.harvest(&self.gpu, count)?;
            slots.push_back(slot);
            if !stop && on(Batch { words, at, gpu }).is_break() {
                stop = true;
            }
        }
        Ok(())
    }

    fn read_words(&mut self, tensor: TensorId) -> Result<Vec<u32>> {
        let bytes = self.blocks[tensor.0].read(&self.gpu)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    fn read_f32(&mut self, tensor: TensorId) -> Result<Vec<f32>> {
        self.read_values(tensor)
    }
}

/// Whether two tensors of one name can be the same memory: as long, and laid out alike.
fn alike(a: &Content, b: &Content) -> bool {
    let packing = |c: &Content| match c {
        Content::Weights(rows, packing) if !rows.format.is_dense() => Some(*packing),
        _ => None,
    };
    a.device_bytes() == b.device_bytes() && packing(a) == packing(b)
}

fn fill(gpu: &Gpu, block: &Block, content: &Content) {
    match content {
        // wgpu hands out zeroed memory, but a guarded block is poisoned.
        Content::Counter(len) => block.write(gpu, 0, &vec![0; 4 * len]),
        Content::Activation { .. } | Content::Words(_) | Content::Kv { .. } => {}
        Content::Values(values) => block.write(gpu, 0, bytemuck::cast_slice(values)),
        Content::Weights(rows, packing) => {
            rows.pack(*packing, PIECE, |offset, bytes| block.write(gpu, offset, bytes));
        }
        Content::Rope(spec) => block.write(gpu, 0, bytemuck::cast_slice(&spec.table())),
        Content::Uniform(bytes) => block.write(gpu, 0, bytes),
    }
}
