//! `lathe inspect`: contents of a checkpoint, and any reason why it cannot be decoded.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_harness::decode::memory::Predicted;
use lathe_harness::decode::{Chunks, DecodeOptions, Model, Weights};
use lathe_harness::error::{Error, Result};
use lathe_harness::model::chat::ChatTemplate;
use lathe_harness::model::finite::{self, Values};
use lathe_harness::model::{ModelFile, ModelSummary, describe};
use lathe_kernels::KvFormat;
use serde::Serialize;

use crate::args::{self, kv_format};
use crate::global::Global;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// GGUF file, folder with config.json and safetensors, or a .safetensors file beside a
    /// config.json
    file: PathBuf,
    /// Read all values, and list the tensors with one that is NaN or infinite: the first, and how
    /// many there are
    #[arg(long)]
    values: bool,
    /// Predict the device memory of a context of N positions, prompt and generated tokens together,
    /// on the adapter; an error if it does not fit
    #[arg(long, value_name = "N", value_parser = args::count)]
    context: Option<usize>,
    /// With --context: storage of the KV cache
    #[arg(long, default_value = "f16", requires = "context", value_parser = kv_format())]
    kv: KvFormat,
    /// With --context: tokens of a prompt that run together, at most; 0 for none
    #[arg(long, value_name = "N", value_parser = args::chunk, requires = "context")]
    prompt_chunk: Option<usize>,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    summary: ModelSummary,
    decodable: bool,
    reason: Option<String>,
    /// Reason why text cannot be read, only token ids.
    text: Option<String>,
    /// Reason why the chat template cannot be read, where there is one.
    chat: Option<String>,
    /// Notes on the files.
    notes: Vec<String>,
    /// Prediction for `--context`.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Predicted>,
    /// Findings of `--values`.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Values>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let file = Arc::new(ModelFile::open(&opts.file)?);
    let summary = describe(&file);
    let loaded = file.config().map_err(Into::into).and_then(|c| Weights::load(&file, &c, None));
    let refusal = loaded.err();
    let reason = refusal.as_ref().map(ToString::to_string);
    let (memory, too_large) = match opts.context.filter(|_| refusal.is_none()) {
        None => (None, None),
        Some(context) => {
            let (predicted, admitted) = predict(global, opts, context)?;
            (Some(predicted), admitted.err())
        }
    };
    let refusal = refusal.or(too_large);
    let mut notes = file.notes().to_vec();
    let (text, chat) = match file.tokenizer() {
        Ok(Some(tokenizer)) => {
            notes.extend(tokenizer.note());
            match ChatTemplate::of(&file, &tokenizer) {
                Ok(Some(template)) => {
                    notes.extend(template.note().map(str::to_owned));
                    notes.extend(template.divides(&tokenizer));
                    (None, None)
                }
                Ok(None) => (None, None),
                Err(error) => (None, Some(error.to_string())),
            }
        }
        Ok(None) => (Some(format!("{}: has no tokenizer", file.path.display())), None),
        Err(error) => (Some(error.to_string()), None),
    };
    let values = opts.values.then(|| finite::values(&file));
    let refusal = refusal.or_else(|| values.as_ref().and_then(wrong_values));
    let decodable = reason.is_none();
    let report = Report { summary, decodable, reason, text, chat, notes, memory, values };
    if global.json {
        out::json(&report);
        return refusal.map_or(Ok(()), Err);
    }
    let s = &report.summary;
    outln!(
        "{}: {}, {}, {} parameters, {} of {} are tensors",
        s.path.display(),
        match (s.gguf_version, s.files) {
            (Some(version), 1) => format!("GGUF version {version}"),
            (Some(version), files) => format!("GGUF version {version} in {files} files"),
            (None, 1) => "safetensors".to_owned(),
            (None, files) => format!("safetensors in {files} files"),
        },
        s.architecture.as_deref().unwrap_or("no architecture"),
        s.parameters,
        table::bytes(s.tensor_bytes),
        table::bytes(s.file_bytes),
    );
    if let Some(c) = &s.config {
        outln!(
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
    out::table(t);
    let mut t = table::table(&["key", "type", "value"], &[]);
    for line in &s.metadata {
        t.add_row(vec![line.key.clone(), line.ty.to_owned(), line.value.clone()]);
    }
    out::fitted(t);
    if let Some(values) = &report.values {
        if !values.unknown.is_empty() {
            outln!("not read, of types that are not decoded: {}", values.unknown.join(", "));
        }
        if values.not_finite.is_empty() {
            outln!("all values of {} tensors are finite", values.tensors);
        } else {
            let heads = ["tensor", "not finite", "first", "is", "byte", "of file"];
            let mut t = table::table(&heads, &[1, 2, 4]);
            for bad in &values.not_finite {
                t.add_row(vec![
                    bad.name.clone(),
                    bad.count.to_string(),
                    bad.index.to_string(),
                    bad.value.clone(),
                    bad.byte.to_string(),
                    bad.file.clone(),
                ]);
            }
            out::fitted(t);
        }
    }
    for note in &report.notes {
        outln!("{note}");
    }
    match (&report.text, &report.chat) {
        _ if !report.decodable => {}
        (None, None) => outln!("can be decoded"),
        (None, Some(why)) => outln!("can be decoded; the chat template cannot be read: {why}"),
        (Some(why), _) => outln!("can be decoded from token ids; text cannot be read: {why}"),
    }
    if let (Some(memory), Some(context)) = (&report.memory, opts.context) {
        outln!("device memory with {context} positions: {memory}");
    }
    refusal.map_or(Ok(()), Err)
}

/// The error for a file with values that are not finite.
fn wrong_values(values: &Values) -> Option<Error> {
    let first = values.not_finite.first()?;
    Some(Error::CheckFailed(format!(
        "{} of {} tensors have values that are not finite, {} the first: element {} is {}, byte {}",
        values.not_finite.len(),
        values.tensors,
        first.name,
        first.index,
        first.value,
        first.byte
    )))
}

/// Predicts the memory of a context on the adapter, and checks that it fits.
fn predict(global: &Global, opts: &Opts, context: usize) -> Result<(Predicted, Result<()>)> {
    let model = Model::open(&opts.file)?;
    let gpu = global.open()?;
    let kv = opts.kv;
    let usual = Chunks::with_cache(kv);
    let most = opts.prompt_chunk.unwrap_or(usual.most);
    let options = DecodeOptions {
        context,
        kv,
        chunks: Some(Chunks { most, ..usual }),
        ..DecodeOptions::default()
    };
    let graph = model.graph(Some(&gpu), &options)?;
    Ok(Predicted::of(&gpu, &graph))
}
