//! What one run of `lathe bench` shares between its cases.

use std::collections::BTreeMap;
use std::sync::Arc;

use lathe_kernels::Problem;
use lathe_record::record::{
    self, BenchCase, Ceilings, Clock, Environment, Flag, StageTiming, Timing,
};

use super::bench::{Bench, BenchOptions, Sampled, Temperature};
use super::copy::Copier;
use super::environment::environment;
use super::watch::Canaries;
use crate::error::{Error, Result};
use crate::gpu::{Checks, Gpu, Pipelines, Span};
use crate::judge::check::Case;
use crate::plan::{Foreign, Plan};

/// How far above the measured bandwidth a cold result may lie before it cannot be true.
const ABOVE_MEASURED: f64 = 1.02;

/// Noise above which a result is flagged.
const NOISY: f64 = 0.02;

/// What became of a case.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It was measured, and is the last of all so far.
    Measured(&'a BenchCase, &'a record::Bench),
    /// It is wrong, or its rate cannot be.
    Failed(&'a str),
    /// It cannot run here.
    Unavailable,
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
    /// All peaks of a GPU; none of a software adapter.
    pub ceilings: Option<Ceilings>,
    /// Smallest step of timestamps, nanoseconds.
    pub timestamp_step_ns: Option<f64>,
    /// Bytes of the last-level cache, as found by measurement.
    pub cache_bytes: u64,
    begun: Environment,
    copier: Copier,
    canaries: Canaries,
}

impl Session {
    /// Measures what every case is held against.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let begun = environment(gpu);
        let copier = Copier::new(gpu)?;
        let mut options = BenchOptions::of(gpu);
        let (mut cache_bytes, mut ceilings) = (0, None);
        let (copy_gb_s, read_gb_s) = match gpu.adapter.software {
            true => (copier.bandwidth(gpu)?, Some(copier.read_gb_s(gpu)?)),
            false => {
                cache_bytes = copier.cache_bytes(gpu)?;
                options.rotate_bytes = options.rotate_bytes.max(4 * cache_bytes);
                let measured = ceilings.insert(super::ceilings(gpu, &copier)?);
                (measured.copy_gb_s, measured.read_gb_s)
            }
        };
        let timestamp_step_ns = Span::new(gpu)?.timestamp_step_ns(gpu)?;
        let mut canaries = Canaries::default();
        canaries.push(copier.canary(gpu, false)?);
        let gpu = Arc::clone(gpu);
        Ok(Self {
            gpu,
            options,
            copy_gb_s,
            read_gb_s,
            ceilings,
            timestamp_step_ns,
            cache_bytes,
            begun,
            copier,
            canaries,
        })
    }

    /// Where and with what it all took place.
    pub fn environment(&self) -> Environment {
        let mut environment = Environment {
            copy_gb_s: Some(self.copy_gb_s),
            read_gb_s: self.read_gb_s,
            ceilings: self.ceilings,
            timestamp_quantum_ns: self.timestamp_step_ns,
            canary_drift: Some(self.canaries.drift().unwrap_or(0.0)),
            seed: Some(self.options.seed),
            cache_bytes: Some(self.cache_bytes),
            ..self.begun.clone()
        };
        if let Some(machine) = &mut environment.machine {
            machine.gpu.extend(self.gpu.state());
        }
        environment
    }

    /// Times the canaries again; says whether one moved since the last time or since the first.
    /// One that did is timed once more at raised clocks: while the host holds a large output
    /// against its reference the device idles, and has not drifted for that.
    pub fn canary(&mut self) -> Result<bool> {
        let mut now = self.copier.canary(&self.gpu, false)?;
        if self.canaries.have_moved(now) && !self.gpu.adapter.software {
            now = self.copier.canary(&self.gpu, true)?;
        }
        Ok(self.canaries.push(now))
    }

    /// Measures one case after the other; `on` hears the name of each and what became of it.
    /// Returns all of them, and why others cannot run here.
    ///
    /// # Errors
    /// What ends the run: not a case that is wrong, which costs none of the others.
    pub fn measure_all(
        &mut self,
        planned: Vec<(Plan, Problem)>,
        on: &mut dyn FnMut(&Self, &str, Outcome<'_>) -> Result<()>,
    ) -> Result<(record::Bench, Vec<String>)> {
        let (mut bench, mut unavailable) = (record::Bench::default(), Vec::new());
        for (plan, problem) in planned {
            let kernel = plan.kernel;
            let name = format!("{}/{} {}", kernel.name, plan.variant, kernel.show_brief(&problem));
            tracing::info!("timing {name}");
            match self.measure(plan, &problem) {
                Ok(case) => {
                    bench.cases.push(case.clone());
                    on(self, &name, Outcome::Measured(&case, &bench))?;
                }
                Err(Error::Unavailable { what, reason, .. }) => {
                    on(self, &name, Outcome::Unavailable)?;
                    unavailable.push(format!("{name}: {what}: {reason}"));
                }
                Err(Error::CheckFailed(reason)) => {
                    on(self, &name, Outcome::Failed(&reason))?;
                    bench.failed.push(reason);
                }
                Err(e) => return Err(e),
            }
        }
        Ok((bench, unavailable))
    }

    /// Judges one invocation, times cold and warm, and judges what each of these left.
    pub fn measure(&mut self, plan: Plan, problem: &Problem) -> Result<BenchCase> {
        let (kernel, variant, source) = (plan.kernel, plan.variant.clone(), plan.fingerprint());
        let wgsl = plan.users_text();
        let bound = plan.tolerance(problem).nmse;
        let tuned = if plan.is_tuned { plan.constants.clone() } else { BTreeMap::new() };
        let Foreign { tolerated, one_shape, .. } = plan.foreign().clone();
        let entries: Vec<_> = plan.stages.iter().map(|stage| stage.entry.clone()).collect();
        let checked = self.gpu.checks == Checks::Files && !plan.built_in;
        let gpu = Arc::clone(&self.gpu);
        let rotate = self.options.rotate_bytes;
        let pipelines = Pipelines::default();
        let case = Case::new(&gpu, plan, problem, self.options.seed)?;
        let mut bench = Bench::new(&gpu, &pipelines, case, rotate)?.validated()?;
        let (mut nmse, mut timed_out) = (0f64, false);
        let mut sample = |bench: &mut Bench, temperature| -> Result<(Timing, bool)> {
            let sampled = bench.sample(&self.options, self.timestamp_step_ns, temperature)?;
            let Sampled { timing, timed_out: out, nmse: off, repeats } = sampled;
            // What has no time cannot make one doubtful.
            (nmse, timed_out) = (nmse.max(off), timed_out || out && repeats);
            Ok((timing, repeats))
        };
        let (cold, _) = sample(&mut bench, Temperature::Cold)?;
        let (warm, _) = sample(&mut bench, Temperature::Warm)?;
        let overlapped = match self.options.overlapped {
            true => Some(sample(&mut bench.overlapping(rotate)?, Temperature::Cold)?.0),
            false => None,
        };
        let mut stages = Vec::new();
        if self.options.stages && entries.len() > 1 {
            for (dispatch, entry) in entries.into_iter().enumerate() {
                bench.only(Some(dispatch));
                let (cold, repeats) = sample(&mut bench, Temperature::Cold)?;
                stages.push(StageTiming { entry, cold: repeats.then_some(cold) });
            }
            bench.only(None);
        }
        let drifted = self.canary()?;
        let cost = kernel.cost(problem);
        let rate = |timing: &Timing| cost.bytes / timing.median_us / 1e3;
        let gb_s = overlapped.iter().map(rate).fold(rate(&cold), f64::max);
        // Warm and overlapped times take no less arithmetic.
        let times = [&cold, &warm].into_iter().chain(&overlapped).map(|t| t.median_us);
        let fastest_us = times.fold(f64::INFINITY, f64::min);
        let most = self.copy_gb_s.max(self.read_gb_s.unwrap_or(0.0));
        if gb_s > ABOVE_MEASURED * most && !gpu.adapter.software {
            return Err(Error::CheckFailed(format!(
                "{}/{variant} {}: {gb_s:.0} GB/s cold lies above 102 % of the measured bandwidth \
                 of {most:.0} GB/s; {} rotated bytes did not leave the cache, or the kernel's byte \
                 count is wrong",
                kernel.name,
                kernel.show(problem),
                bench.rotated_bytes()
            )));
        }
        let top_s = cost.flops / fastest_us / 1e6;
        let most_top_s = self.ceilings.map_or(f64::INFINITY, |c| c.arithmetic_top_s());
        if top_s > ABOVE_MEASURED * most_top_s {
            return Err(Error::CheckFailed(format!(
                "{}/{variant} {}: {top_s:.1} TFLOP/s lies above 102 % of the fastest arithmetic \
                 measured, {most_top_s:.1}; the kernel's count of operations is wrong",
                kernel.name,
                kernel.show(problem),
            )));
        }
        let timings = || {
            let alone = stages.iter().filter_map(|stage| stage.cold.as_ref());
            [&cold, &warm].into_iter().chain(&overlapped).chain(alone)
        };
        let flags = [
            (!timings().all(|t| t.settled), Flag::NotSettled),
            (drifted, Flag::Drift),
            (timings().any(|t| t.noise > NOISY), Flag::Noisy),
            (timed_out, Flag::TimedOut),
            (timings().any(|t| t.throttled > t.samples_us.len()), Flag::Throttled),
            ((gb_s > most || top_s > most_top_s) && !gpu.adapter.software, Flag::AboveCeiling),
            (bench.clock() == Clock::Wall, Flag::WallClock),
            // A user's file keeps them where built-in variants run without.
            (checked, Flag::RuntimeChecksOn),
            (tolerated.is_some(), Flag::OwnTolerance),
            (bench.rotated_bytes() < 2 * self.cache_bytes, Flag::NotCold),
            (one_shape, Flag::OneShape),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
        let case = BenchCase {
            kernel: kernel.name.into(),
            variant,
            shape: kernel.show(problem),
            source,
            wgsl,
            tuned,
            cold,
            warm,
            overlapped,
            stages,
            bytes: cost.bytes,
            flops: cost.flops,
            rotated_bytes: bench.rotated_bytes(),
            nmse,
            nmse_bound: bound,
            canary: self.canaries.last(),
            seed_a_sample: bench.draws_anew(),
            clock: bench.clock(),
            flags: flags.collect(),
            ..BenchCase::default()
        };
        Ok(case.settled(Some(self.copy_gb_s)))
    }
}
