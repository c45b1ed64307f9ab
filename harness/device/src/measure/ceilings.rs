//! Measured limits of a device: bandwidths, peak arithmetic and the cost of launching.
//!
//! The ceiling of bandwidth is a device-to-device copy, bytes read plus bytes written. Reading
//! alone, as most kernels of a decode step do, may be faster: the better of the two bounds any
//! result. Both are taken in several geometries, over content that cannot be compressed, and
//! checked. Repeating one copy is one of the canaries that show whether clocks moved during a run,
//! and over growing blocks it finds the last-level cache.

use std::time::Instant;

use lathe_kernels::MatrixScalar;
use lathe_record::record::{Canary, Ceilings};
use lathe_record::stats::{self, Summary};
use lathe_record::steady::steady;

use crate::error::{Error, Result};
use crate::gpu::{Gpu, Span};

/// Invocations per workgroup of the arithmetic kernels.
const WORKGROUP: u32 = 256;

/// Invocations per workgroup, and rounds of sixteen bytes per invocation: the fastest choice
/// differs by device. The first is the canary's.
const GEOMETRIES: &[(u32, u32)] =
    &[(256, 4), (256, 8), (256, 16), (512, 8), (1024, 4), (128, 16), (256, 64)];

/// Dispatches per sample: the cost of launching is then negligible.
const TIMES: u32 = 16;

/// A pipeline of this folder's WGSL.
fn pipeline(
    gpu: &Gpu,
    text: &str,
    entry: &str,
    constants: &[(&str, f64)],
    checks: wgpu::ShaderRuntimeChecks,
) -> Result<wgpu::ComputePipeline> {
    gpu.scoped(entry, |device| {
        let source = wgpu::ShaderModuleDescriptor {
            label: Some(entry),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        };
        // SAFETY: arithmetic alone is unchecked. Every index lies below the length of its one
        // buffer, which has an element for each invocation, and loops run to a constant.
        let module = unsafe { device.create_shader_module_trusted(source, checks) };
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(entry),
            layout: None,
            module: &module,
            entry_point: Some(entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants,
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        })
    })
}

fn buffer(gpu: &Gpu, size: u64) -> Result<wgpu::Buffer> {
    use wgpu::BufferUsages as Usages;
    let usage = Usages::COPY_SRC | Usages::COPY_DST | Usages::STORAGE;
    let label = Some("a measured block");
    gpu.scoped("a measured block", |device| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label,
            size,
            usage,
            mapped_at_creation: false,
        })
    })
}

/// Binds the first bytes of some buffers, in order.
fn bind_group<'a>(
    gpu: &Gpu,
    pipeline: &wgpu::ComputePipeline,
    bound: &[(&'a wgpu::Buffer, u64)],
) -> wgpu::BindGroup {
    let entry = |(binding, (buffer, bytes)): (u32, (&'a wgpu::Buffer, u64))| wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset: 0,
            size: std::num::NonZeroU64::new(bytes),
        }),
    };
    gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &(0..).zip(bound.iter().copied()).map(entry).collect::<Vec<_>>(),
    })
}

/// A kernel that writes one f32 per invocation.
#[derive(Debug)]
struct Arithmetic {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    out: wgpu::Buffer,
    groups: u32,
    span: Span,
}

impl Arithmetic {
    fn new(gpu: &Gpu, text: &str, entry: &str, groups: u32, steps: u32) -> Result<Self> {
        let constants = [("STEPS", f64::from(steps)), ("WG", f64::from(WORKGROUP))];
        // One workgroup of one invocation has no size to set.
        let constants = if entry == "clock" { &constants[..1] } else { &constants };
        let checks = wgpu::ShaderRuntimeChecks::unchecked();
        let pipeline = pipeline(gpu, text, entry, constants, checks)?;
        let out = buffer(gpu, 4 * u64::from(groups * WORKGROUP))?;
        let bind_group = bind_group(gpu, &pipeline, &[(&out, out.size())]);
        Ok(Self { pipeline, bind_group, out, groups, span: Span::new(gpu)? })
    }

    /// One multiply-add or so in one workgroup: a dispatch that takes the time of its launch.
    fn least(gpu: &Gpu) -> Result<Self> {
        Self::new(gpu, include_str!("arithmetic.wgsl"), "multiply_add", 1, 1)
    }

    fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(self.groups, 1, 1);
    }

    fn time(&self, gpu: &Gpu) -> Result<f64> {
        Ok(self.span.pass(gpu, |pass| self.encode(pass))?.as_secs_f64())
    }

    /// 10^12 operations per second, given the operations of one dispatch. Fails if an invocation's
    /// result is not 1.
    fn peak(&self, gpu: &Gpu, operations: f64) -> Result<f64> {
        let seconds = sample(gpu, &mut || self.time(gpu))?.min;
        let bytes = gpu.read(&self.out, 0, self.out.size())?;
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        match values.iter().find(|v| v.is_nan() || (**v - 1.0).abs() >= 0.01) {
            None => Ok(operations / seconds / 1e12),
            Some(v) => Err(Error::CheckFailed(format!(
                "{}: arithmetic that should come to 1 came to {v}",
                gpu.adapter.name
            ))),
        }
    }
}

/// A kernel over whole blocks in one geometry.
#[derive(Debug)]
struct Sweep {
    pipeline: wgpu::ComputePipeline,
    /// Bytes that a workgroup reads.
    group_bytes: u64,
}

impl Sweep {
    /// The work of an entry point: 0 copies or reads, 1 checks its result, 2 fills a block.
    fn new(gpu: &Gpu, entry: &str, work: u8, (wg, rounds): (u32, u32)) -> Result<Self> {
        let constants =
            [("WG", f64::from(wg)), ("ROUNDS", f64::from(rounds)), ("WORK", f64::from(work))];
        let checks = wgpu::ShaderRuntimeChecks::checked();
        let pipeline = pipeline(gpu, include_str!("copy.wgsl"), entry, &constants, checks)?;
        Ok(Self { pipeline, group_bytes: 16 * u64::from(wg * rounds) })
    }
}

/// Two blocks of random content, a kernel that copies one to the other, and a chain of
/// multiply-adds that takes a fixed number of cycles.
#[derive(Debug)]
pub struct Copier {
    from: wgpu::Buffer,
    to: wgpu::Buffer,
    wrong: wgpu::Buffer,
    copy: Sweep,
    cycles: Arithmetic,
    span: Span,
    bytes: u64,
}

impl Copier {
    /// Blocks far larger than any cache (smaller on software adapters).
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let wanted: u64 = if gpu.adapter.software { 4 << 20 } else { 1 << 30 };
        let most = (gpu.adapter.max_buffer_bytes / 2).min(gpu.adapter.max_binding_bytes);
        let bytes = wanted.min(most) / 16 * 16;
        // Some 0.15 ms at 2 GHz.
        let steps = if gpu.adapter.software { 4096 } else { 65536 };
        let copier = Self {
            from: buffer(gpu, bytes)?,
            to: buffer(gpu, bytes)?,
            wrong: buffer(gpu, 16)?,
            copy: Sweep::new(gpu, "copy_block", 0, GEOMETRIES[0])?,
            cycles: Arithmetic::new(gpu, include_str!("arithmetic.wgsl"), "clock", 1, steps)?,
            span: Span::new(gpu)?,
            bytes,
        };
        let fill = Sweep::new(gpu, "copy_block", 2, GEOMETRIES[0])?;
        copier.time(gpu, &fill, (&copier.to, &copier.from), bytes, 1)?;
        Ok(copier)
    }

    /// Seconds per sweep over the first `bytes`, averaged over `times` that wait for each other.
    fn time(
        &self,
        gpu: &Gpu,
        sweep: &Sweep,
        (from, to): (&wgpu::Buffer, &wgpu::Buffer),
        bytes: u64,
        times: u32,
    ) -> Result<f64> {
        let bytes = bytes.min(self.bytes);
        let bound = [(from, bytes), (to, bytes.min(to.size())), (&self.wrong, 16)];
        let bind_group = bind_group(gpu, &sweep.pipeline, &bound);
        let groups = bytes.div_ceil(sweep.group_bytes) as u32;
        let y = groups.div_ceil(32768).max(1);
        let time = self.span.pass(gpu, |pass| {
            pass.set_pipeline(&sweep.pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(groups.div_ceil(y), y, 1);
            }
        })?;
        Ok(time.as_secs_f64() / f64::from(times))
    }

    /// Seconds per copy of the canary's geometry.
    fn copy(&self, gpu: &Gpu, bytes: u64, times: u32) -> Result<f64> {
        self.time(gpu, &self.copy, (&self.from, &self.to), bytes, times)
    }

    /// Seconds per sweep of an entry point over a whole block in the fastest geometry, averaged
    /// over enough that launching is negligible. Fails if the result is wrong.
    fn fastest(&self, gpu: &Gpu, entry: &str, to: &wgpu::Buffer) -> Result<f64> {
        // Of a software adapter the order is enough: nobody claims a speed there.
        let (tried, times) = match gpu.adapter.software {
            true => (&GEOMETRIES[..1], 1),
            false => (GEOMETRIES, TIMES),
        };
        let one = |sweep: &Sweep, times| self.time(gpu, sweep, (&self.from, to), self.bytes, times);
        let mut best: Option<(f64, Sweep, (u32, u32))> = None;
        for geometry @ (wg, _) in tried.iter().copied() {
            if wg > gpu.caps.invocations || 16 * wg > gpu.caps.workgroup_memory {
                continue;
            }
            let sweep = Sweep::new(gpu, entry, 0, geometry)?;
            let seconds = summary(3, &mut || one(&sweep, times))?.median;
            if best.as_ref().is_none_or(|(least, ..)| seconds < *least) {
                best = Some((seconds, sweep, geometry));
            }
        }
        let Some((_, sweep, geometry)) = best else {
            return Err(gpu.unavailable("a bandwidth", "no workgroup is small enough for it"));
        };
        let seconds = sample(gpu, &mut || one(&sweep, times))?.median;
        gpu.queue.write_buffer(&self.wrong, 0, &[0; 16]);
        one(&Sweep::new(gpu, entry, 1, geometry)?, 1)?;
        match gpu.read(&self.wrong, 0, 16)?[..4] {
            [0, 0, 0, 0] => Ok(seconds),
            _ => Err(Error::CheckFailed(format!(
                "{}: what the bandwidth was measured with was not copied or read as it was",
                gpu.adapter.name
            ))),
        }
    }

    /// Seconds of a fixed copy and of a fixed chain of multiply-adds, each the median of a few.
    /// They should not change during a run: the first follows the memory clock, the second the
    /// clock of the multiprocessors. Raises the clocks before if `raise` is true.
    pub fn canary(&self, gpu: &Gpu, raise: bool) -> Result<Canary> {
        let bytes = self.bytes.min(256 << 20);
        if raise {
            steady(&gpu.adapter, &mut || self.copy(gpu, bytes, TIMES))?;
        }
        Ok(Canary {
            copy: summary(7, &mut || self.copy(gpu, bytes, 1))?.median,
            cycles: summary(7, &mut || self.cycles.time(gpu))?.median,
        })
    }

    /// Copy bandwidth in 10^9 bytes per second, read plus written: the better of a copying kernel
    /// and the driver's buffer copy.
    pub fn bandwidth(&self, gpu: &Gpu) -> Result<f64> {
        let kernel = self.fastest(gpu, "copy_block", &self.to)?;
        let mut copy = || {
            let time = self.span.commands(gpu, |encoder| {
                encoder.copy_buffer_to_buffer(&self.from, 0, &self.to, 0, self.bytes);
            });
            Ok(time?.as_secs_f64())
        };
        Ok(2.0 * self.bytes as f64 / kernel.min(sample(gpu, &mut copy)?.median) / 1e9)
    }

    /// Read bandwidth, 10^9 bytes per second. A block that fits a cache is read from there.
    pub fn read_gb_s(&self, gpu: &Gpu) -> Result<f64> {
        let least = GEOMETRIES.iter().map(|(workgroup, rounds)| 16 * workgroup * rounds).min();
        // Workgroups are rounded up to whole rows of the grid.
        let sums = buffer(gpu, 16 * (self.bytes / u64::from(least.unwrap_or(1)) + 32768))?;
        Ok(self.bytes as f64 / self.fastest(gpu, "read_block", &sums)? / 1e9)
    }

    /// Bytes of the last-level cache, found by measurement: the largest footprint whose repeated
    /// copy is clearly faster than that of the largest block. Zero if there is none.
    pub fn cache_bytes(&self, gpu: &Gpu) -> Result<u64> {
        let time = |bytes: u64| -> Result<f64> {
            let times = ((256 << 20) / bytes).clamp(2, 512) as u32;
            Ok(summary(5, &mut || self.copy(gpu, bytes, times))?.median)
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

fn sample(gpu: &Gpu, run: &mut dyn FnMut() -> Result<f64>) -> Result<Summary> {
    steady(&gpu.adapter, run)?;
    summary(if gpu.adapter.software { 5 } else { 25 }, run)
}

fn summary(runs: usize, run: &mut dyn FnMut() -> Result<f64>) -> Result<Summary> {
    let seconds: Vec<f64> = (0..runs).map(|_| run()).collect::<Result<_>>()?;
    Ok(stats::summarise(&seconds))
}

/// The peaks of a GPU; none for a software adapter, whose speed does not matter.
pub fn peaks(gpu: &Gpu) -> Result<Option<Ceilings>> {
    match gpu.adapter.software {
        true => Ok(None),
        false => ceilings(gpu, &Copier::new(gpu)?).map(Some),
    }
}

/// Measures all peaks; takes a second or two on a GPU.
pub fn ceilings(gpu: &Gpu, copier: &Copier) -> Result<Ceilings> {
    // A software adapter only has to show that it works.
    let (groups, steps) = if gpu.adapter.software { (1, 1024) } else { (8192, 1024) };
    let invocations = f64::from(groups * WORKGROUP);
    let peak = |text: &str, entry: &str, each: f64| -> Result<f64> {
        let kernel = Arithmetic::new(gpu, text, entry, groups, steps)?;
        kernel.peak(gpu, invocations * f64::from(steps) * each)
    };
    // Eight multiply-adds of vectors of four; eight dot products of four.
    let vectors = include_str!("arithmetic.wgsl");
    let halves = || vectors.replace("alias Float = f32;", "alias Float = f16;");
    let halves = || peak(&format!("enable f16;\n{}", halves()), "multiply_add", 64.0);
    let multiplies = |m: &lathe_kernels::CooperativeMatrix| {
        (m.m, m.n, m.k, m.inputs, m.sums) == (16, 16, 16, MatrixScalar::F16, MatrixScalar::F32)
    };
    let one_size = gpu.caps.subgroup.filter(|(min, max)| min == max);
    let matrix_tflop_s = match one_size {
        Some((lanes, _)) if gpu.caps.cooperative_matrices.iter().any(multiplies) => {
            // Four products a step and subgroup.
            let each = 4.0 * 2.0 * f64::from(16 * 16 * 16) / f64::from(lanes);
            Some(peak(include_str!("arithmetic_matrix.wgsl"), "multiply_matrices", each)?)
        }
        _ => None,
    };
    let beyond_cache = copier.bytes >= 4 * copier.cache_bytes(gpu)?;
    let [dependent_us, independent_us, record_us] = launches(gpu)?;
    Ok(Ceilings {
        copy_gb_s: copier.bandwidth(gpu)?,
        read_gb_s: beyond_cache.then(|| copier.read_gb_s(gpu)).transpose()?,
        f32_tflop_s: peak(vectors, "multiply_add", 64.0)?,
        f16_tflop_s: gpu.caps.f16.then(halves).transpose()?,
        dot4_top_s: Some(peak(vectors, "multiply_bytes", 64.0)?),
        matrix_tflop_s,
        dependent_us,
        independent_us,
        record_us,
        round_trip_us: round_trip(gpu)?,
    })
}

/// Microseconds of a dependent dispatch, of an independent one, and of recording one.
fn launches(gpu: &Gpu) -> Result<[f64; 3]> {
    let count = if gpu.adapter.software { 16 } else { 256 };
    let kernels = (0..count).map(|_| Arithmetic::least(gpu)).collect::<Result<Vec<_>>>()?;
    // Seconds of a pass, and of recording it.
    let time = |all: &mut dyn Iterator<Item = &Arithmetic>| -> Result<[f64; 2]> {
        let mut recording = 0.0;
        let pass = kernels[0].span.pass(gpu, |pass| {
            let begun = Instant::now();
            all.for_each(|kernel| kernel.encode(pass));
            recording = begun.elapsed().as_secs_f64();
        });
        Ok([pass?.as_secs_f64(), recording])
    };
    // A barrier stands between two that write the same.
    let dependent = sample(gpu, &mut || Ok(time(&mut (0..count).map(|_| &kernels[0]))?[0]))?.median;
    let mut recorded = Vec::new();
    let independent = sample(gpu, &mut || {
        let [pass, recording] = time(&mut kernels.iter())?;
        recorded.push(recording);
        Ok(pass)
    })?;
    let recording = stats::summarise(&recorded).median;
    let independent = independent.median;
    Ok([dependent, independent, recording].map(|seconds| seconds * 1e6 / f64::from(count)))
}

/// Microseconds from submitting an empty dispatch to knowing that it is done.
fn round_trip(gpu: &Gpu) -> Result<f64> {
    let kernel = Arithmetic::least(gpu)?;
    let mut trip = || {
        let begun = Instant::now();
        let submission = gpu.caught(|| {
            gpu.submit(|encoder| {
                kernel.encode(&mut encoder.begin_compute_pass(&Default::default()));
            })
        })?;
        gpu.wait(Some(submission))?;
        Ok(begun.elapsed().as_secs_f64() * 1e6)
    };
    Ok(summary(32, &mut trip)?.median)
}
