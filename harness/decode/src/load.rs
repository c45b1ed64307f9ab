//! Reads a checkpoint's weights for a decode graph: rows are borrowed from the mapped files, or
//! converted on request; Q/K/V and gate/up are stacked so that each is one GEMV.

use std::sync::Arc;

use lathe_kernels::Format;

use lathe_device::error::{Error, Result};
use lathe_device::plan::weights::{self, Bytes, WeightRows};
use lathe_model::quantise::fitting;
use lathe_model::{Config, ModelFile, TensorInfo};

/// All weights of a model.
#[derive(Clone, Debug)]
pub struct Weights {
    /// (vocab, hidden)
    pub embed: WeightRows,
    /// (vocab, hidden); absent when the head is tied to the embedding.
    pub head: Option<WeightRows>,
    /// (hidden)
    pub output_norm: Arc<[f32]>,
    /// Divisors of the rotary frequencies (head_dim/2), beside those of the configuration.
    pub rope_freqs: Option<Vec<f32>>,
    /// Weights of each layer.
    pub layers: Vec<LayerWeights>,
}

/// Weights of one layer.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// (hidden)
    pub attn_norm: Arc<[f32]>,
    /// Q, K and V under each other: ((heads + 2 kv_heads) * head_dim, hidden); one matrix for
    /// each run of neighbours in one format
    pub qkv: Vec<WeightRows>,
    /// Biases of Q, K and V one after the other, where they have some.
    pub qkv_bias: Option<Arc<[f32]>>,
    /// (head_dim) of Q and of K, where heads are normalised.
    pub qk_norm: Option<[Arc<[f32]>; 2]>,
    /// (hidden, heads * head_dim)
    pub attn_output: WeightRows,
    /// (hidden), Gemma only.
    pub post_attention_norm: Option<Arc<[f32]>>,
    /// (hidden)
    pub ffn_norm: Arc<[f32]>,
    /// Gate and up under each other: (2 ffn, hidden); one matrix, or two in two formats
    pub gate_up: Vec<WeightRows>,
    /// (hidden, ffn)
    pub ffn_down: WeightRows,
    /// (hidden), Gemma only.
    pub post_ffw_norm: Option<Arc<[f32]>>,
}

impl Weights {
    /// All matrices that vectors meet.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &WeightRows> {
        let head = self.head.as_ref().unwrap_or(&self.embed);
        let in_layers = self.layers.iter().flat_map(|layer| {
            let single = [&layer.attn_output, &layer.ffn_down];
            layer.qkv.iter().chain(&layer.gate_up).chain(single)
        });
        in_layers.chain([head])
    }

    /// Reads all weights of a decode, and converts matrices to a format, if one is given, as
    /// `lathe quantize` stores them: matrices without whole blocks in their rows get the substitute
    /// of [`fitting`]. The shapes were checked by [`Config`]; this checks the storage formats.
    ///
    /// # Errors
    /// A tensor is missing or in a format that no kernel decodes; or a matrix to be converted has a
    /// value that is not finite.
    pub fn load(file: &Arc<ModelFile>, config: &Config, quantise: Option<Format>) -> Result<Self> {
        let source = Source { file, quantise, norm_offset: file.norm_offset(config) };
        let layer = |i: usize| -> Result<LayerWeights> {
            let name = |part: &str| format!("blk.{i}.{part}.weight");
            let vector = |part: &str| source.vector(&name(part));
            let post_norm = |part: &str| config.post_norms.then(|| vector(part)).transpose();
            Ok(LayerWeights {
                attn_norm: vector("attn_norm")?,
                qkv: source.stack(&[name("attn_q"), name("attn_k"), name("attn_v")])?,
                qkv_bias: match config.qkv_bias {
                    true => {
                        let bias = |part| source.stored_vector(&format!("blk.{i}.{part}.bias"));
                        let parts = [bias("attn_q")?, bias("attn_k")?, bias("attn_v")?];
                        Some(parts.concat().into())
                    }
                    false => None,
                },
                qk_norm: match config.qk_norm {
                    true => Some([vector("attn_q_norm")?, vector("attn_k_norm")?]),
                    false => None,
                },
                attn_output: source.matrix(&name("attn_output"))?,
                post_attention_norm: post_norm("post_attention_norm")?,
                ffn_norm: vector("ffn_norm")?,
                gate_up: source.stack(&[name("ffn_gate"), name("ffn_up")])?,
                ffn_down: source.matrix(&name("ffn_down"))?,
                post_ffw_norm: post_norm("post_ffw_norm")?,
            })
        };
        Ok(Self {
            embed: source.matrix("token_embd.weight")?,
            head: (!config.tied_head).then(|| source.matrix("output.weight")).transpose()?,
            output_norm: source.vector("output_norm.weight")?,
            rope_freqs: match config.rope_freqs {
                true => Some(source.stored_vector("rope_freqs.weight")?),
                false => None,
            },
            layers: (0..config.n_layers).map(layer).collect::<Result<_>>()?,
        })
    }
}

struct Source<'a> {
    file: &'a Arc<ModelFile>,
    quantise: Option<Format>,
    norm_offset: f32,
}

impl Source<'_> {
    fn error(&self, reason: String) -> Error {
        Error::Undecodable { path: self.file.path.clone(), reason }
    }

    fn find(&self, name: &str) -> Result<(&TensorInfo, Format)> {
        let info = self
            .file
            .tensor(name)
            .ok_or_else(|| self.error(format!("tensor {name} is missing")))?;
        let format = info.ty.format().ok_or_else(|| {
            let known: Vec<_> = Format::ALL.iter().map(|f| f.name()).collect();
            self.error(format!(
                "tensor {name} is stored as {}, which no kernel decodes; supported are {}",
                info.ty.name(),
                known.join(", ")
            ))
        })?;
        Ok((info, format))
    }

    fn matrix(&self, name: &str) -> Result<WeightRows> {
        let (info, format) = self.find(name)?;
        let bytes = Bytes::Mapped(Arc::clone(&self.file.files()[info.file]), info.range.clone());
        let stored = WeightRows::new(format, info.row_len() as usize, bytes);
        let Some(asked) = self.quantise else { return Ok(stored) };
        let wanted = fitting(asked, info.row_len());
        if wanted == format {
            return Ok(stored);
        }
        if wanted != asked {
            tracing::info!(tensor = name, asked = asked.name(), stored = wanted.name(), "fallback");
        }
        stored.converted(wanted).ok_or_else(|| {
            let name = self.file.stored_name(name);
            self.error(format!("tensor {name}: not every value is finite"))
        })
    }

    /// Matrices under each other; neighbours of one format become one matrix, so that a single
    /// GEMV makes them.
    fn stack(&self, names: &[String]) -> Result<Vec<WeightRows>> {
        let mut stacked: Vec<WeightRows> = Vec::new();
        for name in names {
            let next = self.matrix(name)?;
            match stacked.last_mut() {
                Some(last) if last.format == next.format && last.k == next.k => {
                    last.parts.extend(next.parts);
                }
                _ => stacked.push(next),
            }
        }
        Ok(stacked)
    }

    /// A norm's weights.
    fn vector(&self, name: &str) -> Result<Arc<[f32]>> {
        let values = self.stored_vector(name)?;
        Ok(values.into_iter().map(|v| v + self.norm_offset).collect())
    }

    fn stored_vector(&self, name: &str) -> Result<Vec<f32>> {
        let (info, format) = self.find(name)?;
        let mut values = vec![0.0; info.row_len() as usize];
        let bytes = self.file.tensor_bytes(info);
        if format.row_bytes(values.len()) != bytes.len() {
            return Err(self.error(format!("tensor {name} is no vector")));
        }
        weights::decode(format, bytes, &mut values);
        Ok(values)
    }
}
