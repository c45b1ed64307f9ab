//! Checkpoints: GGUF files and safetensors with a configuration, whole and in shards. They are
//! sound, broken, hostile or mutated; the last tests are about the files `lathe quantize` writes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/corpus.rs"]
mod corpus;

mod accepted;
mod folder;
mod gguf;
mod gguf_broken;
mod gguf_read;
mod hostile;
mod mutated;
mod quantize;
mod refused;
mod replay;
mod settings;
mod table;

use std::path::Path;

use common::Golden;
use lathe_harness::decode::{DecodeOptions, Model, Script};
use lathe_harness::execute::Execute;
use lathe_kernels::{Capabilities, Format, KvFormat};

const GOLDENS: [&str; 3] = ["gemma3-tiny-f16", "llama-tiny-f16", "qwen3-tiny-bf16"];

/// Logits of forced tokens with an f32 cache, on a device or by the reference, and the choices.
fn logits(
    path: &Path,
    quantise: Option<Format>,
    gpu: Option<&common::Device>,
    script: &Script,
) -> (Vec<f32>, Vec<u32>) {
    let model = Model::open_as(path, quantise).unwrap();
    let context = script.prompt.len() + script.generate + 1;
    let options = DecodeOptions { kv: KvFormat::F32, ..DecodeOptions::of_step(context) };
    let caps = gpu.map_or_else(Capabilities::minimal, |gpu| gpu.caps.clone());
    let graph = model.graph_for(&caps, &options).unwrap();
    let mut executor: Box<dyn Execute> = match gpu {
        None => Box::new(common::on_cpu(&graph)),
        Some(gpu) => Box::new(common::on_gpu(gpu, &graph)),
    };
    let (chosen, logits) = common::observed(&graph, &mut *executor, script);
    (logits, chosen)
}

/// Holds a checkpoint against a golden's logits and choices.
fn hold(golden: &Golden, path: &Path, gpu: Option<&common::Device>, limit: f64) {
    let (logits, greedy) = logits(path, None, gpu, &golden.forced());
    let error = common::nmse(&golden.logits, &logits[..golden.logits.len()]);
    eprintln!("{}: NMSE {error:.2e}", path.display());
    assert!(error <= limit, "{}: NMSE {error:e}", path.display());
    assert_eq!(greedy, golden.greedy, "{}", path.display());
}

/// The trained checkpoint and its first text, where `LATHE_RUSTY` names its folder.
fn trained() -> Option<(std::path::PathBuf, Golden)> {
    let Some(folder) = std::env::var_os("LATHE_RUSTY").map(std::path::PathBuf::from) else {
        eprintln!("UNAVAILABLE, not tested: LATHE_RUSTY names no folder");
        return None;
    };
    let (json, logits) = (folder.join("rusty.json"), folder.join("rusty.logits.f32"));
    let golden = Golden::of(&json, &logits, "/cases/0", Model::open(&folder).unwrap());
    Some((folder, golden))
}
