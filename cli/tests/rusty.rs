//! A small trained checkpoint: the committed quantised file (goldens/rusty/README.md), and where
//! `LATHE_RUSTY` names its folder the bf16 one, against transformers' texts and likelihoods.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lathe_harness::decode::perplexity::{self, Text};
use lathe_harness::decode::{DecodeOptions, Decoder, Model, Prompts, Script};
use lathe_harness::execute::{CpuExecutor, Execute};
use lathe_harness::gpu::{Gpu, Policy};
use lathe_harness::model::ModelFile;
use lathe_harness::model::export::{ExportSpec, write_gguf};
use lathe_harness::model::tokenizer::Tokenizer;
use lathe_kernels::{Format, KvFormat};
use rayon::prelude::*;
use serde_json::Value;

use crate::common::{self, Device, ids};

fn read(name: &str) -> String {
    std::fs::read_to_string(common::golden("rusty").join(name)).unwrap()
}

fn json(name: &str) -> Value {
    serde_json::from_str(&read(name)).unwrap()
}

fn quantised() -> Model {
    Model::open(common::golden("rusty/rusty-q6_k.gguf")).unwrap()
}

/// The folder of the bf16 checkpoint, or `None` with a word on stderr.
fn bf16() -> Option<PathBuf> {
    let folder = std::env::var_os("LATHE_RUSTY");
    if folder.is_none() {
        eprintln!("UNAVAILABLE, not tested: LATHE_RUSTY names no folder");
    }
    folder.map(PathBuf::from)
}

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn options(context: usize) -> DecodeOptions {
    let kv = KvFormat::F32;
    DecodeOptions { context, kv, store: None, ..DecodeOptions::default() }
}

/// Greedy texts of the model after the oracle's prompts, each with its number, and after the first
/// prompt on both paths.
fn greedy_texts(model: &Model, gpu: Option<&Device>) -> Vec<(usize, Vec<u32>)> {
    let oracle = json("rusty.json");
    let cases = oracle["cases"].as_array().unwrap().iter().enumerate();
    let cases: Vec<_> = cases.collect();
    let graph = model.graph(gpu.map(|gpu| -> &Gpu { gpu }), &options(160)).unwrap();
    let recording = &graph.recording;
    let mut executor: Box<dyn Execute> = match gpu {
        None => Box::new(CpuExecutor::new(Arc::clone(recording))),
        Some(gpu) => Box::new(common::executor(gpu, recording, Policy::Plain)),
    };
    let mut write = |case: &Value, prompts| {
        let options = Script {
            prompt: ids(&case["prompt"]),
            generate: ids(&case["greedy"]).len(),
            steps_per_submit: Some(8),
            prompts,
            ..Script::default()
        };
        Decoder::new(&graph, &mut *executor).run(&options, &mut |_| {}).unwrap().generated
    };
    let texts: Vec<_> =
        cases.iter().map(|(at, case)| (*at, write(case, Prompts::Chunks))).collect();
    let (_, first) = cases[0];
    assert_eq!(write(first, Prompts::TokenByToken), texts[0].1, "{}", first["text"]);
    texts
}

/// Windows of the held-out text that every run predicts: all 32 take a minute and a half of CPU
/// time, and run where `LATHE_RUSTY` names the bf16 checkpoint.
const FIRST: usize = 8;

/// Mean negative log-likelihood of `windows` windows of the held-out text, on the CPU.
fn held_out(model: &Model, windows: usize) -> f64 {
    let oracle = &json("rusty.json")["held_out"];
    let size = oracle["window"].as_u64().unwrap() as usize;
    let tokens = model.tokenizer().unwrap().encode(&read("held-out.txt"), false).unwrap();
    let start = perplexity::start_token(model).unwrap();
    let text = Text::new(start, &tokens, size, None).unwrap();
    assert_eq!(text.tokens() as u64, oracle["tokens"].as_u64().unwrap());
    let graph = model.graph(None, &options(size)).unwrap();
    let windows: Vec<&[u32]> = text.windows().take(windows).collect();
    // A model this small keeps no more than one core busy.
    let sum_of = |executor: &mut CpuExecutor, window: &&[u32]| -> f64 {
        let mut runner = Decoder::new(&graph, executor);
        let text = Text::new(start, window, size, Some(size)).unwrap();
        let scores = perplexity::scores(&mut runner, None, &text, &mut |_| {}).unwrap();
        scores.nll.iter().sum()
    };
    let sums = windows.par_iter().map_init(|| common::on_cpu(&graph), sum_of);
    sums.sum::<f64>() / (windows.len() * size) as f64
}

#[test]
fn the_quantised_file_writes_what_it_wrote() {
    let model = quantised();
    let texts = greedy_texts(&model, None);
    let (oracle, own) = (json("rusty.json"), json("rusty-q6_k.json"));
    let trained = Tokenizer::open(common::golden("rusty/tokenizer.json")).unwrap();
    let pairs = oracle["cases"].as_array().unwrap().iter().zip(own["cases"].as_array().unwrap());
    assert_eq!(texts.len(), pairs.len());
    for ((theirs, ours), (_, written)) in pairs.zip(&texts) {
        assert_eq!(theirs["text"], ours["text"]);
        assert_eq!(*written, ids(&ours["greedy"]), "{}", ours["text"]);
        // As far as what quantising lost leaves the bf16 checkpoint's text.
        let greedy = ids(&theirs["greedy"]);
        let same = written.iter().zip(&greedy).take_while(|(a, b)| a == b).count();
        assert_eq!(same as u64, ours["as_bf16"].as_u64().unwrap(), "{}", ours["text"]);
        // The file's own tokenizer and that of `tokenizer.json` are the oracle's.
        let text = theirs["text"].as_str().unwrap();
        for tokenizer in [model.tokenizer().unwrap(), &trained] {
            assert_eq!(tokenizer.encode(text, true).unwrap(), ids(&theirs["prompt"])[1..]);
            assert_eq!(tokenizer.decode(&greedy), theirs["continuation"].as_str().unwrap());
        }
        let markup = format!("<|endoftext|>{text}");
        assert_eq!(trained.encode_markup(&markup).unwrap(), ids(&theirs["prompt"]));
    }
    let Some(gpu) = common::own_gpu() else { return };
    for (at, text) in greedy_texts(&model, Some(&gpu)) {
        assert_eq!(text, texts[at].1, "on a device");
    }
}

/// Quantising costs 0.0029 of the oracle's 3.7888: an eighth of that figure's standard error. On
/// the first windows it costs 0.0031 of 3.7382.
#[test]
fn the_quantised_file_predicts_nearly_as_well_as_bf16() {
    let (own, oracle) = (&json("rusty-q6_k.json")["held_out"], &json("rusty.json")["held_out"]);
    let model = quantised();
    let costs = |windows, key: &str, more: f64| {
        let (mean, recorded, theirs) =
            (held_out(&model, windows), float(&own[key]), float(&oracle[key]));
        assert!((mean - recorded).abs() < 1e-6, "{key}: {mean} is not {recorded}");
        assert!((mean - theirs - more).abs() < 1e-4, "{key}: {mean} beside {theirs}");
    };
    costs(FIRST, "first_mean_nll", 0.00311);
    if bf16().is_some() {
        costs(usize::MAX, "mean_nll", 0.00292);
    }
}

#[test]
fn the_bf16_checkpoint_has_the_texts_and_the_likelihood_of_transformers() {
    let Some(folder) = bf16() else { return };
    let model = Model::open(folder).unwrap();
    let oracle = json("rusty.json");
    let greedy = |at: usize| ids(&oracle["cases"][at]["greedy"]);
    for (at, text) in greedy_texts(&model, None) {
        assert_eq!(text, greedy(at));
    }
    if let Some(gpu) = common::own_gpu() {
        for (at, text) in greedy_texts(&model, Some(&gpu)) {
            assert_eq!(text, greedy(at), "on a device");
        }
    }
    for (windows, key) in [(FIRST, "first_mean_nll"), (usize::MAX, "mean_nll")] {
        let (mean, expected) = (held_out(&model, windows), float(&oracle["held_out"][key]));
        eprintln!("{key} {mean:.10}, transformers {expected:.10}");
        assert!((mean - expected).abs() < 1e-6, "{mean} is not {expected}");
    }
}

#[test]
fn the_committed_file_is_what_quantize_makes_of_the_bf16_checkpoint() {
    let Some(folder) = bf16() else { return };
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("rusty-q6_k.gguf");
    let spec = ExportSpec {
        weights: Format::Q6K,
        embed: Some(Format::Q8_0),
        overwrite: false,
        without_tokenizer: false,
    };
    write_gguf(&ModelFile::open(folder).unwrap(), &spec, &path, &mut |_, _| {}).unwrap();
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let committed = bytes(&common::golden("rusty/rusty-q6_k.gguf"));
    assert!(bytes(&path) == committed, "made anew it is another file");
    assert!(committed.len() <= 6_000_000, "{}", committed.len());
}
