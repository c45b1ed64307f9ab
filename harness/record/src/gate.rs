//! The regression gate: is a saved run slower than an earlier one?
//!
//! What a run says of a case is one number, the median of its samples. Runs of one build differ by
//! more than their samples show (clocks, temperature, the place of buffers), so the run is the unit
//! of evidence: the change of a case is the difference of the sides' means over runs, in logs, and
//! its standard error comes from how far runs lie apart, `KERNEL_RUNS` at least. The threshold is
//! that error times the normal quantile at which the whole report, however many cases it has, calls
//! a slowdown where there is none in a share `FALSE_REPORTS` of all cases at most.
//!
//! Only a case whose source changed can fail. Those whose source did not are the control: what each
//! run shows of them in common is the machine and is taken off every case, and where they lie
//! further apart than runs should, the threshold grows by as much.
//!
//! Every kind of record becomes a list of `Measured` first (`gate/read.rs`); from there on there is
//! one rule for all.

mod generation;
mod read;

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::{Environment, Record};
use super::{Ratio, paired, stats};
use crate::error::{Error, Result};

pub use read::STEP;
use read::{Measured, measured};

/// Smallest threshold, as a fraction. More runs make the error of a mean small, but all runs of a
/// side may share a day, and days differ.
pub const FLOOR: f64 = 0.02;

/// Share of reports that may call a slowdown where there is none: 1 % is promised, and spreads are
/// not quite normal.
const FALSE_REPORTS: f64 = 0.008;

/// Standard deviation of a kernel's median from run to run: of the cases of equal source in the
/// committed records, all tails included (a test holds it against them).
const KERNEL_RUNS: f64 = 0.0075;

/// The same by the host's clock: six pairs of decodes, docs/findings/gate-on-a-real-gpu.md.
const HOST_RUNS: f64 = 0.015;

/// A change of at least this much may be confirmed by one record a side; and a case is the same
/// only where it is excluded.
const LARGE: f64 = 0.05;

/// Runs of one side that lie this many standard deviations apart are no runs of one build: of three
/// normal ones 1 in 10 000 does.
const APART: f64 = 6.0;

/// Two-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.96;

/// What the gate says of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// Measured in the earlier record, and wrong in the new one.
    Wrong,
    /// Slower by more than the threshold.
    Slowdown,
    /// The same of one record a side, by less than 5 %.
    Probable,
    /// Source changed, and the runs do not tell.
    Unclear,
    /// Source unchanged, and yet another time, or one not to be trusted: no verdict on the code.
    Machine,
    /// Within the threshold.
    Same,
    /// Faster by more than the threshold.
    Faster,
    /// Only in the earlier record.
    Missing,
    /// Only in the new record.
    New,
}

impl GateVerdict {
    /// What the reader of such a verdict should do, if anything.
    pub fn next(self) -> Option<&'static str> {
        match self {
            GateVerdict::Wrong => Some("`lathe check KERNEL/VARIANT` shows where it is wrong"),
            GateVerdict::Slowdown => {
                Some("`lathe ab` of the old text and the new one says by how much in one run")
            }
            GateVerdict::Probable => Some(
                "measure both builds twice more, in turns, and give all: lathe compare --base A B \
                 C --new D E F",
            ),
            GateVerdict::Unclear => Some(
                "measure both builds again on a quiet machine, in turns; three records a side \
                 decide 3 %: lathe compare --base A B C --new D E F",
            ),
            GateVerdict::Machine => {
                Some("this code did not change; for a time to rely on, measure it again")
            }
            GateVerdict::Same | GateVerdict::Faster | GateVerdict::Missing | GateVerdict::New => {
                None
            }
        }
    }
}

impl fmt::Display for GateVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GateVerdict::Wrong => "wrong",
            GateVerdict::Slowdown => "slowdown",
            GateVerdict::Probable => "probable slowdown",
            GateVerdict::Unclear => "unclear",
            GateVerdict::Machine => "unclear: the machine",
            GateVerdict::Same => "same",
            GateVerdict::Faster => "faster",
            GateVerdict::Missing => "missing",
            GateVerdict::New => "new",
        })
    }
}

/// One case of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateCase {
    /// `KERNEL/VARIANT SHAPE`, an operation of a step, or [`STEP`].
    pub key: String,
    /// Time in the earlier records, microseconds: of an invocation (cold), or of a step; the median
    /// of the runs' medians.
    pub base_us: Option<f64>,
    /// The same in the new ones.
    pub new_us: Option<f64>,
    /// New over base, less the shift of the unchanged cases, with its 95 % interval.
    pub ratio: Option<Ratio>,
    /// Ratios from `1 / (1 + threshold)` to `1 + threshold` are no change.
    pub threshold: Option<f64>,
    /// Whether its source differs, or is not known to be equal: only then can it fail.
    pub changed: bool,
    /// What follows.
    pub verdict: GateVerdict,
    /// New over base with inputs in the cache; does not gate, and no shift is taken off.
    pub warm: Option<Ratio>,
    /// What a reader should know about it; may be empty.
    pub note: String,
}

/// What the cases of unchanged source say of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateControl {
    /// How many there are whose times can be trusted.
    pub cases: usize,
    /// Their median, new over base: taken off every case.
    pub shift: f64,
    /// Nineteen of twenty lie within this of it, as a fraction.
    pub spread: f64,
}

/// Earlier and new records compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// In the order of the earlier record; new ones last.
    pub cases: Vec<GateCase>,
    /// None where no case has the same source in both.
    pub control: Option<GateControl>,
    /// Confirmed slowdowns.
    pub slowdowns: usize,
    /// Cases that had a time and are wrong now.
    pub wrong: usize,
    /// Changed cases that could not be decided, probable slowdowns included.
    pub unclear: usize,
    /// What makes the records less comparable.
    pub warnings: Vec<String>,
}

impl GateReport {
    fn count(&self, verdict: GateVerdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// Exit code of a command that reports this: 1 for a confirmed slowdown or a case that became
    /// wrong, else 6 if a changed case is unclear, else 0. What did not change never counts.
    pub fn exit_code(&self) -> u8 {
        match (self.slowdowns + self.wrong, self.unclear) {
            (0, 0) => 0,
            (0, _) => 6,
            _ => 1,
        }
    }
}

/// Compares new records with earlier ones of the same kind, each side's of one build. Refuses, as a
/// usage error, records of different kinds or models, the same run twice on one side, no case in
/// common, and unless forced different adapters or software ones.
pub fn compare(base: &[Record], new: &[Record], force: bool) -> Result<GateReport> {
    let sides = [base, new];
    let [Some(first), Some(_)] = sides.map(<[Record]>::first) else {
        return Err(Error::Usage("nothing to compare: a side has no record".into()));
    };
    let mut warnings = Vec::new();
    let mut runs: [Vec<Vec<Measured>>; 2] = Default::default();
    let failed: Vec<String> = new.iter().flat_map(read::failed).cloned().collect();
    for ((side, records), runs) in ["earlier", "new"].into_iter().zip(sides).zip(&mut runs) {
        for (at, record) in records.iter().enumerate() {
            let name = match records.len() {
                1 => format!("the {side} run"),
                _ => format!("{side} run {}", at + 1),
            };
            environments(&first.environment, &record.environment, &name, force, &mut warnings)?;
            read::same_subject(first, record, &mut warnings)?;
            let cases = measured(record)?;
            if runs.iter().any(|other| same_run(other, &cases)) {
                return Err(Error::Usage(format!(
                    "{name} is another record's run once more: give each run once"
                )));
            }
            runs.push(cases);
        }
    }
    let cases = matched(&runs, &failed);
    for text in &failed {
        if !cases.iter().any(|case| case.present[0] && case.wrong.as_ref() == Some(text)) {
            warnings.push(format!("no result in the new run, and no time before: {text}"));
        }
    }
    if !cases.iter().any(|case| case.present[0] && (case.present[1] || case.wrong.is_some())) {
        return Err(Error::Usage("the records have no case in common".into()));
    }
    let mut report = judge(cases, sides.map(<[Record]>::len));
    let missing = report.count(GateVerdict::Missing);
    if missing > 0 {
        warnings.push(format!(
            "{missing} of the earlier cases missing in the new run: measure there too what still \
             exists"
        ));
    }
    if report.control.is_none() && report.cases.iter().any(|case| case.ratio.is_some()) {
        warnings.push(
            "no unchanged case to tell the machine from the change by: measure some kernel in both \
             that did not change"
                .into(),
        );
    }
    let moved = report.count(GateVerdict::Machine);
    if moved > 0 {
        warnings.push(format!(
            "{moved} case(s) of unchanged source moved with the machine or carry a flag"
        ));
    }
    let mut seen = HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    report.warnings = warnings;
    Ok(report)
}

/// Whether a record can be compared with the first one, and what to mind.
fn environments(
    first: &Environment,
    other: &Environment,
    name: &str,
    force: bool,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let mut refuse = |reason: String| {
        if !force {
            return Err(Error::Usage(format!("{reason}; --force compares all the same")));
        }
        warnings.push(format!("{reason} (forced)"));
        Ok(())
    };
    let show = |e: &Environment| format!("{} ({}, {})", e.adapter, e.driver, e.backend);
    let (was, is) = (show(first), show(other));
    if was != is {
        refuse(format!("records of different adapters or drivers: {was} and {is}"))?;
    }
    if other.software {
        let adapter = &other.adapter;
        refuse(format!("{adapter} is a software adapter, no subject for speed claims"))?;
    }
    for (what, was, is) in [
        ("wgpu's run-time checks", &first.runtime_checks, &other.runtime_checks),
        ("wgpu, which compiles equal source to other code,", &first.wgpu, &other.wgpu),
        ("system", &first.os, &other.os),
    ] {
        if was != is {
            warnings.push(format!("{what} differs: {was} and {is}"));
        }
    }
    match other.canary_drift {
        Some(drift) if drift.abs() <= FLOOR => {}
        Some(drift) => {
            warnings.push(format!("the canary moved by {:.1} % during {name}", 100.0 * drift));
        }
        None => warnings.push(format!("{name} had no canary")),
    }
    if let (Some(was), Some(is)) = (first.copy_gb_s, other.copy_gb_s)
        && (is / was).ln().abs() > FLOOR.ln_1p()
    {
        warnings.push(format!(
            "measured copy bandwidth differs: {was:.0} and {is:.0} GB/s; the machine changed"
        ));
    }
    Ok(())
}

/// Two records of one run, which would pass for two: in every case most samples are the same to the
/// last bit, which those of two runs never are.
fn same_run(one: &[Measured], other: &[Measured]) -> bool {
    let alike = |(x, y): (&Measured, &Measured)| {
        let equal = x.us.iter().zip(&y.us).filter(|(x, y)| x == y).count();
        x.key == y.key && x.us.len() == y.us.len() && (x.us == y.us || 2 * equal > x.us.len())
    };
    !one.is_empty() && one.len() == other.len() && one.iter().zip(other).all(alike)
}

/// One case of all runs.
#[derive(Default)]
struct Case {
    key: String,
    /// Whether the earlier records have it, and the new ones.
    present: [bool; 2],
    /// Median of the runs' medians, microseconds.
    us: [Option<f64>; 2],
    /// Of the earlier records and of the new ones.
    runs: [Vec<Run>; 2],
    warm: Option<Ratio>,
    changed: bool,
    /// What the new record says of it, if it has no result there.
    wrong: Option<String>,
    /// Why it is unclear.
    unclear: Vec<String>,
    notes: Vec<String>,
    /// Standard deviation from run to run.
    run_to_run: f64,
    /// Least threshold.
    floor: f64,
}

/// One case of one run.
#[derive(Clone, Copy)]
struct Run {
    /// Which record of its side.
    record: usize,
    /// Log of its time, or of its time over the earlier ones'.
    log: f64,
    /// Standard error of that by the run's own samples.
    error: f64,
}

impl Case {
    /// Whether it has a time on both sides that nothing speaks against.
    fn is_clear(&self) -> bool {
        self.wrong.is_none() && self.unclear.is_empty() && self.runs.iter().all(|r| !r.is_empty())
    }

    fn is_control(&self) -> bool {
        !self.changed && self.is_clear()
    }
}

/// Variance of [`change`] where runs differ by this standard deviation.
fn variance(runs: &[Vec<Run>; 2], run_to_run: f64) -> f64 {
    let of = |runs: &Vec<Run>| {
        let n = runs.len() as f64;
        runs.iter().map(|run| run_to_run.powi(2) + run.error.powi(2)).sum::<f64>() / (n * n)
    };
    runs.iter().map(of).sum()
}

/// Log of new over base.
fn change(runs: &[Vec<Run>; 2]) -> f64 {
    mean(runs[1].iter().map(|run| run.log)) - mean(runs[0].iter().map(|run| run.log))
}

/// New over base, where both sides have runs.
fn ratio(runs: &[Vec<Run>; 2], variance: f64) -> Option<Ratio> {
    let (change, reach) = (change(runs), Z95 * variance.sqrt());
    let ends = (change - reach, change + reach);
    runs.iter().all(|runs| !runs.is_empty()).then(|| Ratio::exp(change, ends))
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// The cases of all runs, in the order of the earlier ones, then new ones.
fn matched(runs: &[Vec<Vec<Measured>>; 2], failed: &[String]) -> Vec<Case> {
    let mut order: Vec<&str> = Vec::new();
    let mut found: HashMap<&str, read::Sides> = HashMap::new();
    for (side, records) in runs.iter().enumerate() {
        for (record, cases) in records.iter().enumerate() {
            for case in cases {
                let of = found.entry(&case.key).or_insert_with(|| {
                    order.push(&case.key);
                    read::Sides::default()
                });
                of[side].push((record, case));
            }
        }
    }
    order.into_iter().map(|key| read::case(key, &found[key], failed)).collect()
}

/// Takes the machine off, sets the thresholds, gives the verdicts.
fn judge(mut cases: Vec<Case>, records: [usize; 2]) -> GateReport {
    let shifts = [0, 1].map(|side| -> Vec<f64> {
        (0..records[side]).map(|record| shift(&cases, side, record)).collect()
    });
    for case in &mut cases {
        for (runs, shifts) in case.runs.iter_mut().zip(&shifts) {
            runs.iter_mut().for_each(|run| run.log -= shifts[run.record]);
            // One run further away than that could move the mean beyond the threshold by itself.
            let (low, high) = runs
                .iter()
                .fold((f64::MAX, f64::MIN), |(l, h), run| (run.log.min(l), run.log.max(h)));
            if high - low > APART * case.run_to_run {
                let percent = 100.0 * (high - low).exp_m1();
                case.unclear.push(format!("runs of one side lie {percent:.1} % apart"));
            }
        }
    }
    let controls: Vec<&Case> = cases.iter().filter(|case| case.is_control()).collect();
    let control = (!controls.is_empty()).then(|| {
        let [base, new] = [0, 1].map(|side| mean(shifts[side].iter().copied()));
        let spread = controls.iter().map(|case| change(&case.runs).abs());
        GateControl {
            cases: controls.len(),
            shift: (new - base).exp(),
            spread: percentile95(spread).exp_m1(),
        }
    });
    let wider = wider(&cases, &controls);
    // The shift is a median, whose variance is π/2 times that of the mean.
    let of_shift = match controls.len() {
        0 => 0.0,
        n => {
            let of = |case: &&Case| variance(&case.runs, wider * case.run_to_run);
            std::f64::consts::FRAC_PI_2 * mean(controls.iter().map(of)) / n as f64
        }
    };
    let tests = cases.iter().filter(|case| case.changed && case.is_clear()).count().max(1);
    let z = stats::normal_quantile(FALSE_REPORTS / tests as f64);
    let cases = cases
        .into_iter()
        .map(|case| {
            let variance = variance(&case.runs, wider * case.run_to_run) + of_shift;
            verdict(case, variance, z)
        })
        .collect();
    let mut report =
        GateReport { cases, control, slowdowns: 0, wrong: 0, unclear: 0, warnings: Vec::new() };
    report.slowdowns = report.count(GateVerdict::Slowdown);
    report.wrong = report.count(GateVerdict::Wrong);
    report.unclear = report.count(GateVerdict::Unclear) + report.count(GateVerdict::Probable);
    report
}

/// What a run shows of the controls in common, over what lies between the sides: either side can
/// be the earlier one.
fn shift(cases: &[Case], side: usize, record: usize) -> f64 {
    let of = |case: &Case| {
        let run = case.runs[side].iter().find(|run| run.record == record)?;
        let [base, new] = case.runs.each_ref().map(|runs| mean(runs.iter().map(|run| run.log)));
        Some(run.log - (base + new) / 2.0)
    };
    let logs: Vec<f64> = cases.iter().filter(|case| case.is_control()).filter_map(of).collect();
    if logs.is_empty() { 0.0 } else { paired::median(&logs) }
}

/// How many times further runs lie apart than they should: by the controls, and by the runs of a
/// side, each over what is expected of it. The 95th percentile, over the normal distribution's, and
/// not the largest: a few cases that lie apart shall not blind the rest.
fn wider(cases: &[Case], controls: &[&Case]) -> f64 {
    let of_controls = controls
        .iter()
        .map(|case| change(&case.runs).abs() / variance(&case.runs, case.run_to_run).sqrt());
    let mut of_runs = Vec::new();
    for (case, runs) in cases.iter().flat_map(|case| case.runs.iter().map(move |r| (case, r))) {
        let (n, mean) = (runs.len() as f64, mean(runs.iter().map(|run| run.log)));
        for run in runs.iter().filter(|_| runs.len() > 1) {
            // The mean of n has taken one of their n degrees of freedom.
            let expected = (case.run_to_run.powi(2) + run.error.powi(2)) * (n - 1.0) / n;
            of_runs.push((run.log - mean).abs() / expected.sqrt());
        }
    }
    let most = percentile95(of_controls).max(percentile95(of_runs.into_iter()));
    (most / Z95).max(1.0)
}

/// The 95th percentile; 0 of nothing.
fn percentile95(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    stats::quantile(&values, 0.95)
}

/// The verdict on a case whose change has this variance, `z` standard errors being a slowdown.
fn verdict(case: Case, variance: f64, z: f64) -> GateCase {
    let ratio = ratio(&case.runs, variance);
    let threshold = case.floor.max((z * variance.sqrt()).exp_m1());
    let within = |ratio: f64, zone: f64| (1.0 / (1.0 + zone)..=1.0 + zone).contains(&ratio);
    let few = case.runs.iter().any(|runs| runs.len() == 1);
    let verdict = match (case.present, ratio) {
        ([true, _], _) if case.wrong.is_some() => GateVerdict::Wrong,
        ([_, false], _) => GateVerdict::Missing,
        ([false, _], _) => GateVerdict::New,
        (_, Some(ratio)) if case.is_clear() => match ratio.median {
            median if within(median, threshold) && !case.changed => GateVerdict::Same,
            _ if !case.changed => GateVerdict::Machine,
            median if within(median, threshold) => {
                match within(ratio.low, LARGE) && within(ratio.high, LARGE) {
                    true => GateVerdict::Same,
                    false => GateVerdict::Unclear,
                }
            }
            median if median < 1.0 => GateVerdict::Faster,
            median if few && median < 1.0 + LARGE => GateVerdict::Probable,
            _ => GateVerdict::Slowdown,
        },
        _ if case.changed => GateVerdict::Unclear,
        _ => GateVerdict::Machine,
    };
    let mut notes: Vec<String> = case.wrong.into_iter().chain(case.unclear).collect();
    if verdict == GateVerdict::Unclear && notes.is_empty() {
        notes.push(format!("the interval reaches beyond ±{:.0} %", 100.0 * LARGE));
    }
    notes.extend(case.notes);
    GateCase {
        key: case.key,
        base_us: case.us[0],
        new_us: case.us[1],
        ratio,
        threshold: ratio.map(|_| threshold),
        changed: case.changed,
        verdict,
        warm: case.warm,
        note: notes.join("; "),
    }
}

#[cfg(test)]
mod tests;
