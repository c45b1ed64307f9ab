//! Time of one submission: GPU timestamps around it, or the wall clock where there are none.

use std::time::{Duration, Instant};

use lathe_record::record::Clock;

use super::Gpu;
use super::timestamps::{Ticks, Timestamps};
use crate::error::Result;

/// Reusable queries and buffers for timing submissions.
#[derive(Debug)]
pub struct Span {
    timestamps: Option<Timestamps>,
}

impl Span {
    /// Allocates queries and buffers for one span.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self { timestamps: Timestamps::new(gpu, 1)? })
    }

    /// The clock that [`Span::pass`] reads.
    pub fn clock(&self) -> Clock {
        if self.timestamps.is_some() { Clock::Gpu } else { Clock::Wall }
    }

    /// Times one compute pass.
    pub fn pass(
        &self,
        gpu: &Gpu,
        encode: impl FnOnce(&mut wgpu::ComputePass<'_>),
    ) -> Result<Duration> {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let timestamp_writes = self.timestamps.as_ref().map(|stamps| stamps.around(0));
        let label = None;
        encode(
            &mut encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor { label, timestamp_writes }),
        );
        self.submit(gpu, encoder)
    }

    /// Times encoder commands outside passes, such as copies: empty passes around them carry the
    /// timestamps.
    pub fn commands(
        &self,
        gpu: &Gpu,
        encode: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Duration> {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        if let Some(stamps) = &self.timestamps {
            stamp(&mut encoder, stamps.writes(0, true, false));
        }
        encode(&mut encoder);
        if let Some(stamps) = &self.timestamps {
            stamp(&mut encoder, stamps.writes(0, false, true));
        }
        self.submit(gpu, encoder)
    }

    /// The smallest step of this device's timestamps, in nanoseconds: the greatest common divisor
    /// of all differences seen. `None` without timestamps.
    pub fn timestamp_step_ns(&self, gpu: &Gpu) -> Result<Option<f64>> {
        let Some(stamps) = &self.timestamps else { return Ok(None) };
        let mut seen = Vec::new();
        for _ in 0..64 {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            stamp(&mut encoder, stamps.around(0));
            let ticks = read(gpu, stamps, encoder)?;
            seen.extend([ticks.begin, ticks.end]);
        }
        let step = seen.windows(2).map(|pair| pair[0].abs_diff(pair[1])).fold(0, gcd);
        Ok((step > 0).then_some(step as f64 * gpu.timestamp_period))
    }

    /// Submits and waits.
    fn submit(&self, gpu: &Gpu, encoder: wgpu::CommandEncoder) -> Result<Duration> {
        let Some(stamps) = &self.timestamps else {
            let begun = Instant::now();
            let submission = gpu.caught(|| gpu.queue.submit([encoder.finish()]))?;
            gpu.wait(Some(submission))?;
            return Ok(begun.elapsed());
        };
        let ticks = read(gpu, stamps, encoder)?;
        ticks.duration(gpu.timestamp_period).ok_or_else(|| {
            let Ticks { begin, end } = ticks;
            let reason = format!("timestamps did not advance: {begin} to {end}");
            gpu.refused("a measurement", reason)
        })
    }
}

/// An empty pass that carries timestamps.
fn stamp(encoder: &mut wgpu::CommandEncoder, writes: wgpu::ComputePassTimestampWrites<'_>) {
    drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
        label: None,
        timestamp_writes: Some(writes),
    }));
}

/// Submits, waits, and reads the one span.
fn read(gpu: &Gpu, stamps: &Timestamps, mut encoder: wgpu::CommandEncoder) -> Result<Ticks> {
    let submission = gpu.caught(|| {
        stamps.resolve(&mut encoder);
        let submission = gpu.queue.submit([encoder.finish()]);
        stamps.map();
        submission
    })?;
    gpu.wait(Some(submission))?;
    Ok(stamps.read(gpu)?[0])
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::gcd;

    #[test]
    fn the_step_divides_every_difference() {
        assert_eq!([96, 64, 0, 160].into_iter().fold(0, gcd), 32);
        assert_eq!([7, 5].into_iter().fold(0, gcd), 1);
        assert_eq!([].into_iter().fold(0, gcd), 0);
    }
}
