//! The shape of a model from a GGUF's metadata, and its metadata again.

use lathe_kernels::RopeStyle;

use super::tensors::{self, Tensors};
use super::{
    Arch, BASE, CONTEXT, Config, EPS, FFN, GEMMA3_PERIOD, HEAD_DIM, HEADS, HIDDEN, KV_HEADS,
    LAYERS, LOCAL_BASE, REFUSED, VOCAB, WINDOW, rope_bases,
};
use crate::fault::Fault;
use crate::gguf::writer::GgufWriter;
use crate::gguf::{Gguf, Value};
use crate::keys::{Found, Keys};
use crate::rope::{RopeScaling, YarnRope};
use crate::token_type::CONTROL;

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
        let parts = 1 + gguf.tensors.iter().map(|tensor| tensor.file).max().unwrap_or(0);
        if keys.u32("split.count")?.is_some_and(|n| n > 1 && n as usize != parts) {
            let why = "this is one shard of a split file; open it by its path beside the others";
            return Err(keys.refused("split.count", why));
        }
        let bases = rope_bases(&keys, arch)?;
        let rope_scaling = rope_scaling(&keys, bases[0])?;
        let period = period(&keys, bytes)?;
        known(&keys)?;
        let own_names = |name: &str| name.to_owned();
        let tensors = Tensors::new(&gguf.tensors, &own_names);
        let mut config = Self::of_keys(&keys, arch, &tensors, bases)?;
        (config.rope_scaling, config.global_period) = (rope_scaling, period);
        if arch != Arch::Gemma3 {
            config.window = window(&keys, config.context_length)?;
            let local = keys.optional_positive(LOCAL_BASE[0])?;
            if local.is_some_and(|local| local as f32 != config.rope_base) {
                let why = format!("all layers of {arch} have one base of rope");
                return Err(keys.refused(LOCAL_BASE[0], why));
            }
        }
        if arch == Arch::Llama {
            config.rope_style = RopeStyle::Interleaved;
            config.rope_freqs = gguf.tensor("rope_freqs.weight").is_some();
        }
        config.tied_head = gguf.tensor("output.weight").is_none();
        // Only Qwen2 always has one; Gemma never.
        config.qkv_bias |= arch != Arch::Gemma3 && gguf.tensor("blk.0.attn_q.bias").is_some();

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
        spelled_ends(gguf, bytes, &mut end_tokens);
        config = Self { bos, eos, end_tokens, ..config };
        tensors::check(&config, &tensors, bytes)?;
        Ok(config)
    }
}

/// Spellings of tokens that end a text or a turn, as llama.cpp knows them (`src/llama-vocab.cpp`):
/// files often name only one of them by its id.
#[rustfmt::skip]
const ENDS: [&str; 35] = [
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
    // The end of a filled gap, of a file and of a repository.
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
    "<fim-repo>", "<fim_repo>", "<REPO>", "<reponame>", "<|file_sep|>", "<file_sep>",
];

/// Adds the tokens that end a text by their spelling. `</s>` must be a control token: elsewhere it
/// is HTML. `<|end|>` ends a part of an answer where `<|return|>` or `<|flush|>` ends the whole.
fn spelled_ends(gguf: &Gguf, bytes: &[u8], ends: &mut Vec<u32>) {
    // The tokenizer says why a faulty list cannot be read.
    let read = |key| gguf.strings(key, bytes).ok().flatten().unwrap_or_default();
    let tokens = read("tokenizer.ggml.tokens");
    let types = gguf.integers("tokenizer.ggml.token_type", bytes).ok().flatten();
    let has = |spelling: &str| tokens.iter().any(|token| token == spelling);
    let parts = has("<|return|>") && has("<|call|>") || has("<|flush|>") && has("<|calls|>");
    for (id, token) in (0..).zip(&tokens).filter(|(_, token)| ENDS.contains(&token.as_str())) {
        let ty = types.as_ref().and_then(|types| types.get(id as usize));
        let ends_text = match token.as_str() {
            "</s>" => ty == Some(&CONTROL),
            "<|end|>" => !parts,
            _ => true,
        };
        if ends_text && !ends.contains(&id) {
            ends.push(id);
        }
    }
}

/// Keys of a shape that are read outside the table of refused settings.
const READ: [&str; 24] = [
    LAYERS[0],
    HIDDEN[0],
    FFN[0],
    HEADS[0],
    KV_HEADS[0],
    HEAD_DIM[0],
    CONTEXT[0],
    EPS[0],
    WINDOW[0],
    VOCAB[0],
    BASE[0],
    LOCAL_BASE[0],
    PATTERN,
    ROPE_TYPE,
    ROPE_FACTOR,
    OLD_FACTOR,
    ROPE_CONTEXT,
    ATTENTION_FACTOR,
    BETAS[0],
    BETAS[1],
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_log_multiplier",
    // Says how a file was trained, and that its scaling belongs to it.
    "rope.scaling.finetuned",
];

/// Keys that change no result: the order of data in files of before GGUF's second version, and
/// settings of embeddings and of parts that are no text model.
const NEUTRAL: [&str; 2] = ["tensor_data_layout", "pooling_type"];

/// Refuses settings of the architecture that are not known: any may change the result.
fn known(keys: &Metadata<'_>) -> Result<(), Fault> {
    let prefix = format!("{}.", keys.arch);
    for (full, _) in keys.gguf.metadata.iter() {
        let Some(key) = full.strip_prefix(&prefix) else { continue };
        let refused = REFUSED.iter().any(|(known, ..)| known[0] == key);
        if !(refused || READ.contains(&key) || NEUTRAL.contains(&key)) {
            let why =
                format!("{} has no such setting here, and it may change the result", keys.arch);
            return Err(keys.refused(key, why));
        }
    }
    Ok(())
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
    write_scaling(writer, config);
    if let Some(window) = config.window {
        writer.add(&full(WINDOW[0]), &size(window));
    }
    if let Some(period) = config.global_period.filter(|period| *period != GEMMA3_PERIOD) {
        writer.add(&full(PATTERN), &size(period));
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
            let why =
                format!("`{found}` is not supported; supported are gemma3, llama, qwen2, qwen3");
            gguf.error(KEY, why)
        })?;
        Ok(Self { gguf, arch })
    }

    fn full(&self, key: &str) -> String {
        let full = ["tokenizer.", "split."].iter().any(|head| key.starts_with(head));
        if full { key.to_owned() } else { format!("{}.{key}", self.arch) }
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

const ROPE_TYPE: &str = "rope.scaling.type";
const ROPE_FACTOR: &str = "rope.scaling.factor";
const OLD_FACTOR: &str = "rope.scale_linear";
const ROPE_CONTEXT: &str = "rope.scaling.original_context_length";
const ATTENTION_FACTOR: &str = "rope.scaling.attn_factor";
const BETAS: [&str; 2] = ["rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"];

/// Scaling of rope. That of Llama 3 is no metadata: it lies in `rope_freqs.weight`.
fn rope_scaling(keys: &Metadata<'_>, base: f64) -> Result<Option<RopeScaling>, Fault> {
    // Files of before have the factor under another key.
    let factors = [ROPE_FACTOR, OLD_FACTOR].map(|key| keys.f64(key));
    let [new, old] = factors;
    let (new, old) = (new?, old?);
    if old.is_some_and(|old| old != 0.0 && new.is_some_and(|new| new != old)) {
        return Err(keys.refused(OLD_FACTOR, format!("it contradicts `{ROPE_FACTOR}`")));
    }
    let scaled = |kind| kind == "linear" || kind == "yarn" && keys.arch != Arch::Gemma3;
    if new.or(old).is_none() && keys.text(ROPE_TYPE)?.is_some_and(scaled) {
        let why = format!("there is no `{ROPE_FACTOR}` to scale by");
        return Err(keys.refused(ROPE_TYPE, why));
    }
    let key = if new.is_some() { ROPE_FACTOR } else { OLD_FACTOR };
    let factor = match keys.f64(key)? {
        None | Some(0.0 | 1.0) => None,
        Some(_) => keys.optional_positive(key)?,
    };
    let kind = keys.text(ROPE_TYPE)?.unwrap_or("linear");
    let is_yarn = kind == "yarn";
    for (key, neutral) in [
        ("rope.scaling.yarn_ext_factor", f64::from(u8::from(is_yarn))),
        ("rope.scaling.yarn_attn_factor", 1.0),
        ("rope.scaling.yarn_log_multiplier", 0.0),
    ] {
        // Below zero counts as not given.
        if keys.f64(key)?.is_some_and(|v| v >= 0.0 && v != neutral) {
            let why = format!("with {kind} scaling of rope only {neutral} is implemented");
            return Err(keys.refused(key, why));
        }
    }
    let mut attention_factor = keys.f64(ATTENTION_FACTOR)?.filter(|v| *v != 0.0).unwrap_or(1.0);
    let scaling = match kind {
        // The factor has no effect then.
        "none" => None,
        "linear" => factor.map(|factor| RopeScaling::Linear { factor }),
        "yarn" if keys.arch != Arch::Gemma3 => {
            let factor = factor.unwrap_or(1.0);
            let original = keys.optional_size(ROPE_CONTEXT)?;
            let [fast, slow] = YarnRope::BETAS;
            let yarn = YarnRope {
                factor,
                original_context: original.map_or_else(|| keys.size(CONTEXT[0]), Ok)? as f64,
                beta_fast: keys.optional_positive(BETAS[0])?.unwrap_or(fast),
                beta_slow: keys.optional_positive(BETAS[1])?.unwrap_or(slow),
                attention_factor: attention_factor * YarnRope::mscale(factor, 1.0),
            };
            yarn.check(base).map_err(|why| keys.refused(ROPE_TYPE, why))?;
            attention_factor = 1.0;
            Some(RopeScaling::Yarn(yarn))
        }
        _ => return Err(keys.refused(ROPE_TYPE, "this rope scaling is not implemented")),
    };
    if attention_factor != 1.0 {
        let why = format!("it is not implemented with {kind} scaling of rope");
        return Err(keys.refused(ATTENTION_FACTOR, why));
    }
    Ok(scaling)
}

/// Adds the keys of a scaling; that of Llama 3 is a tensor.
fn write_scaling(writer: &mut GgufWriter, config: &Config) {
    let full = |key: &str| format!("{}.{key}", config.arch);
    let mut factor = |kind: &str, factor: f64| {
        writer.add(&full(ROPE_TYPE), kind);
        writer.add(&full(ROPE_FACTOR), &(factor as f32));
    };
    match config.rope_scaling {
        None | Some(RopeScaling::Llama3(_)) => {}
        Some(RopeScaling::Linear { factor: by }) => factor("linear", by),
        Some(RopeScaling::Yarn(yarn)) => {
            factor("yarn", yarn.factor);
            writer.add(&full(ROPE_CONTEXT), &(yarn.original_context as u32));
            // Readers multiply by what grows with the factor.
            let own = (yarn.attention_factor / YarnRope::mscale(yarn.factor, 1.0)) as f32;
            let betas = [yarn.beta_fast, yarn.beta_slow];
            let keys = [ATTENTION_FACTOR, BETAS[0], BETAS[1]];
            let given = [own, betas[0] as f32, betas[1] as f32];
            let [fast, slow] = YarnRope::BETAS;
            let usual = [1.0, fast as f32, slow as f32];
            for ((key, given), usual) in keys.iter().zip(given).zip(usual) {
                if given != usual {
                    writer.add(&full(key), &given);
                }
            }
        }
    }
}

/// The window of all layers, as Mistral has it. One no shorter than the context hides nothing.
fn window(keys: &Metadata<'_>, context: usize) -> Result<Option<usize>, Fault> {
    let window = keys.u32(WINDOW[0])?.map(|window| window as usize);
    let window = window.filter(|window| (1..context).contains(window));
    if window.is_some() && keys.arch != Arch::Llama {
        let why = format!("a window is not implemented for {}", keys.arch);
        return Err(keys.refused(WINDOW[0], why));
    }
    Ok(window)
}

const PATTERN: &str = "attention.sliding_window_pattern";

/// Layers from one global layer of Gemma to the next; all layers of others have the same window.
fn period(keys: &Metadata<'_>, bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let full = keys.full(PATTERN);
    if keys.arch == Arch::Gemma3 && matches!(keys.gguf.metadata.get(&full), Some(Value::Array(_))) {
        let windows = keys.gguf.switches(&full, bytes)?.unwrap_or_default();
        let layers = keys.size(LAYERS[0])?;
        if windows.len() != layers {
            let why = format!("it has {} entries for {layers} layers", windows.len());
            return Err(keys.refused(PATTERN, why));
        }
        // Without a global layer the next one would be.
        let period = windows.iter().position(|window| !window).unwrap_or(layers) + 1;
        let wrong = |(layer, window): (usize, &bool)| *window == (layer % period == period - 1);
        if let Some(layer) = windows.iter().enumerate().position(wrong) {
            let why = format!("layer {layer} is not what a period of {period} layers has there");
            return Err(keys.refused(PATTERN, why));
        }
        return Ok(Some(period));
    }
    if keys.arch == Arch::Gemma3 {
        return Ok(Some(keys.optional_size(PATTERN)?.unwrap_or(GEMMA3_PERIOD)));
    }
    match keys.find(PATTERN) {
        None => Ok(None),
        Some(_) => Err(keys.refused(PATTERN, format!("{} has no pattern of windows", keys.arch))),
    }
}
