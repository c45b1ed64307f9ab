//! Steps in batches: one runs while the next is recorded.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::GpuExecutor;
use crate::error::Result;
use crate::execute::{Batch, Stream};
use crate::gpu::{Gpu, Timestamps};

/// Batches on their way at once: one runs while the next is recorded.
const IN_FLIGHT: usize = 2;

/// What one batch in flight needs for itself.
#[derive(Debug)]
struct StreamSlot {
    words: wgpu::Buffer,
    timestamps: Option<Timestamps>,
}

impl StreamSlot {
    fn new(gpu: &Gpu, per_submit: usize) -> Result<Self> {
        let words = gpu.scoped("a stream buffer", |device| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("stream"),
                size: 4 * per_submit.max(1) as u64,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })?;
        Ok(Self { words, timestamps: Timestamps::new(gpu, 1)? })
    }

    fn harvest(&self, gpu: &Gpu, count: usize) -> Result<(Vec<u32>, Option<Duration>)> {
        let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(&gpu.mapped(&self.words)?);
        words.truncate(count);
        let Some(stamps) = &self.timestamps else { return Ok((words, None)) };
        Ok((words, stamps.read(gpu)?[0].duration(gpu.timestamp_period)))
    }
}

impl GpuExecutor {
    /// [`Execute::stream`](crate::execute::Execute::stream).
    pub(super) fn run_stream(
        &self,
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
                let submission =
                    self.gpu.caught(|| self.submit_batch(&slot, stream, submitted, count))?;
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

    fn submit_batch(
        &self,
        slot: &StreamSlot,
        stream: &Stream,
        first: usize,
        count: usize,
    ) -> wgpu::SubmissionIndex {
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let timestamp_writes = slot.timestamps.as_ref().map(|stamps| stamps.around(0));
        let mut pass = encoder
            .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        for _ in 0..count {
            self.encode(&mut pass);
        }
        drop(pass);
        let block = &self.blocks[stream.words.0];
        let from = block.offset() + 4 * (stream.from + first) as u64;
        encoder.copy_buffer_to_buffer(&block.buffer, from, &slot.words, 0, 4 * count as u64);
        if let Some(stamps) = &slot.timestamps {
            stamps.resolve(&mut encoder);
        }
        let submission = self.gpu.queue.submit([encoder.finish()]);
        slot.words.map_async(wgpu::MapMode::Read, .., |_| {});
        if let Some(stamps) = &slot.timestamps {
            stamps.map();
        }
        submission
    }
}
