//! The shape of a model: read from the metadata, then checked against the tensors. A [`Config`]
//! guarantees that every tensor is there with the right dimensions. Weight types are not checked:
//! the decoder says which it can decode.
//!
//! Settings that would change the result and are not implemented (experts, soft-capping, other
//! biases) are errors that name them, never ignored.

mod gguf;
mod huggingface;
mod tensors;

use std::fmt;

use lathe_kernels::param::Choice;
use lathe_kernels::{Activation, RopeStyle};
use serde::{Serialize, Serializer};

use super::fault::Fault;
use super::keys::Keys;
use super::rope::RopeScaling;

#[cfg(feature = "text")]
pub(super) use gguf::END_KEYS;
pub(super) use gguf::write_shape;
pub(super) use huggingface::{arch_of, tied_head, token_list};
pub(super) use tensors::{ROPE_FREQS, Tensors, divisors, unexpected};

/// The architectures that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// Gemma 3, text.
    Gemma3,
    /// Llama 3.2 and other models that are stored as `llama`.
    Llama,
    /// Qwen2 and Qwen2.5, dense.
    Qwen2,
    /// Qwen3, dense.
    Qwen3,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 4] = [Self::Gemma3, Self::Llama, Self::Qwen2, Self::Qwen3];

    /// The name in `general.architecture`, which is also the prefix of its keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemma3 => "gemma3",
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn by_name<T: Choice, S: Serializer>(choice: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(choice.name())
}

/// The shape of a model. All sizes are above zero and agree with the tensors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    /// The architecture.
    pub arch: Arch,
    /// Number of layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward.
    pub ffn: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Number of tokens.
    pub vocab: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Epsilon of every RMSNorm, under the root.
    pub rms_eps: f32,
    /// Base of rope in global layers.
    pub rope_base: f32,
    /// Base of rope in local layers; `rope_base` where there are none.
    pub rope_base_local: f32,
    /// Keys that a local layer sees, the current one included.
    pub window: Option<usize>,
    /// Layers from one global layer to the next, the last of each period; none where all layers are
    /// alike.
    pub global_period: Option<usize>,
    /// Pairs of elements that rope rotates together.
    #[serde(serialize_with = "by_name")]
    pub rope_style: RopeStyle,
    /// Queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// Queries and keys are normalised per head before rope.
    pub qk_norm: bool,
    /// Attention and feed-forward outputs are normalised before they are added.
    pub post_norms: bool,
    /// Activation of the feed-forward.
    #[serde(serialize_with = "by_name")]
    pub activation: Activation,
    /// Factor on the embedding.
    pub embed_scale: f32,
    /// Factor on query·key.
    pub attention_scale: f32,
    /// The head is the embedding, there is no `output.weight`.
    pub tied_head: bool,
    /// The rope frequencies are divided by a tensor, `rope_freqs.weight` of GGUF.
    pub rope_freqs: bool,
    /// Scaling of rope by the configuration, of Gemma in its global layers alone.
    pub rope_scaling: Option<RopeScaling>,
    /// Token that begins a text.
    pub bos: Option<u32>,
    /// Token that ends a text.
    pub eos: Option<u32>,
    /// Every token that ends a text or a turn, `eos` first.
    pub end_tokens: Vec<u32>,
}

/// Gemma 3: every sixth layer is global, the others see a window.
const GEMMA3_PERIOD: usize = 6;
/// Gemma 3's base of rope in local layers, which files need not name.
const GEMMA3_LOCAL_BASE: f64 = 10_000.0;
/// Base of rope where files of Llama 1 and 2 leave it out.
const LLAMA_BASE: f64 = 10_000.0;
/// Layers of Gemma 3 27B, the only Gemma 3 whose attention scale is not 1/√head_dim.
const GEMMA3_27B_LAYERS: usize = 62;

/// A setting's key in GGUF and in `config.json`.
type Key = [&'static str; 2];

const LAYERS: Key = ["block_count", "num_hidden_layers"];
const HIDDEN: Key = ["embedding_length", "hidden_size"];
const FFN: Key = ["feed_forward_length", "intermediate_size"];
const HEADS: Key = ["attention.head_count", "num_attention_heads"];
const KV_HEADS: Key = ["attention.head_count_kv", "num_key_value_heads"];
const HEAD_DIM: Key = ["attention.key_length", "head_dim"];
const CONTEXT: Key = ["context_length", "max_position_embeddings"];
const EPS: Key = ["attention.layer_norm_rms_epsilon", "rms_norm_eps"];
const WINDOW: Key = ["attention.sliding_window", "sliding_window"];
const VOCAB: Key = ["vocab_size", "vocab_size"];
const BASE: Key = ["rope.freq_base", "rope_theta"];
const LOCAL_BASE: Key = ["rope.freq_base_swa", "rope_local_base_freq"];

/// Sizes of transformers' `Gemma3TextConfig` that a configuration may leave out.
const GEMMA3_USUAL: [(Key, usize); 4] =
    [(HEADS, 8), (KV_HEADS, 4), (HEAD_DIM, 256), (CONTEXT, 131_072)];
/// Its epsilon.
const GEMMA3_EPS: f32 = 1e-6;
/// Its base of rope in global layers.
const GEMMA3_BASE: f64 = 1_000_000.0;

/// Bases of rope, in global and local layers.
fn rope_bases<K: Keys>(keys: &K, arch: Arch) -> Result<[f64; 2], Fault> {
    let key = BASE[K::FORMAT];
    let base = match arch {
        Arch::Llama => keys.optional_positive(key)?.unwrap_or(LLAMA_BASE),
        Arch::Gemma3 if K::FORMAT == 1 => keys.optional_positive(key)?.unwrap_or(GEMMA3_BASE),
        Arch::Gemma3 | Arch::Qwen2 | Arch::Qwen3 => keys.positive(key)?,
    };
    let local = match arch {
        Arch::Gemma3 => keys.optional_positive(LOCAL_BASE[K::FORMAT])?,
        Arch::Llama | Arch::Qwen2 | Arch::Qwen3 => Some(base),
    };
    Ok([base, local.unwrap_or(GEMMA3_LOCAL_BASE)])
}

/// Value of a setting that is implemented, where the setting is given.
enum Only {
    /// A count of zero.
    NoCount,
    Zero,
    /// Zero or one: a factor of zero counts as not given.
    Neutral,
    One,
    Switch(bool),
    /// The width of a head.
    HeadDim,
}

const CAPPED: &str = "soft-capping is not implemented";
const EXPERTS: &str = "experts are not implemented";
const CAUSAL: &str = "only causal attention is implemented";
const BIASES: &str = "biases are not implemented";
const WIDTH: &str = "only the width of a key's head is implemented";

/// Settings that would change the result and of which one value is implemented, with the reason for
/// refusing others; an empty key where a format has no such setting.
const REFUSED: [(Key, Only, &str); 27] = [
    (["expert_count", "num_experts"], Only::NoCount, EXPERTS),
    (["expert_used_count", ""], Only::NoCount, EXPERTS),
    (["expert_shared_count", ""], Only::NoCount, EXPERTS),
    (["leading_dense_block_count", ""], Only::NoCount, EXPERTS),
    (["nextn_predict_layers", ""], Only::NoCount, "prediction layers are not implemented"),
    (["attention.shared_kv_layers", ""], Only::NoCount, "shared KV layers are not implemented"),
    (["attention.value_length", ""], Only::HeadDim, WIDTH),
    (["attention.key_length_swa", ""], Only::HeadDim, WIDTH),
    (["attention.value_length_swa", ""], Only::HeadDim, WIDTH),
    (["rope.dimension_count", ""], Only::HeadDim, "partial rope is not implemented"),
    (["rope.dimension_count_swa", ""], Only::HeadDim, "partial rope is not implemented"),
    (["final_logit_softcapping"; 2], Only::Zero, CAPPED),
    (["attn_logit_softcapping"; 2], Only::Zero, CAPPED),
    (["attention.clamp_kqv", ""], Only::Zero, "clamping is not implemented"),
    (["attention.max_alibi_bias", ""], Only::Zero, "ALiBi is not implemented"),
    (["attention.scale", ""], Only::Zero, "another attention scale is not implemented"),
    (["attention.temperature_scale", ""], Only::Zero, "attention temperature is not implemented"),
    (["logit_scale", ""], Only::Neutral, "a logit scale is not implemented"),
    (["residual_scale", ""], Only::Neutral, "a residual scale is not implemented"),
    (["embedding_scale", ""], Only::Neutral, "another embedding scale is not implemented"),
    (["", "partial_rotary_factor"], Only::One, "partial rope is not implemented"),
    (["attention.causal", "is_causal"], Only::Switch(true), CAUSAL),
    (["", "use_bidirectional_attention"], Only::Switch(false), CAUSAL),
    (["use_parallel_residual", ""], Only::Switch(false), "a parallel residual is not implemented"),
    (["", "mlp_bias"], Only::Switch(false), BIASES),
    (["", "use_sliding_window"], Only::Switch(false), "no window is implemented for this model"),
    (["", "is_encoder_decoder"], Only::Switch(false), "encoders are not implemented"),
];

impl Config {
    /// The configuration of an architecture with a tied head: everything else follows from it, its
    /// sizes (layers, hidden, ffn, heads, KV heads, width of a head, vocabulary, context), and the
    /// window where the architecture has one.
    pub(super) fn new(
        arch: Arch,
        sizes: [usize; 8],
        rms_eps: f32,
        rope_base: f32,
        window: Option<usize>,
    ) -> Self {
        let [n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab, context_length] = sizes;
        let gemma = arch == Arch::Gemma3;
        let mut config = Self {
            arch,
            n_layers,
            hidden,
            ffn,
            n_heads,
            n_kv_heads,
            head_dim,
            vocab,
            context_length,
            rms_eps,
            rope_base,
            rope_base_local: if gemma { GEMMA3_LOCAL_BASE as f32 } else { rope_base },
            window,
            global_period: gemma.then_some(GEMMA3_PERIOD),
            rope_style: RopeStyle::Neox,
            qkv_bias: arch == Arch::Qwen2,
            qk_norm: matches!(arch, Arch::Gemma3 | Arch::Qwen3),
            post_norms: gemma,
            activation: if gemma { Activation::GeluTanh } else { Activation::Silu },
            embed_scale: if gemma { (hidden as f64).sqrt() as f32 } else { 1.0 },
            attention_scale: 0.0,
            tied_head: true,
            rope_freqs: false,
            rope_scaling: None,
            bos: None,
            eos: None,
            end_tokens: Vec::new(),
        };
        config.attention_scale = config.scale_by_shape();
        config
    }

    /// Reads the settings that both formats have. `rope` are its bases, in global and local layers.
    fn of_keys<K: Keys>(
        keys: &K,
        arch: Arch,
        tensors: &Tensors<'_>,
        rope: [f64; 2],
    ) -> Result<Self, Fault> {
        let name = |key: Key| key[K::FORMAT];
        // What a `config.json` of Gemma 3 leaves out; the one of 4B leaves out much.
        let usual = |key: Key| GEMMA3_USUAL.iter().find(|(of, _)| *of == key).map(|(_, n)| *n);
        let usual = |key| usual(key).filter(|_| arch == Arch::Gemma3 && K::FORMAT == 1);
        let given = |key: Key| Ok(keys.optional_size(name(key))?.or_else(|| usual(key)));
        let size = |key: Key| given(key)?.ok_or_else(|| keys.missing(name(key)));
        let (n_layers, hidden, ffn) = (size(LAYERS)?, size(HIDDEN)?, size(FFN)?);
        let n_heads = size(HEADS)?;
        let n_kv_heads = given(KV_HEADS)?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            let why = format!("it does not divide the {n_heads} of {}", name(HEADS));
            return Err(keys.refused(name(KV_HEADS), why));
        }
        let (key, head_dim) = match given(HEAD_DIM)? {
            Some(len) => (name(HEAD_DIM), len),
            None if hidden.is_multiple_of(n_heads) => (name(HEADS), hidden / n_heads),
            None => {
                let why = format!("it does not divide the {hidden} of {}", name(HIDDEN));
                return Err(keys.refused(name(HEADS), why));
            }
        };
        if !head_dim.is_multiple_of(2) {
            let why = format!("a head of {head_dim} cannot be rotated in pairs");
            return Err(keys.refused(key, why));
        }
        for (key, only, why) in REFUSED {
            let key = name(key);
            let sound = match only {
                _ if key.is_empty() => true,
                Only::NoCount => keys.u32(key)?.is_none_or(|n| n == 0),
                Only::Zero => keys.f64(key)?.is_none_or(|v| v == 0.0),
                Only::Neutral => keys.f64(key)?.is_none_or(|v| v == 0.0 || v == 1.0),
                Only::One => keys.f64(key)?.is_none_or(|v| v == 1.0),
                Only::Switch(only) => keys.bool(key)?.is_none_or(|v| v == only),
                Only::HeadDim => keys.optional_size(key)?.is_none_or(|len| len == head_dim),
            };
            if !sound {
                return Err(keys.refused(key, why));
            }
        }
        let context = size(CONTEXT)?;
        let eps = match (keys.optional_positive(name(EPS))?, arch) {
            (None, Arch::Gemma3) if K::FORMAT == 1 => GEMMA3_EPS,
            (None, _) => return Err(keys.missing(name(EPS))),
            (Some(eps), _) => eps as f32,
        };
        let window = if arch == Arch::Gemma3 { Some(size(WINDOW)?) } else { None };
        let vocab = tensors.vocab()?;
        if keys.u32(name(VOCAB))?.is_some_and(|v| v as usize != vocab) {
            return Err(keys.refused(name(VOCAB), tensors.embedding_rows(vocab)));
        }
        let sizes = [n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab, context];
        let [base, local] = rope.map(|base| base as f32);
        Ok(Self { rope_base_local: local, ..Self::new(arch, sizes, eps, base, window) })
    }

    /// The factor on query·key that readers of GGUF compute.
    fn scale_by_shape(&self) -> f32 {
        let scaled_by = match self.arch {
            Arch::Gemma3 if self.n_layers == GEMMA3_27B_LAYERS => {
                self.hidden as f64 / self.n_heads as f64
            }
            _ => self.head_dim as f64,
        };
        (1.0 / scaled_by.sqrt()) as f32
    }

    /// Keys that this layer sees, the current one included; none if it sees all.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        if self.is_global(layer) { None } else { self.window }
    }

    /// Reason why a GGUF file cannot express this configuration, if it cannot: readers compute the
    /// attention scale from the shape.
    pub fn beyond_gguf(&self) -> Option<String> {
        let (own, by_shape) = (self.attention_scale, self.scale_by_shape());
        (own != by_shape).then(|| {
            format!("an attention scale of {own}: GGUF's readers take {by_shape} for this shape")
        })
    }

    /// Divisors of the rope frequencies that a GGUF has as a tensor and that follow from the
    /// configuration here.
    pub fn computed_rope_freqs(&self) -> Option<Vec<f32>> {
        let llama3 = self.rope_scaling.filter(|rope| matches!(rope, RopeScaling::Llama3(_)));
        llama3.map(|rope| rope.divisors(self.head_dim, f64::from(self.rope_base)))
    }

    /// Scaling of rope in this layer.
    pub fn layer_rope_scaling(&self, layer: usize) -> Option<RopeScaling> {
        let scaled = self.arch != Arch::Gemma3 || self.is_global(layer);
        self.rope_scaling.filter(|_| scaled)
    }

    /// Base of rope in this layer.
    pub fn layer_rope_base(&self, layer: usize) -> f32 {
        if self.is_global(layer) { self.rope_base } else { self.rope_base_local }
    }

    fn is_global(&self, layer: usize) -> bool {
        self.window.is_none() || self.global_period.is_some_and(|n| layer % n == n - 1)
    }
}
