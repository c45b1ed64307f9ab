//! The shape of a model: read from the metadata, then checked against the tensors. A [`Config`]
//! guarantees that every tensor is there with the right dimensions. Weight types are not checked:
//! the decoder says which it can decode.
//!
//! Settings that would change the result and are not implemented (biases, experts, soft-capping,
//! scaled rope) are errors that name them, never ignored.

mod huggingface;
mod refuse;
mod tensors;

use std::fmt;

use lathe_kernels::param::Choice;
use lathe_kernels::{Activation, RopeStyle};
use serde::{Serialize, Serializer};

use super::gguf::{Gguf, GgufError, Value};
use super::json::KeyError;

pub(super) use huggingface::{HfConfig, arch_of, token_list};
pub(super) use tensors::Tensors;

/// The architectures that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// Gemma 3, text.
    Gemma3,
    /// Llama 3.2 and other models that are stored as `llama`.
    Llama,
    /// Qwen3, dense.
    Qwen3,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 3] = [Self::Gemma3, Self::Llama, Self::Qwen3];

    /// The name in `general.architecture`, which is also the prefix of its keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemma3 => "gemma3",
            Self::Llama => "llama",
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
    /// Pairs of elements that rope rotates together.
    #[serde(serialize_with = "by_name")]
    pub rope_style: RopeStyle,
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
    /// The rope frequencies are divided: by `rope_freqs.weight` in GGUF, elsewhere by the
    /// configuration's factors.
    pub rope_freqs: bool,
    /// Token that begins a text.
    pub bos: Option<u32>,
    /// Token that ends a text.
    pub eos: Option<u32>,
    /// Every token that ends a text or a turn, `eos` first.
    pub end_tokens: Vec<u32>,
}

/// Reason why a file holds no supported model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum ConfigError {
    /// A value has the wrong type or does not fit.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A value of `config.json` has the wrong type, makes no sense, or asks for something that is
    /// not implemented.
    #[error(transparent)]
    Json(#[from] KeyError),
    #[error("metadata `{key}` is missing")]
    MissingKey { key: String },
    #[error(
        "byte {offset}, metadata `general.architecture`: `{found}` is not supported; supported are \
         gemma3, llama, qwen3"
    )]
    Architecture { offset: usize, found: String },
    /// A value makes no sense, or asks for something that is not implemented.
    #[error("byte {offset}, metadata `{key}`: {value} is refused: {why}")]
    Value { offset: usize, key: String, value: String, why: String },
    #[error("tensor `{name}` is missing")]
    MissingTensor { name: String },
    /// Dimensions are row length first; `why` has them in words.
    #[error("tensor `{name}` has dimensions {found:?}, the metadata ask for {expected:?} ({why})")]
    Shape { name: String, found: Vec<u64>, expected: Vec<u64>, why: &'static str },
    #[error(
        "tensor `{name}` is not part of {arch} as implemented here, ignoring it would change the result"
    )]
    UnexpectedTensor { name: String, arch: Arch },
    /// A tensor holds values that cannot be.
    #[error("byte {offset}, tensor `{name}`: {why}")]
    TensorValue { offset: usize, name: String, why: String },
}

/// Tokens other than the EOS that end a turn or a message.
pub(super) const END_KEYS: [&str; 2] =
    ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
/// Gemma 3: every sixth layer is global, the others see a window.
const GEMMA3_PERIOD: usize = 6;
/// Gemma 3's base of rope in local layers, which files need not name.
const GEMMA3_LOCAL_BASE: f32 = 10_000.0;
/// Layers of Gemma 3 27B, the only Gemma 3 whose attention scale is not 1/√head_dim.
const GEMMA3_27B_LAYERS: usize = 62;

impl Config {
    /// Reads the shape and holds it against the tensors. `bytes` are those that were parsed.
    ///
    /// # Errors
    /// The first thing missing, contradictory, senseless or not implemented, with its key or
    /// tensor.
    pub fn from_gguf(gguf: &Gguf, bytes: &[u8]) -> Result<Self, ConfigError> {
        let keys = Keys::of(gguf)?;
        refuse::metadata(&keys)?;

        let n_layers = keys.size("block_count")?;
        let hidden = keys.size("embedding_length")?;
        let ffn = keys.size("feed_forward_length")?;
        let n_heads = keys.size("attention.head_count")?;
        let n_kv_heads = keys.optional_size("attention.head_count_kv")?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            let why = format!("it does not divide the {n_heads} of attention.head_count");
            return Err(keys.refused("attention.head_count_kv", why));
        }
        let head_dim = head_dim(&keys, hidden, n_heads)?;
        let context_length = keys.size("context_length")?;
        let key = "attention.layer_norm_rms_epsilon";
        let rms_eps = keys.positive(key)?.ok_or_else(|| keys.missing(key))?;

        let arch = keys.arch;
        let rope_base = match (keys.positive("rope.freq_base")?, arch) {
            (Some(base), _) => base,
            // What files of Llama 1 and 2 leave out.
            (None, Arch::Llama) => 10_000.0,
            (None, _) => return Err(keys.missing("rope.freq_base")),
        };
        let (window, rope_base_local) = match arch {
            Arch::Gemma3 => {
                let window = keys.size("attention.sliding_window")?;
                let base = keys.positive("rope.freq_base_swa")?.unwrap_or(GEMMA3_LOCAL_BASE);
                (Some(window), base)
            }
            Arch::Llama | Arch::Qwen3 => (None, rope_base),
        };
        let gemma = arch == Arch::Gemma3;
        let attention_scale = attention_scale(arch, n_layers, hidden, n_heads, head_dim);
        let own_names = |name: &str| name.to_owned();
        let tensors = Tensors::new(&gguf.tensors, &own_names);
        let vocab = tensors::vocab(&keys, &tensors)?;
        let eos = keys.token("tokenizer.ggml.eos_token_id", vocab)?;
        let mut end_tokens: Vec<u32> = eos.into_iter().collect();
        for key in END_KEYS {
            let other = keys.token(key, vocab)?;
            end_tokens.extend(other.filter(|id| !end_tokens.contains(id)));
        }
        let config = Self {
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
            rope_base_local,
            window,
            rope_style: match arch {
                Arch::Llama => RopeStyle::Interleaved,
                Arch::Gemma3 | Arch::Qwen3 => RopeStyle::Neox,
            },
            qk_norm: arch != Arch::Llama,
            post_norms: gemma,
            activation: if gemma { Activation::GeluTanh } else { Activation::Silu },
            embed_scale: if gemma { (hidden as f64).sqrt() as f32 } else { 1.0 },
            attention_scale,
            tied_head: gguf.tensor("output.weight").is_none(),
            rope_freqs: arch == Arch::Llama && gguf.tensor("rope_freqs.weight").is_some(),
            bos: keys.token("tokenizer.ggml.bos_token_id", vocab)?,
            eos,
            end_tokens,
        };
        tensors::check(&config, &tensors, bytes)?;
        Ok(config)
    }

    /// Keys that this layer sees, the current one included; none if it sees all.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        if self.is_global(layer) { None } else { self.window }
    }

    /// Reason why a GGUF file cannot express this configuration, if it cannot: readers compute the
    /// attention scale from the shape.
    pub fn beyond_gguf(&self) -> Option<String> {
        let by_shape =
            attention_scale(self.arch, self.n_layers, self.hidden, self.n_heads, self.head_dim);
        (self.attention_scale != by_shape).then(|| {
            format!(
                "an attention scale of {}: GGUF's readers take {by_shape} for this shape",
                self.attention_scale
            )
        })
    }

    /// Base of rope in this layer.
    pub fn layer_rope_base(&self, layer: usize) -> f32 {
        if self.is_global(layer) { self.rope_base } else { self.rope_base_local }
    }

    fn is_global(&self, layer: usize) -> bool {
        self.window.is_none() || layer % GEMMA3_PERIOD == GEMMA3_PERIOD - 1
    }
}

/// The factor on query·key, which GGUF leaves to the reader.
fn attention_scale(
    arch: Arch,
    n_layers: usize,
    hidden: usize,
    n_heads: usize,
    head_dim: usize,
) -> f32 {
    let scaled_by = match arch {
        Arch::Gemma3 if n_layers == GEMMA3_27B_LAYERS => hidden as f64 / n_heads as f64,
        _ => head_dim as f64,
    };
    (1.0 / scaled_by.sqrt()) as f32
}

fn head_dim(keys: &Keys<'_>, hidden: usize, n_heads: usize) -> Result<usize, ConfigError> {
    let head_dim = match keys.optional_size("attention.key_length")? {
        Some(len) => len,
        None if hidden.is_multiple_of(n_heads) => hidden / n_heads,
        None => {
            let why = format!("it does not divide the {hidden} of embedding_length");
            return Err(keys.refused("attention.head_count", why));
        }
    };
    if !head_dim.is_multiple_of(2) {
        let key = match keys.value("attention.key_length") {
            Some(_) => "attention.key_length",
            None => "attention.head_count",
        };
        return Err(keys.refused(key, format!("a head of {head_dim} cannot be rotated in pairs")));
    }
    let same = [
        "attention.value_length",
        "attention.key_length_swa",
        "attention.value_length_swa",
        "rope.dimension_count",
        "rope.dimension_count_swa",
    ];
    for key in same {
        if keys.optional_size(key)?.is_some_and(|len| len != head_dim) {
            return Err(
                keys.refused(key, format!("only the head dimension {head_dim} is supported"))
            );
        }
    }
    Ok(head_dim)
}

/// The metadata of one architecture.
struct Keys<'a> {
    gguf: &'a Gguf,
    arch: Arch,
}

impl<'a> Keys<'a> {
    fn of(gguf: &'a Gguf) -> Result<Self, ConfigError> {
        const KEY: &str = "general.architecture";
        let found =
            gguf.get_str(KEY)?.ok_or_else(|| ConfigError::MissingKey { key: KEY.to_owned() })?;
        let arch = Arch::ALL.into_iter().find(|arch| arch.name() == found);
        let arch = arch.ok_or_else(|| ConfigError::Architecture {
            offset: gguf.metadata_offset(KEY).unwrap_or_default(),
            found: found.to_owned(),
        })?;
        Ok(Self { gguf, arch })
    }

    /// `attention.head_count` → `llama.attention.head_count`; a full key stays as it is.
    fn full(&self, key: &str) -> String {
        let full = ["general.", "tokenizer.", "split."].iter().any(|head| key.starts_with(head));
        if full { key.to_owned() } else { format!("{}.{key}", self.arch) }
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.gguf.metadata.get(&self.full(key))
    }

    fn missing(&self, key: &str) -> ConfigError {
        ConfigError::MissingKey { key: self.full(key) }
    }

    fn refused(&self, key: &str, why: impl Into<String>) -> ConfigError {
        let key = self.full(key);
        ConfigError::Value {
            offset: self.gguf.metadata_offset(&key).unwrap_or_default(),
            value: self.gguf.metadata.get(&key).map_or_else(String::new, Value::to_string),
            key,
            why: why.into(),
        }
    }

    fn integer(&self, key: &str) -> Result<Option<u32>, ConfigError> {
        Ok(self.gguf.get_u32(&self.full(key))?)
    }

    /// A size, above zero where it is given.
    fn optional_size(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        match self.integer(key)? {
            Some(0) => Err(self.refused(key, "it must be above zero")),
            size => Ok(size.map(|size| size as usize)),
        }
    }

    fn size(&self, key: &str) -> Result<usize, ConfigError> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    fn float(&self, key: &str) -> Result<Option<f32>, ConfigError> {
        Ok(self.gguf.get_f32(&self.full(key))?)
    }

    fn positive(&self, key: &str) -> Result<Option<f32>, ConfigError> {
        match self.float(key)? {
            Some(v) if !(v.is_finite() && v > 0.0) => {
                Err(self.refused(key, "it must be finite and above zero"))
            }
            v => Ok(v),
        }
    }

    fn token(&self, key: &str, vocab: usize) -> Result<Option<u32>, ConfigError> {
        match self.integer(key)? {
            Some(id) if id as usize >= vocab => {
                Err(self.refused(key, format!("the vocabulary has {vocab} tokens")))
            }
            id => Ok(id),
        }
    }
}
