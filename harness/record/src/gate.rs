//! The regression gate: is a saved run slower than an earlier one?
//!
//! A run says one number of a case, the median of its samples. Runs of one build differ by more than
//! their samples show (clocks, temperature, the place of buffers), so the run is the unit of
//! evidence: the change of a case is the difference of the sides' means over runs, in logs, and its
//! standard error comes from the distance of runs, `KERNEL_RUNS` at least. The threshold is that
//! error times the normal quantile at which the whole report, however many cases it has, calls a
//! slowdown where there is none in a share `FALSE_REPORTS` of all reports at most.
//!
//! Only a case whose source changed can fail. Cases of equal source are the control: the shift that
//! they have in common in each run is the machine's and is taken off every case, and where they lie
//! further apart than runs should, the threshold grows by as much.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::paired::Verdict;
use super::record::Environment;
use super::row::{Kind, Row, Run, what};
use super::{Ratio, add_new, paired, stats};
use crate::error::{Error, Result};

/// Smallest threshold, as a fraction. More runs make the error of a mean small, but all runs of a
/// side may share a day, and days differ.
pub const FLOOR: f64 = 0.02;

/// Share of reports that may call a slowdown where there is none: 1 % is promised, and spreads are
/// not quite normal.
const FALSE_REPORTS: f64 = 0.008;

/// Standard deviation of a kernel's median from run to run: of the cases of equal source in the
/// committed records, all tails included (a test compares).
const KERNEL_RUNS: f64 = 0.0075;

/// Standard deviation of a decode's time by the host's clock, from run to run: six pairs of
/// decodes, docs/findings/gate-on-a-real-gpu.md.
const HOST_RUNS: f64 = 0.015;

/// Smallest change that one record a side may confirm. A case is the same only where it is excluded.
const LARGE: f64 = 0.05;

/// Distance of runs of one side, in standard deviations, beyond which they are no runs of one
/// build: 1 in 10 000 of three normal ones lies there.
const APART: f64 = 6.0;

/// Two-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.96;

/// One case of both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GateCase {
    /// Name of the case ([`Row::key`]).
    pub key: String,
    /// Median of the earlier runs' medians, microseconds.
    pub base_us: f64,
    /// Median of the new ones'.
    pub new_us: f64,
    /// New over base, less the shift of the unchanged cases, with its 95 % interval; none where a
    /// side has no time to rely on.
    pub ratio: Option<Ratio>,
    /// Ratios from `1 / (1 + threshold)` to `1 + threshold` are no change.
    pub threshold: f64,
    /// Its source differs, or is not known to be equal: only such a case can fail.
    pub changed: bool,
    /// Verdict on the new side.
    pub verdict: Verdict,
    /// Reason for an inconclusive verdict, and remarks; may be empty.
    pub reason: String,
}

/// Shift of the cases of unchanged source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Control {
    /// Number of these cases with times to rely on.
    pub cases: usize,
    /// Their median ratio, new over base: divided out of every case.
    pub shift: f64,
    /// Distance from the shift within which nineteen of twenty of them lie, as a fraction.
    pub spread: f64,
}

/// Earlier and new runs compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GateReport {
    /// Cases of both sides, in the order of the earlier runs.
    pub cases: Vec<GateCase>,
    /// Shift of unchanged cases; none where no case has the same source in both.
    pub control: Option<Control>,
    /// Cases that had a time and are wrong now, each with its reason.
    pub wrong: Vec<String>,
    /// Cases of the earlier runs alone.
    pub missing: Vec<String>,
    /// Cases of the new runs alone.
    pub new: Vec<String>,
    /// Circumstances that make the runs less comparable.
    pub warnings: Vec<String>,
}

impl GateReport {
    /// Changed cases of a verdict: no other case counts.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.changed && case.verdict == verdict).count()
    }

    /// Exit code of a command that reports this: 1 for a slowdown or a case that became wrong, else
    /// 6 if a changed case is inconclusive, else 0.
    pub fn exit_code(&self) -> u8 {
        match (self.count(Verdict::Slower) + self.wrong.len(), self.count(Verdict::Inconclusive)) {
            (0, 0) => 0,
            (0, _) => 6,
            _ => 1,
        }
    }
}

/// Compares new runs with earlier ones of the same kind, each side's of one build.
///
/// # Errors
/// Usage: runs of different kinds, the same run twice on one side, no case in common, and unless
/// forced different adapters or software ones.
pub fn compare(base: &[Run], new: &[Run], force: bool) -> Result<GateReport> {
    let sides = [base, new];
    let [Some(first), Some(_)] = sides.map(<[Run]>::first) else {
        return Err(Error::Usage("nothing to compare: a side has no run".into()));
    };
    let mut report = GateReport::default();
    for (side, runs) in ["earlier", "new"].into_iter().zip(sides) {
        for (at, run) in runs.iter().enumerate() {
            let name = match runs.len() {
                1 => format!("the {side} run"),
                _ => format!("{side} run {}", at + 1),
            };
            environments(&first.environment, &run.environment, &name, force, &mut report.warnings)?;
            same_kind(first, run)?;
            if runs[..at].iter().any(|other| same_run(other, run)) {
                return Err(Error::Usage(format!(
                    "{name} is another file's run once more: give each run once"
                )));
            }
        }
    }
    let cases = matched(&sides, &mut report)?;
    if cases.is_empty() && report.wrong.is_empty() {
        return Err(Error::Usage("the runs have no case in common".into()));
    }
    judge(cases, sides.map(<[Run]>::len), &mut report);
    if !report.missing.is_empty() {
        report.warnings.push(format!(
            "{} of the earlier cases missing in the new run: measure there too what still exists",
            report.missing.len()
        ));
    }
    if report.control.is_none() && report.cases.iter().any(|case| case.ratio.is_some()) {
        report.warnings.push(
            "no unchanged case to tell the machine from the change by: measure some kernel in both \
             that did not change"
                .into(),
        );
    }
    let mut seen = HashSet::new();
    report.warnings.retain(|warning| seen.insert(warning.clone()));
    Ok(report)
}

/// Refuses a run that cannot be compared with the first one; warns of differences.
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

fn same_kind(first: &Run, run: &Run) -> Result<()> {
    let [was, is] = [first, run].map(|run| run.rows.first().map_or("bench", |row| what(row.kind)));
    if was != is {
        return Err(Error::Usage(format!(
            "one record is of a {was}, the other of a {is}; nothing to compare"
        )));
    }
    if is == what(Kind::Ab) {
        let text = "an A/B record holds its own comparison; compare bench or profile records";
        return Err(Error::Usage(text.into()));
    }
    Ok(())
}

/// Returns true if two runs are one: figures of two runs are never equal in every case.
fn same_run(one: &Run, other: &Run) -> bool {
    let figures = |row: &Row| (row.key(), row.n, row.median_us, row.noise);
    !one.rows.is_empty() && one.rows.iter().map(figures).eq(other.rows.iter().map(figures))
}

/// One case of one run.
#[derive(Clone, Copy)]
struct Point {
    /// Place of its run on its side.
    run: usize,
    /// Log of its time.
    log: f64,
    /// Standard error of that by the run's own samples.
    error: f64,
}

/// One case of all runs.
#[derive(Default)]
struct Case {
    /// Its entry in the report, so far without a verdict.
    entry: GateCase,
    /// Points of the earlier runs and of the new ones.
    points: [Vec<Point>; 2],
    /// Reasons not to trust or not to compare the times.
    unclear: Vec<String>,
    /// Remarks for the reader.
    notes: Vec<String>,
    /// Standard deviation from run to run.
    run_to_run: f64,
    /// Least threshold.
    floor: f64,
}

impl Case {
    fn is_clear(&self) -> bool {
        self.unclear.is_empty() && self.points.iter().all(|points| !points.is_empty())
    }

    fn is_control(&self) -> bool {
        !self.entry.changed && self.is_clear()
    }
}

/// A case of the earlier runs and of the new ones, each with the place of its run.
type Sides<'a> = [Vec<(usize, &'a Run, &'a Row)>; 2];

/// The cases that both sides have; the others go into the report.
fn matched(sides: &[&[Run]; 2], report: &mut GateReport) -> Result<Vec<Case>> {
    let mut order: Vec<String> = Vec::new();
    let mut found: HashMap<String, Sides<'_>> = HashMap::new();
    let mut failed: Vec<(String, &str)> = Vec::new();
    for (side, runs) in sides.iter().enumerate() {
        for (at, run) in runs.iter().enumerate() {
            for row in &run.rows {
                let key = row.key();
                match row.kind {
                    Kind::Stage | Kind::Beside | Kind::Ab => continue,
                    Kind::Failed if side == 1 => failed.push((key, &row.flags)),
                    Kind::Failed => {}
                    _ => {
                        let of = found.entry(key.clone()).or_insert_with(|| {
                            order.push(key.clone());
                            Sides::default()
                        });
                        if of[side].last().is_some_and(|(other, ..)| *other == at) {
                            return Err(Error::Usage(format!("{key} is twice in one run")));
                        }
                        of[side].push((at, run, row));
                    }
                }
            }
        }
    }
    for (key, reason) in failed {
        match found.get(&key).is_some_and(|sides| !sides[0].is_empty()) {
            true => {
                report.wrong.push(format!("{key}: {reason}"));
                found.remove(&key);
            }
            false => report
                .warnings
                .push(format!("no result in the new run, and no time before: {key}: {reason}")),
        }
    }
    let mut cases = Vec::new();
    for key in order {
        let Some(sides) = found.get(&key) else { continue };
        match sides.each_ref().map(Vec::is_empty) {
            [false, false] => cases.push(case(key, sides)),
            [_, true] => report.missing.push(key),
            [true, _] => report.new.push(key),
        }
    }
    Ok(cases)
}

/// Fewest samples of a median.
fn fewest(kind: Kind) -> usize {
    if matches!(kind, Kind::Test | Kind::Suite) { 3 } else { 5 }
}

/// Standard deviation of a median from run to run.
fn run_to_run(row: &Row) -> f64 {
    // The unprofiled step has tokens a second, operations have none.
    let by_host = match row.kind {
        Kind::Bench => row.how.starts_with("wall"),
        Kind::Profile => row.tok_s.is_some(),
        _ => true,
    };
    if by_host { HOST_RUNS } else { KERNEL_RUNS }
}

fn case(key: String, sides: &Sides<'_>) -> Case {
    // Flagged runs do not count where a side has others: measuring again mends an unclear case.
    let trusted = sides.each_ref().map(|side| {
        let clear =
            side.iter().filter(|(_, run, row)| row.flags.is_empty() && !run.environment.software);
        let clear: Vec<_> = clear.copied().collect();
        if clear.is_empty() { side.clone() } else { clear }
    });
    let all = || trusted.iter().flatten();
    let first = trusted[0][0].2;
    let median = |side: &[(usize, &Run, &Row)]| {
        paired::median(&side.iter().map(|(.., row)| row.median_us).collect::<Vec<_>>())
    };
    let mut case = Case {
        entry: GateCase {
            key,
            base_us: median(&trusted[0]),
            new_us: median(&trusted[1]),
            changed: first.source.is_empty() || all().any(|(.., row)| row.source != first.source),
            ..GateCase::default()
        },
        run_to_run: all().map(|(.., row)| run_to_run(row)).fold(0.0, f64::max),
        floor: all()
            .map(|(_, run, _)| run.environment.canary_drift.unwrap_or(0.0).abs())
            .fold(FLOOR, f64::max),
        ..Case::default()
    };
    for (at, side) in trusted.iter().enumerate() {
        let usable = |row: &Row| row.n >= fewest(row.kind) && paired::usable(&row.median_us);
        let mut doubts: Vec<&str> = Vec::new();
        add_new(&mut doubts, side.iter().flat_map(|(.., row)| row.flags()));
        add_new(
            &mut doubts,
            side.iter()
                .filter(|(_, run, _)| run.environment.software)
                .map(|_| "of a software adapter"),
        );
        if side.iter().any(|(.., row)| row.source != side[0].2.source) {
            doubts.push("of more than one build");
        }
        if !side.iter().all(|(.., row)| usable(row)) {
            doubts.push("too few samples, or one that is not a positive number");
        }
        if !doubts.is_empty() {
            let name = ["earlier", "new"][at];
            case.unclear.push(format!("{name} run: {}", doubts.join(", ")));
        }
        let points = side.iter().filter(|(.., row)| usable(row));
        case.points[at] = points
            .map(|(run, _, row)| Point {
                run: *run,
                log: row.median_us.ln(),
                error: row.noise / Z95,
            })
            .collect();
    }
    if let Some((.., other)) = all().find(|(.., row)| row.how != first.how) {
        case.unclear.push(format!("measured differently: {} and {}", first.how, other.how));
    }
    // Kernels are always judged before they are timed.
    let judged = |row: &Row| row.kind == Kind::Bench || row.nmse.is_some();
    let [was, is] = trusted.each_ref().map(|side| side.iter().all(|(.., row)| judged(row)));
    if was && !is {
        case.unclear.push("the earlier run was verified, the new one was not".into());
    }
    if !was && !is {
        case.notes.push("not verified".into());
    }
    let new = trusted[1][0].2;
    if first.variant != new.variant {
        case.notes.push(format!("{} became {}", first.variant, new.variant));
    }
    let left_out = sides.iter().flatten().count() - all().count();
    if left_out > 0 {
        case.notes.push(format!("{left_out} flagged run(s) left out"));
    }
    case
}

/// Variance of [`change`] where runs differ by this standard deviation.
fn variance(points: &[Vec<Point>; 2], run_to_run: f64) -> f64 {
    let of = |points: &Vec<Point>| {
        let n = points.len() as f64;
        points.iter().map(|p| run_to_run.powi(2) + p.error.powi(2)).sum::<f64>() / (n * n)
    };
    points.iter().map(of).sum()
}

/// Log of new over base.
fn change(points: &[Vec<Point>; 2]) -> f64 {
    let [base, new] = points.each_ref().map(|points| mean(points.iter().map(|p| p.log)));
    new - base
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// Takes the machine off, sets the thresholds, gives the verdicts.
fn judge(mut cases: Vec<Case>, runs: [usize; 2], report: &mut GateReport) {
    let shifts = [0, 1]
        .map(|side| (0..runs[side]).map(|run| shift(&cases, side, run)).collect::<Vec<f64>>());
    for case in &mut cases {
        for (points, shifts) in case.points.iter_mut().zip(&shifts) {
            points.iter_mut().for_each(|point| point.log -= shifts[point.run]);
            // One run further away than that could move the mean beyond the threshold by itself.
            let (low, high) =
                points.iter().fold((f64::MAX, f64::MIN), |(l, h), p| (p.log.min(l), p.log.max(h)));
            if high - low > APART * case.run_to_run {
                let percent = 100.0 * (high - low).exp_m1();
                case.unclear.push(format!("runs of one side lie {percent:.1} % apart"));
            }
        }
    }
    let controls: Vec<&Case> = cases.iter().filter(|case| case.is_control()).collect();
    report.control = (!controls.is_empty()).then(|| {
        let [base, new] = [0, 1].map(|side| mean(shifts[side].iter().copied()));
        let spread = controls.iter().map(|case| change(&case.points).abs());
        Control {
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
            let of = |case: &&Case| variance(&case.points, wider * case.run_to_run);
            std::f64::consts::FRAC_PI_2 * mean(controls.iter().map(of)) / n as f64
        }
    };
    let tests = cases.iter().filter(|case| case.entry.changed && case.is_clear()).count().max(1);
    let z = stats::normal_quantile(FALSE_REPORTS / tests as f64);
    let judged = cases.into_iter().map(|case| {
        let variance = variance(&case.points, wider * case.run_to_run) + of_shift;
        verdict(case, variance, z)
    });
    report.cases = judged.collect();
}

/// Shift of the controls in one run, over the middle of the sides: either can be the earlier one.
fn shift(cases: &[Case], side: usize, run: usize) -> f64 {
    let of = |case: &Case| {
        let point = case.points[side].iter().find(|point| point.run == run)?;
        let [base, new] = case.points.each_ref().map(|points| mean(points.iter().map(|p| p.log)));
        Some(point.log - (base + new) / 2.0)
    };
    let logs: Vec<f64> = cases.iter().filter(|case| case.is_control()).filter_map(of).collect();
    if logs.is_empty() { 0.0 } else { paired::median(&logs) }
}

/// Factor by which runs lie further apart than expected: by the controls, and by the runs of a
/// side. It is the 95th percentile over the normal distribution's, not the largest, so that a few
/// outlying cases do not blind the rest.
fn wider(cases: &[Case], controls: &[&Case]) -> f64 {
    let of_controls = controls
        .iter()
        .map(|case| change(&case.points).abs() / variance(&case.points, case.run_to_run).sqrt());
    let mut of_runs = Vec::new();
    for (case, points) in cases.iter().flat_map(|case| case.points.iter().map(move |p| (case, p))) {
        let (n, mean) = (points.len() as f64, mean(points.iter().map(|point| point.log)));
        for point in points.iter().filter(|_| points.len() > 1) {
            // The mean of n has taken one of their n degrees of freedom.
            let expected = (case.run_to_run.powi(2) + point.error.powi(2)) * (n - 1.0) / n;
            of_runs.push((point.log - mean).abs() / expected.sqrt());
        }
    }
    let most = percentile95(of_controls).max(percentile95(of_runs.into_iter()));
    (most / Z95).max(1.0)
}

/// The 95th percentile; 0 of nothing.
fn percentile95(values: impl Iterator<Item = f64>) -> f64 {
    stats::quantile(&values.collect::<Vec<_>>(), 0.95)
}

/// The verdict on a case whose change has this variance, `z` standard errors being a slowdown.
fn verdict(mut case: Case, variance: f64, z: f64) -> GateCase {
    let (clear, few) = (case.is_clear(), case.points.iter().any(|points| points.len() == 1));
    let (change, reach) = (change(&case.points), Z95 * variance.sqrt());
    let ratio = case.points.iter().all(|points| !points.is_empty());
    let ratio = ratio.then(|| Ratio::exp(change, (change - reach, change + reach)));
    let threshold = case.floor.max((z * variance.sqrt()).exp_m1());
    let within = |ratio: f64, zone: f64| (1.0 / (1.0 + zone)..=1.0 + zone).contains(&ratio);
    let verdict = match ratio.filter(|_| clear) {
        None => Verdict::Inconclusive,
        Some(ratio) if !case.entry.changed => match within(ratio.median, threshold) {
            true => Verdict::Same,
            false => {
                case.unclear.push("this code did not change: the machine did".into());
                Verdict::Inconclusive
            }
        },
        Some(ratio) if within(ratio.median, threshold) => {
            match within(ratio.low, LARGE) && within(ratio.high, LARGE) {
                true => Verdict::Same,
                false => {
                    let percent = 100.0 * LARGE;
                    case.unclear.push(format!("the interval reaches beyond ±{percent:.0} %"));
                    Verdict::Inconclusive
                }
            }
        }
        Some(ratio) if ratio.median < 1.0 => Verdict::Faster,
        Some(ratio) if few && ratio.median < 1.0 + LARGE => {
            case.unclear.push("probably slower, and one run a side is few".into());
            Verdict::Inconclusive
        }
        Some(_) => Verdict::Slower,
    };
    case.unclear.append(&mut case.notes);
    GateCase { ratio, threshold, verdict, reason: case.unclear.join("; "), ..case.entry }
}

#[cfg(test)]
mod tests;
