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
mod replay;

use std::path::Path;
use std::sync::Arc;

use lathe_harness::decode::{DecodeOptions, Prompts, Script, Weights, graph};
use lathe_harness::error::Result;
use lathe_harness::execute::{CpuExecutor, Execute};
use lathe_harness::model::{Config, ModelFile};
use lathe_kernels::{Capabilities, Format, KvFormat};

const GOLDENS: [&str; 3] = ["gemma3-tiny-f16", "llama-tiny-f16", "qwen3-tiny-bf16"];

/// A checkpoint as far as it can be loaded.
fn load(path: &Path) -> Result<(Arc<ModelFile>, Config, Weights)> {
    let file = Arc::new(ModelFile::open(path)?);
    let config = file.config()?;
    let weights = Weights::load(&file, &config, None)?;
    Ok((file, config, weights))
}

/// Logits of forced tokens with an f32 cache, on a device or by the reference, and the choices.
fn logits(
    path: &Path,
    quantise: Option<Format>,
    gpu: Option<&common::Device>,
    options: &Script,
) -> (Vec<f32>, Vec<u32>) {
    let file = Arc::new(ModelFile::open(path).unwrap());
    let config = file.config().unwrap();
    let weights = Weights::load(&file, &config, quantise).unwrap();
    let context = options.prompt.len() + options.generate + 1;
    let graph_options = DecodeOptions { kv: KvFormat::F32, ..DecodeOptions::of_step(context) };
    let caps = gpu.map_or_else(Capabilities::minimal, |gpu| gpu.caps.clone());
    let graph = graph::build(path, &config, &weights, &caps, &graph_options, None).unwrap();
    let mut executor: Box<dyn Execute> = match gpu {
        None => Box::new(CpuExecutor::new(Arc::clone(&graph.recording))),
        Some(gpu) => Box::new(common::on_gpu(gpu, &graph)),
    };
    let (chosen, logits) = common::observed(&graph, &mut *executor, options);
    (logits, chosen)
}

/// Results of transformers for a golden.
struct Golden {
    options: Script,
    logits: Vec<f32>,
}

impl Golden {
    fn of(json: &Path, logits: &Path, case: &str) -> Self {
        let text = std::fs::read_to_string(json).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ids = |key: &str| common::ids(json.pointer(&format!("{case}/{key}")).unwrap());
        let (prompt, forced) = (ids("prompt"), ids("greedy"));
        let generate = forced.len();
        let prompts = Prompts::TokenByToken;
        let options = Script {
            prompt,
            forced,
            generate,
            prompts,
            steps_per_submit: Some(1),
            ..Script::default()
        };
        let bytes = std::fs::read(logits).unwrap();
        Self { options, logits: bytemuck::pod_collect_to_vec(&bytes) }
    }

    fn named(name: &str) -> Self {
        let file = |end: &str| common::golden(&format!("{name}.{end}"));
        Self::of(&file("json"), &file("logits.f32"), "")
    }

    /// Holds a checkpoint against the logits and returns its NMSE.
    fn hold(&self, path: &Path, gpu: Option<&common::Device>, limit: f64) -> f64 {
        let (logits, greedy) = logits(path, None, gpu, &self.options);
        let error = nmse(&self.logits, &logits);
        assert!(error <= limit, "{}: NMSE {error:e}", path.display());
        assert_eq!(greedy, self.options.forced, "{}", path.display());
        error
    }
}

fn nmse(expected: &[f32], got: &[f32]) -> f64 {
    assert!(got.len() >= expected.len());
    let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    lathe_reference::nmse(wide(expected), wide(&got[..expected.len()]))
}
