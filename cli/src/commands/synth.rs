//! `lathe synth`: a deterministic random checkpoint.

use std::path::PathBuf;

use clap::Args;
use lathe_harness::error::Result;
use lathe_harness::model::synth::{SynthArch, SynthSpec, weight_type, write_synth};
use lathe_kernels::Format;

use crate::global::Global;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// Shape: gemma3-1b, llama3.2-1b, qwen3-1.7b, gemma3-mini, llama-mini, qwen3-mini
    #[arg(long)]
    arch: SynthArch,
    /// Storage of the matrices: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k.
    /// Rows that are no multiple of 256 are stored as llama-quantize would
    #[arg(long, default_value = "bf16", value_parser = weight_type)]
    quant: Format,
    /// Storage of the embedding, if another
    #[arg(long, value_parser = weight_type)]
    embed_quant: Option<Format>,
    /// Seed of all weights
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// File to write; an existing one is never overwritten
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let Opts { arch, quant, embed_quant, seed, .. } = *opts;
    let spec = SynthSpec { arch, quant, embed_quant, seed };
    let summary = global.by_bytes("writing", |on| write_synth(&spec, &opts.output, on))?;
    if global.json {
        out::json(&summary);
    } else {
        outln!(
            "{}: {} parameters in {} tensors, {} (seed {})",
            summary.path.display(),
            summary.parameters,
            summary.tensors,
            table::bytes(summary.bytes),
            summary.seed
        );
        let types: Vec<String> =
            summary.types.iter().map(|(name, tensors)| format!("{tensors} {name}")).collect();
        outln!("tensors: {}", types.join(", "));
        for fallback in &summary.fallbacks {
            outln!("{fallback}");
        }
    }
    Ok(())
}
