use std::collections::BTreeMap;

use lathe_record::record::{Flag, SamplingSettings, SuiteModel, Watched, made_up};

use super::*;

fn model(file: &&str) -> MeasuredModel {
    MeasuredModel {
        model_filename: (*file).into(),
        model_type: "gemma3 1.0B BF16".into(),
        model_size: 1_999_619_072,
        model_n_params: 999_809_536,
    }
}

fn decoded(verified: bool) -> Decoded {
    let small = Verified { positions: 8, worst_nmse: 1e-12, limit: 1e-5, ..Verified::default() };
    Decoded {
        kv_cache_bytes: 3_407_872,
        gpu_memory_bytes: 2_012_000_000,
        verified: verified.then_some(small),
        ..Decoded::default()
    }
}

/// A suite of two configurations of each file.
pub(crate) fn suite(files: &[&str], verified: bool) -> Suite {
    let config = |scale: f64, sampling| SuiteConfig {
        prompt_tokens: 64,
        generated_tokens: 64,
        ttft_ms: 5.0 * scale,
        prefill_tok_s: 12800.0 / scale,
        e2e_tok_s: 815.46 / scale,
        decode_tok_s: 829.34 / scale,
        one_step_e2e_tok_s: 615.4 / scale,
        one_step_decode_tok_s: 629.3 / scale,
        p50_ms: 1.5891 * scale,
        p95_ms: 1.7 * scale,
        of: Decoded { sampling, ..decoded(verified) },
        ..SuiteConfig::default()
    };
    let drawn = SamplingSettings {
        temperature: 0.8,
        top_k: 50,
        top_p: 0.9,
        repeat_penalty: 1.0,
        repeat_last_n: 0,
    };
    let configs = [("short", config(1.0, None)), ("sampled", config(2.0, Some(drawn)))];
    let configs = BTreeMap::from(configs.map(|(name, config)| (name.to_owned(), config)));
    let models = files.iter().map(|file| SuiteModel {
        model: model(file),
        kv: "f16".into(),
        activations: "f32".into(),
        configs: configs.clone(),
    });
    Suite {
        tier: "standard".into(),
        prompts: "seed 42".into(),
        seed: 42,
        warm_ups: 2,
        repetitions: 3,
        steps_per_submit: 8,
        models: models.collect(),
    }
}

/// Two tests of each file.
pub(crate) fn tests(files: &[&str], verified: bool) -> GenerationTests {
    let test = |file: &&str, n_prompt, n_gen, steps_per_submit| GenerationTest {
        test: GenerationTest::name((n_prompt, n_gen, 4096), 1, None),
        model: model(file),
        n_prompt,
        n_gen,
        n_depth: 4096,
        sequences: 1,
        steps_per_submit,
        avg_ts: 1280.126,
        stddev_ts: 12.8,
        samples_ns: vec![99_000_000, 101_000_000],
        of: decoded(verified),
        ..GenerationTest::default()
    };
    let both = |file| [test(file, 512, 0, None), test(file, 0, 128, Some(1))];
    GenerationTests { prompts: "seed 42".into(), tests: files.iter().flat_map(both).collect() }
}

fn environment() -> Environment {
    Environment {
        commit: Some("abc".into()),
        dirty: Some(true),
        adapter: "Some \"GPU\"".into(),
        ..made_up::environment()
    }
}

#[test]
fn models_stand_side_by_side() {
    let text = suite_markdown(&suite(&["a.gguf", "b.gguf"], true), &environment());
    for line in [
        "## Generation suite, standard tier",
        "| config        |     a |     b |",
        "|---------------|------:|------:|",
        "| short 64/64   | 815.5 | 815.5 |",
        "| sampled 64/64 | 407.7 | 407.7 |",
        "| short 64/64   | 1.589 | 1.700 | 1.589 | 1.700 |",
        "| short 64/64   |     3.4 |   2.01 |     3.4 |   2.01 |",
        "### Decode throughput, one step a submission (tok/s)",
        "Median of 3 runs after 2 warm-ups, 8 steps a submission.",
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
    }
    assert!(text.contains("first 8 positions") && text.contains("commit abc with changes"));
    // One setting alone is not shown twice.
    let one = Suite { steps_per_submit: 1, ..suite(&["a.gguf"], true) };
    assert_eq!((super::suite(&one).len(), super::suite(&suite(&["a.gguf"], true)).len()), (5, 7));
}

#[test]
fn every_figure_that_nobody_verified_says_so() {
    for grid in super::suite(&suite(&["a.gguf"], false)) {
        for cell in grid.rows.iter().flat_map(|row| &row[1..]) {
            assert!(cell.ends_with("(not verified)"), "{cell} in {}", grid.title);
        }
    }
    let run = tests(&["a.gguf"], false);
    let grid = super::tests(&run, &environment());
    assert!(grid.rows.iter().all(|row| row[6] == "1280.13 ± 12.80 (not verified)"), "{grid:?}");
    assert!(grid.note.contains("Not verified"));
    // So do those that the clocks make doubtful, verified or not.
    for (verified, said) in [(true, "(throttled)"), (false, "(not verified, throttled)")] {
        let mut run = tests(&["a.gguf"], verified);
        run.tests[0].of.watched = Watched { throttled: 5, flags: vec![Flag::Throttled] };
        let cell = &super::tests(&run, &environment()).rows[0][6];
        assert!(cell.ends_with(said), "{cell}");
    }
    let mut run = suite(&["a.gguf"], true);
    for config in run.models[0].configs.values_mut() {
        config.of.watched.flags = vec![Flag::NotSettled];
    }
    for grid in super::suite(&run) {
        let mut cells = grid.rows.iter().flat_map(|row| &row[1..]);
        assert!(cells.all(|cell| cell.ends_with("(not settled)")), "{grid:?}");
    }
    // One configuration without is enough for the sentence.
    let mut run = suite(&["a.gguf"], true);
    run.models[0].configs.get_mut("short").expect("a configuration").of.verified = None;
    assert!(suite_note(&run).contains("Not verified"));
}

#[test]
fn llama_benchs_table() {
    let grid = super::tests(&tests(&["a.gguf"], true), &environment());
    let lines: Vec<String> = grid.text().lines().map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "| model            |     size |   params | backend | steps/submit |          test |             t/s |",
            "|------------------|---------:|---------:|---------|-------------:|--------------:|----------------:|",
            "| gemma3 1.0B BF16 | 1.86 GiB | 999.81 M | vulkan  |            - | pp512 @ d4096 | 1280.13 ± 12.80 |",
            "| gemma3 1.0B BF16 | 1.86 GiB | 999.81 M | vulkan  |            1 | tg128 @ d4096 | 1280.13 ± 12.80 |",
        ]
    );
    // Two files of one kind are told apart.
    let grid = super::tests(&tests(&["a.gguf", "b.gguf"], true), &environment());
    assert_eq!(grid.rows[2][0], "gemma3 1.0B BF16 (b.gguf)");
}
