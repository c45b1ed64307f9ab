//! The tensors of an architecture: names and dimensions, checked against the file.

use std::collections::{HashMap, HashSet};

use super::{Arch, Config};
use crate::fault::Fault;
use crate::gguf::{GgmlType, TensorInfo};

const EMBEDDING: &str = "token_embd.weight";

/// The tensors of a checkpoint by GGUF's names, with their names in the files.
pub(crate) struct Tensors<'a> {
    list: &'a [TensorInfo],
    index: HashMap<&'a str, usize>,
    stored: &'a dyn Fn(&str) -> String,
}

impl<'a> Tensors<'a> {
    pub(crate) fn new(list: &'a [TensorInfo], stored: &'a dyn Fn(&str) -> String) -> Self {
        let index = list.iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
        Self { list, index, stored }
    }

    fn get(&self, name: &str) -> Option<&'a TensorInfo> {
        self.index.get(name).map(|&i| &self.list[i])
    }

    /// The rows of the embedding: as many as the vocabulary has tokens.
    pub(super) fn vocab(&self) -> Result<usize, Fault> {
        let name = (self.stored)(EMBEDDING);
        let tensor = self.get(EMBEDDING).ok_or_else(|| Fault::of_tensor(&name, "is missing"))?;
        let rows = tensor.rows();
        let size = u32::try_from(rows).ok().filter(|&v| v > 0).map(|v| v as usize);
        size.ok_or_else(|| {
            let why = format!("{rows} rows make no vocabulary");
            Fault::at(tensor.range.start, format!("tensor `{name}`"), why)
        })
    }

    /// Reason for refusing a setting that contradicts the embedding.
    pub(super) fn embedding_rows(&self, vocab: usize) -> String {
        format!("`{}` has {vocab} rows", (self.stored)(EMBEDDING))
    }
}

/// The tensors of an architecture, with their dimensions and those in words. The head and the rope
/// factors are among them where the model has its own.
pub(crate) fn expected(
    config: &Config,
    rope_freqs: bool,
) -> impl Iterator<Item = (String, Vec<u64>, &'static str)> {
    let size = |n: usize| n as u64;
    let (hidden, ffn, head_dim) = (size(config.hidden), size(config.ffn), size(config.head_dim));
    let vocab = size(config.vocab);
    // Each factor came from an u32, so the products fit.
    let q_rows = size(config.n_heads) * head_dim;
    let kv_rows = size(config.n_kv_heads) * head_dim;
    let (qk_norm, post_norms) = (config.qk_norm, config.post_norms);
    let whole = [
        (true, "token_embd", vec![hidden, vocab], "hidden, vocab"),
        (true, "output_norm", vec![hidden], "hidden"),
        (!config.tied_head, "output", vec![hidden, vocab], "hidden, vocab"),
        (rope_freqs, "rope_freqs", vec![head_dim / 2], "head_dim / 2"),
    ];
    let layer = [
        (true, "attn_norm", vec![hidden], "hidden"),
        (true, "attn_q", vec![hidden, q_rows], "hidden, n_heads · head_dim"),
        (true, "attn_k", vec![hidden, kv_rows], "hidden, n_kv_heads · head_dim"),
        (true, "attn_v", vec![hidden, kv_rows], "hidden, n_kv_heads · head_dim"),
        (true, "attn_output", vec![q_rows, hidden], "n_heads · head_dim, hidden"),
        (qk_norm, "attn_q_norm", vec![head_dim], "head_dim"),
        (qk_norm, "attn_k_norm", vec![head_dim], "head_dim"),
        (post_norms, "post_attention_norm", vec![hidden], "hidden"),
        (true, "ffn_norm", vec![hidden], "hidden"),
        (true, "ffn_gate", vec![hidden, ffn], "hidden, ffn"),
        (true, "ffn_up", vec![hidden, ffn], "hidden, ffn"),
        (true, "ffn_down", vec![ffn, hidden], "ffn, hidden"),
        (post_norms, "post_ffw_norm", vec![hidden], "hidden"),
    ];
    let layers = (0..config.n_layers).flat_map(move |number| {
        let parts = layer.clone().into_iter().filter(|part| part.0);
        parts.map(move |(_, part, dims, why)| (format!("blk.{number}.{part}.weight"), dims, why))
    });
    let whole = whole.into_iter().filter(|tensor| tensor.0);
    whole.map(|(_, name, dims, why)| (format!("{name}.weight"), dims, why)).chain(layers)
}

/// A tensor that the architecture does not have.
pub(crate) fn unexpected(name: &str, arch: Arch) -> Fault {
    let why =
        format!("is not part of {arch} as implemented here, ignoring it would change the result");
    Fault::of_tensor(name, why)
}

/// Every tensor the architecture has is there with its dimensions, and no other. `bytes` are those
/// of the file with `rope_freqs.weight`, where there is one.
pub(super) fn check(config: &Config, tensors: &Tensors<'_>, bytes: &[u8]) -> Result<(), Fault> {
    let mut known = HashSet::with_capacity(tensors.list.len());
    // Other formats compute the rope factors.
    let freqs = tensors.get("rope_freqs.weight").filter(|_| config.rope_freqs);
    for (name, expected, why) in expected(config, freqs.is_some()) {
        let stored = || (tensors.stored)(&name);
        let tensor = tensors.get(&name);
        let tensor = tensor.ok_or_else(|| Fault::of_tensor(&stored(), "is missing"))?;
        if tensor.dims != expected {
            let found = &tensor.dims;
            let why =
                format!("has dimensions {found:?}, the metadata ask for {expected:?} ({why})");
            return Err(Fault::of_tensor(&stored(), why));
        }
        known.insert(tensor.name.as_str());
    }
    if let Some(freqs) = freqs {
        divisors(freqs, bytes)?;
    }
    match tensors.list.iter().find(|t| !known.contains(t.name.as_str())) {
        Some(tensor) => Err(unexpected(&(tensors.stored)(&tensor.name), config.arch)),
        None => Ok(()),
    }
}

/// Checks the values that rope divides by.
fn divisors(tensor: &TensorInfo, bytes: &[u8]) -> Result<(), Fault> {
    if tensor.ty != GgmlType::F32 {
        return Ok(());
    }
    let data = bytes.get(tensor.range.clone()).unwrap_or_default();
    for (index, value) in data.chunks_exact(4).enumerate() {
        let value = value.try_into().map_or(f32::NAN, f32::from_le_bytes);
        if !(value.is_finite() && value > 0.0) {
            let why = format!("value {index} is {value}, rope divides by it");
            let at = tensor.range.start + 4 * index;
            return Err(Fault::at(at, format!("tensor `{}`", tensor.name), why));
        }
    }
    Ok(())
}
