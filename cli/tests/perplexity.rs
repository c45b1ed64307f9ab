//! `perplexity`: negative log-likelihoods against transformers' logits (see goldens/), divergence
//! against a plain second computation, and refused input.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lathe_harness::decode::perplexity::{self, Scores, Text};
use lathe_harness::decode::{Chunks, DecodeGraph, DecodeOptions, Decoder, Model, Prompts, Script};
use lathe_harness::execute::Execute;
use lathe_harness::gpu::Gpu;
use lathe_kernels::KvFormat;
use serde_json::Value;

use crate::command::talking_model;
use crate::common::{
    self, Folder, GOLDENS, Golden, assert_ends, golden_name, lathe, on_cpu, printed,
};

/// The golden's prompt and continuation, and transformers' logits after each of them.
fn golden(name: &str) -> (Vec<u32>, Vec<f32>) {
    let golden = Golden::load(name);
    ([golden.prompt, golden.greedy].concat(), golden.logits)
}

fn graph(name: &str, gpu: Option<&Gpu>, context: usize, kv: KvFormat) -> DecodeGraph {
    let chunks = Some(Chunks::NONE);
    let options = DecodeOptions { context, kv, chunks, store: None, ..DecodeOptions::default() };
    common::model(name).graph(gpu, &options).unwrap()
}

/// Scores of tokens alone.
fn scores(decoder: &mut Decoder<'_>, text: &Text<'_>) -> Scores {
    perplexity::scores(decoder, None, text, &mut |_| {}).unwrap()
}

/// Probabilities of a row, without a thought for overflow.
fn probabilities(row: &[f32]) -> Vec<f64> {
    let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
    row.iter().map(|l| f64::from(*l).exp() / sum).collect()
}

/// -ln p of each token by the row of logits before it.
fn plain_nll(logits: &[f32], tokens: &[u32]) -> Vec<f64> {
    let vocab = logits.len() / tokens.len();
    let rows = logits.chunks_exact(vocab).zip(tokens);
    rows.map(|(row, token)| -probabilities(row)[*token as usize].ln()).collect()
}

/// Logits after each of `tokens`, as a session shows them.
fn observed(graph: &DecodeGraph, executor: &mut dyn Execute, tokens: &[u32]) -> Vec<f32> {
    let options = Script {
        prompt: tokens.to_vec(),
        prompts: Prompts::TokenByToken,
        steps_per_submit: Some(1),
        ..Script::default()
    };
    common::observed(graph, executor, &options).1
}

fn assert_close(name: &str, got: &[f64], expected: &[f64], limit: f64) {
    assert_eq!(got.len(), expected.len(), "{name}");
    for (at, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= limit, "{name}, token {at}: {a} is not {b}");
    }
}

#[test]
fn tokens_have_the_likelihood_that_transformers_gives_them() {
    let gpu = common::own_gpu();
    for name in GOLDENS {
        let (tokens, logits) = golden(name);
        let scored = &tokens[1..];
        let rows = &logits[..logits.len() / tokens.len() * scored.len()];
        let expected = plain_nll(rows, scored);
        let mean = expected.iter().sum::<f64>() / expected.len() as f64;
        let text = Text::new(tokens[0], scored, scored.len(), None).unwrap();
        for (kv, each, all) in
            [(KvFormat::F32, 2e-4, 2e-5), (KvFormat::F16, 2e-2, 2e-3), (KvFormat::Q8_0, 2e-1, 2e-2)]
        {
            let graph = graph(name, None, scored.len(), kv);
            let mut executor = on_cpu(&graph);
            let mut runner = Decoder::new(&graph, &mut executor);
            let mut heard = 0;
            let scores = perplexity::scores(&mut runner, None, &text, &mut |n| heard += n).unwrap();
            assert_close(name, &scores.nll, &expected, each);
            assert_eq!(heard, scored.len());
            let quality = scores.quality();
            assert!((quality.nll.mean - mean).abs() < all, "{name}: {} {mean}", quality.nll.mean);
            assert!((quality.perplexity().ln() - quality.nll.mean).abs() < 1e-12);
            assert!(quality.against.is_none());
        }
        let Some(gpu) = &gpu else { continue };
        let graph = graph(name, Some(gpu), scored.len(), KvFormat::F32);
        let mut executor = common::on_gpu(gpu, &graph);
        let mut runner = Decoder::new(&graph, &mut executor);
        // Twice: nothing of the first window is left in the second.
        for _ in 0..2 {
            assert_close(name, &scores(&mut runner, &text).nll, &expected, 2e-3);
        }
    }
}

/// Windows longer than the chunk of logits that is held, and several of them.
#[test]
fn windows_are_sequences_of_their_own() {
    let name = "gemma3-tiny-f16";
    let (tokens, _) = golden(name);
    let tokens: Vec<u32> = tokens.iter().cycle().take(290).copied().collect();
    let (start, window) = (2, 140);
    let text = Text::new(start, &tokens, window, None).unwrap();
    assert_eq!((text.windows().len(), text.tokens()), (2, 280));
    let graph = graph(name, None, window, KvFormat::F32);
    let mut executor = on_cpu(&graph);
    let mut expected = Vec::new();
    for scored in text.windows() {
        let fed = [&[start], &scored[..window - 1]].concat();
        expected.extend(plain_nll(&observed(&graph, &mut executor, &fed), scored));
    }
    let mut runner = Decoder::new(&graph, &mut executor);
    let scores = scores(&mut runner, &text);
    assert_close(name, &scores.nll, &expected, 1e-9);
    let quality = scores.quality();
    let n = expected.len() as f64;
    let mean = expected.iter().sum::<f64>() / n;
    let squares: f64 = expected.iter().map(|v| v * v).sum();
    let error = ((squares / n - mean * mean) / (n - 1.0)).sqrt();
    assert!((quality.nll.mean - mean).abs() < 1e-9);
    assert!((quality.nll.std_error.unwrap() - error).abs() < 1e-9);
}

#[test]
fn scores_beside_a_reference_are_those_of_a_plain_computation() {
    let (name, reference) = ("llama-tiny-q4km", "llama-tiny-f16");
    let tokens = &golden(name).0[..40];
    let (start, scored) = (tokens[0], &tokens[1..]);
    let graphs = [name, reference].map(|n| graph(n, None, scored.len(), KvFormat::F32));
    let mut executors = [on_cpu(&graphs[0]), on_cpu(&graphs[1])];
    let fed = &tokens[..scored.len()];
    let rows = [0, 1].map(|i| observed(&graphs[i], &mut executors[i], fed));
    let [ours, theirs] = &mut executors;
    let mut model = Decoder::new(&graphs[0], ours);
    let mut other = Decoder::new(&graphs[1], theirs);
    let text = Text::new(start, scored, scored.len(), None).unwrap();
    let got = perplexity::scores(&mut model, Some(&mut other), &text, &mut |_| {}).unwrap();
    let nll = [0, 1].map(|i| plain_nll(&rows[i], scored));
    assert_close("nll", &got.nll, &nll[0], 1e-9);
    assert_close("reference", &got.reference_nll, &nll[1], 1e-9);
    let vocab = graphs[0].vocab;
    let pairs = rows[0].chunks_exact(vocab).zip(rows[1].chunks_exact(vocab));
    let (mut kl, mut agreeing) = (Vec::new(), 0);
    for ((q, p), top1) in pairs.zip(&got.top1) {
        let (q, p) = (probabilities(q), probabilities(p));
        kl.push(p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum::<f64>());
        let best = |p: &[f64]| (0..vocab).max_by(|a, b| p[*a].total_cmp(&p[*b]));
        assert_eq!(*top1 == 1.0, best(&p) == best(&q));
        agreeing += usize::from(*top1 == 1.0);
    }
    assert_close("kl", &got.kl, &kl, 1e-9);
    assert!(kl.iter().all(|kl| *kl > 0.0));
    let against = got.quality().against.unwrap();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    assert!((against.kl.mean - mean(&kl)).abs() < 1e-9);
    assert!((against.more.mean - (mean(&nll[0]) - mean(&nll[1]))).abs() < 1e-9);
    assert!((against.top1 - agreeing as f64 / scored.len() as f64).abs() < 1e-12);
}

fn file(name: &str) -> String {
    golden_name(&format!("{name}.gguf"))
}

const TEXT: &str = "A lathe turns the work against the tool, and what is left is round.";

/// The document of a run on the CPU.
fn document(args: &[&str]) -> Value {
    common::document(&lathe(&[&["perplexity", "--executor", "cpu", "--json"], args].concat()))
}

#[test]
fn the_command_reports_what_the_library_measures() {
    let folder = Folder::new();
    let text = folder.write("text.txt", TEXT);
    let model = file("llama-tiny-f16");
    let report = document(&["--model", &model, "--text", &text, "--window", "32"]);
    let opened = Model::open(&model).unwrap();
    let tokens = opened.tokenizer().unwrap().encode(TEXT, false).unwrap();
    assert!(tokens.len() > 32, "{}", tokens.len());
    let cut = Text::new(opened.config.bos.unwrap(), &tokens, 32, None).unwrap();
    let graph = graph("llama-tiny-f16", None, 32, KvFormat::F16);
    let mut executor = on_cpu(&graph);
    let mut runner = Decoder::new(&graph, &mut executor);
    let quality = scores(&mut runner, &cut).quality();
    assert_eq!(report["tokens"], cut.tokens());
    assert_eq!(report["windows"], cut.windows().len());
    assert_eq!(report["tokens_left_out"], tokens.len() - cut.tokens());
    for (key, value) in [
        ("mean_nll", quality.nll.mean),
        ("std_error", quality.nll.std_error.unwrap()),
        ("perplexity", quality.nll.mean.exp()),
    ] {
        assert!((report[key].as_f64().unwrap() - value).abs() < 1e-9, "{key}: {report}");
    }
    assert_eq!((&report["kv"], &report["activations"]), (&"f16".into(), &"f32".into()));
    assert_eq!(report["executor"], "cpu");
    assert!(report.get("kl_mean").is_none() && report.get("reference").is_none());

    let base = ["--model", &model, "--text", &text];
    let limited = document(&[&base[..], &["--limit", "9"]].concat());
    assert_eq!((&limited["tokens"], &limited["windows"]), (&9.into(), &1.into()));
    let one = document(&[&base[..], &["--limit", "1"]].concat());
    assert_eq!(one["std_error"], Value::Null);
    let f32 = document(&[&base[..], &["--window", "32", "--kv", "f32"]].concat());
    assert_ne!(f32["mean_nll"], report["mean_nll"]);

    let args = [&["perplexity", "--executor", "cpu", "--limit", "9"], &base[..]].concat();
    let nll = format!("{:.5} ±", limited["mean_nll"].as_f64().unwrap());
    let shown = printed(&lathe(&args));
    assert!(shown.contains(&nll) && !shown.contains("divergence"), "{shown}");
}

#[test]
fn a_model_beside_itself_and_beside_others() {
    let folder = Folder::new();
    let text = folder.write("text.txt", TEXT);
    for (exact, coarse) in
        [("llama-tiny-f16", "llama-tiny-q4km"), ("qwen3-tiny-bf16", "qwen3-tiny-q80")]
    {
        let (exact, coarse) = (file(exact), file(coarse));
        let run = |model: &str, more: &[&str]| {
            let base = ["--model", model, "--text", &text, "--window", "24", "--reference", &exact];
            document(&[&base[..], more].concat())
        };
        let itself = run(&exact, &[]);
        assert_eq!((&itself["kl_mean"], &itself["top1_agreement"]), (&0.0.into(), &1.0.into()));
        assert_eq!(itself["nll_difference"]["mean"], 0.0);
        assert_eq!(itself["mean_nll"], itself["reference"]["mean_nll"]);

        let other = run(&coarse, &[]);
        assert!(other["kl_mean"].as_f64().unwrap() > 1e-4, "{other}");
        assert!(other["top1_agreement"].as_f64().unwrap() < 1.0, "{other}");
        assert_eq!(other["reference"]["mean_nll"], itself["mean_nll"]);
        let [ours, theirs] = [&other, &other["reference"]].map(|o| o["mean_nll"].as_f64().unwrap());
        let difference = other["nll_difference"]["mean"].as_f64().unwrap();
        assert!((ours - theirs - difference).abs() < 1e-9, "{other}");

        // What storing the cache in 16 bits costs is small, and not nothing.
        let cache = run(&exact, &["--kv", "f16", "--reference-kv", "f32"]);
        let kl = cache["kl_mean"].as_f64().unwrap();
        assert!(kl > 0.0 && kl < 1e-4, "{cache}");
        assert_eq!(cache["reference"]["kv"], "f32");
        let activations = run(&exact, &["--activations", "f16", "--reference-activations", "f32"]);
        assert!(activations["kl_mean"].as_f64().unwrap() > 0.0, "{activations}");
    }
}

/// A golden's bytes with one text in place of another of the same length, wherever it is.
fn patched(name: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = std::fs::read(file(name)).unwrap();
    for (old, new) in changes {
        assert_eq!(old.len(), new.len());
        let places: Vec<usize> = (0..bytes.len() - old.len())
            .filter(|at| bytes[*at..].starts_with(old.as_bytes()))
            .collect();
        assert!(!places.is_empty(), "{old}");
        for at in places {
            bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
        }
    }
    bytes
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let folder = Folder::new();
    let text = folder.write("text.txt", TEXT);
    let (latin, empty) = (folder.write("latin.txt", b"caf\xe9"), folder.write("empty.txt", ""));
    let llama = file("llama-tiny-f16");
    let synth = talking_model(&folder);
    let respelt = patched("llama-tiny-f16", &[("<0x41>", "<0x4a>")]);
    let respelt = folder.write("respelt.gguf", respelt);
    let without = [
        ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.bos_token_no"),
        ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_no"),
    ];
    let no_bos = folder.write("no-bos.gguf", patched("qwen3-tiny-bf16", &without[..1]));
    let neither = folder.write("neither.gguf", patched("qwen3-tiny-bf16", &without));
    let no_tokenizer = common::repository("fuzz/corpus/gguf/model_llama");
    let broken = Model::open(&llama).unwrap();
    let range = broken.file.tensor("output_norm.weight").unwrap().range.clone();
    let mut bytes = broken.file.files()[0].bytes().to_vec();
    bytes[range.start..range.start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let broken = folder.write("nan.gguf", bytes);

    let w = ["--window", "16"];
    for (model, text, more, expected, message) in [
        (&llama, &latin, &w[..], 2, "latin.txt: byte 3 is not UTF-8"),
        (&llama, &empty, &w, 2, "empty.txt: the text is empty"),
        (&llama, &"nothing.txt".to_owned(), &w, 2, "nothing.txt"),
        (&llama, &text, &[], 2, "do not fill a window of 512"),
        (&llama, &text, &["--window", "0"], 2, "scores nothing"),
        (&llama, &text, &["--limit", "0"], 2, "scores nothing"),
        (&llama, &text, &["--limit", "400"], 2, "do not fill a window of 512"),
        (&llama, &text, &["--window", "18446744073709551615"], 2, "--window"),
        (&llama, &text, &["--window", "16", "--reference-kv", "f32"], 2, "--reference"),
        (&llama, &text, &["--window", "16", "--reference", &synth], 2, "320 and "),
        (
            &llama,
            &text,
            &["--window", "16", "--reference", &respelt],
            2,
            "\"<0x41>\" and \"<0x4a>\"",
        ),
        (&llama, &text, &["--window", "16", "--reference", &text], 5, "text.txt"),
        (&llama, &text, &["--window", "16", "--hint", "gemv=nonsense"], 2, "nonsense"),
        (&neither, &text, &w, 5, "neither.gguf: names neither tokenizer.ggml.bos_token_id nor"),
        (&no_tokenizer, &text, &w, 5, "has no tokenizer"),
        (&broken, &text, &w, 1, "window 0: position 0: the negative log-likelihood is NaN"),
    ] {
        let base = ["perplexity", "--executor", "cpu", "--model", model, "--text", text];
        let output = lathe(&[&base[..], more].concat());
        assert_ends(&output, expected, message);
        assert!(output.stdout.is_empty(), "{model} {more:?}");
    }
    // The eos takes the place of a bos that is not there.
    let report = document(&["--model", &no_bos, "--text", &text, "--window", "16"]);
    let eos = Model::open(&no_bos).unwrap().config.eos.unwrap();
    assert_eq!(report["start_token"], eos);
    // Any tokenizer may be given; one whose ids the model lacks is found before anything runs.
    let tokenizer = golden_name("rusty/tokenizer.json");
    let base = ["perplexity", "--executor", "cpu", "--model", &llama, "--text", &text];
    let output = lathe(&[&base[..], &["--limit", "8", "--tokenizer", &tokenizer]].concat());
    assert_ends(&output, 2, "beyond the vocabulary of 320");
}
