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

/// Percentages of simulated reports: with exit code 1; that call a slowdown or a probable one; and
/// that find the first case, were it `slow` times as slow.
fn rates(reports: u64, slow: f64, of: Simulated) -> [f64; 3] {
    let held = |seed| {
        let (report, slower) = (simulate(seed, of), simulate(seed, Simulated { slow, ..of }));
        let found = slower.cases[0].verdict == Verdict::Slower;
        [report.exit_code() == 1, calls_a_slowdown(&report), found]
    };
    let held: Vec<[bool; 3]> = (0..reports).into_par_iter().map(held).collect();
    let percent = |i: usize| held.iter().filter(|held| held[i]).count() as f64 * 100.0;
    let [exit, called, found] = [0, 1, 2].map(|i| percent(i) / reports as f64);
    eprintln!(
        "{} changed, {} unchanged, run to run {:.2} % and all together {:.0} %, {} drawn from \
         records, {} a side: exit 1 in {exit:.2} % of reports, a slowdown or a probable one in \
         {called:.2} %; {:.0} % found in {found:.1} %",
        of.changed,
        of.controls,
        100.0 * of.between,
        100.0 * of.common,
        of.drawn.len(),
        of.runs,
        100.0 * (slow - 1.0)
    );
    [exit, called, found]
}

#[test]
fn a_report_of_100_changed_cases_is_wrong_in_1_percent_at_most() {
    for between in [0.005, 0.0075] {
        for runs in [1, 2, 3, 5] {
            for changed in [1, 10, 100] {
                let of = Simulated { runs, between, changed, ..PLAIN };
                let [exit, called, found] = rates(3000, 1.03, of);
                assert!(exit <= 1.0 && called <= 1.0);
                assert!(found >= 80.0 || runs < 3, "three runs a side find 3 %");
            }
        }
        for (changed, controls) in [(1, 9), (10, 90), (100, 100)] {
            let of = Simulated { runs: 3, between, changed, controls, ..PLAIN };
            assert!(rates(2000, 1.03, of)[2] >= 80.0);
        }
    }
    assert!(rates(1000, 1.07, PLAIN)[2] >= 90.0, "one a side");
    assert!(rates(1000, 1.04, PLAIN)[2] < 20.0, "by one record a side at most probable");
}

/// The controls remove the shift that all cases share, and widen the threshold where runs differ
/// more than expected.
#[test]
fn unchanged_cases_carry_the_machine() {
    for (between, common) in [(0.005, 0.03), (0.0075, 0.01), (0.02, 0.0), (0.02, 0.02)] {
        for runs in [1, 3] {
            let of = Simulated { runs, between, common, changed: 50, controls: 50, ..PLAIN };
            let [_, called, found] = rates(1000, 1.03, of);
            // Far noisier than any record says, the spread is known from the cases alone.
            assert!(called <= if between > KERNEL_RUNS { 5.0 } else { 1.0 });
            assert!(found >= 80.0 || runs == 1 || between > KERNEL_RUNS);
        }
    }
    // Without a control nobody can tell: why a report says that it has none.
    assert!(rates(300, 1.03, Simulated { common: 0.03, ..PLAIN })[1] > 10.0);
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
        let [exit, _, found] = rates(2000, 1.03, Simulated { runs, drawn: &drawn, ..PLAIN });
        assert!(exit <= 1.0);
        assert!(found >= 80.0 || runs == 1);
    }
}
