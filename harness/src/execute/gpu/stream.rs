//! Submissions in order: one runs while the next is recorded.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use super::GpuExecutor;
use crate::error::Result;
use crate::execute::{Batch, Stream, Submission};
use crate::gpu::{Gpu, Timestamps};
use crate::plan::recording::TensorId;

/// Submissions on their way at once: one runs while the next is recorded.
const IN_FLIGHT: usize = 2;

/// What a submission in flight needs for itself.
#[derive(Debug)]
struct StreamSlot {
    words: wgpu::Buffer,
    timestamps: Option<Timestamps>,
}

impl StreamSlot {
    fn new(gpu: &Gpu, words: usize) -> Result<Self> {
        let words = gpu.scoped("a stream buffer", |device| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("stream"),
                // After the words, how many waits of runs gave up.
                size: 4 * (words + 1) as u64,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })?;
        Ok(Self { words, timestamps: Timestamps::new(gpu, 1)? })
    }

    /// The first words, how many waits gave up, and the time it took.
    fn harvest(&self, gpu: &Gpu, count: usize) -> Result<(Vec<u32>, u32, Option<Duration>)> {
        let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(&gpu.mapped(&self.words)?);
        let waits = words.pop().unwrap_or(0);
        words.truncate(count);
        let Some(stamps) = &self.timestamps else { return Ok((words, waits, None)) };
        Ok((words, waits, stamps.read(gpu)?[0].duration(gpu.timestamp_period)))
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
        let longest = stream.submissions.iter().map(|s| s.words.len()).max().unwrap_or(0);
        let mut slots = VecDeque::new();
        for _ in 0..IN_FLIGHT.min(stream.submissions.len()) {
            slots.push_back(StreamSlot::new(&self.gpu, longest)?);
        }
        let mut flying: VecDeque<(StreamSlot, wgpu::SubmissionIndex, &Submission)> =
            VecDeque::new();
        let mut submissions = stream.submissions.iter();
        let mut stop = false;
        loop {
            while !stop && !slots.is_empty() {
                let Some(submission) = submissions.next() else { break };
                let Some(slot) = slots.pop_front() else { break };
                let index = self.gpu.caught(|| self.submit(&slot, submission, stream.words))?;
                flying.push_back((slot, index, submission));
            }
            let Some((slot, index, submission)) = flying.pop_front() else { break };
            self.gpu.wait(Some(index))?;
            let at = begun.elapsed();
            let (words, waits, gpu) = slot.harvest(&self.gpu, submission.words.len())?;
            self.check_waits(waits)?;
            slots.push_back(slot);
            let steps = submission.steps();
            if !stop && on(Batch { words, steps, at, gpu }).is_break() {
                stop = true;
            }
        }
        Ok(())
    }

    fn submit(
        &self,
        slot: &StreamSlot,
        submission: &Submission,
        words: TensorId,
    ) -> wgpu::SubmissionIndex {
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let timestamp_writes = slot.timestamps.as_ref().map(|stamps| stamps.around(0));
        let mut pass = encoder
            .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        self.encode_parts(&mut pass, &submission.parts);
        drop(pass);
        let Range { start, end } = submission.words;
        if start < end {
            let block = &self.blocks[words.0];
            let (from, bytes) = (block.offset() + 4 * start as u64, 4 * (end - start) as u64);
            encoder.copy_buffer_to_buffer(&block.buffer, from, &slot.words, 0, bytes);
        }
        if let Some(block) = self.gave_up() {
            let last = slot.words.size() - 4;
            encoder.copy_buffer_to_buffer(&block.buffer, block.offset(), &slot.words, last, 4);
        }
        if let Some(stamps) = &slot.timestamps {
            stamps.resolve(&mut encoder);
        }
        let index = self.gpu.queue.submit([encoder.finish()]);
        slot.words.map_async(wgpu::MapMode::Read, .., |_| {});
        if let Some(stamps) = &slot.timestamps {
            stamps.map();
        }
        index
    }
}
