//! The gate over simulated records: what it must let pass and what it must catch.

mod rates;

use rayon::prelude::*;

use super::*;
use crate::record::{
    Bench, BenchCase, Body, Clock, Flag, Profile, ProfiledOp, ProfiledStep, Timing,
    Unprofiled, made_up::environment,
};
use crate::rng::Rng;

const CASES: usize = 10;

type Change<T> = fn(&mut T);

/// Samples around `us` with this noise, a slow drift, and now and then a far too long one.
fn timing(rng: &mut Rng, us: f64, noise: f64) -> Timing {
    let drift = 0.004 * f64::from(rng.normal());
    let samples_us: Vec<f64> = (0..30)
        .map(|i| {
            let tail = if rng.below(20) == 0 { 1.2 + 1.8 * f64::from(rng.uniform()) } else { 1.0 };
            let log = noise * f64::from(rng.normal()) + drift * f64::from(i) / 30.0;
            us * log.exp() * tail
        })
        .collect();
    Timing {
        median_us: stats::summarise(&samples_us).median,
        settled: true,
        dispatches: 100,
        samples_us,
        ..Timing::default()
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
                clock: Clock::Gpu.into(),
                ..BenchCase::default()
            }
        })
        .collect();
    Record::new(environment(), Body::Bench(Bench { cases, ..Bench::default() }))
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
            ..ProfiledStep::default()
        })
        .collect();
    let step_ms = steps.iter().map(|step| jitter(step.us.iter().sum::<f64>() / 1e3)).collect();
    let body = Body::Profile(Profile {
        model: "example".into(),
        kv: "f16".into(),
        prompt_tokens: 16,
        unprofiled: Unprofiled { step_ms, steps_per_submit: 1, ..Unprofiled::default() },
        ops,
        steps,
        ..Profile::default()
    });
    // Each of a build of its own.
    let environment = Environment { commit: Some(format!("{seed:07x}")), ..environment() };
    Record::new(environment, body)
}

fn gate(base: &Record, new: &Record) -> GateReport {
    one(base, new, false).unwrap()
}

/// One record a side.
fn one(base: &Record, new: &Record, force: bool) -> Result<GateReport> {
    compare(std::slice::from_ref(base), std::slice::from_ref(new), force)
}

fn usage(result: Result<GateReport>) -> String {
    match result {
        Err(Error::Usage(text)) => text,
        other => panic!("no usage error: {other:?}"),
    }
}

/// Another source for every case.
fn all_changed(mut record: Record) -> Record {
    cases_of(&mut record).iter_mut().for_each(|case| case.source.push_str("changed"));
    record
}

fn said(report: &GateReport, text: &str) -> bool {
    report.warnings.iter().any(|warning| warning.contains(text))
}

fn calls_a_slowdown(report: &GateReport) -> bool {
    report.slowdowns + report.count(GateVerdict::Probable) > 0
}

/// Simulated from samples to report.
#[test]
fn records_with_a_slower_case_fail_and_others_do_not() {
    const RUNS: u64 = 100;
    let side = |seed: u64, slow: f64| -> Vec<Record> {
        (0..3).map(|i| bench(3 * seed + i, 0.005, 0.004, slow)).collect()
    };
    let counts = (0..RUNS).into_par_iter().map(|run| {
        let base = side(2 * run, 1.0);
        let new = side(2 * run + 1, 1.03);
        let report = compare(&base, &new, false).unwrap();
        let changed: Vec<Record> = side(2 * run + 1, 1.0).into_iter().map(all_changed).collect();
        let equal = compare(&base, &changed, false).unwrap();
        let found = report.cases[3].verdict == GateVerdict::Slowdown;
        assert_eq!(report.slowdowns, usize::from(found), "only the fourth can fail");
        let mirrored = compare(&new, &base, false).unwrap().cases[3].verdict;
        assert!(!found || mirrored == GateVerdict::Faster);
        (usize::from(found), usize::from(equal.exit_code() == 1))
    });
    let (found, wrong) = counts.reduce(|| (0, 0), |x, y| (x.0 + y.0, x.1 + y.1));
    eprintln!("records of ten cases, three a side: 3 % found {found} %, exit 1 without {wrong} %");
    assert!(found >= 90 && wrong <= 1, "{found} {wrong}");
}

#[test]
fn profiles_of_one_speed_agree_and_a_slower_operation_shows() {
    const RUNS: u64 = 200;
    let (mut wrong, mut caught) = (0, 0);
    for run in 0..RUNS {
        let base = profile(2 * run, 0.005, 1.0);
        wrong += usize::from(calls_a_slowdown(&gate(&base, &profile(2 * run + 1, 0.005, 1.0))));
        let report = gate(&base, &profile(2 * run + 1, 0.005, 1.07));
        let verdict_of =
            |key: &str| report.cases.iter().find(|case| case.key == key).map(|case| case.verdict);
        let found = verdict_of("ffn_down") == Some(GateVerdict::Slowdown);
        caught += usize::from(found && verdict_of("attention") == Some(GateVerdict::Same));
    }
    assert_eq!((wrong, caught), (0, RUNS as usize));
    // Of one build the machine is what is slower.
    let base = profile(1, 0.005, 1.0);
    let mut new = profile(2, 0.005, 1.07);
    new.environment.commit.clone_from(&base.environment.commit);
    let report = gate(&base, &new);
    assert!(report.exit_code() == 0 && report.cases.iter().all(|c| !c.changed), "{report:?}");
    new.environment.command = Some("lathe decode --hint gemv=naive --profile p.json".into());
    assert_eq!(gate(&base, &new).exit_code(), 1, "another choice of kernels is another source");
    new.environment.command = None;
    new.environment.dirty = Some(true);
    assert_eq!(gate(&base, &new).exit_code(), 1, "what no commit holds is not known to be equal");
}

/// Eight steps of one submission once counted as eight samples.
#[test]
fn steps_of_one_submission_are_one_sample() {
    let shared = |seed: u64, steps: usize| {
        let mut record = profile(seed, 0.005, 1.0);
        let Body::Profile(body) = &mut record.body else { panic!("no profile") };
        body.unprofiled.steps_per_submit = 8;
        body.unprofiled.step_ms = (0..steps).map(|i| 1.0 + 0.001 * (i / 8) as f64).collect();
        record
    };
    let of = |steps| gate(&shared(1, steps), &shared(2, steps)).cases.remove(0);
    let case = of(63);
    assert_eq!((case.key.as_str(), case.verdict), (STEP, GateVerdict::Same), "{case:?}");
    // Where the eight submissions of a run scatter, so many repetitions of each prove nothing.
    let mut scattered = [shared(1, 63), shared(2, 63)];
    for (at, record) in scattered.iter_mut().enumerate() {
        let Body::Profile(body) = &mut record.body else { panic!("no profile") };
        let time = |i: usize| 1.0 + 0.2 * (i / 8 * (3 + 2 * at) % 8) as f64;
        body.unprofiled.step_ms = (0..63).map(time).collect();
    }
    let [x, y] = &scattered;
    assert_eq!(gate(x, y).cases[0].verdict, GateVerdict::Unclear);
    let case = of(32); // four submissions
    assert!(case.note.contains("fewer than 5 samples"), "{case:?}");
    let mut other = shared(2, 63);
    let Body::Profile(body) = &mut other.body else { panic!("no profile") };
    body.unprofiled.steps_per_submit = 1;
    let case = gate(&shared(1, 63), &other).cases.remove(0);
    assert!(
        case.note.contains("measured differently: ") && case.note.contains("8 steps"),
        "{case:?}"
    );
}

/// Slower, of another source and of the same, with or without a flag on either side.
#[test]
fn only_a_changed_source_without_a_flag_is_a_slowdown() {
    let base = bench(1, 0.001, 0.0, 1.0);
    for flag in [Flag::NotSettled, Flag::Drift, Flag::Noisy, Flag::TimedOut, Flag::NotCold] {
        for flagged in [None, Some(0), Some(1)] {
            for changed in [false, true] {
                let (mut x, mut y) = (base.clone(), bench(2, 0.001, 0.0, 1.2));
                if !changed {
                    let source = cases_of(&mut x)[3].source.clone();
                    cases_of(&mut y)[3].source = source;
                }
                match flagged {
                    Some(0) => cases_of(&mut x)[3].flags.push(flag.into()),
                    Some(_) => cases_of(&mut y)[3].flags.push(flag.into()),
                    None => {}
                }
                let report = gate(&x, &y);
                let expected = match (changed, flagged) {
                    (true, None) => (GateVerdict::Slowdown, 1),
                    (true, Some(_)) => (GateVerdict::Unclear, 6),
                    (false, _) => (GateVerdict::Machine, 0),
                };
                let case = &report.cases[3];
                assert_eq!((case.verdict, report.exit_code()), expected, "{report:?}");
                assert_eq!(case.note.contains(&flag.to_string()), flagged.is_some(), "{case:?}");
            }
        }
    }
}

/// A flag that says how a kernel runs counts only where the other side runs otherwise.
#[test]
fn how_a_case_was_measured_must_be_the_same() {
    let slow = || (bench(1, 0.001, 0.0, 1.0), bench(2, 0.001, 0.0, 1.2));
    let (mut x, mut y) = slow();
    for record in [&mut x, &mut y] {
        let case = &mut cases_of(record)[3];
        case.clock = Clock::Wall.into();
        case.flags.push(Flag::WallClock.into());
    }
    assert_eq!(gate(&x, &y).cases[3].verdict, GateVerdict::Slowdown);
    let (x, mut y) = slow();
    cases_of(&mut y)[3].flags.push(Flag::RuntimeChecksOn.into());
    assert!(gate(&x, &y).cases[3].note.contains("measured differently: "));
    let (x, mut y) = slow();
    cases_of(&mut y)[3].seed_a_sample = true;
    assert!(gate(&x, &y).cases[3].note.contains("measured differently: "));
    let (x, mut y) = slow();
    y.environment.runtime_checks = "on".into();
    assert_eq!(gate(&x, &y).cases[3].verdict, GateVerdict::Unclear);
}

#[test]
fn a_case_that_became_wrong_fails_whatever_else() {
    let base = bench(1, 0.005, 0.0, 1.0);
    let key = "gemv/subgroup rows=256,cols=1152";
    let texts = [
        (format!("{key} is wrong before timing: y: 3 of 256"), true),
        (format!("{key}: 9999 GB/s cold lies above the measured bandwidth"), true),
        (format!("{key}0 is wrong before timing"), false),
        ("gemv/naive N=1 is wrong before timing".into(), false),
    ];
    for (text, fails) in texts {
        for gone in [false, true] {
            for unchanged in [false, true] {
                let mut new = bench(2, 0.005, 0.0, 1.0);
                if !unchanged {
                    new = all_changed(new);
                }
                if gone {
                    cases_of(&mut new).remove(2);
                }
                let Body::Bench(body) = &mut new.body else { panic!("a bench") };
                body.failed.push(text.clone());
                let report = gate(&base, &new);
                let became_wrong = report.cases[2].verdict == GateVerdict::Wrong;
                assert_eq!((became_wrong, report.wrong), (fails, usize::from(fails)), "{report:?}");
                assert_eq!(report.exit_code() == 1, fails);
                assert_eq!(said(&report, "no time before: gemv"), !fails, "{report:?}");
                assert!(!fails || report.cases[2].note.contains(&text));
            }
        }
    }
    // Nothing else in common, and it still fails.
    let mut new = base.clone();
    cases_of(&mut new).clear();
    let Body::Bench(body) = &mut new.body else { panic!("a bench") };
    body.failed.push(format!("{key} is wrong"));
    assert_eq!(gate(&base, &new).exit_code(), 1);
    // One of several runs is enough.
    let fine = bench(2, 0.005, 0.0, 1.0);
    assert_eq!(compare(&[base], &[fine, new], false).unwrap().exit_code(), 1);
}

#[test]
fn the_sides_of_a_comparison_are_runs_of_one_build_each() {
    let runs = |from: u64, slow: f64| -> Vec<Record> {
        (from..from + 3).map(|seed| bench(seed, 0.001, 0.002, slow)).collect()
    };
    let (base, mut new) = (runs(1, 1.0), runs(11, 1.03));
    assert_eq!(one(&base[0], &new[0], false).unwrap().cases[3].verdict, GateVerdict::Probable);
    assert_eq!(one(&base[0], &new[0], false).unwrap().exit_code(), 6);
    assert_eq!(compare(&base, &new, false).unwrap().cases[3].verdict, GateVerdict::Slowdown);
    assert_eq!(
        compare(&base[..1], &new, false).unwrap().cases[3].verdict,
        GateVerdict::Probable,
        "one record on one side is few"
    );

    let twice = [base[0].clone(), base[1].clone(), base[0].clone()];
    let text = usage(compare(&twice, &new, false));
    assert!(text.contains("earlier run 3") && text.contains("give each run once"), "{text}");
    assert!(usage(compare(&[], &new, false)).contains("no record"));
    // With a sample of a case changed in its last digits it is still the same run.
    let mut again = base[0].clone();
    for case in cases_of(&mut again) {
        case.cold.samples_us[0] *= 1.0 + 1e-12;
    }
    let text = usage(compare(&[base[0].clone(), base[1].clone(), again], &new, false));
    assert!(text.contains("earlier run 3") && text.contains("give each run once"), "{text}");

    cases_of(&mut new[1])[3].source = "8".into();
    let report = compare(&base, &new, false).unwrap();
    assert_eq!(report.cases[3].verdict, GateVerdict::Unclear);
    assert!(report.cases[3].note.contains("of more than one build"), "{report:?}");

    // One run far from the others is no evidence.
    let mut new = runs(11, 1.0);
    new[2] = bench(99, 0.001, 0.0, 1.3);
    new.iter_mut().for_each(|record| cases_of(record)[3].source = "9".into());
    let report = compare(&base, &new, false).unwrap();
    assert_eq!(report.cases[3].verdict, GateVerdict::Unclear);
    assert!(report.cases[3].note.contains("% apart"), "{report:?}");

    // Flagged runs do not count where there are others.
    let mut new = runs(11, 1.03);
    for (at, left) in [(0, GateVerdict::Slowdown), (1, GateVerdict::Probable)] {
        cases_of(&mut new[at])[3].flags.push(Flag::TimedOut.into());
        let case = compare(&base, &new, false).unwrap().cases.remove(3);
        let note = format!("{} flagged run(s) left out", at + 1);
        assert_eq!((case.verdict, case.note), (left, note));
    }

    // A case that only some runs have is judged by those.
    let mut new = runs(11, 1.0);
    cases_of(&mut new[0]).remove(4);
    assert_eq!(compare(&base, &new, false).unwrap().cases[4].verdict, GateVerdict::Same);
}

#[test]
fn a_machine_that_is_slower_as_a_whole_is_no_slowdown() {
    let base = bench(1, 0.001, 0.002, 1.0);
    let mut new = bench(2, 0.001, 0.002, 1.001);
    for case in cases_of(&mut new) {
        case.cold.samples_us.iter_mut().for_each(|us| *us *= 1.1);
    }
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
    assert_eq!(report.cases[1].note, "24 of 64 steps in both; not verified");
    let note = &report.cases[2].note;
    assert!(note.contains("gemv/subgroup became gemv/naive, gemv/subgroup"), "{note}");
}

#[test]
fn records_that_are_no_pair_are_refused() {
    let refuse = |base: &Record, new: &Record| usage(one(base, new, false));
    let base = bench(1, 0.005, 0.0, 1.0);
    assert!(refuse(&base, &profile(1, 0.005, 1.0)).contains("nothing to compare"));

    let one = profile(1, 0.005, 1.0);
    let mut two = one.clone();
    let Body::Profile(body) = &mut two.body else { panic!("no profile") };
    body.kv = "f32".into();
    assert!(refuse(&one, &two).contains("different decodes"));
    // A renamed file is the same model where both records say what it is, and only there.
    let named = |file: &str, identity: Option<&str>| {
        let mut record = one.clone();
        let Body::Profile(body) = &mut record.body else { panic!("no profile") };
        (body.model, body.identity) = (file.into(), identity.map(str::to_owned));
        record
    };
    let known = named("a.gguf", Some("gemma3 1.0B BF16"));
    let renamed = named("b.gguf", Some("gemma3 1.0B BF16"));
    assert!(compare(std::slice::from_ref(&known), &[renamed], false).is_ok());
    let other = named("a.gguf", Some("gemma3 1.0B Q4_0"));
    assert!(refuse(&known, &other).contains("different decodes"));
    assert!(refuse(&known, &named("b.gguf", None)).contains("different decodes"));
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
            let text = usage(one(x, y, false));
            assert!(text.contains(reason) && text.contains("--force"), "{text}");
            let report = one(x, y, true).unwrap();
            assert!(report.warnings.iter().any(|w| w.contains(reason)), "{report:?}");
            assert_eq!(report.exit_code(), 0);
        }
    }
    // Forced, a software adapter confirms nothing all the same.
    let mut slow = bench(2, 0.001, 0.0, 1.5);
    slow.environment.software = true;
    assert_eq!(one(&base, &slow, true).unwrap().exit_code(), 6);
}

#[test]
fn doubtful_environments_are_warned_of() {
    let base = bench(1, 0.005, 0.0, 1.0);
    assert_eq!(gate(&base, &base).warnings, [""; 0]);
    let changes: [(Change<Environment>, &str); 5] = [
        (|e| e.runtime_checks = "on".into(), "run-time checks differs: off and on"),
        (|e| e.wgpu = "31.0.0".into(), "to other code, differs: 30.0.1 and 31.0.0"),
        (|e| e.canary_drift = Some(0.034), "canary moved by 3.4 % during the new run"),
        (|e| e.canary_drift = None, "the new run had no canary"),
        (|e| e.copy_gb_s = Some(3500.0), "copy bandwidth differs: 4000 and 3500 GB/s"),
    ];
    for (change, text) in changes {
        let mut new = base.clone();
        change(&mut new.environment);
        let report = gate(&base, &new);
        assert!(said(&report, text), "{report:?}");
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
    assert!(said(&report, "2 of the earlier cases missing"), "{report:?}");
    let missing = &report.cases[2];
    assert!(missing.base_us.is_some() && missing.new_us.is_none() && missing.ratio.is_none());
    assert!(report.cases[10].new_us.is_some(), "new ones come last");
    assert_eq!(report.exit_code(), 0);
}

/// Samples anywhere within 45 % of where they were, the median near its place.
fn scattered(samples: &mut [f64]) {
    let n = samples.len();
    for (at, us) in samples.iter_mut().enumerate() {
        *us *= (0.9 * ((7 * at % n) as f64 / n as f64 - 0.5)).exp();
    }
}

#[test]
fn the_threshold_follows_the_worst_of_either_run() {
    let base = bench(1, 0.001, 0.0, 1.0);
    let slower = bench(2, 0.001, 0.0, 1.08);
    assert_eq!(gate(&base, &slower).cases[3].verdict, GateVerdict::Slowdown);
    let changes: [(Change<Record>, f64); 4] = [
        (|r| r.environment.canary_drift = Some(-0.15), 0.15),
        (|r| scattered(&mut cases_of(r)[3].cold.samples_us), 0.1),
        // 20 us a dispatch, one in a sample: 3 us are 15 %.
        (
            |r| {
                r.environment.timestamp_quantum_ns = Some(3000.0);
                cases_of(r)[3].cold.dispatches = 1;
            },
            0.13,
        ),
        (|r| cases_of(r)[3].cold.samples_us[16..].iter_mut().for_each(|t| *t *= 1.2), 0.15),
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
        |case| case.clock = Clock::Wall.into(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut new = all_changed(base.clone());
        change(&mut cases_of(&mut new)[3]);
        let report = gate(&base, &new);
        let case = &report.cases[3];
        assert_eq!(case.verdict, GateVerdict::Unclear, "{at}");
        assert_eq!((report.unclear, report.exit_code()), (1, 6), "{at}");
        let note = match at {
            4 => "measured differently: gpu clock",
            _ => "new run: fewer than 5 samples",
        };
        assert!(case.note.starts_with(note), "{}", case.note);
        // Of unchanged source it is no matter of the code.
        cases_of(&mut new)[3].source.clone_from(&cases_of(&mut base.clone())[3].source);
        let report = gate(&base, &new);
        assert_eq!((report.cases[3].verdict, report.exit_code()), (GateVerdict::Machine, 0));
    }
}

#[test]
fn warm_times_do_not_gate() {
    let base = bench(1, 0.001, 0.0, 1.0);
    let mut new = all_changed(base.clone());
    let case = &mut cases_of(&mut new)[3];
    case.warm.samples_us.iter_mut().for_each(|t| *t *= 1.3);
    let report = gate(&base, &new);
    assert_eq!((report.exit_code(), report.cases[3].verdict), (0, GateVerdict::Same));
    assert!((report.cases[3].warm.unwrap().median - 1.3).abs() < 1e-9);
}

#[test]
fn a_record_whose_medians_are_not_its_samples_is_refused() {
    let record = bench(1, 0.005, 0.0, 1.0);
    let changes: [Change<BenchCase>; 4] = [
        |case| case.cold.median_us *= 0.97,
        |case| case.warm.median_us += 0.01,
        |case| case.cold.samples_us.clear(),
        |case| case.overlapped = Some(Timing { median_us: 1.0, ..case.cold.clone() }),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (at, change) in changes.into_iter().enumerate() {
        let mut record = record.clone();
        change(&mut cases_of(&mut record)[3]);
        let path = folder.path().join(format!("{at}.json"));
        record.write(&path).unwrap();
        let text = Record::read(&path).unwrap_err().to_string();
        let named = [&*path.display().to_string(), "gemv/subgroup rows=512,cols=1152: median_us"];
        assert!(named.iter().all(|name| text.contains(name)), "{text}");
    }
}

#[test]
fn records_and_reports_survive_json() {
    for (base, new) in [
        (bench(1, 0.005, 0.0, 1.0), bench(2, 0.005, 0.0, 1.07)),
        (profile(1, 0.005, 1.0), profile(2, 0.005, 1.07)),
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
