//! A run of `lathe bench`: its cases, and the state that they share.

use std::collections::BTreeMap;
use std::sync::Arc;

use lathe_kernels::Problem;
use lathe_record::record::{self, BenchCase, Ceilings, Clock, Environment, Flag, Timing};

use super::bench::{Bench, BenchOptions, Temperature};
use super::copy::Copier;
use super::environment::environment;
use super::watch::Canaries;
use crate::error::{Error, Result};
use crate::gpu::{Checks, Gpu, Pipelines, Span};
use crate::judge::check::{Case, second_shape};
use crate::plan::select::{Hints, select};
use crate::plan::target::Target;
use crate::plan::tuned::Tuned;
use crate::plan::{Plan, PlanError, Subject};

/// Largest credible ratio of a cold result to the measured bandwidth.
const ABOVE_MEASURED: f64 = 1.02;

/// Noise above which a result is flagged.
const NOISY: f64 = 0.02;

/// Contents of a benchmark run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Kernels, variants or files to time.
    pub targets: &'a [Target],
    /// Shapes of a `--shape`, which replace the kernels' benchmark shapes.
    pub shape: Option<&'a str>,
    /// True for only the first benchmark shape of each kernel.
    pub first: bool,
    /// Tuned choices: with them, each shape is timed with only the variant that decoding would
    /// select.
    pub selected: Option<&'a Tuned>,
}

/// A planned case.
#[derive(Clone, Debug)]
pub struct Planned {
    plan: Plan,
    problem: Problem,
    /// True if a user's file supports no other shape to be checked on.
    one_shape: bool,
}

/// Outcome of a case.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It was measured, and is the last of all cases so far.
    Measured(&'a BenchCase, &'a record::Bench),
    /// It is wrong, or its rate is impossible.
    Failed(&'a str),
    /// It cannot run here.
    Unavailable,
}

/// State that the cases of one benchmark run share.
#[derive(Debug)]
pub struct Session {
    /// The device.
    pub gpu: Arc<Gpu>,
    /// Duration and precision of each measurement.
    pub options: BenchOptions,
    /// Measured copy bandwidth, 10^9 bytes per second.
    pub copy_gb_s: f64,
    /// Measured read bandwidth, 10^9 bytes per second. None where the largest block that can be
    /// read might stay in the cache.
    pub read_gb_s: Option<f64>,
    /// All peaks of a GPU; none for a software adapter.
    pub ceilings: Option<Ceilings>,
    /// Smallest step of timestamps in nanoseconds.
    pub timestamp_step_ns: Option<f64>,
    /// Bytes of the last-level cache, as found by measurement.
    pub cache_bytes: u64,
    begun: Environment,
    copier: Copier,
    canaries: Canaries,
}

impl Session {
    /// Measures the limits that every case is compared with.
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

    /// The environment of the run, with all of its measured limits.
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

    /// Times the canaries again. Returns whether one moved since the last time or since the first.
    /// A canary that moved is timed once more at raised clocks: the device idles while the host
    /// compares a large output with its reference, which is no drift.
    pub fn canary(&mut self) -> Result<bool> {
        let mut now = self.copier.canary(&self.gpu, false)?;
        if self.canaries.have_moved(now) && !self.gpu.adapter.software {
            now = self.copier.canary(&self.gpu, true)?;
        }
        Ok(self.canaries.push(now))
    }

    /// Plans all cases of a request, and returns the reasons why others cannot run here. Checks
    /// users' files on a shape that is not timed.
    ///
    /// # Errors
    /// An invalid shape, and a file that is wrong.
    pub fn plan(&self, request: &Request<'_>) -> Result<(Vec<Planned>, Vec<String>)> {
        let caps = &self.gpu.caps;
        let (mut planned, mut unavailable) = (Vec::new(), Vec::new());
        for target in request.targets {
            let kernel = target.kernel;
            let problems = match request.shape {
                Some(text) => target.problems(text, caps)?,
                None if request.first => vec![kernel.default_problem()],
                None => kernel.bench(),
            };
            // A file that does not take what is to be timed is said to be unavailable there.
            let takes = |s: &Subject| problems.iter().any(|p| s.plan(p, caps).is_ok());
            let one_shape = match target.subjects.first().filter(|s| s.path().is_some()) {
                Some(file) if takes(file) => !second_shape(&self.gpu, file, &problems)?,
                _ => false,
            };
            for problem in problems {
                if let Some(tuned) = request.selected {
                    let selection =
                        select(kernel, &problem.shape, caps, &Hints::new(), Some(tuned))
                            .map_err(|e| Error::Usage(e.to_string()))?;
                    let plan = selection.plan;
                    tracing::info!("{} {}: {}", kernel.name, plan.variant, selection.why);
                    if target.subjects.iter().any(|s| s.variant.name == plan.variant) {
                        planned.push(Planned { plan, problem, one_shape: false });
                    }
                    continue;
                }
                for subject in &target.subjects {
                    match subject.plan(&problem, caps) {
                        Ok(plan) => {
                            planned.push(Planned { plan, problem: problem.clone(), one_shape });
                        }
                        Err(PlanError::Unavailable(reason)) => unavailable.push(format!(
                            "{}/{} {}: {reason}",
                            kernel.name,
                            subject.variant.name,
                            kernel.show_brief(&problem)
                        )),
                        Err(e) => return Err(e.into_usage()),
                    }
                }
            }
        }
        Ok((planned, unavailable))
    }

    /// Measures one case after the other; `on` receives the name and outcome of each. Returns all
    /// of them, and the reasons why others cannot run here.
    ///
    /// # Errors
    /// Any error that ends the run; a wrong case does not.
    pub fn measure_all(
        &mut self,
        planned: Vec<Planned>,
        on: &mut dyn FnMut(&Self, &str, Outcome<'_>) -> Result<()>,
    ) -> Result<(record::Bench, Vec<String>)> {
        let (mut bench, mut unavailable) = (record::Bench::default(), Vec::new());
        for Planned { plan, problem, one_shape } in planned {
            let kernel = plan.kernel;
            let name = format!("{}/{} {}", kernel.name, plan.variant, kernel.show_brief(&problem));
            tracing::info!("timing {name}");
            match self.measure(plan, &problem) {
                Ok(mut case) => {
                    case.flags.extend(one_shape.then_some(Flag::OneShape));
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

    /// Judges one invocation, times cold and warm, and judges the results of each.
    pub fn measure(&mut self, plan: Plan, problem: &Problem) -> Result<BenchCase> {
        let (kernel, variant, source) = (plan.kernel, plan.variant.clone(), plan.fingerprint());
        let wgsl = plan.users_text();
        let bound = plan.tolerance(problem).nmse;
        let own_tolerance = plan.foreign.tolerated.is_some();
        let tuned = if plan.is_tuned { plan.code.constants.clone() } else { BTreeMap::new() };
        let checked = self.gpu.checks == Checks::Files && !plan.built_in;
        let gpu = Arc::clone(&self.gpu);
        let rotate = self.options.rotate_bytes;
        let pipelines = Pipelines::default();
        let case = Case::new(&gpu, plan, problem, self.options.seed)?;
        let mut bench = Bench::new(&gpu, &pipelines, case, rotate)?.validated()?;
        let (mut nmse, mut timed_out) = (0f64, false);
        let mut sample = |bench: &mut Bench, temperature| -> Result<Timing> {
            let sampled = bench.sample(&self.options, self.timestamp_step_ns, temperature)?;
            nmse = nmse.max(sampled.nmse);
            timed_out |= sampled.timed_out;
            Ok(sampled.timing)
        };
        let cold = sample(&mut bench, Temperature::Cold)?;
        let warm = sample(&mut bench, Temperature::Warm)?;
        let overlapped = match self.options.overlapped {
            true => Some(sample(&mut bench.overlapping(rotate)?, Temperature::Cold)?),
            false => None,
        };
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
        let timings = || [&cold, &warm].into_iter().chain(&overlapped);
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
            (own_tolerance, Flag::OwnTolerance),
            (bench.rotated_bytes() < 2 * self.cache_bytes, Flag::NotCold),
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
