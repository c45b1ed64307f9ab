//! `lathe inspect`: what a checkpoint holds, and whether it can be decoded.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::Global;
use crate::decode::Weights;
use crate::error::Result;
use crate::model::{ModelFile, ModelSummary, describe};
use crate::report::{json, table};

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// GGUF file, folder with config.json and safetensors, or a .safetensors file beside a
    /// config.json
    file: PathBuf,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    summary: ModelSummary,
    decodable: bool,
    reason: Option<String>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let file = Arc::new(ModelFile::open(&opts.file)?);
    let summary = describe(&file);
    let loaded = file.config().map_err(Into::into).and_then(|c| Weights::load(&file, &c));
    let refusal = loaded.err();
    let reason = refusal.as_ref().map(ToString::to_string);
    let report = Report { summary, decodable: reason.is_none(), reason };
    if global.json {
        json::print(&report);
        return refusal.map_or(Ok(()), Err);
    }
    let s = &report.summary;
    println!(
        "{}: {}, {}, {} parameters, {} of {} are tensors",
        s.path.display(),
        match (s.gguf_version, s.files) {
            (Some(version), _) => format!("GGUF version {version}"),
            (None, 1) => "safetensors".to_owned(),
            (None, files) => format!("safetensors in {files} files"),
        },
        s.architecture.as_deref().unwrap_or("no architecture"),
        s.parameters,
        table::bytes(s.tensor_bytes),
        table::bytes(s.file_bytes),
    );
    if let Some(c) = &s.config {
        println!(
            "{} layers, hidden {}, ffn {}, heads {}/{} x {}, vocabulary {}, context {}{}",
            c.n_layers,
            c.hidden,
            c.ffn,
            c.n_heads,
            c.n_kv_heads,
            c.head_dim,
            c.vocab,
            c.context_length,
            c.window.map(|w| format!(", window {w}")).unwrap_or_default(),
        );
    }
    let mut t = table::table(&["type", "tensors", "parameters", "bytes"], &[1, 2, 3]);
    for ty in &s.types {
        t.add_row(vec![
            ty.ty.name().to_owned(),
            ty.tensors.to_string(),
            ty.parameters.to_string(),
            table::bytes(ty.bytes),
        ]);
    }
    println!("{t}");
    let mut t = table::table(&["key", "type", "value"], &[]);
    for line in &s.metadata {
        t.add_row(vec![line.key.clone(), line.ty.to_owned(), line.value.clone()]);
    }
    println!("{t}");
    if refusal.is_none() {
        println!("can be decoded");
    }
    refusal.map_or(Ok(()), Err)
}
