//! GPU time of one kernel variant on one shape: validated, timed cold and warm, validated again.

use std::sync::Arc;
use std::time::Duration;

use lathe_kernels::Shape;
use serde::Serialize;

use super::span::{Clock, Span};
use super::stats::{self, Summary};
use super::steady::steady;
use crate::check::{Case, Verdict};
use crate::error::{Error, Result};
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{Gpu, Pipelines, Policy};
use crate::plan::Plan;

/// Where a dispatch finds its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temperature {
    /// Each dispatch has another copy of what it reads, rotated past the last-level cache.
    Cold,
    /// Every dispatch has the same tensors.
    Warm,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// Bytes that rotated copies should exceed together.
    pub rotate_bytes: u64,
    /// Length of one sample.
    pub sample: Duration,
    /// Samples.
    pub samples: usize,
}

impl BenchOptions {
    /// Settings for an adapter: a real GPU needs hundreds of megabytes to leave its cache and a
    /// fifth of a second to raise its clocks; a software adapter only has to show that it works.
    pub fn of(gpu: &Gpu) -> Self {
        if gpu.adapter.software {
            Self { rotate_bytes: 16 << 20, sample: Duration::from_millis(10), samples: 5 }
        } else {
            Self { rotate_bytes: 512 << 20, sample: Duration::from_millis(2), samples: 25 }
        }
    }
}

/// Most copies of a case: tiny kernels stop being cold before they leave a large cache.
const MOST_COPIES: u64 = 512;

/// Most dispatches in one submission.
const MOST_DISPATCHES: u64 = 4096;

/// A case ready to be timed.
#[derive(Debug)]
pub struct Bench {
    gpu: Arc<Gpu>,
    case: Case,
    copies: Vec<GpuExecutor>,
    rotated_bytes: u64,
    span: Span,
    cursor: usize,
}

impl Bench {
    /// Prepares copies of a case and checks the first one's output.
    pub fn new(
        gpu: &Arc<Gpu>,
        pipelines: &Pipelines,
        plan: Plan,
        shape: &Shape,
        seed: u64,
        rotate_bytes: u64,
    ) -> Result<Self> {
        let case = Case::new(plan, shape, seed);
        let own = case.rotated();
        let each: u64 = own.iter().map(|t| case.recording.tensors[t.0].device_bytes()).sum();
        let count = (rotate_bytes.div_ceil(each.max(1)) + 1).clamp(2, MOST_COPIES);
        let mut copies = vec![case.prepare(gpu, pipelines, Policy::Plain)?];
        for _ in 1..count {
            let copy = copies[0].sibling(pipelines, &own)?;
            copies.push(copy);
        }
        let rotated_bytes = each * count;
        let mut bench = Self {
            gpu: Arc::clone(gpu),
            case,
            copies,
            rotated_bytes,
            span: Span::new(gpu)?,
            cursor: 0,
        };
        bench.validate("before timing")?;
        Ok(bench)
    }

    /// Runs the case once on fresh inputs and holds its output against the reference.
    pub fn validate(&mut self, when: &str) -> Result<()> {
        let executor = &mut self.copies[0];
        self.case.write_inputs(executor)?;
        executor.run(1)?;
        match self.case.judge(executor, Policy::Plain)? {
            Verdict::Passed { .. } => Ok(()),
            Verdict::Failed { reason, .. } | Verdict::Unavailable { reason } => {
                let op = &self.case.recording.ops[0];
                Err(Error::CheckFailed(format!(
                    "{}/{} {} is wrong {when}: {reason}",
                    op.kernel().name,
                    op.plan.variant,
                    op.shape.show(op.kernel().params)
                )))
            }
        }
    }

    /// Which clock times come from.
    pub fn clock(&self) -> Clock {
        self.span.clock()
    }

    /// Bytes that the rotated copies cover together.
    pub fn rotated_bytes(&self) -> u64 {
        self.rotated_bytes
    }

    /// Time of `count` invocations that wait for each other, as in a decode step.
    pub fn time(&mut self, count: u64, temperature: Temperature) -> Result<Duration> {
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let now = left.min(MOST_DISPATCHES);
            left -= now;
            let (copies, cursor) = (&self.copies, &mut self.cursor);
            total += self.span.pass(&self.gpu, |pass| {
                for _ in 0..now {
                    copies[*cursor].encode(pass);
                    if temperature == Temperature::Cold {
                        *cursor = (*cursor + 1) % copies.len();
                    }
                }
            })?;
        }
        Ok(total)
    }

    /// Microseconds an invocation, sampled.
    pub fn sample(&mut self, options: &BenchOptions, temperature: Temperature) -> Result<Timing> {
        // Grow the sample to its length, let times settle, and grow it again: what is long enough
        // at idle clocks is too short at full ones.
        let mut count = self.grow(1, options.sample, temperature)?;
        let gpu = Arc::clone(&self.gpu);
        let settled = steady(&gpu, &mut || self.time(count, temperature).map(|d| d.as_secs_f64()))?;
        count = self.grow(count, options.sample, temperature)?;
        let samples: Vec<f64> = (0..options.samples)
            .map(|_| self.time(count, temperature).map(|d| d.as_secs_f64() * 1e6 / count as f64))
            .collect::<Result<_>>()?;
        let Summary { median, min, spread, .. } = stats::summarise(&samples);
        Ok(Timing { median_us: median, min_us: min, spread, settled, dispatches: count })
    }

    fn grow(&mut self, from: u64, sample: Duration, temperature: Temperature) -> Result<u64> {
        let mut count = from;
        loop {
            let took = self.time(count, temperature)?;
            if took >= sample || count >= 1 << 20 {
                return Ok(count);
            }
            let missing = sample.as_secs_f64() / took.as_secs_f64().max(1e-9);
            count = (count as f64 * missing.clamp(1.2, 16.0)).ceil() as u64;
        }
    }
}

/// Time of one invocation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timing {
    /// Median over the samples, microseconds.
    pub median_us: f64,
    /// Smallest sample, microseconds.
    pub min_us: f64,
    /// Interquartile range over the median.
    pub spread: f64,
    /// Times had stopped moving before samples were taken.
    pub settled: bool,
    /// Invocations in a sample.
    pub dispatches: u64,
}

/// A benchmark line.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// Parameters.
    pub shape: String,
    /// Inputs rotated past the cache.
    pub cold: Timing,
    /// Inputs in the cache, if they fit.
    pub warm: Timing,
    /// Bytes an invocation must move.
    pub bytes: f64,
    /// `bytes` over the cold median, 10^9 a second.
    pub gb_s: f64,
    /// `gb_s` over the measured copy bandwidth.
    pub fraction_of_copy: f64,
    /// Bytes the cold copies cover together.
    pub rotated_bytes: u64,
    /// Where times come from.
    pub clock: Clock,
}

/// Validates, times cold and warm, validates again.
pub fn measure(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    plan: Plan,
    shape: &Shape,
    copy_gb_s: f64,
    options: &BenchOptions,
) -> Result<Measured> {
    let (kernel, variant) = (plan.kernel, plan.variant.clone());
    let mut bench = Bench::new(gpu, pipelines, plan, shape, SEED, options.rotate_bytes)?;
    let cold = bench.sample(options, Temperature::Cold)?;
    let warm = bench.sample(options, Temperature::Warm)?;
    bench.validate("after timing")?;
    let bytes = (kernel.cost)(shape).bytes;
    let gb_s = bytes / cold.median_us / 1e3;
    Ok(Measured {
        kernel: kernel.name.into(),
        variant,
        shape: shape.show(kernel.params),
        cold,
        warm,
        bytes,
        gb_s,
        fraction_of_copy: gb_s / copy_gb_s,
        rotated_bytes: bench.rotated_bytes(),
        clock: bench.clock(),
    })
}

/// Seed of benchmark inputs.
const SEED: u64 = 42;
