use super::*;
use crate::Ratio;
use crate::gate::{GateReport, GateVerdict};
use crate::record::made_up::{self, VERIFIED, environment, generation_test, model};
use crate::record::{Flag, Record};
use crate::rng::Rng;

const MODEL: &str = "gemma3 1.0B BF16, 999809536 values in 1999619072 bytes";

fn test(n_gen: usize, steps: usize, samples_ns: &[u64]) -> GenerationTest {
    GenerationTest {
        test: GenerationTest::name((0, n_gen, 0), 1, None),
        n_gen,
        steps_per_submit: Some(steps),
        avg_ns: samples_ns.iter().sum::<u64>() / samples_ns.len() as u64,
        avg_ts: 1.0,
        samples_ns: samples_ns.to_vec(),
        samples_ts: vec![1.0; samples_ns.len()],
        ..generation_test("a.gguf")
    }
}

fn tests(tests: Vec<GenerationTest>) -> Record {
    let body = GenerationTests { prompts: "seed 42".into(), tests };
    Record::new(environment(), Body::GenerationTests(body))
}

/// One record a side, of two builds.
fn compare(base: &Record, new: &Record) -> Result<GateReport> {
    let mut new = new.clone();
    new.environment.commit = Some("another".into());
    super::super::compare(std::slice::from_ref(base), &[new], false)
}

/// Five repetitions of a second each, give or take `noise`, times `factor`.
fn noisy(rng: &mut Rng, factor: f64, noise: f64) -> Vec<u64> {
    (0..5).map(|_| (1e9 * factor * (1.0 + noise * f64::from(rng.uniform() - 0.5))) as u64).collect()
}

fn verdicts(base: &Record, new: &Record) -> Vec<GateVerdict> {
    compare(base, new).unwrap().cases.iter().map(|case| case.verdict).collect()
}

#[test]
fn a_test_is_the_same_test_only_with_the_same_setting() {
    let mut rng = Rng::new(1);
    let mut at = |steps, factor| test(128, steps, &noisy(&mut rng, factor, 0.002));
    let base = tests(vec![at(1, 1.0), at(8, 1.0)]);
    let new = tests(vec![at(1, 1.1), at(8, 0.9)]);
    assert_eq!(verdicts(&base, &new), [GateVerdict::Slowdown, GateVerdict::Faster]);
    let report = compare(&base, &new).unwrap();
    let key = format!("{MODEL}, KV f16, activations f32: tg128, 1 step a submission");
    assert_eq!(report.cases[0].key, key);
    let Ratio { median, low, high } = report.cases[0].ratio.unwrap();
    assert!(low < median && median < high && (median - 1.1).abs() < 0.01, "{low} {median} {high}");
    let other = tests(vec![at(4, 1.0)]);
    let error = compare(&base, &other).unwrap_err().to_string();
    assert!(error.contains("no case in common"), "{error}");
}

#[test]
fn too_few_repetitions_are_unclear_and_unverified_ones_say_so() {
    let base = tests(vec![test(8, 1, &[1_000_000_000, 1_000_100_000])]);
    assert_eq!(verdicts(&base, &base), [GateVerdict::Unclear]);
    let mut unverified = test(8, 1, &[1_000_000_000; 3]);
    unverified.verified = None;
    let base = tests(vec![unverified]);
    let case = compare(&base, &base).unwrap().cases.remove(0);
    assert_eq!((case.verdict, &*case.note), (GateVerdict::Same, "not verified"));
}

#[test]
fn a_throttled_test_is_unclear_however_it_differs() {
    let flags = vec![Flag::Throttled.into()];
    let new = |ns| {
        let watched = Watched { throttled: 3, flags: flags.clone() };
        tests(vec![GenerationTest { watched, ..test(8, 1, &[ns; 3]) }])
    };
    let base = tests(vec![test(8, 1, &[1_000_000_000; 3])]);
    for ns in [1_000_000_000, 1_500_000_000] {
        let case = compare(&base, &new(ns)).unwrap().cases.remove(0);
        assert_eq!(case.verdict, GateVerdict::Unclear, "{case:?}");
        assert!(case.note.contains("new run: throttled"), "{case:?}");
    }
}

#[test]
fn a_test_that_lost_its_verification_is_unclear_and_one_that_fails_it_fails() {
    let failing = Verified { worst_nmse: 2e-5, ..VERIFIED };
    let all = [Some(VERIFIED), None, Some(failing)];
    let record =
        |verified| tests(vec![GenerationTest { verified, ..test(8, 1, &[1_000_000_000; 3]) }]);
    let expected = [
        [GateVerdict::Same, GateVerdict::Unclear, GateVerdict::Wrong],
        [GateVerdict::Same, GateVerdict::Same, GateVerdict::Wrong],
        [GateVerdict::Unclear, GateVerdict::Unclear, GateVerdict::Unclear],
    ];
    for (base, expected) in all.into_iter().zip(expected) {
        for (new, expected) in all.into_iter().zip(expected) {
            let case = compare(&record(base), &record(new)).unwrap().cases.remove(0);
            assert_eq!(case.verdict, expected, "{base:?} {new:?}: {case:?}");
        }
    }
    let report = compare(&record(Some(VERIFIED)), &record(Some(failing))).unwrap();
    assert!(report.exit_code() == 1 && report.cases[0].note.contains("NMSE 2.0e-5"), "{report:?}");
}

#[test]
fn of_one_build_the_machine_is_slower() {
    let base = suite(1.0);
    let new = suite(1.2);
    let report = super::super::compare(&[base], &[new], false).unwrap();
    assert_eq!(report.exit_code(), 0, "{report:?}");
    assert!(report.cases.iter().all(|case| !case.changed));
}

/// Runs whose means differ by 1.5 % (standard deviation), as decodes of one build did.
#[test]
fn three_runs_a_side_find_a_decode_7_percent_slower() {
    let mut rng = Rng::new(5);
    let (mut wrong, mut found) = (0, 0);
    for _ in 0..1000 {
        let mut side = |slow: f64, commit: &str| -> Vec<Record> {
            let mut run = || {
                let mut factor = || slow * (HOST_RUNS * f64::from(rng.normal())).exp();
                let cases = [factor(), factor(), factor(), factor()];
                let mut cases: Vec<GenerationTest> =
                    cases.iter().map(|f| test(128, 8, &noisy(&mut rng, *f, 0.005))).collect();
                for (at, case) in cases.iter_mut().enumerate() {
                    case.test = format!("tg{at}");
                }
                let mut record = tests(cases);
                record.environment.commit = Some(commit.into());
                record
            };
            (0..3).map(|_| run()).collect()
        };
        let base = side(1.0, "one");
        let judge = |new: &[Record]| super::super::compare(&base, new, false).unwrap();
        wrong += usize::from(judge(&side(1.0, "two")).exit_code() == 1);
        found += usize::from(judge(&side(1.07, "two")).slowdowns == 4);
    }
    eprintln!(
        "four tests, three runs a side: exit 1 without a slowdown {wrong}, all found {found}"
    );
    assert!(wrong <= 10 && found >= 900, "{wrong} {found} of 1000");
}

#[test]
fn chance_is_no_slowdown() {
    let mut rng = Rng::new(7);
    let mut wrong = 0;
    for _ in 0..1000 {
        // Runs that differ by up to 1 % in the mean and by 2 % among repetitions.
        let mut run = || {
            let factor = 1.0 + 0.01 * f64::from(rng.uniform());
            tests(vec![test(8, 1, &noisy(&mut rng, factor, 0.02))])
        };
        let (base, new) = (run(), run());
        wrong += usize::from(matches!(
            verdicts(&base, &new)[0],
            GateVerdict::Slowdown | GateVerdict::Faster
        ));
    }
    assert!(wrong <= 5, "{wrong} of 1000");
}

#[test]
fn another_model_of_the_same_name_is_refused() {
    let mut rng = Rng::new(1);
    let base = tests(vec![test(8, 1, &noisy(&mut rng, 1.0, 0.01))]);
    let mut new = base.clone();
    let Body::GenerationTests(body) = &mut new.body else { unreachable!() };
    body.tests[0].model.model_size += 1;
    let error = compare(&base, &new).unwrap_err().to_string();
    assert!(error.contains("a.gguf") && error.contains("not the same model"), "{error}");
}

fn suite(factor: f64) -> Record {
    let mut rng = Rng::new((factor * 100.0) as u64);
    // In whole 0.1 µs, as the command writes them.
    let mut about = |ms: f64| (ms * (1.0 + 0.001 * f64::from(rng.uniform())) * 1e4).round() / 1e4;
    let mut run = |steps_per_submit: usize| SuiteRun {
        steps_per_submit,
        ttft_ms: about(10.0),
        decode_ms: about(63.0 * factor),
        step_ms: match steps_per_submit {
            1 => (0..63).map(|i| factor * (1.0 + 0.001 * f64::from(i % 7))).collect(),
            _ => Vec::new(),
        },
    };
    let runs = [8, 1, 8, 1, 8, 1].map(&mut run).to_vec();
    let config =
        SuiteConfig { verified: Some(VERIFIED), ..SuiteConfig::of([64, 64], None, 8, runs) };
    Record::new(environment(), Body::Suite(made_up::suite(&["a.gguf"], [("short", config)])))
}

#[test]
fn a_suite_whose_times_had_not_settled_is_unclear() {
    let mut new = suite(1.2);
    let Body::Suite(body) = &mut new.body else { unreachable!() };
    for config in body.models[0].configs.values_mut() {
        config.watched.flags = vec![Flag::NotSettled.into()];
    }
    for case in compare(&suite(1.0), &new).unwrap().cases {
        assert_eq!(case.verdict, GateVerdict::Unclear, "{case:?}");
        assert!(case.note.contains("new run: not settled"), "{case:?}");
    }
}

#[test]
fn a_suite_is_compared_by_first_token_whole_run_and_step() {
    let report = compare(&suite(1.0), &suite(1.2)).unwrap();
    let seen: Vec<_> = report.cases.iter().map(|c| (c.key.as_str(), c.verdict)).collect();
    let short = format!("{MODEL}, KV f16, activations f32: short 64/64");
    assert_eq!(
        seen,
        [
            (&*format!("{short} first token"), GateVerdict::Same),
            (&*format!("{short} end to end"), GateVerdict::Slowdown),
            (&*format!("{short} step"), GateVerdict::Slowdown),
        ]
    );
    assert_eq!(report.exit_code(), 1);
    assert_eq!(compare(&suite(1.0), &suite(1.0)).unwrap().exit_code(), 0);
}

#[test]
fn kinds_do_not_mix() {
    let error = compare(&suite(1.0), &tests(Vec::new())).unwrap_err().to_string();
    assert!(error.contains("suite") && error.contains("bench decode"), "{error}");
}

#[test]
fn records_survive_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, record) in [("s.json", suite(1.0)), ("t.json", tests(vec![test(8, 1, &[7; 3])]))] {
        let path = folder.path().join(name);
        record.write(&path).unwrap();
        let read = Record::read(&path).unwrap();
        assert_eq!(record.body, read.body);
    }
}

#[test]
fn a_renamed_file_is_the_same_model_and_two_alike_go_by_their_files() {
    let mut rng = Rng::new(3);
    let of = |file: &str, ns: &[u64]| GenerationTest { model: model(file), ..test(8, 1, ns) };
    let (a, b) = (noisy(&mut rng, 1.0, 0.01), noisy(&mut rng, 1.0, 0.01));
    let report = compare(&tests(vec![of("a.gguf", &a)]), &tests(vec![of("b.gguf", &b)])).unwrap();
    assert_eq!(report.cases.len(), 1);
    assert!(report.cases[0].key.starts_with(MODEL));
    let both = tests(vec![of("a.gguf", &a), of("b.gguf", &b)]);
    let report = compare(&both, &both).unwrap();
    let keys: Vec<_> = report.cases.iter().map(|case| case.key.as_str()).collect();
    assert!(keys[0].starts_with("a.gguf, KV") && keys[1].starts_with("b.gguf, KV"), "{keys:?}");
}

/// Equal commits are equal code, as far as the record knows what ran.
#[test]
fn what_a_file_or_a_tuner_chose_is_no_part_of_the_commit() {
    let source = |command: &str, tuned: Vec<Selected>| {
        let environment = Environment {
            commit: Some("c0ffee".into()),
            dirty: Some(false),
            command: Some(format!("lathe bench decode a.gguf {command} --save run.json")),
            ..environment()
        };
        let tests = vec![GenerationTest { tuned, ..test(128, 8, &[1, 2, 3]) }];
        let all = super::tests(&GenerationTests { prompts: String::new(), tests }, &environment);
        all[0].source.clone()
    };
    let plain = source("", Vec::new());
    assert!(plain.is_some());
    // Lengths and repetitions choose no kernel.
    assert_eq!(source("-r 5", Vec::new()), plain);
    let hinted = source("--hint gemv=split_k", Vec::new());
    assert!(hinted.is_some() && hinted != plain, "{hinted:?}");
    for file in ["--hint gemv=mine.wgsl", "--hint=gemv/naive=mine.wgsl", "--manifest best.json"] {
        assert_eq!(source(file, Vec::new()), None, "{file}");
    }
    let choice = |lanes: f64, tuned| Selected {
        kernel: "gemv".into(),
        variant: "subgroup".into(),
        constants: [("LANES".to_owned(), lanes)].into(),
        tuned,
        ..Selected::default()
    };
    let tuned = source("", vec![choice(8.0, true)]);
    assert!(tuned.is_some() && tuned != plain, "{tuned:?}");
    assert_ne!(source("", vec![choice(16.0, true)]), tuned);
    // What the kernels prefer follows from the commit.
    assert_eq!(source("", vec![choice(8.0, false)]), plain);
}
