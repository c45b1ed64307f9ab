//! The tensors of an architecture: names and dimensions, checked against the file.

use std::collections::{HashMap, HashSet};

use super::{Config, ConfigError, Keys};
use crate::gguf::{GgmlType, TensorInfo};

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
    pub(super) fn vocab(&self) -> Result<u32, ConfigError> {
        const NAME: &str = "token_embd.weight";
        let name = || (self.stored)(NAME);
        let tensor = self.get(NAME).ok_or_else(|| ConfigError::MissingTensor { name: name() })?;
        let rows = tensor.rows();
        u32::try_from(rows).ok().filter(|&v| v > 0).ok_or_else(|| ConfigError::TensorValue {
            offset: tensor.range.start,
            name: name(),
            why: format!("{rows} rows make no vocabulary"),
        })
    }
}

/// The tokens of the vocabulary: the rows of the embedding, and all else must agree.
pub(super) fn vocab(keys: &Keys<'_>, tensors: &Tensors<'_>) -> Result<usize, ConfigError> {
    let vocab = tensors.vocab()?;
    let why = || format!("`token_embd.weight` has {vocab} rows");
    if keys.integer("vocab_size")?.is_some_and(|v| v != vocab) {
        return Err(keys.refused("vocab_size", why()));
    }
    let tokens = "tokenizer.ggml.tokens";
    if keys.gguf.get_array(tokens)?.is_some_and(|a| a.len as u64 != u64::from(vocab)) {
        return Err(keys.refused(tokens, why()));
    }
    Ok(vocab as usize)
}

/// Every tensor the architecture has is there with its dimensions, and no other. `bytes` are those
/// of the file with `rope_freqs.weight`, where there is one.
pub(super) fn check(
    config: &Config,
    tensors: &Tensors<'_>,
    bytes: &[u8],
) -> Result<(), ConfigError> {
    let size = |n: usize| n as u64;
    let (hidden, ffn, head_dim) = (size(config.hidden), size(config.ffn), size(config.head_dim));
    let vocab = size(config.vocab);
    // Each factor came from an u32, so the products fit.
    let q_rows = size(config.n_heads) * head_dim;
    let kv_rows = size(config.n_kv_heads) * head_dim;

    let mut known = HashSet::with_capacity(tensors.list.len());
    let mut expect = |name: String, dims: &[u64], why: &'static str| {
        let stored = || (tensors.stored)(&name);
        let found = tensors.get(&name);
        let tensor = found.ok_or_else(|| ConfigError::MissingTensor { name: stored() })?;
        if tensor.dims != dims {
            let (name, found, expected) = (stored(), tensor.dims.clone(), dims.to_vec());
            return Err(ConfigError::Shape { name, found, expected, why });
        }
        known.insert(tensor.name.as_str());
        Ok(tensor)
    };

    expect("token_embd.weight".to_owned(), &[hidden, vocab], "hidden, vocab")?;
    expect("output_norm.weight".to_owned(), &[hidden], "hidden")?;
    if !config.tied_head {
        expect("output.weight".to_owned(), &[hidden, vocab], "hidden, vocab")?;
    }
    // Other formats compute them.
    if config.rope_freqs && tensors.get("rope_freqs.weight").is_some() {
        let name = "rope_freqs.weight".to_owned();
        rope_freqs(expect(name, &[head_dim / 2], "head_dim / 2")?, bytes)?;
    }
    for layer in 0..config.n_layers {
        let mut expect = |part: &str, dims: &[u64], why: &'static str| {
            expect(format!("blk.{layer}.{part}.weight"), dims, why)
        };
        expect("attn_norm", &[hidden], "hidden")?;
        expect("attn_q", &[hidden, q_rows], "hidden, n_heads · head_dim")?;
        expect("attn_k", &[hidden, kv_rows], "hidden, n_kv_heads · head_dim")?;
        expect("attn_v", &[hidden, kv_rows], "hidden, n_kv_heads · head_dim")?;
        expect("attn_output", &[q_rows, hidden], "n_heads · head_dim, hidden")?;
        if config.qk_norm {
            expect("attn_q_norm", &[head_dim], "head_dim")?;
            expect("attn_k_norm", &[head_dim], "head_dim")?;
        }
        if config.post_norms {
            expect("post_attention_norm", &[hidden], "hidden")?;
        }
        expect("ffn_norm", &[hidden], "hidden")?;
        expect("ffn_gate", &[hidden, ffn], "hidden, ffn")?;
        expect("ffn_up", &[hidden, ffn], "hidden, ffn")?;
        expect("ffn_down", &[ffn, hidden], "ffn, hidden")?;
        if config.post_norms {
            expect("post_ffw_norm", &[hidden], "hidden")?;
        }
    }
    match tensors.list.iter().find(|t| !known.contains(t.name.as_str())) {
        Some(tensor) => {
            let name = (tensors.stored)(&tensor.name);
            Err(ConfigError::UnexpectedTensor { name, arch: config.arch })
        }
        None => Ok(()),
    }
}

/// Rope divides by these.
fn rope_freqs(tensor: &TensorInfo, bytes: &[u8]) -> Result<(), ConfigError> {
    if tensor.ty != GgmlType::F32 {
        return Ok(());
    }
    let data = bytes.get(tensor.range.clone()).unwrap_or_default();
    for (index, value) in data.chunks_exact(4).enumerate() {
        let value = value.try_into().map_or(f32::NAN, f32::from_le_bytes);
        if !(value.is_finite() && value > 0.0) {
            return Err(ConfigError::TensorValue {
                offset: tensor.range.start + 4 * index,
                name: tensor.name.clone(),
                why: format!("value {index} is {value}, rope divides by it"),
            });
        }
    }
    Ok(())
}
