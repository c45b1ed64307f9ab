//! The ceiling: bandwidth of a device-to-device copy, bytes read plus bytes written.

use serde::Serialize;

use super::span::Span;
use super::stats::{self, Summary};
use super::steady::steady;
use crate::error::Result;
use crate::gpu::Gpu;

/// Measured copy bandwidth: the better of a copying kernel and the driver's buffer copy.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CopyBandwidth {
    /// Bytes read plus bytes written a second, in units of 10^9.
    pub gb_s: f64,
    /// The same of a kernel that copies sixteen bytes an invocation and round.
    pub kernel_gb_s: f64,
    /// The same of the driver's own buffer copy.
    pub driver_gb_s: f64,
    /// Bytes copied at a time.
    pub bytes: u64,
    /// Interquartile range over the median of the better one.
    pub spread: f64,
}

/// Measures the copy of a block far larger than any cache (smaller on software adapters).
pub fn copy_bandwidth(gpu: &Gpu) -> Result<CopyBandwidth> {
    let wanted: u64 = if gpu.adapter.software { 32 << 20 } else { 1 << 30 };
    let most = (gpu.adapter.max_buffer_bytes / 2).min(gpu.adapter.max_binding_bytes);
    let bytes = wanted.min(most) / 16 * 16;
    let make = || {
        gpu.scoped("copy buffers", |device| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("copy"),
                size: bytes,
                usage: wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::STORAGE,
                mapped_at_creation: false,
            })
        })
    };
    let (from, to) = (make()?, make()?);
    let span = Span::new(gpu)?;
    let (pipeline, bind_group) = gpu.scoped("the copy kernel", |device| {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("copy"),
            source: wgpu::ShaderSource::Wgsl(include_str!("copy.wgsl").into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("copy"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("copy"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: from.as_entire_binding() },
                wgpu::BindGroupEntry { binding: 1, resource: to.as_entire_binding() },
            ],
        });
        (pipeline, bind_group)
    })?;
    let groups = (bytes / 16).div_ceil(256 * 4) as u32;
    let y = groups.div_ceil(32768);
    let x = groups.div_ceil(y);
    let kernel = sample(gpu, &mut || {
        span.pass(gpu, |pass| {
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            pass.dispatch_workgroups(x, y, 1);
        })
        .map(|d| d.as_secs_f64())
    })?;
    let driver = sample(gpu, &mut || {
        span.commands(gpu, |e| e.copy_buffer_to_buffer(&from, 0, &to, 0, bytes))
            .map(|d| d.as_secs_f64())
    })?;
    let rate = |s: &Summary| 2.0 * bytes as f64 / s.median / 1e9;
    let best = if kernel.median <= driver.median { &kernel } else { &driver };
    Ok(CopyBandwidth {
        gb_s: rate(best),
        kernel_gb_s: rate(&kernel),
        driver_gb_s: rate(&driver),
        bytes,
        spread: best.spread,
    })
}

fn sample(gpu: &Gpu, run: &mut dyn FnMut() -> Result<f64>) -> Result<Summary> {
    steady(gpu, run)?;
    let runs = if gpu.adapter.software { 5 } else { 25 };
    let seconds: Vec<f64> = (0..runs).map(|_| run()).collect::<Result<_>>()?;
    Ok(stats::summarise(&seconds))
}
