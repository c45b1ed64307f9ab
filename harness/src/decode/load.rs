//! From a model file to the weights a decode graph needs: rows borrowed from the mapped file,
//! Q/K/V and gate/up stacked so that each is one GEMV.

use std::sync::Arc;

use lathe_kernels::Format;

use crate::error::{Error, Result};
use crate::model::{Config, GgmlType, ModelFile, TensorInfo};
use crate::weights::{self, Bytes, WeightRows};

/// All weights of a model.
#[derive(Clone, Debug)]
pub struct Weights {
    /// (vocab, hidden)
    pub embed: WeightRows,
    /// (vocab, hidden); absent when the head is tied to the embedding.
    pub head: Option<WeightRows>,
    /// (hidden)
    pub output_norm: Arc<[f32]>,
    /// Divisors of the rotary frequencies (head_dim/2).
    pub rope_freqs: Option<Vec<f32>>,
    /// One entry a layer.
    pub layers: Vec<LayerWeights>,
}

/// Weights of one layer.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// (hidden)
    pub attn_norm: Arc<[f32]>,
    /// Q, K and V stacked: ((heads + 2 kv_heads) * head_dim, hidden)
    pub qkv: WeightRows,
    /// (head_dim) of Q and of K, where heads are normalised.
    pub qk_norm: Option<[Arc<[f32]>; 2]>,
    /// (hidden, heads * head_dim)
    pub attn_output: WeightRows,
    /// (hidden), Gemma only.
    pub post_attention_norm: Option<Arc<[f32]>>,
    /// (hidden)
    pub ffn_norm: Arc<[f32]>,
    /// Gate and up stacked: (2 ffn, hidden)
    pub gate_up: WeightRows,
    /// (hidden, ffn)
    pub ffn_down: WeightRows,
    /// (hidden), Gemma only.
    pub post_ffw_norm: Option<Arc<[f32]>>,
}

impl Weights {
    /// Reads everything a decode needs. The shapes were checked by [`Config`]; what is checked
    /// here are the storage formats.
    pub fn load(file: &Arc<ModelFile>, config: &Config) -> Result<Self> {
        let source = Source { file };
        let layer = |i: usize| -> Result<LayerWeights> {
            let name = |part: &str| format!("blk.{i}.{part}.weight");
            let vector = |part: &str| source.vector(&name(part));
            let post_norm = |part: &str| config.post_norms.then(|| vector(part)).transpose();
            Ok(LayerWeights {
                attn_norm: vector("attn_norm")?,
                qkv: source.stack(&[name("attn_q"), name("attn_k"), name("attn_v")])?,
                qk_norm: match config.qk_norm {
                    true => Some([vector("attn_q_norm")?, vector("attn_k_norm")?]),
                    false => None,
                },
                attn_output: source.stack(&[name("attn_output")])?,
                post_attention_norm: post_norm("post_attention_norm")?,
                ffn_norm: vector("ffn_norm")?,
                gate_up: source.stack(&[name("ffn_gate"), name("ffn_up")])?,
                ffn_down: source.stack(&[name("ffn_down")])?,
                post_ffw_norm: post_norm("post_ffw_norm")?,
            })
        };
        Ok(Self {
            embed: source.stack(&["token_embd.weight".into()])?,
            head: match config.tied_head {
                true => None,
                false => Some(source.stack(&["output.weight".into()])?),
            },
            output_norm: source.vector("output_norm.weight")?,
            rope_freqs: match config.rope_freqs {
                true => Some(source.vector("rope_freqs.weight")?.to_vec()),
                false => None,
            },
            layers: (0..config.n_layers).map(layer).collect::<Result<_>>()?,
        })
    }
}

struct Source<'a> {
    file: &'a Arc<ModelFile>,
}

impl Source<'_> {
    fn error(&self, reason: String) -> Error {
        Error::Undecodable { path: self.file.path.clone(), reason }
    }

    fn find(&self, name: &str) -> Result<(&TensorInfo, Format)> {
        let info = self
            .file
            .gguf
            .tensor(name)
            .ok_or_else(|| self.error(format!("tensor {name} is missing")))?;
        let format = match info.ty {
            GgmlType::F32 => Format::F32,
            GgmlType::F16 => Format::F16,
            GgmlType::Bf16 => Format::Bf16,
            other => {
                return Err(self.error(format!(
                    "tensor {name} is stored as {}, which no kernel decodes yet; supported are {}",
                    other.name(),
                    Format::NAMES.join(", ")
                )));
            }
        };
        Ok((info, format))
    }

    /// Rows of several matrices under each other, in one format: their own if they share it,
    /// else f32, which holds each of them exactly.
    fn stack(&self, names: &[String]) -> Result<WeightRows> {
        let found: Vec<_> = names.iter().map(|n| self.find(n)).collect::<Result<_>>()?;
        let (first, format) = found[0];
        let shared = found.iter().all(|(_, f)| *f == format);
        let parts = found.iter().map(|(info, own)| {
            if shared {
                Bytes::Mapped(Arc::clone(self.file), info.range.clone())
            } else {
                Bytes::Owned(weights::widen(*own, self.file.tensor_bytes(info)))
            }
        });
        Ok(WeightRows {
            format: if shared { format } else { Format::F32 },
            k: first.row_len() as usize,
            parts: parts.collect(),
        })
    }

    fn vector(&self, name: &str) -> Result<Arc<[f32]>> {
        let (info, format) = self.find(name)?;
        let bytes = weights::widen(format, self.file.tensor_bytes(info));
        Ok(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes).into())
    }
}
