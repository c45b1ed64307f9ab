//! The shape of a model from a GGUF's metadata, and its metadata again.

use lathe_kernels::RopeStyle;

use super::tensors::{self, Tensors};
use super::{
    Arch, BASE, CONTEXT, Config, EPS, FFN, GEMMA3_PERIOD, HEAD_DIM, HEADS, HIDDEN, KV_HEADS,
    LAYERS, VOCAB, WINDOW, rope_bases,
};
use crate::fault::Fault;
use crate::gguf::Gguf;
use crate::gguf::writer::GgufWriter;
use crate::keys::{Found, Keys};

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
        let mut config = Self::of_keys(&keys, arch, &tensors, rope_bases(&keys, arch)?)?;
        if arch == Arch::Llama {
            config.rope_style = RopeStyle::Interleaved;
            config.rope_freqs = gguf.tensor("rope_freqs.weight").is_some();
        }
        config.tied_head = gguf.tensor("output.weight").is_none();

        let list = "tokenizer.ggml.tokens";
        if gguf.array(list)?.is_some_and(|tokens| tokens.len != config.vocab) {
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
        writer.add(&full(key), &size(value));
    }
    writer.add(&full(EPS[0]), &config.rms_eps);
    writer.add(&full(BASE[0]), &config.rope_base);
    if let Some(window) = config.window {
        writer.add(&full(WINDOW[0]), &size(window));
    }
    if config.arch == Arch::Llama {
        writer.add(&full("rope.dimension_count"), &size(config.head_dim));
        writer.add(&full(VOCAB[0]), &size(config.vocab));
    }
}

/// The metadata of one architecture: `attention.head_count` is `llama.attention.head_count`, and a
/// full key stays as it is.
struct Metadata<'a> {
    gguf: &'a Gguf,
    arch: Arch,
}

impl<'a> Metadata<'a> {
    fn of(gguf: &'a Gguf) -> Result<Self, Fault> {
        const KEY: &str = "general.architecture";
        let found = gguf.text(KEY)?.ok_or_else(|| gguf.missing(KEY))?;
        let arch = Arch::ALL.into_iter().find(|arch| arch.name() == found).ok_or_else(|| {
            let why = format!("`{found}` is not supported; supported are gemma3, llama, qwen3");
            gguf.error(KEY, why)
        })?;
        Ok(Self { gguf, arch })
    }

    fn full(&self, key: &str) -> String {
        let full = ["tokenizer.", "split."].iter().any(|head| key.starts_with(head));
        if full { key.to_owned() } else { format!("{}.{key}", self.arch) }
    }

    fn integer(&self, key: &str) -> Option<i128> {
        self.gguf.metadata.get(&self.full(key))?.as_integer()
    }
}

impl Keys for Metadata<'_> {
    const FORMAT: usize = 0;

    fn find(&self, key: &str) -> Option<Found<'_>> {
        self.gguf.find(&self.full(key))
    }

    fn shown(&self, key: &str) -> String {
        self.gguf.shown(&self.full(key))
    }

    fn error(&self, key: &str, why: impl Into<String>) -> Fault {
        self.gguf.error(&self.full(key), why)
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
    let fits = gemma && keys.integer(key) == Some(GEMMA3_PERIOD as i128);
    if keys.find(key).is_some() && !fits {
        let why = format!("only Gemma 3's pattern, every {GEMMA3_PERIOD}th layer, is implemented");
        return Err(keys.refused(key, why));
    }
    // A window no shorter than the context hides nothing.
    let window = keys.u32(WINDOW[0])?.unwrap_or(0);
    let context = keys.integer(CONTEXT[0]).unwrap_or(0);
    if !gemma && window != 0 && i128::from(window) < context {
        let why = format!("a window is not implemented for {}", keys.arch);
        return Err(keys.refused(WINDOW[0], why));
    }
    Ok(())
}
