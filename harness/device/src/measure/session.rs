//! A run of `lathe bench`: its cases, and the state that they share.

use std::sync::Arc;
use std::time::Duration;

use lathe_kernels::Problem;
use lathe_record::record::{self, BenchCase, Clock, Environment, Flag};

use super::bench::{Bench, BenchOptions, Temperature};
use super::ceilings::Copier;
use super::environment::environment;
use super::watch::Canaries;
use crate::error::{Error, Result};
use crate::gpu::{Checks, Gpu, Pipelines, Span};
use crate::judge::check::{Case, takes_one_shape};
use crate::plan::select::{Hints, select};
use crate::plan::target::Target;
use crate::plan::tuned::Tuned;
use crate::plan::{Plan, PlanError, Subject};

/// Largest credible ratio of a cold result to the measured bandwidth.
const ABOVE_MEASURED: f64 = 1.02;

/// Minimum length of a sample in steps of the timestamp, so that a step is below 0.1 % of it.
const TIMESTAMP_STEPS: f64 = 1000.0;

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
    /// The environment at the start, with all of its measured limits.
    begun: Environment,
    copier: Copier,
    canaries: Canaries,
}

impl Session {
    /// Measures the limits that every case is compared with.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let mut begun = environment(gpu);
        let copier = Copier::new(gpu)?;
        let mut options = BenchOptions::of(gpu);
        begun.cache_bytes = Some(0);
        if gpu.adapter.software {
            begun.copy_gb_s = Some(copier.bandwidth(gpu)?);
            begun.read_gb_s = Some(copier.read_gb_s(gpu)?);
        } else {
            let (cache, ceilings) = (copier.cache_bytes(gpu)?, super::ceilings(gpu, &copier)?);
            options.rotate_bytes = options.rotate_bytes.max(4 * cache);
            begun.cache_bytes = Some(cache);
            (begun.copy_gb_s, begun.read_gb_s) = (Some(ceilings.copy_gb_s), ceilings.read_gb_s);
            begun.ceilings = Some(ceilings);
        }
        begun.timestamp_quantum_ns = Span::new(gpu)?.timestamp_step_ns(gpu)?;
        let least = begun.timestamp_quantum_ns.unwrap_or(0.0) * TIMESTAMP_STEPS;
        options.sample = options.sample.max(Duration::from_nanos(least as u64));
        let mut canaries = Canaries::default();
        canaries.push(copier.canary(gpu, false)?);
        Ok(Self { gpu: Arc::clone(gpu), options, begun, copier, canaries })
    }

    /// The environment of the run, with all of its measured limits.
    pub fn environment(&self) -> Environment {
        let mut environment = self.begun.clone();
        environment.canary_drift = Some(self.canaries.drift().unwrap_or(0.0));
        environment.seed = Some(self.options.seed);
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
            let one_shape = match target.subjects.first() {
                Some(file) if takes(file) => takes_one_shape(&self.gpu, file, &problems)?,
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
        let (gpu, options) = (Arc::clone(&self.gpu), self.options);
        let case = Case::new(&gpu, plan, problem, options.seed)?;
        let pipelines = Pipelines::default();
        let mut bench = Bench::new(&gpu, &pipelines, case, options.rotate_bytes)?.validated()?;
        let (cold, error) = bench.sample(&options, Temperature::Cold)?;
        let (warm, other) = bench.sample(&options, Temperature::Warm)?;
        let drifted = self.canary()?;
        let (plan, case) = (bench.plan(), bench.entry());
        let gb_s = case.bytes / cold.median_us / 1e3;
        // Warm times take no less arithmetic.
        let fastest_us = cold.median_us.min(warm.median_us);
        let limits = &self.begun;
        let most = limits.copy_gb_s.unwrap_or(0.0).max(limits.read_gb_s.unwrap_or(0.0));
        let impossible = |what: String| {
            let BenchCase { kernel, variant, shape, .. } = &case;
            Err(Error::CheckFailed(format!("{kernel}/{variant} {shape}: {what}")))
        };
        if gb_s > ABOVE_MEASURED * most && !gpu.adapter.software {
            return impossible(format!(
                "{gb_s:.0} GB/s cold lies above 102 % of the measured bandwidth of {most:.0} GB/s; \
                 {} rotated bytes did not leave the cache, or the kernel's byte count is wrong",
                case.rotated_bytes
            ));
        }
        let top_s = case.flops / fastest_us / 1e6;
        let most_top_s = limits.ceilings.map_or(f64::INFINITY, |c| c.arithmetic_top_s());
        if top_s > ABOVE_MEASURED * most_top_s {
            return impossible(format!(
                "{top_s:.1} TFLOP/s lies above 102 % of the fastest arithmetic measured, \
                 {most_top_s:.1}; the kernel's count of operations is wrong"
            ));
        }
        let timings = [&cold, &warm];
        let flags = [
            (!timings.iter().all(|t| t.settled), Flag::NotSettled),
            (drifted, Flag::Drift),
            (timings.iter().any(|t| t.noise > NOISY), Flag::Noisy),
            (timings.iter().any(|t| t.noise > options.noise), Flag::TimedOut),
            (timings.iter().any(|t| t.throttled > t.samples_us.len()), Flag::Throttled),
            ((gb_s > most || top_s > most_top_s) && !gpu.adapter.software, Flag::AboveCeiling),
            (case.clock == Clock::Wall, Flag::WallClock),
            // A user's file keeps them where built-in variants run without.
            (gpu.checks == Checks::Files && !plan.built_in, Flag::RuntimeChecksOn),
            (plan.foreign.tolerated.is_some(), Flag::OwnTolerance),
            (case.rotated_bytes < 2 * limits.cache_bytes.unwrap_or(0), Flag::NotCold),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
        let flags = flags.collect();
        let (nmse, canary) = (error.max(other), self.canaries.last());
        let case = BenchCase { cold, warm, nmse, canary, flags, ..case };
        Ok(case.settled(limits.copy_gb_s))
    }
}
