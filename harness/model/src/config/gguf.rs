//! The shape of a model from a GGUF's metadata, and its metadata again.

use lathe_kernels::RopeStyle;

use super::tensors::{self, Tensors};
use super::{
    Arch, CONTEXT, Config, EPS, FFN, GEMMA3_LOCAL_BASE, GEMMA3_PERIOD, HEAD_DIM, HEADS, HIDDEN,
    KV_HEADS, Keys, LAYERS, LLAMA_BASE, VOCAB, WINDOW,
};
use crate::fault::Fault;
use crate::gguf::writer::GgufWriter;
use crate::gguf::{Gguf, Value};

/// Tokens other than the EOS that end a turn or a message.
pub(crate) const END_KEYS: [&str; 2] =
    ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

impl Config {
    /// Reads the shape and checks it against the tensors. `bytes` are those that were parsed.
    ///
    /// # Errors
    /// The first thing missing, contradictory, senseless or not implemented, with its key or
    /// tensor.
    pub fn from_gguf(gguf: &Gguf, bytes: &[u8]) -> Result<Self, Fault> {
        let keys = Metadata::of(gguf)?;
        let arch = keys.arch;
        if keys.u32("split.count")?.is_some_and(|n| n > 1) {
            let why = "this is one shard of a split file; merge the shards into one file first";
            return Err(keys.refused("split.count", why));
        }
        rope_scaling(&keys)?;
        window(&keys)?;
        let own_names = |name: &str| name.to_owned();
        let tensors = Tensors::new(&gguf.tensors, &own_names);
        let mut config = Self::of_keys(&keys, arch, &tensors)?;
        for key in [
            "attention.value_length",
            "attention.key_length_swa",
            "attention.value_length_swa",
            "rope.dimension_count",
            "rope.dimension_count_swa",
        ] {
            if keys.optional_size(key)?.is_some_and(|len| len != config.head_dim) {
                let why = format!("only the head dimension {} is supported", config.head_dim);
                return Err(keys.refused(key, why));
            }
        }
        let base = match arch {
            Arch::Llama => keys.optional_positive("rope.freq_base")?.unwrap_or(LLAMA_BASE),
            Arch::Gemma3 | Arch::Qwen3 => keys.positive("rope.freq_base")?,
        };
        let local = match arch {
            Arch::Gemma3 => {
                keys.optional_positive("rope.freq_base_swa")?.unwrap_or(GEMMA3_LOCAL_BASE)
            }
            Arch::Llama | Arch::Qwen3 => base,
        };
        (config.rope_base, config.rope_base_local) = (base as f32, local as f32);
        let llama = arch == Arch::Llama;
        if llama {
            config.rope_style = RopeStyle::Interleaved;
        }
        config.rope_freqs = llama && gguf.tensor("rope_freqs.weight").is_some();
        config.tied_head = gguf.tensor("output.weight").is_none();

        let list = "tokenizer.ggml.tokens";
        if gguf.get_array(list)?.is_some_and(|tokens| tokens.len != config.vocab) {
            return Err(keys.refused(list, tensors.embedding_rows(config.vocab)));
        }
        let token = |key: &str| match keys.u32(key)? {
            Some(id) if id as usize >= config.vocab => {
                Err(keys.refused(key, format!("the vocabulary has {} tokens", config.vocab)))
            }
            id => Ok(id),
        };
        let (bos, eos) =
            (token("tokenizer.ggml.bos_token_id")?, token("tokenizer.ggml.eos_token_id")?);
        let mut end_tokens: Vec<u32> = eos.into_iter().collect();
        for key in END_KEYS {
            end_tokens.extend(token(key)?.filter(|id| !end_tokens.contains(id)));
        }
        config = Self { bos, eos, end_tokens, ..config };
        tensors::check(&config, &tensors, bytes)?;
        Ok(config)
    }
}

/// Adds the keys of a shape.
pub(crate) fn write_shape(writer: &mut GgufWriter, config: &Config) {
    let full = |key: &str| format!("{}.{key}", config.arch);
    // Sizes came from 32 bits.
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    for (key, value) in [
        (CONTEXT[0], config.context_length),
        (HIDDEN[0], config.hidden),
        (LAYERS[0], config.n_layers),
        (FFN[0], config.ffn),
        (HEADS[0], config.n_heads),
        (KV_HEADS[0], config.n_kv_heads),
        (HEAD_DIM[0], config.head_dim),
        ("attention.value_length", config.head_dim),
    ] {
        writer.add_u32(&full(key), size(value));
    }
    writer.add_f32(&full(EPS[0]), config.rms_eps);
    writer.add_f32(&full("rope.freq_base"), config.rope_base);
    if let Some(window) = config.window {
        writer.add_u32(&full(WINDOW[0]), size(window));
    }
    if config.arch == Arch::Llama {
        writer.add_u32(&full("rope.dimension_count"), size(config.head_dim));
        writer.add_u32(&full(VOCAB[0]), size(config.vocab));
    }
}

/// The metadata of one architecture.
struct Metadata<'a> {
    gguf: &'a Gguf,
    arch: Arch,
}

impl<'a> Metadata<'a> {
    fn of(gguf: &'a Gguf) -> Result<Self, Fault> {
        const KEY: &str = "general.architecture";
        let site = || format!("metadata `{KEY}`");
        let found = gguf.get_str(KEY)?.ok_or_else(|| Fault::of(site(), "is missing"))?;
        let arch = Arch::ALL.into_iter().find(|arch| arch.name() == found).ok_or_else(|| {
            let why = format!("`{found}` is not supported; supported are gemma3, llama, qwen3");
            Fault::at(gguf.metadata_offset(KEY).unwrap_or_default(), site(), why)
        })?;
        Ok(Self { gguf, arch })
    }

    /// `attention.head_count` → `llama.attention.head_count`; a full key stays as it is.
    fn full(&self, key: &str) -> String {
        let full = ["tokenizer.", "split."].iter().any(|head| key.starts_with(head));
        if full { key.to_owned() } else { format!("{}.{key}", self.arch) }
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.gguf.metadata.get(&self.full(key))
    }
}

impl Keys for Metadata<'_> {
    const FORMAT: usize = 0;

    fn u32(&self, key: &str) -> Result<Option<u32>, Fault> {
        self.gguf.get_u32(&self.full(key))
    }

    fn f64(&self, key: &str) -> Result<Option<f64>, Fault> {
        Ok(self.gguf.get_f32(&self.full(key))?.map(f64::from))
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, Fault> {
        self.gguf.get_bool(&self.full(key))
    }

    fn text(&self, key: &str) -> Result<Option<&str>, Fault> {
        self.gguf.get_str(&self.full(key))
    }

    fn refused(&self, key: &str, why: impl Into<String>) -> Fault {
        let shown = self.value(key).map_or_else(String::new, Value::to_string);
        let key = self.full(key);
        let offset = self.gguf.metadata_offset(&key).unwrap_or_default();
        let why = format!("{shown} is refused: {}", why.into());
        Fault::at(offset, format!("metadata `{key}`"), why)
    }

    fn missing(&self, key: &str) -> Fault {
        Fault::of(format!("metadata `{}`", self.full(key)), "is missing")
    }
}

/// Refuses scaled rope. The scaling of Llama 3 is no metadata: it lies in `rope_freqs.weight`.
fn rope_scaling(keys: &Metadata<'_>) -> Result<(), Fault> {
    let (kind, factor) = ("rope.scaling.type", "rope.scaling.factor");
    match keys.text(kind)? {
        // The factor has no effect then.
        Some("none") => Ok(()),
        None | Some("linear") => match keys.f64(factor)? {
            None | Some(0.0 | 1.0) => Ok(()),
            Some(_) => Err(keys.refused(factor, "linear rope scaling is not implemented")),
        },
        Some(_) => Err(keys.refused(kind, "this rope scaling is not implemented")),
    }
}

fn window(keys: &Metadata<'_>) -> Result<(), Fault> {
    let (key, gemma) = ("attention.sliding_window_pattern", keys.arch == Arch::Gemma3);
    let pattern = keys.value(key).map(Value::as_integer);
    if pattern.is_some_and(|found| !(gemma && found == Some(GEMMA3_PERIOD as i128))) {
        let why = format!("only Gemma 3's pattern, every {GEMMA3_PERIOD}th layer, is implemented");
        return Err(keys.refused(key, why));
    }
    // A window no shorter than the context hides nothing.
    let window = keys.u32(WINDOW[0])?.unwrap_or(0);
    let context = keys.value(CONTEXT[0]).and_then(Value::as_integer).unwrap_or(0);
    if !gemma && window != 0 && i128::from(window) < context {
        let why = format!("a window is not implemented for {}", keys.arch);
        return Err(keys.refused(WINDOW[0], why));
    }
    Ok(())
}
