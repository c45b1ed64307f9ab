//! The regression gate: is a saved run slower than an earlier one?
//!
//! Two runs are two processes at two times. Their samples show the noise within each, and the
//! bootstrap turns that into an interval of the ratio; clocks, temperature and the place of
//! buffers also differ from one run to the next, which no sample of either shows. So a case is a
//! slowdown only when the whole interval lies above a threshold of at least [`FLOOR`], more where
//! the runs themselves admit more (the noise of both together, a moving canary, a coarse
//! timestamp, samples that moved during the run). Everything between is unclear, and says so.
//!
//! Bench records are compared case by case on cold times; warm ones are reported beside them.
//! Whole generations (`bench decode`, `suite`) are compared test by test, on means of a few
//! repetitions; see `gate/generation.rs`.
//! Profiles are compared by operation and by the unprofiled step, each step with the same
//! position of the other run, because attention grows with the position. Their median is that
//! of the steps: what slows down fewer than half of them shows in the report's curves, not here.

mod generation;

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::{Bench, BenchCase, Body, Clock, Environment, Flag, Profile, Record};
use super::rng::Rng;
use super::{Ratio, paired};
use crate::error::{Error, Result};

/// Key of the unprofiled step among the cases of a profile.
pub const STEP: &str = "unprofiled step";

/// Smallest threshold, as a fraction: what two runs of one build may differ by. Simulated, it keeps
/// false slowdowns below 1 % of reports of ten cases while runs differ by a standard deviation of
/// 0.4 % a case; at 0.5 % it is 1.3 %, at 0.7 % already 12 %.
pub const FLOOR: f64 = 0.02;

/// Confidence of the intervals.
const CONFIDENCE: f64 = 0.95;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2000;

/// Seed of the bootstrap: the same records always give the same report.
const SEED: u64 = 42;

/// Widest threshold within which a case is called the same: where runs are noisier than this, an
/// interval within their noise proves nothing.
const WIDEST_SAME: f64 = 0.05;

/// Fewest samples, or common steps, that an interval can rest on.
const FEWEST_SAMPLES: usize = 5;

/// What the gate says of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// Slower by more than the threshold, confirmed.
    Slowdown,
    /// The interval straddles the threshold, or the samples allow none.
    Unclear,
    /// Within the threshold.
    Same,
    /// Faster by more than the threshold.
    Faster,
    /// Only in the earlier record.
    Missing,
    /// Only in the new record.
    New,
}

impl fmt::Display for GateVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GateVerdict::Slowdown => "slowdown",
            GateVerdict::Unclear => "unclear",
            GateVerdict::Same => "same",
            GateVerdict::Faster => "faster",
            GateVerdict::Missing => "missing",
            GateVerdict::New => "new",
        })
    }
}

/// One case of both records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateCase {
    /// `KERNEL/VARIANT SHAPE`, an operation of a step, or [`STEP`].
    pub key: String,
    /// Median time in the earlier record, microseconds: of an invocation (cold), or of a step.
    pub base_us: Option<f64>,
    /// The same in the new record.
    pub new_us: Option<f64>,
    /// New over base.
    pub ratio: Option<Ratio>,
    /// Ratios from `1 / (1 + threshold)` to `1 + threshold` are no change.
    pub threshold: Option<f64>,
    /// What follows.
    pub verdict: GateVerdict,
    /// New over base with inputs in the cache; does not gate.
    pub warm: Option<Ratio>,
    /// What a reader should know about it; may be empty.
    pub note: String,
}

/// Two records compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// In the order of the earlier record; new ones last.
    pub cases: Vec<GateCase>,
    /// Confirmed slowdowns.
    pub slowdowns: usize,
    /// Cases that could not be decided.
    pub unclear: usize,
    /// What makes the records less comparable.
    pub warnings: Vec<String>,
}

impl GateReport {
    /// Exit code of a command that reports this: 1 for a confirmed slowdown, else 6 if a case is
    /// unclear, else 0.
    pub fn exit_code(&self) -> u8 {
        match (self.slowdowns, self.unclear) {
            (0, 0) => 0,
            (0, _) => 6,
            _ => 1,
        }
    }
}

/// Compares a new record with an earlier one of the same kind. Refuses, as a usage error, records
/// of different kinds or models, with no case in common, and unless forced of different adapters
/// or of software ones.
pub fn compare(base: &Record, new: &Record, force: bool) -> Result<GateReport> {
    compare_resampled(base, new, force, RESAMPLES)
}

fn compare_resampled(
    base: &Record,
    new: &Record,
    force: bool,
    resamples: usize,
) -> Result<GateReport> {
    let mut warnings = environments(&base.environment, &new.environment, force)?;
    let gate = Gate {
        resamples,
        common: [&base.environment, &new.environment]
            .iter()
            .filter_map(|e| e.canary_drift)
            .fold(FLOOR, |most, drift| most.max(drift.abs())),
        quantum_us: [&base.environment, &new.environment]
            .map(|e| e.timestamp_quantum_ns.unwrap_or(0.0) / 1e3),
    };
    let cases = match (&base.body, &new.body) {
        (Body::Bench(base), Body::Bench(new)) => {
            warnings
                .extend(new.failed.iter().map(|case| format!("no result in the new one: {case}")));
            gate.benches(base, new)?
        }
        (Body::Profile(base), Body::Profile(new)) => gate.profiles(base, new, &mut warnings)?,
        (Body::GenerationTests(base), Body::GenerationTests(new)) => {
            gate.tests(base, new, &mut warnings)?
        }
        (Body::Suite(base), Body::Suite(new)) => gate.suites(base, new, &mut warnings)?,
        (Body::Ab(_), _) | (_, Body::Ab(_)) => {
            let text = "an A/B record holds its own comparison; compare bench or profile records";
            return Err(Error::Usage(text.into()));
        }
        (base, new) => {
            return Err(Error::Usage(format!(
                "one record is of a {}, the other of a {}; nothing to compare",
                base.what(),
                new.what()
            )));
        }
    };
    let count = |verdict| cases.iter().filter(|case| case.verdict == verdict).count();
    let (missing, added) = (count(GateVerdict::Missing), count(GateVerdict::New));
    if missing + added == cases.len() {
        return Err(Error::Usage("the records have no case in common".into()));
    }
    if missing > 0 {
        warnings.push(format!("{missing} of the earlier record's cases missing in the new one"));
    }
    let (slowdowns, unclear) = (count(GateVerdict::Slowdown), count(GateVerdict::Unclear));
    Ok(GateReport { cases, slowdowns, unclear, warnings })
}

/// Whether the environments can be compared, and what to mind.
fn environments(base: &Environment, new: &Environment, force: bool) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let mut refuse = |reason: String| {
        if force {
            warnings.push(format!("{reason} (forced)"));
            return Ok(());
        }
        Err(Error::Usage(format!("{reason}; --force compares all the same")))
    };
    let show = |e: &Environment| format!("{} ({}, {})", e.adapter, e.driver, e.backend);
    let (b, n) = (show(base), show(new));
    if b != n {
        refuse(format!("records of different adapters or drivers: {b} and {n}"))?;
    }
    if let Some(which) = [base, new].into_iter().find(|e| e.software) {
        let adapter = &which.adapter;
        refuse(format!("{adapter} is a software adapter, no subject for speed claims"))?;
    }
    for (what, base, new) in [
        ("wgpu's run-time checks", &base.runtime_checks, &new.runtime_checks),
        ("wgpu", &base.wgpu, &new.wgpu),
        ("system", &base.os, &new.os),
    ] {
        if base != new {
            warnings.push(format!("{what} differs: {base} and {new}"));
        }
    }
    for (which, environment) in [("earlier", base), ("new", new)] {
        match environment.canary_drift {
            Some(drift) if drift.abs() <= FLOOR => {}
            Some(drift) => warnings
                .push(format!("the canary moved by {:.1} % during the {which} run", 100.0 * drift)),
            None => warnings.push(format!("the {which} run had no canary")),
        }
    }
    if let (Some(base), Some(new)) = (base.copy_gb_s, new.copy_gb_s)
        && (new / base).ln().abs() > FLOOR.ln_1p()
    {
        warnings.push(format!(
            "measured copy bandwidth differs: {base:.0} and {new:.0} GB/s; the machine changed"
        ));
    }
    Ok(warnings)
}

/// What holds for all cases of two records.
struct Gate {
    resamples: usize,
    /// Threshold before what each case adds.
    common: f64,
    /// Timestamp step of either run.
    quantum_us: [f64; 2],
}

impl Gate {
    fn benches(&self, base: &Bench, new: &Bench) -> Result<Vec<GateCase>> {
        let key = |case: &BenchCase| format!("{}/{} {}", case.kernel, case.variant, case.shape);
        let (base, new) = (keyed(&base.cases, key)?, keyed(&new.cases, key)?);
        Ok(matched(
            &base,
            &new,
            |case| median(&case.cold.samples_us),
            |key, base, new| self.bench_case(key, base, new),
        ))
    }

    fn bench_case(&self, key: &str, base: &BenchCase, new: &BenchCase) -> GateCase {
        let ratio = |temperature: &str, base: &[f64], new: &[f64]| {
            let mut rng = Rng::derive(SEED, &format!("{temperature} {key}"));
            self.unpaired(base, new, &mut rng)
        };
        let cold = ratio("cold", &base.cold.samples_us, &new.cold.samples_us);
        let warm = ratio("warm", &base.warm.samples_us, &new.warm.samples_us);
        let threshold = [base, new].iter().zip(self.quantum_us).fold(
            self.common.max(base.cold.noise.hypot(new.cold.noise)),
            |threshold, (case, quantum_us)| {
                let sample_us = case.cold.median_us * case.cold.dispatches as f64;
                let quantum = if case.clock == Clock::Gpu { quantum_us / sample_us } else { 0.0 };
                threshold.max(moved(&case.cold.samples_us)).max(quantum)
            },
        );
        let mut notes = Vec::new();
        let mut verdict = judge(cold, threshold);
        if cold.is_none() {
            notes.push(too_few());
        }
        if base.clock != new.clock {
            verdict = GateVerdict::Unclear;
            notes.push(format!("clocks differ: {} and {}", base.clock, new.clock));
        }
        for (which, case) in [("earlier", base), ("new", new)] {
            let mut flags: Vec<_> = case.flags.iter().map(ToString::to_string).collect();
            if !case.cold.settled && !case.flags.contains(&Flag::NotSettled.into()) {
                flags.push(Flag::NotSettled.to_string());
            }
            if !flags.is_empty() {
                notes.push(format!("{which} run: {}", flags.join(", ")));
            }
        }
        if base.source == new.source
            && matches!(verdict, GateVerdict::Slowdown | GateVerdict::Faster)
        {
            notes.push("the kernel's source is the same in both".into());
        }
        if let Some(Ratio { median, low, high }) = warm
            && matches!(judge(warm, threshold), GateVerdict::Slowdown | GateVerdict::Faster)
        {
            notes.push(format!("warm {median:.3} [{low:.3}, {high:.3}]"));
        }
        GateCase {
            key: key.into(),
            base_us: median(&base.cold.samples_us),
            new_us: median(&new.cold.samples_us),
            ratio: cold,
            threshold: Some(threshold),
            verdict,
            warm,
            note: notes.join("; "),
        }
    }

    fn profiles(
        &self,
        base: &Profile,
        new: &Profile,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<GateCase>> {
        let what = |p: &Profile| {
            format!("{} with {} KV after {} prompt tokens", p.model, p.kv, p.prompt_tokens)
        };
        let (b, n) = (what(base), what(new));
        if b != n {
            return Err(Error::Usage(format!("profiles of different decodes: {b} and {n}")));
        }
        let [was, is] = [base, new].map(|profile| profile.unprofiled.steps_per_submit);
        if was != is {
            warnings.push(format!("steps in a submission differ: {was} and {is}"));
        }
        let step = |profile: &Profile| Series {
            kernel: String::new(),
            timestamps: 0,
            by_position: (0..)
                .zip(&profile.unprofiled.step_ms)
                .map(|(at, ms)| (at, ms * 1e3))
                .collect(),
        };
        let mut cases = vec![self.series_case(STEP, &step(base), &step(new))];
        let (base, new) = (series(base)?, series(new)?);
        cases.extend(matched(
            &base,
            &new,
            |series| median(&series.by_position.iter().map(|(_, us)| *us).collect::<Vec<_>>()),
            |key, base, new| self.series_case(key, base, new),
        ));
        Ok(cases)
    }

    fn series_case(&self, key: &str, base: &Series, new: &Series) -> GateCase {
        let other: HashMap<usize, f64> = new.by_position.iter().copied().collect();
        let (base_us, new_us): (Vec<f64>, Vec<f64>) = base
            .by_position
            .iter()
            .filter_map(|(position, us)| Some((*us, *other.get(position)?)))
            .unzip();
        let ratio = self.paired(&base_us, &new_us, &mut Rng::derive(SEED, key));
        let (base_median, new_median) = (median(&base_us), median(&new_us));
        let mut threshold = self.common;
        if let Some(Ratio { low, high, .. }) = ratio {
            threshold = threshold.max((high / low).sqrt() - 1.0);
        }
        for ((series, us), quantum_us) in
            [(base, base_median), (new, new_median)].into_iter().zip(self.quantum_us)
        {
            if let Some(us) = us {
                threshold = threshold.max(quantum_us * series.timestamps as f64 / us);
            }
        }
        let mut notes = Vec::new();
        if ratio.is_none() {
            notes.push(too_few());
        }
        if base.kernel != new.kernel {
            notes.push(format!("{} became {}", base.kernel, new.kernel));
        }
        if base.timestamps != new.timestamps {
            let [was, is] = [base.timestamps, new.timestamps];
            notes.push(format!("{was} invocations a step became {is}"));
        }
        let most = base.by_position.len().max(new.by_position.len());
        if base_us.len() < most {
            notes.push(format!("{} of {most} steps in both", base_us.len()));
        }
        GateCase {
            key: key.into(),
            base_us: base_median,
            new_us: new_median,
            ratio,
            threshold: Some(threshold),
            verdict: judge(ratio, threshold),
            warm: None,
            note: notes.join("; "),
        }
    }

    /// New over base of samples that have nothing to do with each other.
    fn unpaired(&self, base: &[f64], new: &[f64], rng: &mut Rng) -> Option<Ratio> {
        let centre = (median(new)? / median(base)?).ln();
        let mut medians = |samples: &[f64]| {
            let logs: Vec<f64> = samples.iter().map(|us| us.ln()).collect();
            paired::resampled_medians(&logs, self.resamples, rng)
        };
        let (base, new) = (medians(base), medians(new));
        let differences = new.iter().zip(&base).map(|(new, base)| new - base).collect();
        let ends = paired::percentiles(differences, CONFIDENCE);
        Some(Ratio::exp(centre, ends))
    }

    /// New over base of steps at the same positions.
    fn paired(&self, base: &[f64], new: &[f64], rng: &mut Rng) -> Option<Ratio> {
        median(base).and(median(new))?;
        let logs: Vec<f64> = base.iter().zip(new).map(|(base, new)| (new / base).ln()).collect();
        let ends = paired::bootstrap(&logs, self.resamples, CONFIDENCE, rng);
        Some(Ratio::exp(paired::median(&logs), ends))
    }
}

/// Times of an operation, or of all, over the steps of a decode.
struct Series {
    /// Kernels and variants that serve it.
    kernel: String,
    /// Invocations a step, each between timestamps; none by the host's clock.
    timestamps: usize,
    /// Position and microseconds of each step.
    by_position: Vec<(usize, f64)>,
}

/// The operations of a profile, summed over the layers of each step.
fn series(profile: &Profile) -> Result<Vec<(String, Series)>> {
    let mut names: Vec<&str> = Vec::new();
    for op in &profile.ops {
        if !names.contains(&op.op.as_str()) {
            names.push(&op.op);
        }
    }
    if let Some(step) = profile.steps.iter().find(|step| step.us.len() != profile.ops.len()) {
        return Err(Error::Usage(format!(
            "{}: the step at position {} has {} times for {} operations",
            profile.model,
            step.position,
            step.us.len(),
            profile.ops.len()
        )));
    }
    Ok(names
        .into_iter()
        .map(|name| {
            let mut kernels: Vec<String> = Vec::new();
            let mut members = Vec::new();
            for (index, op) in profile.ops.iter().enumerate().filter(|(_, op)| op.op == name) {
                members.push(index);
                let kernel = format!("{}/{}", op.kernel, op.variant);
                if !kernels.contains(&kernel) {
                    kernels.push(kernel);
                }
            }
            let sum = |us: &[f64]| members.iter().map(|index| us[*index]).sum();
            let by_position =
                profile.steps.iter().map(|step| (step.position, sum(&step.us))).collect();
            let (kernel, timestamps) = (kernels.join(", "), members.len());
            (name.to_owned(), Series { kernel, timestamps, by_position })
        })
        .collect())
}

/// Cases by their keys, in order.
fn keyed<T>(cases: &[T], key: impl Fn(&T) -> String) -> Result<Vec<(String, &T)>> {
    let keyed: Vec<(String, &T)> = cases.iter().map(|case| (key(case), case)).collect();
    let mut seen = HashSet::new();
    match keyed.iter().find(|(key, _)| !seen.insert(key)) {
        Some((key, _)) => Err(Error::Usage(format!("{key} is twice in one record"))),
        None => Ok(keyed),
    }
}

/// Judges what both sides have and lists what one lacks.
fn matched<T>(
    base: &[(String, T)],
    new: &[(String, T)],
    time: impl Fn(&T) -> Option<f64>,
    both: impl Fn(&str, &T, &T) -> GateCase,
) -> Vec<GateCase> {
    let alone = |key: &str, base_us, new_us, verdict| GateCase {
        key: key.into(),
        base_us,
        new_us,
        ratio: None,
        threshold: None,
        verdict,
        warm: None,
        note: String::new(),
    };
    let find = |cases: &[(String, T)], key: &str| cases.iter().position(|(other, _)| other == key);
    let old = base.iter().map(|(key, case)| match find(new, key) {
        Some(at) => both(key, case, &new[at].1),
        None => alone(key, time(case), None, GateVerdict::Missing),
    });
    let added = new
        .iter()
        .filter(|(key, _)| find(base, key).is_none())
        .map(|(key, case)| alone(key, None, time(case), GateVerdict::New));
    old.chain(added).collect()
}

fn judge(ratio: Option<Ratio>, threshold: f64) -> GateVerdict {
    let Some(Ratio { low, high, .. }) = ratio else { return GateVerdict::Unclear };
    let same = 1.0 + threshold.min(WIDEST_SAME);
    if low > 1.0 + threshold {
        GateVerdict::Slowdown
    } else if high < 1.0 / (1.0 + threshold) {
        GateVerdict::Faster
    } else if low >= 1.0 / same && high <= same {
        GateVerdict::Same
    } else {
        GateVerdict::Unclear
    }
}

/// Median of samples that are positive numbers and enough.
fn median(samples: &[f64]) -> Option<f64> {
    (samples.len() >= FEWEST_SAMPLES && samples.iter().all(paired::usable))
        .then(|| paired::median(samples))
}

/// How far the second half of the samples lies from the first: a run that moves by this much
/// while it is measured is as far from the next run.
fn moved(samples: &[f64]) -> f64 {
    if median(samples).is_none() {
        return 0.0;
    }
    let (first, second) = samples.split_at(samples.len() / 2);
    (paired::median(second) / paired::median(first)).ln().abs().exp_m1()
}

fn too_few() -> String {
    format!("fewer than {FEWEST_SAMPLES} samples, or one that is not a positive number")
}

#[cfg(test)]
mod tests;
