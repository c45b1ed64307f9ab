//! The gate over simulated runs that it must pass or catch.

mod rates;

use rayon::prelude::*;

use super::*;
use crate::record::made_up::environment;
use crate::rng::Rng;

const CASES: usize = 10;

/// A run of ten kernels; one build differs from another by `slow` in the fourth, one run of a
/// build from the next by `between` (standard deviation) in each.
fn bench(seed: u64, noise: f64, between: f64, slow: f64) -> Run {
    let mut rng = Rng::derive(seed, "a simulated bench");
    let rows = (0..CASES).map(|i| {
        let us = 5.0 * (1 + i) as f64 * (between * f64::from(rng.normal())).exp();
        let us = if i == 3 { us * slow } else { us };
        let samples: Vec<f64> =
            (0..30).map(|_| us * (noise * f64::from(rng.normal())).exp()).collect();
        let all = stats::summarise(&samples);
        Row {
            subject: "gemv".into(),
            variant: "subgroup".into(),
            shape: format!("rows={},cols=1152", 64 << i),
            source: format!("{:08x}", if i == 3 && slow != 1.0 { 7 } else { i }),
            how: "GPU clock".into(),
            n: samples.len(),
            median_us: all.median,
            noise: all.noise,
            ..Row::default()
        }
    });
    Run { id: seed.to_string(), environment: environment(), rows: rows.collect() }
}

/// A run of four tests of a decode by the host's clock.
fn decode(seed: u64, slow: f64, commit: &str) -> Run {
    let mut rng = Rng::derive(seed, "a simulated decode");
    let rows = (0..4).map(|i| Row {
        kind: Kind::Test,
        subject: "a model".into(),
        shape: format!("tg{i}"),
        source: commit.into(),
        n: 5,
        median_us: 1e6 * slow * (HOST_RUNS * f64::from(rng.normal())).exp(),
        noise: 0.002,
        nmse: Some(1e-12),
        ..Row::default()
    });
    Run { id: seed.to_string(), environment: environment(), rows: rows.collect() }
}

fn gate(base: &Run, new: &Run) -> GateReport {
    one(base, new, false).unwrap()
}

/// Compares one run a side.
fn one(base: &Run, new: &Run, force: bool) -> Result<GateReport> {
    compare(std::slice::from_ref(base), std::slice::from_ref(new), force)
}

fn usage(result: Result<GateReport>) -> String {
    match result {
        Err(Error::Usage(text)) => text,
        other => panic!("no usage error: {other:?}"),
    }
}

/// Another source for every case.
fn all_changed(mut run: Run) -> Run {
    run.rows.iter_mut().for_each(|row| row.source.push_str("changed"));
    run
}

#[track_caller]
fn assert_undecided(case: &GateCase, reason: &str) {
    assert_eq!(case.verdict, Verdict::Inconclusive, "{case:?}");
    assert!(case.reason.contains(reason), "{case:?}");
}

fn said(report: &GateReport, text: &str) -> bool {
    report.warnings.iter().any(|warning| warning.contains(text))
}

/// A slowdown, or the probable one that a single record a side allows.
fn calls_a_slowdown(report: &GateReport) -> bool {
    let called = |case: &GateCase| case.changed && case.reason.contains("probably slower");
    report.count(Verdict::Slower) > 0 || report.cases.iter().any(called)
}

/// Medians and noise lead to the right report.
#[test]
fn runs_with_a_slower_case_fail_and_others_do_not() {
    const RUNS: u64 = 100;
    let side = |seed: u64, slow: f64| -> Vec<Run> {
        (0..3).map(|i| bench(3 * seed + i, 0.005, 0.004, slow)).collect()
    };
    let counts = (0..RUNS).into_par_iter().map(|run| {
        let base = side(2 * run, 1.0);
        let new = side(2 * run + 1, 1.03);
        let report = compare(&base, &new, false).unwrap();
        let changed: Vec<Run> = side(2 * run + 1, 1.0).into_iter().map(all_changed).collect();
        let equal = compare(&base, &changed, false).unwrap();
        let found = report.cases[3].verdict == Verdict::Slower;
        assert_eq!(report.count(Verdict::Slower), usize::from(found), "only the fourth can fail");
        let mirrored = compare(&new, &base, false).unwrap().cases[3].verdict;
        assert!(!found || mirrored == Verdict::Faster);
        (usize::from(found), usize::from(equal.exit_code() == 1))
    });
    let (found, wrong) = counts.reduce(|| (0, 0), |x, y| (x.0 + y.0, x.1 + y.1));
    eprintln!("runs of ten cases, three a side: 3 % found {found} %, exit 1 without {wrong} %");
    assert!(found >= 90 && wrong <= 1, "{found} {wrong}");
}

/// Runs whose means differ by 1.5 % (standard deviation), as decodes of one build did.
#[test]
fn three_runs_a_side_find_a_decode_7_percent_slower() {
    let side = |seed: u64, slow: f64, commit: &str| -> Vec<Run> {
        (0..3).map(|i| decode(3 * seed + i, slow, commit)).collect()
    };
    let counts = (0..1000).into_par_iter().map(|run| {
        let base = side(3 * run, 1.0, "one");
        let judge = |new: &[Run]| compare(&base, new, false).unwrap();
        let wrong = judge(&side(3 * run + 1, 1.0, "two")).exit_code() == 1;
        let found = judge(&side(3 * run + 2, 1.07, "two")).count(Verdict::Slower) == 4;
        // Of one build the machine is slower.
        assert_eq!(judge(&side(3 * run + 2, 1.07, "one")).exit_code(), 0);
        (usize::from(wrong), usize::from(found))
    });
    let (wrong, found) = counts.reduce(|| (0, 0), |x, y| (x.0 + y.0, x.1 + y.1));
    eprintln!("four tests, three runs a side: exit 1 without {wrong}, all found {found} of 1000");
    assert!(wrong <= 10 && found >= 900, "{wrong} {found} of 1000");
}

type Change = fn(&mut Row);

/// A fourth case that is 20 % slower, and conditions that take the verdict away.
#[test]
fn only_a_changed_source_measured_alike_without_a_flag_is_a_slowdown() {
    let changes: [(Change, &str); 6] = [
        (|row| row.flags = "noisy; drift".into(), "noisy, drift"),
        (|row| row.how = "wall clock".into(), "measured differently: "),
        (|row| row.n = 4, "too few samples"),
        (|row| row.median_us = 0.0, "not a positive number"),
        (|row| row.median_us = f64::NAN, "not a positive number"),
        (|_| {}, ""),
    ];
    for (change, reason) in changes {
        for changed in [true, false] {
            let (base, mut new) = (bench(1, 0.001, 0.0, 1.0), bench(2, 0.001, 0.0, 1.2));
            if !changed {
                new.rows[3].source.clone_from(&base.rows[3].source);
            }
            change(&mut new.rows[3]);
            let report = gate(&base, &new);
            let case = &report.cases[3];
            let expected = match (changed, reason) {
                (true, "") => (Verdict::Slower, 1),
                (true, _) => (Verdict::Inconclusive, 6),
                (false, _) => (Verdict::Inconclusive, 0),
            };
            assert_eq!((case.verdict, report.exit_code()), expected, "{reason}: {case:?}");
            assert!(case.reason.contains(reason), "{reason}: {case:?}");
        }
    }
    let mut noisy = bench(2, 0.001, 0.0, 1.2);
    noisy.rows[3].noise = 0.2;
    assert_undecided(
        &gate(&bench(1, 0.001, 0.0, 1.0), &noisy).cases.remove(3),
        "reaches beyond ±5 %",
    );
    // A decode that was verified before, and is not now.
    let (base, mut new) = (decode(1, 1.0, "one"), decode(2, 1.0, "two"));
    new.rows[0].nmse = None;
    assert_undecided(&gate(&base, &new).cases.remove(0), "the new one was not");
    assert_eq!(gate(&new, &new).cases[0].reason, "not verified");
}

#[test]
fn a_case_that_became_wrong_fails_whatever_else() {
    let base = bench(1, 0.005, 0.0, 1.0);
    let failed = |shape: &str| {
        let flags = "is wrong before timing: y: 3 of 256".into();
        Row { kind: Kind::Failed, shape: shape.into(), flags, ..base.rows[0].clone() }
    };
    for (shape, fails) in [("rows=256,cols=1152", true), ("rows=2560,cols=1152", false)] {
        for gone in [false, true] {
            let mut new = bench(2, 0.005, 0.0, 1.0);
            if gone {
                new.rows.remove(2);
            }
            new.rows.push(failed(shape));
            let report = gate(&base, &new);
            assert_eq!((report.wrong.len(), report.exit_code() == 1), (usize::from(fails), fails));
            assert_eq!(said(&report, "no time before: gemv"), !fails, "{report:?}");
        }
    }
    // Nothing else in common, and it still fails; and one of several runs is enough.
    let mut new = base.clone();
    new.rows = vec![failed("rows=256,cols=1152")];
    assert_eq!(gate(&base, &new).exit_code(), 1);
    let fine = bench(2, 0.005, 0.0, 1.0);
    assert_eq!(compare(&[base], &[fine, new], false).unwrap().exit_code(), 1);
}

#[test]
fn the_sides_of_a_comparison_are_runs_of_one_build_each() {
    let runs = |from: u64, slow: f64| -> Vec<Run> {
        (from..from + 3).map(|seed| bench(seed, 0.001, 0.002, slow)).collect()
    };
    let fourth = |base: &[Run], new: &[Run]| compare(base, new, false).unwrap().cases.remove(3);
    let (base, mut new) = (runs(1, 1.0), runs(11, 1.03));
    // One run on one side is few.
    for (base, new) in [(&base[..1], &new[..1]), (&base[..1], &new[..])] {
        assert_undecided(&fourth(base, new), "probably slower");
    }
    assert_eq!(fourth(&base, &new).verdict, Verdict::Slower);

    let twice = [base[0].clone(), base[1].clone(), base[0].clone()];
    let text = usage(compare(&twice, &new, false));
    assert!(text.contains("earlier run 3") && text.contains("give each run once"), "{text}");
    assert!(usage(compare(&[], &new, false)).contains("no run"));

    new[1].rows[3].source = "8".into();
    assert_undecided(&fourth(&base, &new), "of more than one build");

    // One run far from the others is no evidence.
    let mut new = runs(11, 1.0);
    new[2] = bench(99, 0.001, 0.0, 1.3);
    new.iter_mut().for_each(|run| run.rows[3].source = "9".into());
    assert_undecided(&fourth(&base, &new), "% apart");

    // Flagged runs do not count where there are others.
    let mut new = runs(11, 1.03);
    new[0].rows[3].flags = "timed out".into();
    let case = fourth(&base, &new);
    assert_eq!((case.verdict, &*case.reason), (Verdict::Slower, "1 flagged run(s) left out"));

    // A case that only some runs have is judged by those.
    let mut new = runs(11, 1.0);
    new[0].rows.remove(4);
    assert_eq!(compare(&base, &new, false).unwrap().cases[4].verdict, Verdict::Same);
}

#[test]
fn a_machine_that_is_slower_as_a_whole_is_no_slowdown() {
    let base = bench(1, 0.001, 0.002, 1.0);
    let mut new = bench(2, 0.001, 0.002, 1.001);
    new.rows.iter_mut().for_each(|row| row.median_us *= 1.1);
    let report = gate(&base, &new);
    assert_eq!(report.exit_code(), 0, "{report:?}");
    let control = report.control.unwrap();
    assert!(control.cases == 9 && (control.shift - 1.1).abs() < 0.01, "{control:?}");
    assert!(control.spread < 0.02, "{control:?}");
    // With nothing unchanged it is said that nobody can tell.
    let report = gate(&base, &all_changed(new));
    assert!(report.control.is_none() && said(&report, "no unchanged case"), "{report:?}");
}

#[test]
fn runs_that_are_no_pair_are_refused() {
    let base = bench(1, 0.005, 0.0, 1.0);
    assert!(usage(one(&base, &decode(1, 1.0, "one"), false)).contains("nothing to compare"));
    let mut twice = base.clone();
    twice.rows[4].shape = "rows=64,cols=1152".into();
    assert!(usage(one(&twice, &base, false)).contains("gemv/subgroup rows=64,cols=1152 is twice"));
    let mut other = base.clone();
    other.rows.iter_mut().for_each(|row| row.subject = "rope".into());
    assert!(usage(one(&base, &other, false)).contains("no case in common"));
    let mut ab = base.clone();
    ab.rows.iter_mut().for_each(|row| row.kind = Kind::Ab);
    assert!(usage(one(&ab, &ab, false)).contains("an A/B record holds its own comparison"));
}

#[test]
fn other_machines_need_force_and_doubtful_ones_a_warning() {
    type Environs = fn(&mut Environment);
    let base = bench(1, 0.005, 0.0, 1.0);
    assert_eq!(gate(&base, &base).warnings, [""; 0]);
    let changes: [(Environs, &str, bool); 9] = [
        (|e| e.adapter = "Another GPU".into(), "different adapters or drivers", true),
        (|e| e.driver = "1.2.4".into(), "different adapters or drivers", true),
        (|e| e.backend = "dx12".into(), "different adapters or drivers", true),
        (|e| e.software = true, "software adapter", true),
        (|e| e.runtime_checks = "on".into(), "run-time checks differs: off and on", false),
        (|e| e.wgpu = "31.0.0".into(), "to other code, differs: 30.0.1 and 31.0.0", false),
        (|e| e.canary_drift = Some(0.034), "canary moved by 3.4 % during the new run", false),
        (|e| e.canary_drift = None, "the new run had no canary", false),
        (|e| e.copy_gb_s = Some(3500.0), "copy bandwidth differs: 4000 and 3500 GB/s", false),
    ];
    for (change, reason, forced) in changes {
        let mut new = base.clone();
        change(&mut new.environment);
        if forced {
            let text = usage(one(&base, &new, false));
            assert!(text.contains(reason) && text.contains("--force"), "{text}");
        }
        let report = one(&base, &new, forced).unwrap();
        assert!(said(&report, reason), "{report:?}");
        assert_eq!(report.exit_code(), 0);
    }
    // Forced, a software adapter confirms nothing all the same.
    let mut slow = bench(2, 0.001, 0.0, 1.5);
    slow.environment.software = true;
    assert_eq!(one(&base, &slow, true).unwrap().exit_code(), 6);
    // A canary that moved is the least threshold.
    let mut slow = bench(2, 0.001, 0.0, 1.1);
    slow.environment.canary_drift = Some(-0.15);
    assert!(gate(&base, &slow).cases[3].threshold >= 0.15);
}

#[test]
fn missing_and_new_cases_are_listed() {
    let base = bench(1, 0.005, 0.0, 1.0);
    let mut new = bench(2, 0.005, 0.0, 1.0);
    new.rows.remove(2);
    new.rows[5].variant = "tiled".into();
    let report = gate(&base, &new);
    let gone = ["gemv/subgroup rows=256,cols=1152", "gemv/subgroup rows=4096,cols=1152"];
    assert_eq!(report.missing, gone);
    assert_eq!(report.new, ["gemv/tiled rows=4096,cols=1152"]);
    assert!(said(&report, "2 of the earlier cases missing"), "{report:?}");
    assert_eq!(report.exit_code(), 0);
}
