//! `lathe quantize`: a checkpoint as GGUF in another weight type.

use std::path::PathBuf;

use clap::Args;
use lathe_harness::error::Result;
use lathe_harness::model::ModelFile;
use lathe_harness::model::export::{ExportSpec, write_gguf};
use lathe_harness::model::synth::weight_type;
use lathe_kernels::Format;

use crate::global::Global;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// GGUF file, folder with config.json and safetensors, or a .safetensors file beside a
    /// config.json
    input: PathBuf,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Storage of the matrices: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k.
    /// Rows that are no multiple of 256 are stored as llama-quantize would
    #[arg(long = "type", value_name = "TYPE", value_parser = weight_type)]
    weights: Format,
    /// Storage of the embedding, and of a head of its own, if another
    #[arg(long, value_name = "TYPE", value_parser = weight_type)]
    embed_type: Option<Format>,
    /// Replace the output if it is there
    #[arg(long)]
    force: bool,
    /// Leave the tokenizer out
    #[arg(long)]
    no_tokenizer: bool,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let spec = ExportSpec {
        weights: opts.weights,
        embed: opts.embed_type,
        overwrite: opts.force,
        without_tokenizer: opts.no_tokenizer,
    };
    let file = ModelFile::open(&opts.input)?;
    let summary = global.by_bytes("quantizing", |on| write_gguf(&file, &spec, &opts.output, on))?;
    if global.json {
        out::json(&summary);
        return Ok(());
    }
    outln!(
        "{}: {} parameters, {} of tensors became a file of {}{}",
        summary.path.display(),
        summary.parameters,
        table::bytes(summary.source_bytes),
        table::bytes(summary.bytes),
        if summary.tokenizer { "" } else { ", no tokenizer" },
    );
    let columns = ["type", "matrices", "parameters", "bytes", "RMS error", "to nearest"];
    let mut t = table::table(&columns, &[1, 2, 3, 4, 5]);
    // A source of this type is copied.
    let shown = |error: Option<f64>| error.map_or_else(|| "as it was".to_owned(), percent);
    for ty in &summary.types {
        t.add_row(vec![
            ty.ty.to_owned(),
            ty.tensors.to_string(),
            ty.parameters.to_string(),
            table::bytes(ty.bytes),
            shown(ty.relative_rms_error),
            shown(ty.nearest_relative_rms_error),
        ]);
    }
    out::table(t);
    for fallback in &summary.fallbacks {
        outln!("{fallback}");
    }
    if summary.requantised > 0 {
        outln!(
            "{} tensors were quantised before: what that lost is not in these errors",
            summary.requantised
        );
    }
    Ok(())
}

fn percent(error: f64) -> String {
    format!("{:.4} %", 100.0 * error)
}
