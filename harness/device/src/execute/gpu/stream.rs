//! Submissions in order: one runs while the next is recorded.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use super::GpuExecutor;
use crate::error::Result;
use crate::execute::{Batch, Stream, Submission};
use crate::gpu::{Gpu, Timestamps};
use crate::plan::recording::{Part, TensorId};

/// Maximum number of submissions in flight: one runs while the next is recorded.
const IN_FLIGHT: usize = 2;

/// Maximum number of steps in a joined submission: steps after an end-of-text token are wasted.
const MOST_JOINED: usize = 32;

/// The submissions of a stream that are not yet submitted.
#[derive(Debug)]
struct Pending<'a> {
    rest: &'a [Submission],
    joined_up_to: Option<Duration>,
    /// Time per step of the last submission that ended.
    step: Option<Duration>,
}

impl<'a> Pending<'a> {
    fn of(stream: &'a Stream) -> Self {
        Self { rest: &stream.submissions, joined_up_to: stream.joined_up_to, step: None }
    }

    /// Largest number of words that a submission reads back.
    fn most_words(&self) -> usize {
        let longest = self.rest.iter().map(|s| s.words.len()).max().unwrap_or(0);
        longest.max(if self.joined_up_to.is_some() { MOST_JOINED } else { 0 })
    }

    /// The next submission, joined with its successors as far as the time bound allows.
    fn next(&mut self) -> Option<Submission> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        let mut next = first.clone();
        let (Some(longest), Some(step)) = (self.joined_up_to, self.step) else {
            return Some(next);
        };
        while let Some((more, rest)) = self.rest.split_first() {
            let steps = next.steps() + more.steps();
            let fits = steps <= MOST_JOINED && step * steps as u32 <= longest;
            if !fits || !next.is_steps() || !more.is_steps() {
                break;
            }
            next.parts = vec![Part::Steps(steps)];
            next.words.end = more.words.end;
            self.rest = rest;
        }
        Some(next)
    }

    /// Notes the time that steps took.
    fn took(&mut self, steps: usize, time: Duration) {
        if steps > 0 {
            self.step = Some(time / steps as u32);
        }
    }
}

/// Read-back buffer and timestamps of one submission in flight.
#[derive(Debug)]
struct StreamSlot {
    words: wgpu::Buffer,
    timestamps: Option<Timestamps>,
}

impl StreamSlot {
    fn new(gpu: &Gpu, words: usize, timed: bool) -> Result<Self> {
        // After the words, how many waits of runs gave up.
        let words = gpu.staging("a stream buffer", 4 * (words + 1) as u64)?;
        let timestamps = timed.then(|| Timestamps::new(gpu, 1)).transpose()?.flatten();
        Ok(Self { words, timestamps })
    }

    /// The first words, the number of timed-out waits at grid barriers, and the GPU time.
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
        let mut pending = Pending::of(stream);
        let longest = pending.most_words();
        let mut slots = VecDeque::new();
        for _ in 0..IN_FLIGHT.min(stream.submissions.len()) {
            slots.push_back(StreamSlot::new(&self.gpu, longest, stream.timed)?);
        }
        let mut flying: VecDeque<(StreamSlot, wgpu::SubmissionIndex, Submission)> = VecDeque::new();
        let mut last = Duration::ZERO;
        let mut stop = false;
        loop {
            while !stop && !slots.is_empty() {
                let Some(submission) = pending.next() else { break };
                let Some(slot) = slots.pop_front() else { break };
                let index = self.gpu.caught(|| self.submit(&slot, &submission, stream.words))?;
                flying.push_back((slot, index, submission));
            }
            let Some((slot, index, submission)) = flying.pop_front() else { break };
            self.gpu.wait(Some(index))?;
            let at = begun.elapsed();
            let (words, waits, gpu) = slot.harvest(&self.gpu, submission.words.len())?;
            self.check_barriers(waits)?;
            slots.push_back(slot);
            let steps = submission.steps();
            pending.took(if submission.is_steps() { steps } else { 0 }, gpu.unwrap_or(at - last));
            last = at;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at: usize) -> Submission {
        Submission { parts: vec![Part::Steps(1)], words: at..at + 1 }
    }

    #[test]
    fn steps_are_joined_as_far_as_there_is_time() {
        let chunk = Submission { parts: vec![Part::Chunk(0), Part::Tail], words: 0..1 };
        let submissions: Vec<_> = [chunk].into_iter().chain((1..100).map(step)).collect();
        let stream = |joined_up_to| {
            let submissions = submissions.clone();
            Stream { submissions, words: TensorId(0), joined_up_to, timed: true }
        };
        let joined = stream(Some(Duration::from_millis(16)));
        let mut pending = Pending::of(&joined);
        // The time of the steps before it, and the next submission: the prompt by itself, a step
        // while nothing is known, as many as there is time for, and at most 32.
        for (took, steps, words) in [
            (None, 0, 0..1),
            (None, 1, 1..2),
            (Some((1, 4_000)), 4, 2..6),
            (Some((4, 2_000)), 32, 6..38),
            (None, 32, 38..70),
            (Some((32, 1_000_000)), 1, 70..71),
            (Some((1, 1)), 29, 71..100),
        ] {
            if let Some((steps, us)) = took {
                pending.took(steps, Duration::from_micros(us));
            }
            let next = pending.next().map(|s| (s.steps(), s.words));
            assert_eq!(next, Some((steps, words)));
        }
        assert!(pending.next().is_none());
        // Without a time submissions stay as they are.
        let apart = stream(None);
        let mut pending = Pending::of(&apart);
        assert_eq!(pending.most_words(), 1);
        for steps in [0, 1, 1] {
            pending.took(1, Duration::from_nanos(1));
            assert_eq!(pending.next().map(|s| s.steps()), Some(steps));
        }
    }
}
