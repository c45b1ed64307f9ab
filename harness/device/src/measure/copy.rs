//! The ceiling: bandwidth of a device-to-device copy, bytes read plus bytes written. Repeating the
//! same copy is one of the canaries that show whether clocks moved during a run, and over growing
//! blocks it finds the last-level cache. Reading alone, as most kernels of a decode step do, may be
//! faster than a copy: the better of the two bounds any result. Both are taken in several
//! geometries, over content that cannot be compressed, and checked.

use lathe_record::record::Canary;
use lathe_record::stats::{self, Summary};
use lathe_record::steady::steady;

use super::ceilings::Arithmetic;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Span};

/// A kernel over whole blocks in one of several geometries.
#[derive(Debug)]
struct Geometry {
    /// Bytes that a workgroup reads.
    group_bytes: u64,
    pipeline: wgpu::ComputePipeline,
    check: wgpu::ComputePipeline,
}

/// Two blocks of random content, kernels that copy one to the other, kernels that only read, and a
/// chain of multiply-adds that takes a fixed number of cycles.
#[derive(Debug)]
pub struct Copier {
    from: wgpu::Buffer,
    to: wgpu::Buffer,
    /// Sums of the reading kernels, one buffer per read in flight, so that reads do not wait for
    /// each other.
    sums: Vec<wgpu::Buffer>,
    wrong: wgpu::Buffer,
    layout: wgpu::BindGroupLayout,
    copies: Vec<Geometry>,
    reads: Vec<Geometry>,
    cycles: Arithmetic,
    span: Span,
    bytes: u64,
}

/// Invocations per workgroup, and rounds of sixteen bytes per invocation: the fastest choice
/// differs by device. The first is the canary's.
const GEOMETRIES: &[(u32, u32)] =
    &[(256, 4), (256, 8), (256, 16), (512, 8), (1024, 4), (128, 16), (256, 64)];

/// Dispatches per sample: the cost of launching is then negligible.
const TIMES: u32 = 16;

impl Copier {
    /// Blocks far larger than any cache (smaller on software adapters).
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let wanted: u64 = if gpu.adapter.software { 4 << 20 } else { 1 << 30 };
        let most = (gpu.adapter.max_buffer_bytes / 2).min(gpu.adapter.max_binding_bytes);
        let bytes = wanted.min(most) / 16 * 16;
        let make = |size| {
            gpu.scoped("copy buffers", |device| {
                device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("copy"),
                    size,
                    usage: wgpu::BufferUsages::COPY_SRC
                        | wgpu::BufferUsages::COPY_DST
                        | wgpu::BufferUsages::STORAGE,
                    mapped_at_creation: false,
                })
            })
        };
        let (layout, copies, reads, fill) = gpu.scoped("the copy kernels", |device| {
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some("copy"),
                source: wgpu::ShaderSource::Wgsl(include_str!("copy.wgsl").into()),
            });
            let entry = |binding, read_only| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            };
            let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some("copy"),
                entries: &[entry(0, true), entry(1, false), entry(2, false)],
            });
            let pipelines = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some("copy"),
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let pipeline = |entry, (workgroup, rounds): (u32, u32)| {
                device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label: Some(entry),
                    layout: Some(&pipelines),
                    module: &module,
                    entry_point: Some(entry),
                    compilation_options: wgpu::PipelineCompilationOptions {
                        constants: &[("WG", f64::from(workgroup)), ("ROUNDS", f64::from(rounds))],
                        zero_initialize_workgroup_memory: false,
                    },
                    cache: None,
                })
            };
            let fits = |(workgroup, _): &&(u32, u32)| {
                *workgroup <= gpu.caps.invocations && 16 * *workgroup <= gpu.caps.workgroup_memory
            };
            // Of a software adapter the order is enough: nobody claims a speed there.
            let tried = if gpu.adapter.software { &GEOMETRIES[..1] } else { GEOMETRIES };
            let geometries = |kernel, check| -> Vec<Geometry> {
                let made = tried.iter().filter(fits).map(|geometry| Geometry {
                    group_bytes: 16 * u64::from(geometry.0 * geometry.1),
                    pipeline: pipeline(kernel, *geometry),
                    check: pipeline(check, *geometry),
                });
                made.collect()
            };
            let copies = geometries("copy_block", "check_copy");
            let reads = geometries("read_block", "check_read");
            (layout, copies, reads, pipeline("fill_block", GEOMETRIES[0]))
        })?;
        let (from, to, wrong) = (make(bytes)?, make(bytes)?, make(16)?);
        let least = GEOMETRIES.iter().map(|(workgroup, rounds)| 16 * workgroup * rounds).min();
        let sums_bytes = 16 * (bytes / u64::from(least.unwrap_or(1)) + 32768);
        let sums = (0..TIMES).map(|_| make(sums_bytes)).collect::<Result<_>>()?;
        let (span, cycles) = (Span::new(gpu)?, Arithmetic::clock(gpu)?);
        let copier = Self { from, to, sums, wrong, layout, copies, reads, cycles, span, bytes };
        // The hash of each place into the one, and from there both ways round.
        let group_bytes = copier.copies[0].group_bytes;
        let filled = std::slice::from_ref(&copier.from);
        copier.dispatch(gpu, &fill, group_bytes, (&copier.to, filled), bytes, 1)?;
        Ok(copier)
    }

    /// Seconds per copy of the first `bytes`, averaged over `times` copies that wait for each
    /// other.
    fn kernel(&self, gpu: &Gpu, bytes: u64, times: u32) -> Result<f64> {
        let Geometry { pipeline, group_bytes, .. } = &self.copies[0];
        let blocks = (&self.from, std::slice::from_ref(&self.to));
        self.dispatch(gpu, pipeline, *group_bytes, blocks, bytes, times)
    }

    fn dispatch(
        &self,
        gpu: &Gpu,
        pipeline: &wgpu::ComputePipeline,
        group_bytes: u64,
        (from, to): (&wgpu::Buffer, &[wgpu::Buffer]),
        bytes: u64,
        times: u32,
    ) -> Result<f64> {
        fn part(buffer: &wgpu::Buffer, size: u64) -> wgpu::BindingResource<'_> {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: 0,
                size: std::num::NonZeroU64::new(size),
            })
        }
        let bytes = bytes.min(self.bytes);
        let bind_group = |to: &wgpu::Buffer| {
            let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
            gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some("copy or read"),
                layout: &self.layout,
                entries: &[
                    entry(0, part(from, bytes)),
                    entry(1, part(to, bytes.min(to.size()))),
                    entry(2, part(&self.wrong, 16)),
                ],
            })
        };
        let bind_groups: Vec<_> = to.iter().map(bind_group).collect();
        let groups = bytes.div_ceil(group_bytes) as u32;
        let y = groups.div_ceil(32768).max(1);
        let time = self.span.pass(gpu, |pass| {
            pass.set_pipeline(pipeline);
            for bind_group in bind_groups.iter().cycle().take(times as usize) {
                pass.set_bind_group(0, bind_group, &[]);
                pass.dispatch_workgroups(groups.div_ceil(y), y, 1);
            }
        })?;
        Ok(time.as_secs_f64() / f64::from(times))
    }

    /// Seconds per pass over a whole block in the fastest geometry, averaged over enough passes
    /// that launching is negligible. Fails if the result is wrong.
    fn fastest(&self, gpu: &Gpu, geometries: &[Geometry], to: &[wgpu::Buffer]) -> Result<f64> {
        let times = if gpu.adapter.software { 1 } else { TIMES };
        let blocks = (&self.from, to);
        let one = |g: &Geometry| {
            self.dispatch(gpu, &g.pipeline, g.group_bytes, blocks, self.bytes, times)
        };
        let medians = geometries.iter().map(|g| Ok((summary(3, &mut || one(g))?.median, g)));
        let medians = medians.collect::<Result<Vec<_>>>()?;
        let Some((_, geometry)) = medians.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Err(Error::Unavailable {
                what: "a bandwidth".into(),
                adapter: gpu.adapter.name.clone(),
                reason: "no workgroup is small enough for it".into(),
            });
        };
        let seconds = sample(gpu, &mut || one(geometry))?.median;
        gpu.queue.write_buffer(&self.wrong, 0, &[0; 16]);
        let written = to.len().min(times as usize);
        let blocks = (&self.from, &to[..written]);
        let Geometry { check, group_bytes, .. } = geometry;
        self.dispatch(gpu, check, *group_bytes, blocks, self.bytes, written as u32)?;
        let wrong = gpu.read(&self.wrong, 0, 16)?;
        match wrong[..4] {
            [0, 0, 0, 0] => Ok(seconds),
            _ => Err(Error::CheckFailed(format!(
                "{}: what the bandwidth was measured with was not copied or read as it was",
                gpu.adapter.name
            ))),
        }
    }

    fn driver(&self, gpu: &Gpu) -> Result<f64> {
        let copy = |encoder: &mut wgpu::CommandEncoder| {
            encoder.copy_buffer_to_buffer(&self.from, 0, &self.to, 0, self.bytes);
        };
        Ok(self.span.commands(gpu, copy)?.as_secs_f64())
    }

    /// Seconds of a fixed copy and of a fixed chain of multiply-adds, each the median of a few.
    /// They should not change during a run: the first follows the memory clock, the second the
    /// clock of the multiprocessors. Raises the clocks before if `raise` is true.
    pub fn canary(&self, gpu: &Gpu, raise: bool) -> Result<Canary> {
        let bytes = self.bytes.min(256 << 20);
        if raise {
            steady(&gpu.adapter, &mut || self.kernel(gpu, bytes, TIMES))?;
        }
        Ok(Canary {
            copy: summary(7, &mut || self.kernel(gpu, bytes, 1))?.median,
            cycles: summary(7, &mut || self.cycles.time(gpu))?.median,
        })
    }

    /// Copy bandwidth in 10^9 bytes per second, read plus written: the better of a copying kernel
    /// and the driver's buffer copy.
    pub fn bandwidth(&self, gpu: &Gpu) -> Result<f64> {
        let kernel = self.fastest(gpu, &self.copies, std::slice::from_ref(&self.to))?;
        let driver = sample(gpu, &mut || self.driver(gpu))?.median;
        Ok(2.0 * self.bytes as f64 / kernel.min(driver) / 1e9)
    }

    /// Bytes of a block.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Read bandwidth, 10^9 bytes per second. A block that fits a cache is read from there.
    pub fn read_gb_s(&self, gpu: &Gpu) -> Result<f64> {
        let read = self.fastest(gpu, &self.reads, &self.sums)?;
        Ok(self.bytes as f64 / read / 1e9)
    }

    /// Bytes of the last-level cache, found by measurement: the largest footprint whose repeated
    /// copy is clearly faster than that of the largest block. Zero if there is none.
    pub fn cache_bytes(&self, gpu: &Gpu) -> Result<u64> {
        let time = |bytes: u64| -> Result<f64> {
            let times = ((256 << 20) / bytes).clamp(2, 512) as u32;
            Ok(summary(5, &mut || self.kernel(gpu, bytes, times))?.median)
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

/// Copy bandwidth of a device: same as [`Copier::bandwidth`].
pub fn copy_bandwidth(gpu: &Gpu) -> Result<f64> {
    Copier::new(gpu)?.bandwidth(gpu)
}

pub(super) fn sample(gpu: &Gpu, run: &mut dyn FnMut() -> Result<f64>) -> Result<Summary> {
    steady(&gpu.adapter, run)?;
    summary(if gpu.adapter.software { 5 } else { 25 }, run)
}

fn summary(runs: usize, run: &mut dyn FnMut() -> Result<f64>) -> Result<Summary> {
    let seconds: Vec<f64> = (0..runs).map(|_| run()).collect::<Result<_>>()?;
    Ok(stats::summarise(&seconds))
}
