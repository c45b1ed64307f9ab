//! Time of one submission: GPU timestamps around it, or the wall clock where there are none.

use std::time::{Duration, Instant};

use super::Gpu;
use crate::data::record::Clock;
use crate::error::{Error, Result};

/// Reusable queries and buffers for timing submissions.
#[derive(Debug)]
pub struct Span {
    queries: Option<Queries>,
}

#[derive(Debug)]
struct Queries {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
}

impl Span {
    /// Allocates what timing needs.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let queries = gpu.adapter.timestamps.then(|| {
            gpu.scoped("timestamp queries", |device| {
                let buffer = |usage| {
                    device.create_buffer(&wgpu::BufferDescriptor {
                        label: Some("timestamps"),
                        size: 16,
                        usage,
                        mapped_at_creation: false,
                    })
                };
                Queries {
                    set: device.create_query_set(&wgpu::QuerySetDescriptor {
                        label: Some("span"),
                        ty: wgpu::QueryType::Timestamp,
                        count: 2,
                    }),
                    resolved: buffer(
                        wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                    ),
                    staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
                }
            })
        });
        Ok(Self { queries: queries.transpose()? })
    }

    /// Which clock [`Span::pass`] reads.
    pub fn clock(&self) -> Clock {
        if self.queries.is_some() { Clock::Gpu } else { Clock::Wall }
    }

    /// Times one compute pass.
    pub fn pass(
        &self,
        gpu: &Gpu,
        encode: impl FnOnce(&mut wgpu::ComputePass<'_>),
    ) -> Result<Duration> {
        let mut encode = Some(encode);
        self.passes(gpu, 1, |pass, _| {
            if let Some(encode) = encode.take() {
                encode(pass);
            }
        })
    }

    /// Times `count` compute passes, at least one, each in a command buffer of its own: what one
    /// uses first needs no barrier inside it, all that pass on between two share the one between.
    pub fn passes(
        &self,
        gpu: &Gpu,
        count: usize,
        mut encode: impl FnMut(&mut wgpu::ComputePass<'_>, usize),
    ) -> Result<Duration> {
        let last = count.saturating_sub(1);
        let mut record = |i: usize| {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            let (begin, end) = ((i == 0).then_some(0), (i == last).then_some(1));
            let queries = self.queries.as_ref().filter(|_| begin.or(end).is_some());
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: queries.map(|q| q.writes(begin, end)),
            });
            encode(&mut pass, i);
            drop(pass);
            encoder
        };
        let before = (0..last).map(|i| record(i).finish()).collect();
        let encoder = record(last);
        self.submit(gpu, before, encoder)
    }

    /// Times commands of an encoder that are no pass, such as copies: empty passes around them
    /// carry the timestamps.
    pub fn commands(
        &self,
        gpu: &Gpu,
        encode: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Duration> {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let stamp = |encoder: &mut wgpu::CommandEncoder, begin, end| {
            if let Some(queries) = &self.queries {
                drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label: None,
                    timestamp_writes: Some(queries.writes(begin, end)),
                }));
            }
        };
        stamp(&mut encoder, Some(0), None);
        encode(&mut encoder);
        stamp(&mut encoder, None, Some(1));
        self.submit(gpu, Vec::new(), encoder)
    }

    /// The smallest step of this device's timestamps, in nanoseconds: what all differences seen
    /// are multiples of. `None` without timestamps.
    pub fn quantum_ns(&self, gpu: &Gpu) -> Result<Option<f64>> {
        let Some(queries) = &self.queries else { return Ok(None) };
        let mut seen = Vec::new();
        for _ in 0..64 {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(queries.writes(Some(0), Some(1))),
            }));
            seen.extend(queries.read(gpu, Vec::new(), encoder)?);
        }
        let step = seen.windows(2).map(|pair| pair[0].abs_diff(pair[1])).fold(0, gcd);
        Ok((step > 0).then_some(step as f64 * gpu.timestamp_period))
    }

    /// Submits `before` and then `encoder`, and waits.
    fn submit(
        &self,
        gpu: &Gpu,
        mut before: Vec<wgpu::CommandBuffer>,
        encoder: wgpu::CommandEncoder,
    ) -> Result<Duration> {
        let Some(queries) = &self.queries else {
            before.push(encoder.finish());
            let begun = Instant::now();
            let submission = gpu.queue.submit(before);
            gpu.wait(Some(submission))?;
            return Ok(begun.elapsed());
        };
        let [begin, end] = queries.read(gpu, before, encoder)?;
        end.checked_sub(begin)
            .filter(|ticks| *ticks > 0)
            .map(|ticks| Duration::from_nanos((ticks as f64 * gpu.timestamp_period) as u64))
            .ok_or_else(|| Error::Gpu {
                adapter: gpu.adapter.name.clone(),
                what: "a measurement".into(),
                reason: format!("timestamps did not advance: {begin} to {end}"),
            })
    }
}

impl Queries {
    fn writes(&self, begin: Option<u32>, end: Option<u32>) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: begin,
            end_of_pass_write_index: end,
        }
    }

    fn read(
        &self,
        gpu: &Gpu,
        mut before: Vec<wgpu::CommandBuffer>,
        mut encoder: wgpu::CommandEncoder,
    ) -> Result<[u64; 2]> {
        encoder.resolve_query_set(&self.set, 0..2, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, 16);
        before.push(encoder.finish());
        let submission = gpu.queue.submit(before);
        self.staging.map_async(wgpu::MapMode::Read, .., |_| {});
        gpu.wait(Some(submission))?;
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&gpu.mapped(&self.staging)?);
        Ok([ticks[0], ticks[1]])
    }
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
