//! Time of one submission: GPU timestamps around it, or the wall clock where there are none.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::gpu::Gpu;

/// Where a time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Timestamps written by the GPU.
    Gpu,
    /// The host's clock around submit and wait.
    Wall,
}

/// Reusable queries and buffers for timing submissions.
#[derive(Debug)]
pub struct Span {
    queries: Option<(wgpu::QuerySet, wgpu::Buffer, wgpu::Buffer)>,
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
                let queries = device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("span"),
                    ty: wgpu::QueryType::Timestamp,
                    count: 2,
                });
                let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
                let read = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                (queries, buffer(usage), buffer(read))
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
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let timestamp_writes =
            self.queries.as_ref().map(|(set, _, _)| wgpu::ComputePassTimestampWrites {
                query_set: set,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            });
        let mut pass = encoder
            .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        encode(&mut pass);
        drop(pass);
        self.submit(gpu, encoder)
    }

    /// Times commands of an encoder that are no pass, such as copies. Where the device cannot
    /// write timestamps between commands, empty passes around them carry the queries.
    pub fn commands(
        &self,
        gpu: &Gpu,
        encode: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Duration> {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        if let Some((set, _, _)) = &self.queries {
            stamp(&mut encoder, set, Some(0), None);
            encode(&mut encoder);
            stamp(&mut encoder, set, None, Some(1));
        } else {
            encode(&mut encoder);
        }
        self.submit(gpu, encoder)
    }

    fn submit(&self, gpu: &Gpu, mut encoder: wgpu::CommandEncoder) -> Result<Duration> {
        let Some((set, resolved, staging)) = &self.queries else {
            let commands = encoder.finish();
            let begun = Instant::now();
            let submission = gpu.queue.submit([commands]);
            gpu.wait(Some(submission))?;
            return Ok(begun.elapsed());
        };
        encoder.resolve_query_set(set, 0..2, resolved, 0);
        encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, 16);
        let submission = gpu.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        gpu.wait(Some(submission))?;
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&gpu.mapped(staging)?);
        let span = ticks[1].checked_sub(ticks[0]).filter(|t| *t > 0);
        span.map(|t| Duration::from_nanos((t as f64 * gpu.timestamp_period) as u64)).ok_or_else(
            || crate::Error::Gpu {
                adapter: gpu.adapter.name.clone(),
                what: "a measurement".into(),
                reason: format!("timestamps did not advance: {} to {}", ticks[0], ticks[1]),
            },
        )
    }
}

fn stamp(
    encoder: &mut wgpu::CommandEncoder,
    set: &wgpu::QuerySet,
    begin: Option<u32>,
    end: Option<u32>,
) {
    let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
        query_set: set,
        beginning_of_pass_write_index: begin,
        end_of_pass_write_index: end,
    });
    drop(
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes }),
    );
}
