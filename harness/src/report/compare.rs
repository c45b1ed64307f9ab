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
//! Profiles are compared by operation and by the un-profiled step, each step with the same
//! position of the other run, because attention grows with the position. Their median is that
//! of the steps: what slows down fewer than half of them shows in the report's curves, not here.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::{Bench, BenchCase, Body, Environment, Profile, Ratio, Record};
use crate::error::{Error, Result};
use crate::measure::paired;
use crate::rng::Rng;

/// Key of the un-profiled step among the cases of a profile.
pub const STEP: &str = "un-profiled step";

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
        (Body::Bench(base), Body::Bench(new)) => gate.benches(base, new)?,
        (Body::Profile(base), Body::Profile(new)) => gate.profiles(base, new, &mut warnings)?,
        (Body::Ab(_), _) | (_, Body::Ab(_)) => {
            let text = "an A/B record holds its own comparison; compare bench or profile records";
            return Err(Error::Usage(text.into()));
        }
        _ => {
            let text = "one record is of a bench, the other of a profile; nothing to compare";
            return Err(Error::Usage(text.into()));
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
                let quantum = if case.clock == "gpu" { quantum_us / sample_us } else { 0.0 };
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
            let mut flags = case.flags.clone();
            if !case.cold.settled && !flags.iter().any(|flag| flag == "not settled") {
                flags.push("not settled".into());
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
        let (low, high) = paired::percentiles(differences, CONFIDENCE);
        Some(Ratio { median: centre.exp(), low: low.exp(), high: high.exp() })
    }

    /// New over base of steps at the same positions.
    fn paired(&self, base: &[f64], new: &[f64], rng: &mut Rng) -> Option<Ratio> {
        median(base).and(median(new))?;
        let logs: Vec<f64> = base.iter().zip(new).map(|(base, new)| (new / base).ln()).collect();
        let (low, high) = paired::bootstrap(&logs, self.resamples, CONFIDENCE, rng);
        let median = paired::median(&logs).exp();
        Some(Ratio { median, low: low.exp(), high: high.exp() })
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
mod tests {
    use super::super::record::{OpTotal, ProfiledOp, ProfiledStep, Timing, Unprofiled};
    use super::*;
    use crate::measure::stats;

    const RUNS: u64 = 200;
    const CASES: usize = 10;

    type Change<T> = fn(&mut T);

    fn environment() -> Environment {
        Environment {
            date: "2026-11-20T16:00:00Z".into(),
            commit: Some("0123abc".into()),
            dirty: Some(false),
            lathe: "0.1.0".into(),
            wgpu: "30.0.1".into(),
            os: "linux x86_64".into(),
            adapter: "Example GPU".into(),
            driver: "1.2.3".into(),
            backend: "vulkan".into(),
            software: false,
            runtime_checks: "off".into(),
            timestamp_quantum_ns: Some(32.0),
            copy_gb_s: Some(4000.0),
            canary_drift: Some(0.003),
        }
    }

    /// Samples around `us` with this noise, a slow drift, and now and then a far too long one.
    fn timing(rng: &mut Rng, us: f64, noise: f64) -> Timing {
        let drift = 0.004 * f64::from(rng.normal());
        let samples_us: Vec<f64> = (0..30)
            .map(|i| {
                let tail =
                    if rng.below(20) == 0 { 1.2 + 1.8 * f64::from(rng.uniform()) } else { 1.0 };
                let log = noise * f64::from(rng.normal()) + drift * f64::from(i) / 30.0;
                us * log.exp() * tail
            })
            .collect();
        let summary = stats::summarise(&samples_us);
        let (low, high) = paired::bootstrap(&samples_us, 200, 0.95, rng);
        Timing {
            median_us: summary.median,
            min_us: summary.min,
            spread: summary.spread,
            noise: (high - low) / 2.0 / summary.median,
            settled: true,
            dispatches: 100,
            samples_us,
        }
    }

    /// A run of ten kernels; one build differs from another by `slow` in the fourth, one run of a
    /// build from the next by `between` (standard deviation) in each.
    fn bench(seed: u64, noise: f64, between: f64, slow: f64) -> Record {
        let mut rng = Rng::derive(seed, "a simulated bench");
        let cases = (0..CASES)
            .map(|i| {
                let us = 5.0 * (1 + i) as f64 * (between * f64::from(rng.normal())).exp();
                let us = if i == 3 { us * slow } else { us };
                BenchCase {
                    kernel: "gemv".into(),
                    variant: "subgroup".into(),
                    shape: format!("rows={},cols=1152", 64 << i),
                    source: format!("{:08x}", if i == 3 && slow != 1.0 { 7 } else { i }),
                    cold: timing(&mut rng, us, noise),
                    warm: timing(&mut rng, us * 0.7, noise),
                    bytes: 1e6,
                    flops: 1e6,
                    gb_s: 100.0,
                    fraction_of_copy: 0.5,
                    rotated_bytes: 1 << 29,
                    clock: "gpu".into(),
                    flags: Vec::new(),
                }
            })
            .collect();
        Record::new(environment(), Body::Bench(Bench { cases }))
    }

    fn cases_of(record: &mut Record) -> &mut Vec<BenchCase> {
        match &mut record.body {
            Body::Bench(bench) => &mut bench.cases,
            _ => panic!("no bench record"),
        }
    }

    /// A decode of 64 steps and two layers, attention growing with the position.
    fn profile(seed: u64, noise: f64, slow_down: f64) -> Record {
        let mut rng = Rng::new(seed ^ 0xabcd);
        let mut ops = Vec::new();
        for layer in 0..2 {
            for (op, kernel) in [("attention", "attention"), ("ffn_down", "gemv")] {
                ops.push(ProfiledOp {
                    layer: Some(layer),
                    op: op.into(),
                    kernel: kernel.into(),
                    variant: "subgroup".into(),
                    shape: "rows=1152".into(),
                });
            }
        }
        let mut jitter = |us: f64| us * (noise * f64::from(rng.normal())).exp();
        let steps: Vec<ProfiledStep> = (16..80)
            .map(|position| ProfiledStep {
                position,
                us: ops
                    .iter()
                    .map(|op| match op.op.as_str() {
                        "attention" => jitter(2.0 + 0.1 * position as f64),
                        _ => jitter(8.0 * slow_down),
                    })
                    .collect(),
                record_ms: 0.1,
                submit_ms: 0.1,
                wait_ms: 0.2,
            })
            .collect();
        let step_ms = steps.iter().map(|step| jitter(step.us.iter().sum::<f64>() / 1e3)).collect();
        let by_op = vec![OpTotal {
            op: "ffn_down".into(),
            kernel: "gemv/subgroup".into(),
            count: 2,
            ms: 0.016 * slow_down,
            percent: 60.0,
            bytes: 1e6,
            floor_ms: None,
            over_floor: None,
        }];
        let body = Body::Profile(Profile {
            model: "example".into(),
            kv: "f16".into(),
            prompt_tokens: 16,
            unprofiled: Unprofiled {
                decode_tok_s: 100.0,
                gpu_ms_per_token: None,
                step_ms,
                steps_per_submit: 1,
            },
            ops,
            steps,
            by_op,
            serialised_ms_per_token: 0.03,
            selected: Vec::new(),
        });
        Record::new(environment(), body)
    }

    fn gate(base: &Record, new: &Record) -> GateReport {
        // Few resamples, for hundreds of simulated pairs in a few seconds.
        compare_resampled(base, new, false, 500).unwrap()
    }

    fn usage(result: Result<GateReport>) -> String {
        match result {
            Err(Error::Usage(text)) => text,
            other => panic!("no usage error: {other:?}"),
        }
    }

    #[test]
    fn runs_of_one_build_give_no_slowdown() {
        const PAIRS: u64 = 500; // so many, that 1 % of them is a number
        for (noise, between) in [(0.005, 0.0), (0.005, 0.004), (0.03, 0.004), (0.2, 0.0)] {
            let (mut reports, mut slowdowns, mut unclear) = (0, 0, 0);
            for run in 0..PAIRS {
                let (base, new) =
                    (bench(2 * run, noise, between, 1.0), bench(2 * run + 1, noise, between, 1.0));
                let report = gate(&base, &new);
                reports += usize::from(report.slowdowns > 0);
                slowdowns += report.slowdowns;
                unclear += report.unclear;
            }
            let of = |n: usize| 100.0 * n as f64 / (PAIRS as usize * CASES) as f64;
            eprintln!(
                "one build, noise {noise}, {between} between runs: slowdowns in {:.1} % of reports \
                 ({:.2} % of cases), {:.1} % of cases unclear",
                100.0 * reports as f64 / PAIRS as f64,
                of(slowdowns),
                of(unclear)
            );
            assert!(reports as f64 <= 0.01 * PAIRS as f64, "noise {noise}: {reports}");
        }
    }

    #[test]
    fn a_slowdown_of_5_percent_is_caught() {
        let (mut caught, mut elsewhere) = (0, 0);
        for run in 0..RUNS {
            let (base, new) =
                (bench(2 * run, 0.005, 0.004, 1.0), bench(2 * run + 1, 0.005, 0.004, 1.05));
            let report = gate(&base, &new);
            let found = usize::from(report.cases[3].verdict == GateVerdict::Slowdown);
            caught += found;
            elsewhere += report.slowdowns - found;
            if found == 1 && run < 20 {
                assert_eq!(report.exit_code(), 1);
                assert_eq!(gate(&new, &base).cases[3].verdict, GateVerdict::Faster);
            }
        }
        eprintln!("5 % slower at 0.5 % noise: caught {:.1} %", 100.0 * caught as f64 / RUNS as f64);
        assert!(caught as f64 >= 0.95 * RUNS as f64, "{caught}");
        assert!(elsewhere <= 2, "{elsewhere}");
    }

    #[test]
    fn profiles_of_one_build_agree_and_a_slower_operation_shows() {
        let (mut wrong, mut caught) = (0, 0);
        for run in 0..RUNS {
            let base = profile(2 * run, 0.005, 1.0);
            wrong += usize::from(gate(&base, &profile(2 * run + 1, 0.005, 1.0)).slowdowns > 0);
            let report = gate(&base, &profile(2 * run + 1, 0.005, 1.05));
            let verdict_of = |key: &str| {
                report.cases.iter().find(|case| case.key == key).map(|case| case.verdict)
            };
            let found = verdict_of("ffn_down") == Some(GateVerdict::Slowdown);
            caught += usize::from(found && verdict_of("attention") == Some(GateVerdict::Same));
        }
        let percent = |n: usize| 100.0 * n as f64 / RUNS as f64;
        eprintln!(
            "profiles at 0.5 % noise: slowdown without one {:.1} %, 5 % slower operation caught \
             {:.1} %",
            percent(wrong),
            percent(caught)
        );
        assert!(percent(wrong) <= 1.0 && percent(caught) >= 95.0, "{wrong} {caught}");
    }

    #[test]
    fn steps_are_compared_at_the_same_position() {
        let base = profile(1, 0.001, 1.0);
        let mut new = profile(2, 0.001, 1.0);
        let Body::Profile(body) = &mut new.body else { panic!("no profile") };
        body.steps.drain(..40); // what is left has longer contexts and slower attention
        body.ops[1].variant = "naive".into();
        let report = gate(&base, &new);
        let keys: Vec<&str> = report.cases.iter().map(|case| case.key.as_str()).collect();
        assert_eq!(keys, [STEP, "attention", "ffn_down"]);
        assert!(report.cases.iter().all(|c| c.verdict == GateVerdict::Same), "{report:?}");
        assert_eq!(report.cases[1].note, "24 of 64 steps in both");
        let note = &report.cases[2].note;
        assert!(note.contains("gemv/subgroup became gemv/naive, gemv/subgroup"), "{note}");
    }

    #[test]
    fn records_that_are_no_pair_are_refused() {
        let refuse = |base: &Record, new: &Record| usage(compare(base, new, false));
        let base = bench(1, 0.005, 0.0, 1.0);
        assert!(refuse(&base, &profile(1, 0.005, 1.0)).contains("nothing to compare"));

        let one = profile(1, 0.005, 1.0);
        let mut two = one.clone();
        let Body::Profile(body) = &mut two.body else { panic!("no profile") };
        body.kv = "f32".into();
        assert!(refuse(&one, &two).contains("different decodes"));
        let mut two = one.clone();
        let Body::Profile(body) = &mut two.body else { panic!("no profile") };
        body.steps[3].us.pop();
        assert!(refuse(&one, &two).contains("position 19 has 3 times for 4 operations"));

        let mut twice = base.clone();
        cases_of(&mut twice)[4].shape = "rows=64,cols=1152".into();
        assert!(refuse(&twice, &base).contains("gemv/subgroup rows=64,cols=1152 is twice"));

        let mut other = base.clone();
        cases_of(&mut other).iter_mut().for_each(|case| case.kernel = "rope".into());
        assert!(refuse(&base, &other).contains("no case in common"));
    }

    #[test]
    fn other_adapters_drivers_and_software_need_force() {
        let base = bench(1, 0.005, 0.0, 1.0);
        let changes: [(Change<Environment>, &str); 4] = [
            (|e| e.adapter = "Another GPU".into(), "different adapters or drivers"),
            (|e| e.driver = "1.2.4".into(), "different adapters or drivers"),
            (|e| e.backend = "dx12".into(), "different adapters or drivers"),
            (|e| e.software = true, "software adapter"),
        ];
        for (change, reason) in changes {
            let mut new = base.clone();
            change(&mut new.environment);
            for (x, y) in [(&base, &new), (&new, &base)] {
                let text = usage(compare(x, y, false));
                assert!(text.contains(reason) && text.contains("--force"), "{text}");
                let report = compare(x, y, true).unwrap();
                assert!(report.warnings.iter().any(|w| w.contains(reason)), "{report:?}");
                assert_eq!(report.exit_code(), 0);
            }
        }
    }

    #[test]
    fn doubtful_environments_are_warned_of() {
        let base = bench(1, 0.005, 0.0, 1.0);
        assert_eq!(gate(&base, &base).warnings, [""; 0]);
        let changes: [(Change<Environment>, &str); 5] = [
            (|e| e.runtime_checks = "on".into(), "run-time checks differs: off and on"),
            (|e| e.wgpu = "31.0.0".into(), "wgpu differs: 30.0.1 and 31.0.0"),
            (|e| e.canary_drift = Some(0.034), "canary moved by 3.4 % during the new run"),
            (|e| e.canary_drift = None, "the new run had no canary"),
            (|e| e.copy_gb_s = Some(3500.0), "copy bandwidth differs: 4000 and 3500 GB/s"),
        ];
        for (change, text) in changes {
            let mut new = base.clone();
            change(&mut new.environment);
            let report = gate(&base, &new);
            assert!(report.warnings.len() == 1 && report.warnings[0].contains(text), "{report:?}");
        }
    }

    #[test]
    fn missing_and_new_cases_are_listed() {
        let base = bench(1, 0.005, 0.0, 1.0);
        let mut new = bench(2, 0.005, 0.0, 1.0);
        cases_of(&mut new).remove(2);
        cases_of(&mut new)[5].variant = "tiled".into();
        let report = gate(&base, &new);
        let listed = |verdict| -> Vec<&str> {
            let cases = report.cases.iter().filter(|case| case.verdict == verdict);
            cases.map(|case| case.key.as_str()).collect()
        };
        let gone = ["gemv/subgroup rows=256,cols=1152", "gemv/subgroup rows=4096,cols=1152"];
        assert_eq!(listed(GateVerdict::Missing), gone);
        assert_eq!(listed(GateVerdict::New), ["gemv/tiled rows=4096,cols=1152"]);
        assert!(report.warnings[0].starts_with("2 of the earlier record's cases"), "{report:?}");
        let missing = &report.cases[2];
        assert!(missing.base_us.is_some() && missing.new_us.is_none() && missing.ratio.is_none());
        assert!(report.cases[10].new_us.is_some(), "new ones come last");
        assert_eq!(report.exit_code(), 0);
    }

    #[test]
    fn the_threshold_follows_the_worst_of_either_run() {
        let base = bench(1, 0.001, 0.0, 1.0);
        let slower = bench(2, 0.001, 0.0, 1.08);
        assert_eq!(gate(&base, &slower).cases[3].verdict, GateVerdict::Slowdown);
        let changes: [(Change<Record>, f64); 4] = [
            (|r| r.environment.canary_drift = Some(-0.12), 0.12),
            (|r| cases_of(r)[3].cold.noise = 0.15, 0.15),
            // 20 us a dispatch, one in a sample: 3 us are 15 %.
            (
                |r| {
                    r.environment.timestamp_quantum_ns = Some(3000.0);
                    cases_of(r)[3].cold.dispatches = 1;
                },
                0.13,
            ),
            (|r| cases_of(r)[3].cold.samples_us[15..].iter_mut().for_each(|t| *t *= 1.2), 0.15),
        ];
        for (at, (change, least)) in changes.into_iter().enumerate() {
            for new_is_worse in [false, true] {
                let (mut x, mut y) = (base.clone(), slower.clone());
                change(if new_is_worse { &mut y } else { &mut x });
                let case = &gate(&x, &y).cases[3];
                assert!(case.threshold.unwrap() >= least, "{at}: {case:?}");
                // Too much doubt to confirm a change, and too much to exclude one.
                assert_eq!(case.verdict, GateVerdict::Unclear, "{at}: {case:?}");
            }
        }
    }

    #[test]
    fn samples_without_a_median_are_unclear() {
        let base = bench(1, 0.001, 0.0, 1.0);
        let changes: [Change<BenchCase>; 5] = [
            |case| case.cold.samples_us.clear(),
            |case| case.cold.samples_us.truncate(4),
            |case| case.cold.samples_us[7] = 0.0,
            |case| case.cold.samples_us[7] = f64::NAN,
            |case| case.clock = "wall".into(),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut new = base.clone();
            change(&mut cases_of(&mut new)[3]);
            let report = gate(&base, &new);
            let case = &report.cases[3];
            assert_eq!(case.verdict, GateVerdict::Unclear, "{at}");
            assert_eq!((report.unclear, report.exit_code()), (1, 6), "{at}");
            let note = if at < 4 { "fewer than 5 samples" } else { "clocks differ: gpu and wall" };
            assert!(case.note.starts_with(note), "{}", case.note);
        }
    }

    #[test]
    fn warm_times_are_noted_and_do_not_gate() {
        let base = bench(1, 0.001, 0.0, 1.0);
        let mut new = base.clone();
        let case = &mut cases_of(&mut new)[3];
        case.warm.samples_us.iter_mut().for_each(|t| *t *= 1.3);
        case.cold.settled = false;
        case.flags = vec!["drift".into()];
        let report = gate(&base, &new);
        assert_eq!(report.exit_code(), 0);
        let found = &report.cases[3];
        assert!((found.warm.unwrap().median - 1.3).abs() < 1e-9);
        assert!(found.note.starts_with("new run: drift, not settled; warm 1.300 ["), "{found:?}");
    }

    #[test]
    fn records_and_reports_survive_json() {
        for (base, new) in [
            (bench(1, 0.005, 0.0, 1.0), bench(2, 0.005, 0.0, 1.05)),
            (profile(1, 0.005, 1.0), profile(2, 0.005, 1.05)),
        ] {
            let report = gate(&base, &new);
            assert_eq!(report.exit_code(), 1);
            let [base, new] = [&base, &new].map(|record| {
                let text = serde_json::to_string(record).unwrap();
                serde_json::from_str::<Record>(&text).unwrap()
            });
            let same = |other: &GateReport| {
                assert_eq!(report.cases.len(), other.cases.len());
                for (x, y) in report.cases.iter().zip(&other.cases) {
                    assert_eq!((&x.key, x.verdict, &x.note), (&y.key, y.verdict, &y.note));
                    let (x, y) = (x.ratio.unwrap(), y.ratio.unwrap());
                    for (x, y) in [(x.median, y.median), (x.low, y.low), (x.high, y.high)] {
                        assert!((x - y).abs() < 1e-12); // decimal digits
                    }
                }
            };
            same(&gate(&base, &new));
            let text = serde_json::to_string(&report).unwrap();
            assert!(text.contains(r#""verdict":"slowdown""#), "{text}");
            same(&serde_json::from_str(&text).unwrap());
        }
        assert_eq!(GateVerdict::Slowdown.to_string(), "slowdown");
    }
}
