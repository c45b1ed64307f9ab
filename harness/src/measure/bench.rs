//! GPU time of one kernel variant on one shape: validated, timed cold and warm, validated again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lathe_kernels::Problem;

use super::copy::Copier;
use crate::data::record::{BenchCase, Clock, Flag, StageTiming, Timing};
use crate::data::stats;
use crate::data::steady::steady;
use crate::error::{Error, Result};
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{Checks, Gpu, Pipelines, Policy, Span};
use crate::judge::check::{Case, Verdict};
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
    /// Least length of one sample.
    pub sample: Duration,
    /// Samples are taken until the median is known this well (see [`stats::Summary::noise`]) …
    pub noise: f64,
    /// … or this time is over.
    pub time_out: Duration,
    /// Least samples.
    pub samples: usize,
    /// Time overlapping invocations too.
    pub overlapped: bool,
    /// Time the dispatches of an invocation apart too, where it has several.
    pub stages: bool,
}

impl BenchOptions {
    /// Settings for an adapter: a real GPU must leave its cache and needs milliseconds for its
    /// timestamps' quantum not to matter; a software adapter only has to show that it works.
    pub fn of(gpu: &Gpu) -> Self {
        if gpu.adapter.software {
            Self {
                rotate_bytes: 16 << 20,
                sample: Duration::from_millis(5),
                noise: 0.05,
                time_out: Duration::from_millis(200),
                samples: 5,
                overlapped: false,
                stages: false,
            }
        } else {
            Self {
                rotate_bytes: 512 << 20,
                sample: Duration::from_millis(2),
                noise: 0.002,
                time_out: Duration::from_secs(3),
                samples: 25,
                overlapped: false,
                stages: false,
            }
        }
    }
}

/// Most copies of a case: tiny kernels stop being cold before they leave a large cache.
const MOST_COPIES: u64 = 512;

/// Least invocations of a batch: the barrier behind it is then little of the time.
const LEAST_BATCH: usize = 64;

/// Most dispatches in one submission.
const MOST_DISPATCHES: u64 = 4096;

/// A sample lasts at least this many steps of the timestamp, so that a step stays below 0.1 % of
/// it.
const QUANTA: f64 = 1000.0;

/// How far above the measured bandwidth a cold result may lie before it cannot be true.
const ABOVE_MEASURED: f64 = 1.1;

/// Noise above which a result is flagged.
const NOISY: f64 = 0.02;

/// Seed of benchmark inputs.
pub(crate) const SEED: u64 = 42;

/// What becomes of a case's output before it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is held against the reference.
    Validated,
    /// Nothing: it was or will be checked elsewhere.
    Trusted,
}

/// How the invocations of a sample follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Each depends on the one before, as in a decode step.
    Dependent,
    /// As [`Order::Dependent`], of each invocation this one dispatch alone.
    Stage(usize),
    /// Those of a batch are independent and overlap: no two copies share anything that is written.
    Overlapping,
}

/// A case ready to be timed.
#[derive(Debug)]
pub struct Bench {
    gpu: Arc<Gpu>,
    case: Case,
    copies: Vec<GpuExecutor>,
    rotated_bytes: u64,
    span: Span,
    cursor: usize,
    order: Order,
}

impl Bench {
    /// Prepares a case in copies that exceed `rotate_bytes` together.
    pub fn new(
        gpu: &Arc<Gpu>,
        pipelines: &Pipelines,
        case: Case,
        rotate_bytes: u64,
        output: Output,
    ) -> Result<Self> {
        let own = case.rotated();
        let each: u64 =
            own.iter().map(|t| case.recording.tensors[t.0].content.device_bytes()).sum();
        let count = (rotate_bytes.div_ceil(each.max(1)) + 1).clamp(2, MOST_COPIES);
        let mut copies = vec![case.prepare(gpu, pipelines, Policy::Plain)?];
        for _ in 1..count {
            let copy = copies[0].sibling(pipelines, &own)?;
            copies.push(copy);
        }
        Self::of(Arc::clone(gpu), case, copies, each * count)?.with(output)
    }

    /// A plan of the same kernel and shape over the very same memory.
    pub fn beside(&self, pipelines: &Pipelines, plan: Plan, output: Output) -> Result<Self> {
        let case = self.case.with_plan(plan);
        let own = case.rotated();
        let shared = |copy: &GpuExecutor| {
            copy.sharing(pipelines, Arc::clone(&case.recording), Policy::Plain)
        };
        let first = shared(&self.copies[0])?;
        // Where the first had to lay out tensors anew, the others copy them on the device.
        let anew: Vec<_> =
            own.iter().copied().filter(|t| !self.copies[0].holds(first.block(*t))).collect();
        let mut copies = vec![first];
        for copy in &self.copies[1..] {
            let next = match anew.is_empty() {
                true => shared(copy)?,
                false => copies[0].sibling(pipelines, &own)?,
            };
            copies.push(next);
        }
        Self::of(Arc::clone(&self.gpu), case, copies, self.rotated_bytes)?.with(output)
    }

    /// The same plan over the same weights, whose copies rotate as before, with outputs and
    /// scratch memory of its own for each of at least [`LEAST_BATCH`] invocations, but as many as
    /// `most` bytes hold.
    fn overlapping(&self, pipelines: &Pipelines, most: u64) -> Result<Self> {
        let written = self.case.written();
        let each: u64 =
            written.iter().map(|t| self.case.recording.tensors[t.0].content.device_bytes()).sum();
        let room = usize::try_from(most / each.max(1)).unwrap_or(usize::MAX).max(2);
        let count = self.copies.len().max(LEAST_BATCH).min(room);
        let copies = self.copies.iter().cycle().take(count);
        let copies = copies.map(|copy| copy.sibling(pipelines, &written)).collect::<Result<_>>()?;
        let case = self.case.with_plan(self.case.recording.ops[0].plan.clone());
        let bench = Self::of(Arc::clone(&self.gpu), case, copies, self.rotated_bytes)?;
        Ok(Self { order: Order::Overlapping, ..bench })
    }

    fn of(gpu: Arc<Gpu>, case: Case, copies: Vec<GpuExecutor>, rotated_bytes: u64) -> Result<Self> {
        let span = Span::new(&gpu)?;
        Ok(Self { gpu, case, copies, rotated_bytes, span, cursor: 0, order: Order::Dependent })
    }

    fn with(mut self, output: Output) -> Result<Self> {
        if output == Output::Validated {
            self.validate("before timing")?;
        }
        Ok(self)
    }

    /// Runs the case once on fresh inputs and holds its output against the reference.
    pub fn validate(&mut self, when: &str) -> Result<()> {
        let executor = &mut self.copies[0];
        self.case.reset(executor)?;
        executor.run(&[crate::plan::recording::Part::Steps(1)])?;
        match self.case.judge(executor, Policy::Plain)? {
            Verdict::Passed { .. } => Ok(()),
            Verdict::Failed { reason, .. } | Verdict::Unavailable { reason } => {
                let op = &self.case.recording.ops[0];
                Err(Error::CheckFailed(format!(
                    "{}/{} {} is wrong {when}: {reason}",
                    op.kernel().name,
                    op.plan.variant,
                    op.kernel().show(self.case.problem())
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

    /// Time of `count` invocations in batches of all copies, between which there is a barrier. A
    /// batch runs all invocations' first dispatch, then their second and so on: each of these
    /// rounds is a pass in a command buffer of its own, since inside one wgpu places a barrier
    /// before whatever writes to what was written before, and a barrier waits for all.
    fn time_overlapping(&mut self, count: u64) -> Result<Duration> {
        let (copies, each) = (&self.copies, self.copies[0].dispatches());
        let batch = copies.len() as u64;
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let now = left.min(MOST_DISPATCHES.max(batch) / batch * batch);
            left -= now;
            let passes = now.div_ceil(batch) as usize * each;
            total += self.span.passes(&self.gpu, passes, |pass, i| {
                let begun = (i / each) as u64 * batch;
                for copy in &copies[..(now - begun).min(batch) as usize] {
                    copy.encode_dispatch(pass, i % each);
                }
            })?;
        }
        Ok(total)
    }

    /// Time of `count` invocations, in the order of this bench.
    pub fn time(&mut self, count: u64, temperature: Temperature) -> Result<Duration> {
        let stage = match self.order {
            Order::Dependent => None,
            Order::Stage(dispatch) => Some(dispatch),
            Order::Overlapping => return self.time_overlapping(count),
        };
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let now = left.min(MOST_DISPATCHES);
            left -= now;
            let (copies, cursor) = (&self.copies, &mut self.cursor);
            total += self.span.pass(&self.gpu, |pass| {
                for _ in 0..now {
                    match stage {
                        Some(dispatch) => copies[*cursor].encode_dispatch(pass, dispatch),
                        None => copies[*cursor].encode(pass),
                    }
                    if temperature == Temperature::Cold {
                        *cursor = (*cursor + 1) % copies.len();
                    }
                }
            })?;
        }
        Ok(total)
    }

    /// Time of `count` cold invocations that begin with the copy that `turn` invocations end
    /// before: two sides that do this touch the same memory in the same order.
    pub fn time_from(&mut self, turn: u64, count: u64) -> Result<Duration> {
        self.cursor = (turn % self.copies.len() as u64) as usize;
        self.time(count, Temperature::Cold)
    }

    /// Warms up until times no longer move; returns the invocations that make a sample of at
    /// least `sample`, and whether times had settled.
    pub fn warm_up(&mut self, sample: Duration, temperature: Temperature) -> Result<(u64, bool)> {
        let count = self.grow(1, sample, temperature)?;
        let gpu = Arc::clone(&self.gpu);
        let settled =
            steady(&gpu.adapter, &mut || self.time(count, temperature).map(|d| d.as_secs_f64()))?;
        // What is long enough at idle clocks is too short at full ones.
        Ok((self.grow(count, sample, temperature)?, settled))
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

    /// Microseconds an invocation, sampled until the median is known well enough.
    pub fn sample(
        &mut self,
        options: &BenchOptions,
        quantum_ns: Option<f64>,
        temperature: Temperature,
    ) -> Result<(Timing, bool)> {
        let quanta = Duration::from_nanos((quantum_ns.unwrap_or(0.0) * QUANTA) as u64);
        let (count, settled) = self.warm_up(options.sample.max(quanta), temperature)?;
        let begun = Instant::now();
        let mut samples_us = Vec::new();
        let (mut summary, mut timed_out);
        loop {
            let took = self.time(count, temperature)?;
            samples_us.push(took.as_secs_f64() * 1e6 / count as f64);
            summary = stats::summarise(&samples_us);
            timed_out = begun.elapsed() >= options.time_out;
            let known = samples_us.len() >= options.samples && summary.noise <= options.noise;
            if known || (timed_out && samples_us.len() >= 5) {
                break;
            }
        }
        let timing = Timing {
            median_us: summary.median,
            min_us: summary.min,
            spread: summary.spread,
            noise: summary.noise,
            settled,
            dispatches: count,
            samples_us,
        };
        Ok((timing, timed_out && summary.noise > options.noise))
    }
}

/// What one benchmark run shares between its cases.
#[derive(Debug)]
pub struct Session {
    /// The device.
    pub gpu: Arc<Gpu>,
    /// How long to measure.
    pub options: BenchOptions,
    /// Measured copy bandwidth, 10^9 bytes a second.
    pub copy_gb_s: f64,
    /// Measured read bandwidth, 10^9 bytes a second. None where the largest block that
    /// can be read might stay in the cache.
    pub read_gb_s: Option<f64>,
    /// Timestamp quantum, nanoseconds.
    pub quantum_ns: Option<f64>,
    /// Bytes of the last-level cache, as found by measurement.
    pub cache_bytes: u64,
    copier: Copier,
    canaries: Vec<f64>,
}

/// Change of the canary that makes a result doubtful.
const DRIFT: f64 = 0.02;

impl Session {
    /// Measures what every case is held against.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let copier = Copier::new(gpu)?;
        let copy_gb_s = copier.bandwidth(gpu)?.gb_s;
        let mut options = BenchOptions::of(gpu);
        let mut cache_bytes = 0;
        if !gpu.adapter.software {
            cache_bytes = copier.cache_bytes(gpu)?;
            options.rotate_bytes = options.rotate_bytes.max(4 * cache_bytes);
        }
        let beyond_cache = copier.bytes() >= 4 * cache_bytes;
        let read_gb_s = beyond_cache.then(|| copier.read_gb_s(gpu)).transpose()?;
        let quantum_ns = Span::new(gpu)?.quantum_ns(gpu)?;
        let canaries = vec![copier.canary(gpu)?];
        let gpu = Arc::clone(gpu);
        Ok(Self { gpu, options, copy_gb_s, read_gb_s, quantum_ns, cache_bytes, copier, canaries })
    }

    /// Largest change of the canary's time so far, as a fraction of its smallest.
    pub fn drift(&self) -> f64 {
        let low = self.canaries.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.canaries.iter().copied().fold(0.0, f64::max);
        if low > 0.0 { high / low - 1.0 } else { 0.0 }
    }

    /// Times the canary again; says whether it moved since the last time.
    pub fn canary(&mut self) -> Result<bool> {
        let before = self.canaries.last().copied().unwrap_or(0.0);
        let now = self.copier.canary(&self.gpu)?;
        self.canaries.push(now);
        Ok((now / before - 1.0).abs() > DRIFT)
    }

    /// Validates, times cold and warm, validates again.
    pub fn measure(&mut self, plan: Plan, problem: &Problem) -> Result<BenchCase> {
        let (kernel, variant, source) = (plan.kernel, plan.variant.clone(), plan.fingerprint());
        let entries: Vec<_> = plan.stages.iter().map(|stage| stage.entry.clone()).collect();
        let checked = self.gpu.checks == Checks::Files && !plan.trusted;
        let gpu = Arc::clone(&self.gpu);
        let rotate = self.options.rotate_bytes;
        let pipelines = Pipelines::default();
        let case = Case::new(&gpu, plan, problem, SEED)?;
        let mut bench = Bench::new(&gpu, &pipelines, case, rotate, Output::Validated)?;
        let (cold, cold_out) = bench.sample(&self.options, self.quantum_ns, Temperature::Cold)?;
        let (warm, warm_out) = bench.sample(&self.options, self.quantum_ns, Temperature::Warm)?;
        let (overlapped, overlapped_out) = match self.options.overlapped {
            true => {
                let mut overlapping = bench.overlapping(&pipelines, rotate)?;
                let (timing, out) =
                    overlapping.sample(&self.options, self.quantum_ns, Temperature::Cold)?;
                overlapping.validate("after overlapping")?;
                (Some(timing), out)
            }
            false => (None, false),
        };
        let (mut stages, mut stages_out) = (Vec::new(), false);
        if self.options.stages && entries.len() > 1 {
            for (dispatch, entry) in entries.into_iter().enumerate() {
                bench.order = Order::Stage(dispatch);
                let (cold, out) =
                    bench.sample(&self.options, self.quantum_ns, Temperature::Cold)?;
                stages.push(StageTiming { entry, cold });
                stages_out |= out;
            }
            bench.order = Order::Dependent;
        }
        let drifted = self.canary()?;
        bench.validate("after timing")?;
        let cost = kernel.cost(problem);
        let rate = |timing: &Timing| cost.bytes / timing.median_us / 1e3;
        let fraction_of_copy = rate(&cold) / self.copy_gb_s;
        let gb_s = overlapped.iter().map(rate).fold(rate(&cold), f64::max);
        let most = self.copy_gb_s.max(self.read_gb_s.unwrap_or(0.0));
        if gb_s > ABOVE_MEASURED * most && !gpu.adapter.software {
            return Err(Error::CheckFailed(format!(
                "{}/{variant} {}: {gb_s:.0} GB/s cold lies above the measured bandwidth of \
                 {most:.0} GB/s; {} rotated bytes did not leave the cache, or the kernel's byte \
                 count is wrong",
                kernel.name,
                kernel.show(problem),
                bench.rotated_bytes()
            )));
        }
        let timings = || {
            let alone = stages.iter().map(|stage| &stage.cold);
            [&cold, &warm].into_iter().chain(&overlapped).chain(alone)
        };
        let mut flags = Vec::new();
        for (doubtful, flag) in [
            (!timings().all(|t| t.settled), Flag::NotSettled),
            (drifted, Flag::Drift),
            (timings().any(|t| t.noise > NOISY), Flag::Noisy),
            (cold_out || warm_out || overlapped_out || stages_out, Flag::TimedOut),
            (bench.clock() == Clock::Wall, Flag::WallClock),
            // A user's file keeps them where built-in variants run without.
            (checked, Flag::RuntimeChecksOn),
            (bench.rotated_bytes() < 2 * self.cache_bytes, Flag::NotCold),
        ] {
            if doubtful {
                flags.push(flag.into());
            }
        }
        let (gb_s, tflop_s) = (rate(&cold), cost.flops / cold.median_us / 1e6);
        Ok(BenchCase {
            kernel: kernel.name.into(),
            variant,
            shape: kernel.show(problem),
            source,
            cold,
            warm,
            overlapped,
            stages,
            bytes: cost.bytes,
            flops: cost.flops,
            gb_s,
            fraction_of_copy,
            tflop_s: Some(tflop_s),
            rotated_bytes: bench.rotated_bytes(),
            clock: bench.clock().into(),
            flags,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// What is timed must be whole invocations: of two dispatches the second reads what the first
    /// of the same invocation left. [`Bench::validate`] runs one anew and would not notice.
    #[test]
    fn overlapping_invocations_run_all_their_dispatches_in_order() {
        let gpu = match Gpu::open(None, Checks::Files) {
            Ok(gpu) => Arc::new(gpu),
            Err(e) => {
                assert!(std::env::var("LATHE_REQUIRE_GPU").as_deref() != Ok("1"), "{e}");
                eprintln!("UNAVAILABLE, not tested: {e}");
                return;
            }
        };
        let kernel = lathe_kernels::kernel("attention_decode").unwrap();
        let variant = kernel.variant("split_kv_workgroup").unwrap();
        let problem = kernel.default_problem();
        let problem = kernel.parse_over(&problem, "KV_SIZE=40,N_KV=33").unwrap();
        let plan = Plan::of(kernel, variant, &problem.shape, &gpu.caps).unwrap();
        let pipelines = Pipelines::default();
        let case = Case::new(&gpu, plan, &problem, SEED).unwrap();
        let bench = Bench::new(&gpu, &pipelines, case, 1 << 20, Output::Validated).unwrap();
        let mut bench = bench.overlapping(&pipelines, 64 << 20).unwrap();
        assert_eq!((bench.copies.len(), bench.copies[0].dispatches()), (LEAST_BATCH, 2));
        for copy in &mut bench.copies {
            bench.case.reset(copy).unwrap();
        }
        // A second batch, which is not full.
        bench.time(LEAST_BATCH as u64 + 3, Temperature::Cold).unwrap();
        for (i, copy) in bench.copies.iter_mut().enumerate() {
            let verdict = bench.case.judge(copy, Policy::Plain).unwrap();
            assert!(matches!(verdict, Verdict::Passed { .. }), "invocation {i}: {verdict:?}");
        }
    }
}
