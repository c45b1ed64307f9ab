//! The ceiling: bandwidth of a device-to-device copy, bytes read plus bytes written. The same
//! copy, over and over, is the canary that shows whether clocks moved during a run, and over
//! growing blocks it finds the last-level cache. Reading alone, what most kernels of a decode
//! step do, may go beyond a copy: the better of the two bounds what a result can be.

use serde::Serialize;

use crate::data::stats::{self, Summary};
use crate::data::steady::steady;
use crate::error::Result;
use crate::gpu::{Gpu, Span};

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

/// Two blocks, a kernel that copies one to the other and one that only reads.
#[derive(Debug)]
pub struct Copier {
    from: wgpu::Buffer,
    to: wgpu::Buffer,
    copy: wgpu::ComputePipeline,
    read: wgpu::ComputePipeline,
    span: Span,
    bytes: u64,
}

const WORKGROUP: u64 = 256;
const ROUNDS: u64 = 4;

impl Copier {
    /// Blocks far larger than any cache (smaller on software adapters).
    pub fn new(gpu: &Gpu) -> Result<Self> {
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
        let (copy, read) = gpu.scoped("the copy kernels", |device| {
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some("copy"),
                source: wgpu::ShaderSource::Wgsl(include_str!("copy.wgsl").into()),
            });
            let pipeline = |entry| {
                device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label: Some(entry),
                    layout: None,
                    module: &module,
                    entry_point: Some(entry),
                    compilation_options: Default::default(),
                    cache: None,
                })
            };
            (pipeline("copy_block"), pipeline("read_block"))
        })?;
        Ok(Self { from: make()?, to: make()?, copy, read, span: Span::new(gpu)?, bytes })
    }

    /// Seconds of one copy of the first `bytes`, as one of `times` that wait for each other.
    pub fn kernel(&self, gpu: &Gpu, bytes: u64, times: u32) -> Result<f64> {
        self.dispatch(gpu, &self.copy, bytes, times)
    }

    fn dispatch(
        &self,
        gpu: &Gpu,
        pipeline: &wgpu::ComputePipeline,
        bytes: u64,
        times: u32,
    ) -> Result<f64> {
        let part = |buffer| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: 0,
                size: std::num::NonZeroU64::new(bytes.min(self.bytes)),
            })
        };
        let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("copy or read"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: part(&self.from) },
                wgpu::BindGroupEntry { binding: 1, resource: part(&self.to) },
            ],
        });
        let groups = (bytes / 16).div_ceil(WORKGROUP * ROUNDS) as u32;
        let y = groups.div_ceil(32768).max(1);
        let time = self.span.pass(gpu, |pass| {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(groups.div_ceil(y), y, 1);
            }
        })?;
        Ok(time.as_secs_f64() / f64::from(times))
    }

    fn driver(&self, gpu: &Gpu) -> Result<f64> {
        let copy = |encoder: &mut wgpu::CommandEncoder| {
            encoder.copy_buffer_to_buffer(&self.from, 0, &self.to, 0, self.bytes);
        };
        Ok(self.span.commands(gpu, copy)?.as_secs_f64())
    }

    /// Seconds of a fixed copy, the median of a few: what should not change during a run.
    pub fn canary(&self, gpu: &Gpu) -> Result<f64> {
        let bytes = self.bytes.min(256 << 20);
        let times: Vec<f64> = (0..7).map(|_| self.kernel(gpu, bytes, 1)).collect::<Result<_>>()?;
        Ok(stats::summarise(&times).median)
    }

    /// Copy bandwidth.
    pub fn bandwidth(&self, gpu: &Gpu) -> Result<CopyBandwidth> {
        let kernel = sample(gpu, &mut || self.kernel(gpu, self.bytes, 1))?;
        let driver = sample(gpu, &mut || self.driver(gpu))?;
        let rate = |s: &Summary| 2.0 * self.bytes as f64 / s.median / 1e9;
        let best = if kernel.median <= driver.median { &kernel } else { &driver };
        Ok(CopyBandwidth {
            gb_s: rate(best),
            kernel_gb_s: rate(&kernel),
            driver_gb_s: rate(&driver),
            bytes: self.bytes,
            spread: best.spread,
        })
    }

    /// Bytes of a block.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Read bandwidth, 10^9 bytes a second. A block that stays in a cache is read from
    /// there.
    pub fn read_gb_s(&self, gpu: &Gpu) -> Result<f64> {
        let read = sample(gpu, &mut || self.dispatch(gpu, &self.read, self.bytes, 1))?;
        Ok(self.bytes as f64 / read.median / 1e9)
    }

    /// Bytes of the last-level cache, found by measurement: the largest footprint whose repeated
    /// copy clearly beats that of the largest block. Zero where nothing does.
    pub fn cache_bytes(&self, gpu: &Gpu) -> Result<u64> {
        let time = |bytes: u64| -> Result<f64> {
            let times = ((256 << 20) / bytes).clamp(2, 512) as u32;
            let seconds: Vec<f64> =
                (0..5).map(|_| self.kernel(gpu, bytes, times)).collect::<Result<_>>()?;
            Ok(stats::summarise(&seconds).median)
        };
        // What a dispatch costs beside its bytes would hide a small cache.
        let launch = time(4096)?;
        let rate = |bytes: u64| time(bytes).map(|t| bytes as f64 / (t - launch).max(1e-9));
        let memory = rate(self.bytes)?;
        let mut bytes = self.bytes / 2;
        while bytes >= 1 << 20 {
            if rate(bytes)? > 1.2 * memory {
                return Ok(2 * bytes);
            }
            bytes /= 2;
        }
        Ok(0)
    }
}

/// Copy bandwidth of a device.
pub fn copy_bandwidth(gpu: &Gpu) -> Result<CopyBandwidth> {
    Copier::new(gpu)?.bandwidth(gpu)
}

fn sample(gpu: &Gpu, run: &mut dyn FnMut() -> Result<f64>) -> Result<Summary> {
    steady(&gpu.adapter, run)?;
    let runs = if gpu.adapter.software { 5 } else { 25 };
    let seconds: Vec<f64> = (0..runs).map(|_| run()).collect::<Result<_>>()?;
    Ok(stats::summarise(&seconds))
}
