//! Whole generations, timed: pieces of a sequence, trials that must fail if something differs from
//! the verified run, `bench decode` and `suite` with their output.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use lathe_harness::data::rng::Rng;
use lathe_harness::decode::bench::{Test, Trial};
use lathe_harness::decode::prompts::drawn;
use lathe_harness::decode::{
    Checked, DecodeGraph, DecodeOptions, Decoder, Model, Sampling, Script,
};
use lathe_harness::error::Error;
use lathe_harness::model::synth::{SynthArch, SynthSpec};
use lathe_harness::plan::weights::{Bytes, WeightRows};
use lathe_kernels::Format;
use serde_json::Value;

use crate::common::{
    self, Fault, Faulty, Folder, assert_ends, assert_refused, command, document, golden_name, json,
    lathe, model, on_cpu, printed,
};

fn graph(model: &Model, context: usize, sampling: Option<Sampling>) -> DecodeGraph {
    let options = DecodeOptions { context, sampling, store: None, ..DecodeOptions::default() };
    model.graph(None, &options).unwrap()
}

fn test([depth, prompt, generate]: [usize; 3], sampling: Option<Sampling>) -> Test {
    Test { depth, prompt, generate, sequences: 1, sampling, spare: 0 }
}

#[test]
fn a_trial_verifies_and_repeats_itself() {
    let model = model("llama-tiny-f16");
    let sampled =
        Sampling { temperature: 0.8, top_k: 50, top_p: 0.9, repeat_penalty: 1.1, repeat_last_n: 0 };
    for lengths in [[0, 12, 0], [0, 0, 12], [9, 0, 6], [5, 12, 6], [0, 3, 9]] {
        for sampling in [None, Some(sampled)] {
            let test = test(lengths, sampling);
            let tokens = drawn(&model, 42, test.given()).unwrap();
            let graph = graph(&model, test.positions(), sampling);
            let mut device = on_cpu(&graph);
            let decoder = Decoder::new(&graph, &mut device);
            let mut trial = Trial::new(decoder, test, &tokens, 42, Some(8)).unwrap();
            let runs = [1, 4, 1].map(|per_submit| trial.run(per_submit).unwrap());
            let verified = trial.verified().unwrap();
            assert_eq!(verified.positions, 8);
            assert!(verified.worst_nmse <= verified.limit);
            for run in &runs {
                let [depth, prompt, generate] = lengths;
                assert_eq!(run.steps.len(), generate);
                assert_eq!(run.ttft.is_zero(), prompt == 0);
                assert_eq!(run.generated, runs[0].generated);
                assert_eq!(run.generated.len(), generate + usize::from(depth + prompt > 0));
            }
        }
    }
}

#[test]
fn a_trial_that_cannot_run_is_refused() {
    let model = model("llama-tiny-f16");
    let graph = graph(&model, 8, None);
    let good = [0, 4, 4];
    let mut executor = on_cpu(&graph);
    for (lengths, tokens, verify, why) in [
        (good, vec![], None, "0 tokens for a run that is given 4"),
        ([0, 4, 5], vec![1; 4], None, "9 positions do not fit"),
        ([4, 0, 0], vec![1; 4], None, "times nothing"),
        (good, vec![999; 4], None, "token 999"),
        (good, vec![1; 4], Some(0), "0 positions verify nothing"),
    ] {
        let (decoder, test) = (Decoder::new(&graph, &mut executor), test(lengths, None));
        match Trial::new(decoder, test, &tokens, 42, verify).map(drop) {
            Err(Error::Usage(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

/// Error of a trial on a device that is sound at first and then has a fault: from its verification
/// on, from its first run, or from its second.
fn found(model: &Model, fault: Fault, from: usize, prompt: usize) -> String {
    let test = test([0, prompt, 6], None);
    let tokens = drawn(model, 42, test.given()).unwrap();
    let graph = graph(model, test.positions(), None);
    let cell = Rc::new(Cell::new(Fault::Nothing));
    let (mut cpu, given) = (on_cpu(&graph), tokens.len());
    let fault_now = Rc::clone(&cell);
    let mut device = Faulty { inner: &mut cpu, fault: fault_now, graph: &graph, given };
    if from == 0 {
        cell.set(fault);
    }
    let fails = |e: Error, stage: usize| match e {
        Error::CheckFailed(text) if stage == from => text,
        e => panic!("{fault:?} from {from}: {e} at stage {stage}"),
    };
    let mut trial = match Trial::new(Decoder::new(&graph, &mut device), test, &tokens, 42, Some(4))
    {
        Ok(trial) => trial,
        Err(e) => return fails(e, 0),
    };
    for stage in 1..3 {
        if stage == from {
            cell.set(fault);
        }
        if let Err(e) = trial.run(1) {
            return fails(e, stage);
        }
    }
    panic!("{fault:?} from {from} with a prompt of {prompt} was not found");
}

#[test]
fn a_trial_finds_what_is_not_as_it_was_verified() {
    let model = model("llama-tiny-f16");
    for (fault, from, prompt, says) in [
        (Fault::Logits, 0, 5, "logits differ from the CPU reference"),
        (Fault::Heard, 1, 5, "read while it ran"),
        (Fault::Chosen, 1, 0, "verified"),
        (Fault::Chosen, 2, 0, "verified"),
        (Fault::Given, 1, 5, "was given"),
        (Fault::Logits, 2, 5, "last logits are not those of the first run"),
        (Fault::Reset, 2, 5, "Position of the step state is 11 after a reset"),
    ] {
        let text = found(&model, fault, from, prompt);
        assert!(text.contains(says), "{fault:?} from {from}: {text}");
    }
}

/// A head in which tokens 2i and 2i + 1 always have the same logit: the reference excuses either,
/// but a timed run that chooses another than the same kernels chose before is wrong.
#[test]
fn a_timed_run_has_no_near_ties_with_the_verified_one() {
    let mut model = model("llama-tiny-f16");
    let (vocab, hidden) = (model.config.vocab, model.config.hidden);
    let mut rng = Rng::derive(1, "head");
    let rows = (0..vocab / 2).map(|_| rng.normals(hidden)).flat_map(|row| [row.clone(), row]);
    let head: Arc<[u8]> = rows.flatten().flat_map(f32::to_le_bytes).collect();
    let bytes = head.len();
    model.weights.head = Some(WeightRows::new(Format::F32, hidden, Bytes::Owned(head, 0..bytes)));
    for from in [1, 2] {
        let text = found(&model, Fault::Chosen, from, 0);
        assert!(text.contains("was verified step by step, a timed run chose"), "{text}");
    }
    for prompt in [1, 5] {
        let script =
            Script { prompt: drawn(&model, 42, prompt).unwrap(), generate: 9, ..Script::default() };
        let graph = graph(&model, script.positions(), None);
        let mut device = on_cpu(&graph);
        let mut decoder = Decoder::new(&graph, &mut device);
        let mut checked = Checked::begin(&mut decoder, script, Some(8)).unwrap();
        let good = checked.run(&mut decoder).unwrap().generated;
        for i in 0..good.len() {
            let mut other = good.clone();
            other[i] ^= 1;
            let said = checked.check(&other).unwrap_err().to_string();
            let by = if i < 9 - prompt { "verified step by step" } else { "the first run" };
            assert!(said.contains(&format!("token {i}: ")) && said.contains(by), "{i}: {said}");
        }
    }
}

#[test]
fn prompts_are_ordinary_tokens_of_a_seed() {
    let (arch, quant) = (SynthArch::LlamaMini, Format::Bf16);
    let model = common::synthetic(&SynthSpec { arch, quant, embed_quant: None, seed: 42 });
    let long = drawn(&model, 42, 3000).unwrap();
    // Padding, end, beginning and unknown are the first four.
    assert!(long.iter().all(|t| *t >= 4 && (*t as usize) < model.config.vocab));
    assert!(long.iter().any(|t| *t as usize > model.config.vocab / 2));
    assert_eq!(drawn(&model, 42, 10).unwrap(), long[..10]);
    assert_ne!(drawn(&model, 43, 10).unwrap(), long[..10]);
}

fn good(args: &[&str]) -> String {
    printed(&lathe(args))
}

#[test]
fn what_cannot_be_run_is_refused_at_once() {
    let model = golden_name("llama-tiny-f16.gguf");
    let decode = ["bench", "decode", "-m", &model];
    for (args, says) in [
        (&["-p", "4-1"][..], "ends before it begins"),
        (&["-p", "x"], "`x` is no count"),
        (&["-n", "1-4*1"], "does not get on"),
        (&["-d", "1-9+0"], "does not get on"),
        (&["-pg", "512"], "512,128"),
        (&["-r", "0"], "from 1 to 1000"),
        (&["--steps-per-submit", "0"], "1 to 4096"),
        (&["-p", "0", "-n", "0"], "leaves no test"),
        (&["--arch", "gemma3-mini"], "cannot be used with"),
        (&["--no-verify", "--verify-positions", "3"], "cannot be used with"),
        (&["--hint", "nonsense"], "nonsense"),
        (&["--top-p", "0.9"], "says nothing at temperature 0"),
        (&["--temperature", "1", "--sequences", "1,2"], "goes with no sampling"),
    ] {
        assert_refused(&[&decode[..], args].concat(), 2, says);
    }
    assert_refused(&["bench", "decode"], 2, "<MODEL>");
    assert_refused(&["suite"], 2, "<MODEL>");
    assert_refused(
        &["suite", "--tier", "quick", "--only", "long", "-m", &model],
        2,
        "short, medium",
    );
    assert_refused(&["suite", "--tier", "all", "-m", &model], 2, "invalid value");
    assert_refused(&["bench", "nonsense"], 2, "no kernel `nonsense`");
    let existing = golden_name("llama-tiny-f16.json");
    if common::gpu().is_some_and(|gpu| gpu.adapter.software) {
        assert_refused(&[&decode[..], &["--verify-positions", "0"]].concat(), 2, "--no-verify");
        assert_refused(
            &[&decode[..], &["--save", "unwritten.json"]].concat(),
            3,
            "--allow-software",
        );
        assert_refused(&["suite", "-m", &model, "-o", "unwritten.json"], 3, "--allow-software");
        assert_refused(&[&decode[..], &["--save", &existing]].concat(), 2, "not overwritten");
    }
}

/// No greedy step has a `sample`: neither the one that is timed nor the one that is tried for its
/// memory may be greedy.
#[test]
fn a_file_that_draws_is_timed_in_whole_steps() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let file = folder.write("mine.wgsl", good(&["show", "sample/race"]));
    let model = golden_name("llama-tiny-f16.gguf");
    let hint = format!("sample/race={file}");
    let base = ["bench", "decode", "-m", &model, "-p", "0", "-n", "4", "-r", "1", "--untuned"];
    let drawn = ["--temperature", "0.8", "--hint", &hint, "--allow-software", "--json"];
    let document = document(&lathe(&[&base[..], &drawn].concat()));
    let tests = document["tests"].as_array().unwrap();
    assert!(!tests.is_empty());
    assert!(tests.iter().all(|t| t["verified"]["positions"].as_u64().unwrap() > 0));
}

#[test]
fn bench_decode_prints_llama_benchs_rows() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let model = golden_name("llama-tiny-f16.gguf");
    let base = ["bench", "decode", "-m", &model, "-r", "3", "--untuned", "--allow-software"];
    let saved = folder.path("tests.json");
    let lengths = ["-p", "4,6", "-n", "5", "-d", "0,3", "-pg", "4,3"];
    let save = ["--save", &saved, "--json"];
    // A process of its own: the record has its command line.
    let run = command(&[&base[..], &lengths, &save].concat()).output().unwrap();
    let record = document(&run);
    assert_eq!(record["kind"], "generation_tests");
    let tests = record["tests"].as_array().unwrap();
    let seen: Vec<_> = tests
        .iter()
        .map(|t| (t["test"].as_str().unwrap(), t["steps_per_submit"].as_u64()))
        .collect();
    let at = |depth: &str| -> Vec<(String, Option<u64>)> {
        [
            ("pp4", None),
            ("pp6", None),
            ("tg5", Some(1)),
            ("tg5", Some(8)),
            ("pp4+tg3", Some(1)),
            ("pp4+tg3", Some(8)),
        ]
        .map(|(test, steps)| (format!("{test}{depth}"), steps))
        .to_vec()
    };
    let expected = [at(""), at(" @ d3")].concat();
    let expected: Vec<_> = expected.iter().map(|(test, steps)| (test.as_str(), *steps)).collect();
    assert_eq!(seen, expected);
    for test in tests {
        let samples = test["samples_ns"].as_array().unwrap();
        assert_eq!(samples.len(), 3);
        let tokens = test["n_prompt"].as_f64().unwrap() + test["n_gen"].as_f64().unwrap();
        for (ns, ts) in samples.iter().zip(test["samples_ts"].as_array().unwrap()) {
            let rate = tokens / (ns.as_f64().unwrap() * 1e-9);
            assert!((rate / ts.as_f64().unwrap() - 1.0).abs() < 1e-6, "{test}");
        }
        assert_eq!(test["tok_s"]["mean"], test["avg_ts"]);
        assert_eq!(test["tok_s"]["sd"], test["stddev_ts"]);
        let all = tokens as u64 + test["n_depth"].as_u64().unwrap();
        assert_eq!(test["verified"]["positions"].as_u64().unwrap(), all.min(8), "{test}");
        assert_eq!(test["model_n_params"], 484_240);
        assert_eq!(test["type_k"], "f16");
    }
    let environment = &record["environment"];
    assert!(environment["command"].as_str().unwrap().starts_with("lathe bench decode -m "));

    // The same run again does not write over the record; the record is read by both readers.
    assert_refused(&[&base[..], &["--save", &saved]].concat(), 2, "not overwritten");
    let compared = json(&lathe(&["compare", &saved, &saved, "--force", "--json"]));
    let cases = compared["cases"].as_array().unwrap();
    assert_eq!(cases.len(), tests.len());
    assert!(cases.iter().all(|case| case["ratio"]["median"] == 1.0), "{cases:?}");
    let page = folder.path("tests.html");
    good(&["report", &saved, "-o", &page]);
    let html = folder.read("tests.html");
    for word in ["pp4+tg3 @ d3", "Outputs verified before a figure", "lathe bench decode -m"] {
        assert!(html.contains(word), "{word}");
    }

    // Several sequences: figures of all together, in tests of their own.
    let together = folder.path("together.json");
    let several = ["-p", "0", "-n", "5", "-d", "0,3", "--sequences", "1,3"];
    good(&[&base[..], &several, &["--steps-per-submit", "2", "--save", &together]].concat());
    let document: Value = serde_json::from_str(&folder.read("together.json")).unwrap();
    let tests: Vec<_> = document["tests"].as_array().unwrap().iter().collect();
    let names: Vec<_> = tests.iter().map(|t| t["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["tg5", "tg5 x3", "tg5 @ d3", "tg5 x3 @ d3"]);
    for test in tests.iter().filter(|t| t["sequences"] == 3) {
        let [ns, ts] = ["samples_ns", "samples_ts"].map(|key| test[key].as_array().unwrap());
        for (ns, ts) in ns.iter().zip(ts) {
            let rate = 15.0 / (ns.as_f64().unwrap() * 1e-9);
            assert!((rate / ts.as_f64().unwrap() - 1.0).abs() < 1e-6, "{test}");
        }
        assert!(test["verified"]["positions"].as_u64().unwrap() > 0, "{test}");
        assert!(test["kv_cache_bytes"].as_u64() > tests[0]["kv_cache_bytes"].as_u64());
    }
    assert_refused(&[&base[..], &["--sequences", "0"]].concat(), 2, "--sequences 0");

    let short = [&base[..], &["-p", "4", "-n", "3", "--no-verify"]].concat();
    let md = good(&short);
    assert!(md.starts_with("| model"), "{md}");
    let rows: Vec<&str> = md.lines().filter(|line| line.starts_with("| llama")).collect();
    assert_eq!(rows.len(), 3, "{md}");
    assert!(rows.iter().all(|row| row.contains("(not verified)")), "{md}");
}

#[test]
fn the_suite_puts_models_side_by_side() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let models = ["llama-tiny-f16.gguf", "qwen3-tiny-q80.gguf"].map(golden_name);
    let (record, page) = (folder.path("suite.json"), folder.path("suite.html"));
    let few = ["--only", "short", "--warm-ups", "1", "--repetitions", "2", "--untuned"];
    let base = [&["suite", "-m", &models[0], &models[1]][..], &few].concat();
    let files = ["-o", &record, "--html", &page, "--allow-software"];
    let suite = document(&lathe(&[&base[..], &files, &["--json"]].concat()));
    assert_eq!(suite["kind"], "suite");
    for model in suite["models"].as_array().unwrap() {
        let short = &model["configs"]["short"];
        for key in [
            "ttft_ms",
            "prefill_tok_s",
            "e2e_tok_s",
            "decode_tok_s",
            "one_step_decode_tok_s",
            "p50_ms",
            "p95_ms",
            "kv_cache_bytes",
            "gpu_memory_bytes",
        ] {
            assert!(short[key].as_f64().unwrap() > 0.0, "{key} in {short}");
        }
        assert!(short["p95_ms"].as_f64() >= short["p50_ms"].as_f64());
        assert_eq!(short["verified"]["positions"], 8);
        let runs = short["runs"].as_array().unwrap();
        let steps: Vec<_> = runs
            .iter()
            .map(|r| (r["steps_per_submit"].as_u64(), r["step_ms"].as_array().map(Vec::len)))
            .collect();
        // Only a step with a submission of its own has a time of its own.
        assert_eq!(steps, [(Some(8), Some(0)), (Some(1), Some(63))].repeat(2));
    }
    // 128 slots of 3 layers, keys and values, 2 heads of 32, two bytes each.
    let cache = &suite["models"][0]["configs"]["short"]["kv_cache_bytes"];
    assert_eq!(cache.as_u64(), Some(128 * 3 * 2 * 2 * 32 * 2));

    let tables = good(&base);
    let html = folder.read("suite.html");
    for word in ["llama-tiny-f16 P50", "qwen3-tiny-q80 P95", "short 64/64", "one step a submission"]
    {
        assert!(tables.contains(word), "{word} in {tables}");
        assert!(html.contains(word), "{word}");
    }
    let compared = json(&lathe(&["compare", &record, &record, "--force", "--json"]));
    assert_eq!(compared["cases"].as_array().unwrap().len(), 2 * 3, "{compared}");
    // A suite and a run of tests have nothing in common.
    let tests = folder.path("tests.json");
    let args = ["bench", "decode", "-m", &models[0], "-p", "4", "-n", "0", "-r", "1"];
    good(&[&args[..], &["--save", &tests, "--allow-software"]].concat());
    assert_refused(&["compare", &record, &tests, "--force"], 2, "nothing to compare");
}

/// A kernel that is right as far as anybody looks step by step, and wrong from then on: the caches
/// say so at the end, to `bench decode` and to `decode`, drawn or not.
#[test]
fn a_kernel_that_is_wrong_late_is_found_at_the_end() {
    let Some(_) = common::gpu() else { return };
    let text = lathe_kernels::source("attention_append", "naive").unwrap().text;
    let begins = "    append_head(workgroup.x";
    assert!(text.contains(begins), "{text}");
    let folder = Folder::new();
    let file = |name: &str, text: &str| format!("attention_append={}", folder.write(name, text));
    let sound = file("sound.wgsl", text);
    let late = format!("    if (state[POSITION] >= 12u) {{ return; }}\n{begins}");
    let late = file("late.wgsl", &text.replace(begins, &late));
    let model = golden_name("qwen3-tiny-bf16.gguf");
    let bench = ["bench", "decode", &model, "-p", "0", "-n", "20", "-r", "1", "--json"];
    let tests = ["--steps-per-submit", "4", "--hint"];
    let found = "at the end of the run, position 19: logits differ";
    for drawn in [false, true] {
        let draws: &[&str] = if drawn { &["--temperature", "0.8", "--top-p", "0.9"] } else { &[] };
        let record = document(&lathe(&[&bench[..], draws, &tests, &[&sound]].concat()));
        let test = &record["tests"][0];
        let end = test["verified"]["end_nmse"].as_f64().unwrap();
        assert!(0.0 < end && end < 1e-5, "{end}");
        if drawn {
            assert_eq!(test["test"], "tg20, T 0.8 top-p 0.9");
            assert_eq!(test["sampling"]["top_k"], 0);
        }
        assert_refused(&[&bench[..], draws, &tests, &[&late]].concat(), 1, found);
    }
    let decode = ["decode", &model, "--prompt-tokens", "5", "-n", "20", "--json", "--hint", &late];
    assert_refused(&decode, 1, found);
    let profile = folder.path("profile.json");
    let profiled = ["--profile", &profile, "--allow-software"];
    assert_refused(&[&decode[..], &profiled].concat(), 1, found);
    assert!(!Path::new(&profile).exists(), "a record of a wrong decode");
    let sides = |b: &str| {
        let ab = ["ab", "decode", "--model", &model, "--a", &sound, "--b", b, "--time-out", "1"];
        lathe(&[&ab[..], &["--allow-software", "--json"]].concat())
    };
    let record = json(&sides(&sound));
    assert!(record["verified"]["end_nmse"].as_f64().unwrap() < 1e-5, "{record}");
    assert_ends(&sides(&late), 1, "at the end of the run, position 35: logits differ");
}
