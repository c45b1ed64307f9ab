//! A step or a chunk of a prompt with a timestamp around every operation.

use std::time::{Duration, Instant};

use lathe_kernels::Feature;

use super::GpuExecutor;
use crate::error::Result;
use crate::gpu::Timestamps;
use crate::plan::recording::Part;

/// Queries for timing every operation of a part on its own.
#[derive(Debug)]
pub struct OpTimer(Timestamps);

/// One part, timed operation by operation.
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
    /// Allocates queries for [`GpuExecutor::timed`]. Fails without timestamps, or where one
    /// dispatch does several operations.
    pub fn op_timer(&self, part: Part) -> Result<OpTimer> {
        self.recording.refuse_persistent("a profile by operation")?;
        let timestamps = Timestamps::new(&self.gpu, self.recording.part(part).len())?;
        timestamps.map(OpTimer).ok_or_else(|| {
            let masked = self.gpu.caps.mask.of(Feature::Timestamps);
            let reason = format!("it has no GPU timestamps{masked}");
            self.gpu.unavailable("a profile by operation", reason)
        })
    }

    /// Runs a prepared part with every operation in a pass of its own between two timestamps. The
    /// recording's labels name the operations.
    pub fn timed(&self, part: Part, OpTimer(stamps): &OpTimer) -> Result<TimedStep> {
        let begun = Instant::now();
        let (record, submit, submission) =
            self.gpu.caught(|| self.submit_timed(part, stamps, begun))?;
        self.gpu.wait(Some(submission))?;
        let wait = begun.elapsed() - record - submit;
        // Whole nanoseconds, which is what a record of thousands of them holds.
        let microseconds = |ticks: u64| (ticks as f64 * self.gpu.timestamp_period).round() / 1e3;
        let ticks = stamps.read(&self.gpu)?;
        let us: Option<Vec<f64>> =
            ticks.into_iter().map(|span| span.elapsed().map(microseconds)).collect();
        let backwards = || self.gpu.refused("a profile", "timestamps ran backwards".into());
        let us = us.ok_or_else(backwards)?;
        Ok(TimedStep { us, record, submit, wait })
    }

    /// Records and submits the part; also returns the time of each of the two.
    fn submit_timed(
        &self,
        part: Part,
        stamps: &Timestamps,
        begun: Instant,
    ) -> (Duration, Duration, wgpu::SubmissionIndex) {
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let (dispatches, first) = self.part(part);
        let mut dispatches = dispatches.iter().peekable();
        for op in 0..self.recording.part(part).len() {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(stamps.around(op)),
            });
            while let Some(dispatch) = dispatches.next_if(|d| d.op == first + op) {
                dispatch.encode(&mut pass);
            }
        }
        stamps.resolve(&mut encoder);
        let commands = encoder.finish();
        let record = begun.elapsed();
        let submission = self.gpu.queue.submit([commands]);
        let submit = begun.elapsed() - record;
        stamps.map();
        (record, submit, submission)
    }
}
