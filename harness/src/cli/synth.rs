//! `lathe synth`: a deterministic random checkpoint.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use super::out;
use crate::error::{Error, Result};
use crate::model::synth::{SynthArch, SynthSpec, weight_type, write_synth};
use crate::report::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// Shape: gemma3-1b, llama3.2-1b, qwen3-1.7b, gemma3-mini, llama-mini, qwen3-mini
    #[arg(long)]
    arch: String,
    /// Storage of the matrices: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k.
    /// Rows that are no multiple of 256 are stored as llama-quantize would
    #[arg(long, default_value = "bf16")]
    quant: String,
    /// Storage of the embedding, if another
    #[arg(long)]
    embed_quant: Option<String>,
    /// Seed of all weights
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// File to write; an existing one is never overwritten
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let quant = |text: &str| weight_type(text).map_err(|e| Error::Usage(format!("--quant {e}")));
    let spec = SynthSpec {
        arch: opts.arch.parse::<SynthArch>().map_err(|e| Error::Usage(format!("--arch {e}")))?,
        quant: quant(&opts.quant)?,
        embed_quant: opts.embed_quant.as_deref().map(quant).transpose()?,
        seed: opts.seed,
    };
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
