//! Measured limits of a device besides its memory bandwidth: peak arithmetic and the cost of
//! launching.

use std::time::{Duration, Instant};

use lathe_kernels::MatrixScalar;
use lathe_record::record::Ceilings;
use lathe_record::stats;

use super::copy::{Copier, sample};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Span};

/// A kernel that writes one f32 per invocation.
#[derive(Debug)]
pub(super) struct Arithmetic {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    out: wgpu::Buffer,
    groups: u32,
    span: Span,
}

/// Invocations per workgroup.
const WORKGROUP: u32 = 256;

impl Arithmetic {
    fn new(gpu: &Gpu, text: &str, entry: &str, groups: u32, steps: u32) -> Result<Self> {
        let bytes = 4 * u64::from(groups * WORKGROUP);
        let (pipeline, bind_group, out) = gpu.scoped(entry, |device| {
            let source = wgpu::ShaderModuleDescriptor {
                label: Some(entry),
                source: wgpu::ShaderSource::Wgsl(text.into()),
            };
            // SAFETY: every index lies below the length of the one buffer, which has an element for
            // each invocation, and loops run to a constant.
            let module = unsafe {
                let checks = wgpu::ShaderRuntimeChecks::unchecked();
                device.create_shader_module_trusted(source, checks)
            };
            let constants = [("WG", f64::from(WORKGROUP)), ("STEPS", f64::from(steps))];
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout: None,
                module: &module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions {
                    // One workgroup of one invocation has no size to set.
                    constants: if entry == "clock" { &constants[1..] } else { &constants },
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            });
            let out = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(entry),
                size: bytes,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            });
            let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(entry),
                layout: &pipeline.get_bind_group_layout(0),
                entries: &[wgpu::BindGroupEntry { binding: 0, resource: out.as_entire_binding() }],
            });
            (pipeline, bind_group, out)
        })?;
        Ok(Self { pipeline, bind_group, out, groups, span: Span::new(gpu)? })
    }

    fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(self.groups, 1, 1);
    }

    /// A chain of dependent multiply-adds in one invocation: its time is a number of cycles divided
    /// by the clock.
    pub(super) fn clock(gpu: &Gpu) -> Result<Self> {
        // Some 0.15 ms at 2 GHz.
        let steps = if gpu.adapter.software { 4096 } else { 65536 };
        Self::new(gpu, include_str!("arithmetic.wgsl"), "clock", 1, steps)
    }

    pub(super) fn time(&self, gpu: &Gpu) -> Result<f64> {
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
    let f32_tflop_s = peak(include_str!("arithmetic.wgsl"), "multiply_add", 64.0)?;
    let dot4_top_s = peak(include_str!("arithmetic.wgsl"), "multiply_bytes", 64.0)?;
    let f16_tflop_s = match gpu.caps.f16 {
        true => Some(peak(include_str!("arithmetic_f16.wgsl"), "multiply_add_f16", 64.0)?),
        false => None,
    };
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
    let beyond_cache = copier.bytes() >= 4 * copier.cache_bytes(gpu)?;
    let [dependent_us, independent_us, record_us] = launches(gpu)?;
    Ok(Ceilings {
        copy_gb_s: copier.bandwidth(gpu)?,
        read_gb_s: beyond_cache.then(|| copier.read_gb_s(gpu)).transpose()?,
        f32_tflop_s,
        f16_tflop_s,
        dot4_top_s: Some(dot4_top_s),
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
    let text = include_str!("arithmetic.wgsl");
    let make = || Arithmetic::new(gpu, text, "multiply_add", 1, 1);
    let kernels = (0..count).map(|_| make()).collect::<Result<Vec<_>>>()?;
    let each = |seconds: f64| seconds * 1e6 / f64::from(count);
    // A barrier stands between two that write the same.
    let dependent = sample(gpu, &mut || {
        let pass = kernels[0].span.pass(gpu, |pass| {
            (0..count).for_each(|_| kernels[0].encode(pass));
        });
        Ok(pass?.as_secs_f64())
    })?;
    let mut recorded = Vec::new();
    let independent = sample(gpu, &mut || {
        let pass = kernels[0].span.pass(gpu, |pass| {
            let begun = Instant::now();
            kernels.iter().for_each(|kernel| kernel.encode(pass));
            recorded.push(begun.elapsed().as_secs_f64());
        });
        Ok(pass?.as_secs_f64())
    })?;
    let recording = stats::summarise(&recorded).median;
    Ok([each(dependent.median), each(independent.median), each(recording)])
}

/// Microseconds from submitting an empty dispatch to knowing that it is done.
fn round_trip(gpu: &Gpu) -> Result<f64> {
    let kernel = Arithmetic::new(gpu, include_str!("arithmetic.wgsl"), "multiply_add", 1, 1)?;
    let mut trips = Vec::new();
    for _ in 0..32 {
        let begun = Instant::now();
        let submission = gpu.caught(|| {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            kernel.encode(&mut pass);
            drop(pass);
            gpu.queue.submit([encoder.finish()])
        })?;
        gpu.wait(Some(submission))?;
        let took: Duration = begun.elapsed();
        trips.push(took.as_secs_f64() * 1e6);
    }
    Ok(stats::summarise(&trips).median)
}
