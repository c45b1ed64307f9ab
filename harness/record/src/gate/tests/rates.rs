//! Error rates and power of the gate: simulated reports, and the committed records.

use std::path::Path;

use super::*;

/// Normal with true tails (Box and Muller), which twelve uniforms have not.
fn normal(rng: &mut Rng) -> f64 {
    let mut uniform = || ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (r, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
    r * angle.cos()
}

/// Settings of simulated runs.
#[derive(Clone, Copy)]
struct Simulated<'a> {
    /// Records a side.
    runs: usize,
    /// Changed cases.
    changed: usize,
    /// Cases of unchanged source.
    controls: usize,
    /// Standard deviation from run to run, a case.
    between: f64,
    /// Standard deviation from run to run, common to all cases.
    common: f64,
    /// Deviations to draw from, in the place of normal ones.
    drawn: &'a [f64],
    /// Factor on the time of the first changed case.
    slow: f64,
}

const PLAIN: Simulated = Simulated {
    runs: 1,
    changed: 100,
    controls: 0,
    between: KERNEL_RUNS,
    common: 0.0,
    drawn: &[],
    slow: 1.0,
};

/// A report on cases as they come out of records, their times drawn.
fn simulate(seed: u64, of: Simulated) -> GateReport {
    let mut rng = Rng::derive(seed, "a simulated gate");
    let shifts: Vec<f64> = (0..2 * of.runs).map(|_| of.common * normal(&mut rng)).collect();
    let cases = (0..of.changed + of.controls).map(|at| {
        let mut point = |side: usize, run: usize| {
            let slow = if (at, side) == (0, 1) { of.slow.ln() } else { 0.0 };
            let own = match of.drawn.len() {
                0 => of.between * normal(&mut rng),
                n => {
                    let sign = if rng.below(2) == 0 { 1.0 } else { -1.0 };
                    sign * of.drawn[rng.below(n as u32) as usize]
                }
            };
            let log = 2.0 + slow + own + shifts[side * of.runs + run];
            Point { run, log, error: 0.001 }
        };
        let points = [0, 1].map(|side| (0..of.runs).map(|run| point(side, run)).collect());
        Case {
            key: at.to_string(),
            us: [1.0; 2],
            points,
            changed: at < of.changed,
            run_to_run: KERNEL_RUNS,
            floor: FLOOR,
            ..Case::default()
        }
    });
    let mut report = GateReport::default();
    judge(cases.collect(), [of.runs; 2], &mut report);
    report
}

/// Percentage of `reports` simulated reports that fulfil a condition.
fn percent(reports: u64, of: Simulated, holds: fn(&GateReport) -> bool) -> f64 {
    let held = (0..reports).into_par_iter().filter(|seed| holds(&simulate(*seed, of))).count();
    100.0 * held as f64 / reports as f64
}

fn exits_1(report: &GateReport) -> bool {
    report.exit_code() == 1
}

fn finds_the_first(report: &GateReport) -> bool {
    report.cases[0].verdict == Verdict::Slower
}

#[test]
fn a_report_of_100_changed_cases_is_wrong_in_1_percent_at_most() {
    for between in [0.005, 0.0075] {
        for runs in [1, 2, 3, 5] {
            for changed in [1, 10, 100] {
                let of = Simulated { runs, between, changed, ..PLAIN };
                let (exit, called) =
                    (percent(3000, of, exits_1), percent(3000, of, calls_a_slowdown));
                eprintln!(
                    "{changed} changed, none slower, run to run {:.2} %, {runs} a side: exit 1 in \
                     {exit:.2} % of reports, a slowdown or a probable one in {called:.2} %",
                    100.0 * between
                );
                assert!(exit <= 1.0 && called <= 1.0);
            }
        }
    }
}

#[test]
fn three_runs_a_side_find_3_percent() {
    for between in [0.005, 0.0075] {
        for (changed, controls) in [(1, 0), (10, 0), (100, 0), (1, 9), (10, 90), (100, 100)] {
            let of = Simulated { runs: 3, slow: 1.03, between, changed, controls, ..PLAIN };
            let found = percent(2000, of, finds_the_first);
            eprintln!(
                "3 % slower, {changed} changed, {controls} unchanged, run to run {:.2} %, three a \
                 side: found {found:.1} %",
                100.0 * between
            );
            assert!(found >= 80.0);
        }
    }
    let one = Simulated { slow: 1.07, ..PLAIN };
    assert!(percent(1000, one, finds_the_first) >= 90.0, "7 %, one a side");
    let one = Simulated { slow: 1.04, ..PLAIN };
    let confirmed = percent(1000, one, finds_the_first);
    assert!(confirmed < 20.0, "4 % by one record a side is at most probable: {confirmed}");
}

/// The controls remove the shift that all cases share, and widen the threshold where runs differ
/// more than expected.
#[test]
fn unchanged_cases_carry_the_machine() {
    for (between, common) in [(0.005, 0.03), (0.0075, 0.01), (0.02, 0.0), (0.02, 0.02)] {
        for runs in [1, 3] {
            let of = Simulated { runs, between, common, changed: 50, controls: 50, ..PLAIN };
            let called = percent(1000, of, calls_a_slowdown);
            let found = percent(1000, Simulated { slow: 1.03, ..of }, finds_the_first);
            eprintln!(
                "50 changed, 50 not, run to run {:.2} % and all together {:.0} %, {runs} a side: \
                 a slowdown in {called:.1} % of reports; 3 % found {found:.0} %",
                100.0 * between,
                100.0 * common
            );
            // Far noisier than any record says, the spread is known from the cases alone.
            assert!(called <= if between > KERNEL_RUNS { 5.0 } else { 1.0 });
            assert!(found >= 80.0 || runs == 1 || between > KERNEL_RUNS);
        }
    }
    // Without a control nobody can tell.
    let of = Simulated { common: 0.03, ..PLAIN };
    assert!(percent(300, of, calls_a_slowdown) > 10.0, "why a report says that it has no control");
}

/// Difference of two committed results of equal source, in logs, over √2: of one run. With cases that
/// carry a flag, or without.
fn committed_deviations(flagged: bool) -> Vec<f64> {
    let file = Path::new("../../benches/records/nvidia-h200.csv");
    let runs = Run::read(file).unwrap();
    let of = |run: &Run| -> HashMap<String, Row> {
        let bench = run.rows.iter().filter(|row| row.kind == Kind::Bench);
        bench.map(|row| (row.key(), row.clone())).collect()
    };
    let runs: Vec<HashMap<String, Row>> = runs.iter().map(of).collect();
    let mut found = Vec::new();
    for (at, base) in runs.iter().enumerate() {
        for (x, y) in runs[at + 1..]
            .iter()
            .flat_map(|new| base.iter().filter_map(|(key, row)| Some((row, new.get(key)?))))
        {
            let clear = x.flags.is_empty() && y.flags.is_empty();
            // The gate compares nothing that was measured otherwise.
            if x.source == y.source && x.how == y.how && (flagged || clear) {
                found.push((y.median_us / x.median_us).ln() / 2f64.sqrt());
            }
        }
    }
    found.sort_by(f64::total_cmp);
    found
}

#[test]
fn runs_differ_by_no_more_than_is_said() {
    let mut deviations: Vec<f64> = committed_deviations(true).iter().map(|d| d.abs()).collect();
    deviations.sort_by(f64::total_cmp);
    let sd = (deviations.iter().map(|d| d * d).sum::<f64>() / deviations.len() as f64).sqrt();
    let robust = 1.4826 * paired::median(&deviations);
    eprintln!(
        "{} pairs of equal source in committed records: a run's sd {:.2} %, robust {:.2} %, 95th \
         percentile {:.2} %, largest {:.2} %",
        deviations.len(),
        100.0 * sd,
        100.0 * robust,
        100.0 * stats::quantile(&deviations, 0.95),
        100.0 * stats::quantile(&deviations, 1.0)
    );
    assert!(deviations.len() >= 50 && robust < KERNEL_RUNS && sd <= KERNEL_RUNS, "{sd} {robust}");
}

#[test]
fn deviations_as_in_the_committed_records_give_no_slowdown() {
    let drawn = committed_deviations(false);
    for runs in [1, 3, 5] {
        let of = Simulated { runs, drawn: &drawn, ..PLAIN };
        let (exit, called) = (percent(2000, of, exits_1), percent(2000, of, calls_a_slowdown));
        let found = percent(1000, Simulated { slow: 1.03, ..of }, finds_the_first);
        eprintln!(
            "100 changed, deviations of committed records, {runs} a side: exit 1 in {exit:.2} % of \
             reports, a slowdown or a probable one in {called:.2} %; 3 % found {found:.0} %"
        );
        assert!(exit <= 1.0);
        assert!(found >= 80.0 || runs == 1);
    }
}
