//! The gate over simulated records: what it must let pass and what it must catch.

use super::*;
use crate::data::record::{OpTotal, ProfiledOp, ProfiledStep, Timing, Unprofiled};
use crate::data::stats;

const RUNS: u64 = 200;
const CASES: usize = 10;

type Change<T> = fn(&mut T);

pub(super) fn environment() -> Environment {
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
        read_gb_s: Some(4200.0),
        canary_drift: Some(0.003),
        command: None,
        ..Environment::default()
    }
}

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
        throttled: 0,
        processes_us: Vec::new(),
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
                tflop_s: None,
                overlapped: None,
                stages: Vec::new(),
                rotated_bytes: 1 << 29,
                nmse: None,
                nmse_bound: None,
                canary: None,
                clock: Clock::Gpu.into(),
                flags: Vec::new(),
            }
        })
        .collect();
    Record::new(environment(), Body::Bench(Bench { cases, failed: Vec::new() }))
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
        verified: None,
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
        let verdict_of =
            |key: &str| report.cases.iter().find(|case| case.key == key).map(|case| case.verdict);
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
fn cases_without_a_result_are_warned_of() {
    let base = bench(1, 0.005, 0.0, 1.0);
    let mut new = bench(2, 0.005, 0.0, 1.0);
    cases_of(&mut new).remove(2);
    let Body::Bench(body) = &mut new.body else { panic!("a bench") };
    body.failed.push("gemv/naive N=1 is wrong before timing".into());
    let report = gate(&base, &new);
    let said = |text: &str| report.warnings.iter().any(|w| w.contains(text));
    assert!(said("no result in the new one: gemv/naive N=1 is wrong"), "{report:?}");
    assert!(said("1 of the earlier record's cases missing"), "{report:?}");
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
        |case| case.clock = Clock::Wall.into(),
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
    case.flags = vec![Flag::Drift.into()];
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

/// A record as a file, read as `lathe compare` reads it.
fn reread(text: &str) -> Record {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("record.json");
    std::fs::write(&path, text).expect("a file");
    Record::read(&path).expect("a record")
}

#[test]
fn a_record_of_before_has_the_cases_of_a_new_one() {
    let path = "../benches/records/nvidia-h200/2026-11-20-gemv.json";
    let text = std::fs::read_to_string(path).expect("the first record of gemv");
    let later = ",ACT_FORMAT=f32,Y_OFFSET=0,Y_AFTER=0,N_VECTORS=1,BETA=0";
    let new = text.replace("WEIGHT=bf16", &format!("WEIGHT=bf16{later}"));
    let (base, new) = (reread(&text), reread(&new));
    let report = compare_resampled(&base, &new, true, 20).expect("common cases");
    assert_eq!(report.cases.len(), 20);
    for case in &report.cases {
        assert!(case.ratio.is_some() && case.key.contains(later), "{}", case.key);
    }

    // Names alone, and a kernel that is not known or a text that cannot be read.
    let named = text.replace("WEIGHT=bf16", "WEIGHT=bf16,ACTS=f32,FIRST=0,COLS=1,BETA=0");
    let renamed = reread(&named);
    assert_eq!(compare_resampled(&base, &renamed, true, 20).expect("cases").cases.len(), 20);
    for other in [text.replace("\"gemv\"", "\"of_theirs\""), text.replace("ROWS", "LINES")] {
        let same = reread(&other);
        let report = compare_resampled(&same, &same, true, 20).expect("cases");
        assert!(report.cases.iter().all(|c| !c.key.contains("N_VECTORS") && c.ratio.is_some()));
    }
}
