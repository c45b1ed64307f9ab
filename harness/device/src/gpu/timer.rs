//! GPU time: timestamps that the device writes at the ends of passes, and the time of a submission,
//! by them or by the wall clock where there are none.

use std::time::{Duration, Instant};

use lathe_record::record::Clock;
use wgpu::BufferUsages;

use super::device::{Gpu, create};
use crate::error::Result;

/// Maximum number of spans, two timestamps each, in a query set.
const MOST_SPANS: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;

/// Reusable queries and buffers for a number of spans, each between two timestamps. Reading takes
/// four steps: passes carry the result of [`Timestamps::around`] or [`Timestamps::writes`], the
/// last command encoder is given to [`Timestamps::resolve`], [`Timestamps::map`] follows the
/// submission, and [`Timestamps::read`] the wait for it.
#[derive(Debug)]
pub(crate) struct Timestamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
}

/// The two timestamps of a span, in ticks of [`Gpu::timestamp_period`] nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// The first.
    pub begin: u64,
    /// The second.
    pub end: u64,
}

impl Ticks {
    /// Ticks from the first to the second; none where time ran backwards.
    pub(crate) fn elapsed(self) -> Option<u64> {
        self.end.checked_sub(self.begin)
    }

    /// The time between them; none if the timestamp did not advance.
    pub(crate) fn duration(self, period_ns: f64) -> Option<Duration> {
        let ticks = self.elapsed().filter(|ticks| *ticks > 0)?;
        Some(Duration::from_nanos((ticks as f64 * period_ns) as u64))
    }
}

impl Timestamps {
    /// Allocates queries and buffers for `spans` spans; none on an adapter without timestamps.
    ///
    /// # Errors
    /// A query set does not hold that many, or the device refuses it.
    pub(crate) fn new(gpu: &Gpu, spans: usize) -> Result<Option<Self>> {
        if !gpu.adapter.timestamps {
            return Ok(None);
        }
        if spans > MOST_SPANS {
            let reason = format!("a query set holds {MOST_SPANS}");
            return Err(gpu.unavailable(format!("timing {spans} spans at once"), reason));
        }
        let made = gpu.scoped("timestamp queries", |device| {
            let count = 2 * spans.max(1) as u32;
            let size = u64::from(count * wgpu::QUERY_SIZE);
            let buffer = |usage| create(device, "timestamps", size, usage | BufferUsages::COPY_DST);
            let (label, ty) = (Some("timestamps"), wgpu::QueryType::Timestamp);
            Self {
                queries: device.create_query_set(&wgpu::QuerySetDescriptor { label, ty, count }),
                resolved: buffer(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC),
                staging: buffer(BufferUsages::MAP_READ),
            }
        })?;
        Ok(Some(made))
    }

    /// Timestamp writes of a pass that is a whole span.
    pub(crate) fn around(&self, span: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        self.writes(span, true, true)
    }

    /// Timestamp writes of a pass that begins a span, ends it, or both.
    pub(crate) fn writes(
        &self,
        span: usize,
        begins: bool,
        ends: bool,
    ) -> wgpu::ComputePassTimestampWrites<'_> {
        let query = 2 * span as u32;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: begins.then_some(query),
            end_of_pass_write_index: ends.then_some(query + 1),
        }
    }

    /// Ends the commands whose passes carry the timestamps: resolves and copies them.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let bytes = self.resolved.size();
        let count = (bytes / u64::from(wgpu::QUERY_SIZE)) as u32;
        encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, bytes);
    }

    /// Requests the timestamps of the submission just made.
    pub(crate) fn map(&self) {
        self.staging.map_async(wgpu::MapMode::Read, .., |_| {});
    }

    /// The timestamps of each span; valid after the wait for the submission.
    pub(crate) fn read(&self, gpu: &Gpu) -> Result<Vec<Ticks>> {
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&gpu.mapped(&self.staging)?);
        let pairs = ticks.as_chunks().0.iter();
        Ok(pairs.map(|[begin, end]| Ticks { begin: *begin, end: *end }).collect())
    }
}

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
            let commands = encoder.finish();
            let begun = Instant::now();
            let submission = gpu.caught(|| gpu.queue.submit([commands]))?;
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
    use super::*;

    #[test]
    fn the_step_divides_every_difference() {
        assert_eq!([96, 64, 0, 160].into_iter().fold(0, gcd), 32);
        assert_eq!([7, 5].into_iter().fold(0, gcd), 1);
    }

    #[test]
    fn a_timestamp_that_did_not_advance_is_no_measurement() {
        let ticks = |begin, end| Ticks { begin, end };
        assert_eq!(ticks(10, 15).duration(32.0), Some(Duration::from_nanos(160)));
        assert_eq!(ticks(10, 13).duration(0.5), Some(Duration::from_nanos(1)));
        assert_eq!(ticks(10, 10).duration(32.0), None);
        assert_eq!(ticks(10, 9).duration(32.0), None);
        assert_eq!(ticks(0, u64::MAX).elapsed(), Some(u64::MAX));
        assert_eq!(ticks(10, 10).elapsed(), Some(0));
        assert_eq!(ticks(10, 9).elapsed(), None);
    }
}
