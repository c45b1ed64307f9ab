//! The shape of a model from `config.json`, with the key names of transformers 4 and 5.

use lathe_kernels::{Activation, RopeStyle};
use serde_json::Value;

use super::tensors::{self, Tensors};
use super::{Arch, Config, ConfigError, GEMMA3_LOCAL_BASE, GEMMA3_PERIOD};
use crate::json::{KeyError, Object};
use crate::rope::Llama3Rope;

/// Contents of `config.json`.
pub(crate) struct HfConfig {
    pub(crate) config: Config,
    pub(crate) rope: Option<Llama3Rope>,
}

/// Factors that must be neutral where they are given.
const NEUTRAL: [(&str, f64, &str); 4] = [
    ("final_logit_softcapping", 0.0, "soft-capping is not implemented"),
    ("attn_logit_softcapping", 0.0, "soft-capping is not implemented"),
    ("partial_rotary_factor", 1.0, "partial rope is not implemented"),
    ("num_experts", 0.0, "experts are not implemented"),
];

/// Switches with the only value that is implemented.
const SWITCHES: [(&str, bool, &str); 5] = [
    ("attention_bias", false, "biases are not implemented"),
    ("mlp_bias", false, "biases are not implemented"),
    ("use_bidirectional_attention", false, "only causal attention is implemented"),
    ("use_sliding_window", false, "a window is not implemented for this architecture"),
    ("is_encoder_decoder", false, "encoders are not implemented"),
];

/// The architecture that a configuration names.
///
/// # Errors
/// It names none, or one that is not supported.
pub(crate) fn arch_of(json: &Value) -> Result<Arch, KeyError> {
    let root = Object::root(json)?;
    let found = root.text("model_type")?.ok_or_else(|| root.missing("model_type"))?;
    match found {
        "gemma3" | "gemma3_text" => Ok(Arch::Gemma3),
        "llama" => Ok(Arch::Llama),
        "qwen3" => Ok(Arch::Qwen3),
        _ => Err(root.refused(
            "model_type",
            "supported are gemma3_text, gemma3 (its text model), llama, qwen3",
        )),
    }
}

impl HfConfig {
    /// Reads the shape and holds it against the tensors.
    ///
    /// # Errors
    /// The first thing missing, contradictory, senseless or not implemented, with its key or
    /// tensor.
    pub(crate) fn read(json: &Value, tensors: &Tensors<'_>) -> Result<Self, ConfigError> {
        let arch = arch_of(json)?;
        let root = Object::root(json)?;
        let keys = match root.text("model_type")? {
            // Text and images: the text model has an object of its own.
            Some("gemma3") => {
                root.object("text_config")?.ok_or_else(|| root.missing("text_config"))?
            }
            _ => root.clone(),
        };
        refuse(&root, &keys, arch)?;

        let n_layers = keys.size("num_hidden_layers")?;
        let hidden = keys.size("hidden_size")?;
        let ffn = keys.size("intermediate_size")?;
        let n_heads = keys.size("num_attention_heads")?;
        let n_kv_heads = keys.optional_size("num_key_value_heads")?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            let why = format!("it does not divide the {n_heads} of num_attention_heads");
            return Err(keys.refused("num_key_value_heads", why).into());
        }
        let head_dim = head_dim(&keys, hidden, n_heads)?;
        let context_length = keys.size("max_position_embeddings")?;
        let rms_eps = keys.positive("rms_norm_eps")?.ok_or_else(|| keys.missing("rms_norm_eps"))?;
        let gemma = arch == Arch::Gemma3;
        let window = match gemma {
            true => Some(keys.size("sliding_window")?),
            false => None,
        };
        layer_types(&keys, gemma, n_layers)?;
        let rope = Rope::read(&keys, arch)?;
        let scaled_by = match gemma {
            true => keys.positive("query_pre_attn_scalar")?.unwrap_or(head_dim as f64),
            false => head_dim as f64,
        };

        let vocab = tensors.vocab()? as usize;
        if keys.optional_size("vocab_size")?.is_some_and(|v| v != vocab) {
            return Err(keys
                .refused("vocab_size", format!("the embedding has {vocab} rows"))
                .into());
        }
        let end_tokens = tokens(&root, &keys, "eos_token_id", vocab)?;
        let tied_head = match keys.bool("tie_word_embeddings")? {
            Some(tied) => tied,
            None => root.bool("tie_word_embeddings")?.unwrap_or(gemma),
        };
        let config = Config {
            arch,
            n_layers,
            hidden,
            ffn,
            n_heads,
            n_kv_heads,
            head_dim,
            vocab,
            context_length,
            rms_eps: rms_eps as f32,
            rope_base: rope.base as f32,
            rope_base_local: rope.local as f32,
            window,
            // The interleaved pairs of a Llama in GGUF are a rearrangement of its conversion.
            rope_style: RopeStyle::Neox,
            qk_norm: arch != Arch::Llama,
            post_norms: gemma,
            activation: if gemma { Activation::GeluTanh } else { Activation::Silu },
            embed_scale: if gemma { (hidden as f64).sqrt() as f32 } else { 1.0 },
            attention_scale: (1.0 / scaled_by.sqrt()) as f32,
            tied_head,
            rope_freqs: rope.llama3.is_some(),
            bos: tokens(&root, &keys, "bos_token_id", vocab)?.first().copied(),
            eos: end_tokens.first().copied(),
            end_tokens,
        };
        tensors::check(&config, tensors, &[])?;
        Ok(Self { config, rope: rope.llama3 })
    }
}

/// Refuses settings that would change the result and are not implemented.
fn refuse(root: &Object<'_>, keys: &Object<'_>, arch: Arch) -> Result<(), KeyError> {
    for object in [root, keys] {
        if object.get("quantization_config").is_some() {
            let why = "weights that transformers has quantised are not implemented";
            return Err(object.error("quantization_config", why));
        }
    }
    for (key, neutral, why) in NEUTRAL {
        if keys.f64(key)?.is_some_and(|v| v != neutral) {
            return Err(keys.refused(key, why));
        }
    }
    for (key, only, why) in SWITCHES {
        if keys.bool(key)?.is_some_and(|v| v != only) {
            return Err(keys.refused(key, why));
        }
    }
    let expected = if arch == Arch::Gemma3 { "gelu_pytorch_tanh" } else { "silu" };
    // Gemma's own key goes before the general one, which its early files have wrong.
    let own = if arch == Arch::Gemma3 { "hidden_activation" } else { "hidden_act" };
    let key = if keys.get(own).is_some() { own } else { "hidden_act" };
    if keys.text(key)?.is_some_and(|found| found != expected) {
        return Err(keys.refused(key, format!("only {expected} is implemented for {arch}")));
    }
    Ok(())
}

fn head_dim(keys: &Object<'_>, hidden: usize, n_heads: usize) -> Result<usize, KeyError> {
    let (key, head_dim) = match keys.optional_size("head_dim")? {
        Some(len) => ("head_dim", len),
        None if hidden.is_multiple_of(n_heads) => ("num_attention_heads", hidden / n_heads),
        None => {
            let why = format!("it does not divide the {hidden} of hidden_size");
            return Err(keys.refused("num_attention_heads", why));
        }
    };
    if !head_dim.is_multiple_of(2) {
        return Err(keys.refused(key, format!("a head of {head_dim} cannot be rotated in pairs")));
    }
    Ok(head_dim)
}

/// Checks the layers with a sliding window: Gemma's pattern, and none elsewhere.
fn layer_types(keys: &Object<'_>, gemma: bool, n_layers: usize) -> Result<(), KeyError> {
    for key in ["sliding_window_pattern", "_sliding_window_pattern"] {
        let pattern = keys.u32(key)?;
        if gemma && pattern.is_some_and(|n| n as usize != GEMMA3_PERIOD) {
            let why = format!("only every {GEMMA3_PERIOD}th layer may be global");
            return Err(keys.refused(key, why));
        }
    }
    let key = "layer_types";
    let Some(types) = keys.array(key)? else { return Ok(()) };
    if types.len() != n_layers {
        let why = format!("{} entries for {n_layers} layers", types.len());
        return Err(keys.error(key, why));
    }
    for (layer, found) in types.iter().enumerate() {
        let global = !gemma || layer % GEMMA3_PERIOD == GEMMA3_PERIOD - 1;
        let expected = if global { "full_attention" } else { "sliding_attention" };
        if found.as_str() != Some(expected) {
            let why = format!("layer {layer}: only {expected} is implemented there");
            return Err(keys.error(key, why));
        }
    }
    Ok(())
}

/// One token or a list of them, from the text model or from the whole.
fn tokens(
    root: &Object<'_>,
    keys: &Object<'_>,
    key: &str,
    vocab: usize,
) -> Result<Vec<u32>, KeyError> {
    let object = if keys.get(key).is_some() { keys } else { root };
    token_list(object, key, vocab)
}

/// One token or a list of them, each in the vocabulary.
pub(crate) fn token_list(
    object: &Object<'_>,
    key: &str,
    vocab: usize,
) -> Result<Vec<u32>, KeyError> {
    let Some(value) = object.get(key) else { return Ok(Vec::new()) };
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.filter(|&id| (id as usize) < vocab)
    };
    let all: Option<Vec<u32>> = values.iter().map(id).collect();
    all.ok_or_else(|| object.refused(key, format!("expected tokens of the {vocab} there are")))
}

struct Rope {
    base: f64,
    local: f64,
    llama3: Option<Llama3Rope>,
}

impl Rope {
    /// transformers 5 has `rope_parameters`, for Gemma one a layer type; before that the base stood
    /// alone and `rope_scaling` beside it.
    fn read(keys: &Object<'_>, arch: Arch) -> Result<Self, KeyError> {
        let Some(parameters) = keys.object("rope_parameters")? else {
            let base = keys.positive("rope_theta")?;
            let base = match (base, arch) {
                (Some(base), _) => base,
                // What configurations of Llama 1 and 2 leave out.
                (None, Arch::Llama) => 10_000.0,
                (None, _) => return Err(keys.missing("rope_theta")),
            };
            let local = match arch {
                Arch::Gemma3 => keys.positive("rope_local_base_freq")?,
                _ => Some(base),
            };
            let llama3 = match keys.object("rope_scaling")? {
                Some(scaling) => scaled(&scaling, arch)?,
                None => None,
            };
            return Ok(Self { base, local: local.unwrap_or(GEMMA3_LOCAL_BASE.into()), llama3 });
        };
        let base_of = |object: &Object<'_>| -> Result<f64, KeyError> {
            object.positive("rope_theta")?.ok_or_else(|| object.missing("rope_theta"))
        };
        if arch != Arch::Gemma3 {
            let base = base_of(&parameters)?;
            return Ok(Self { base, local: base, llama3: scaled(&parameters, arch)? });
        }
        let of_type = |key: &str| -> Result<f64, KeyError> {
            let object = parameters.object(key)?.ok_or_else(|| parameters.missing(key))?;
            scaled(&object, arch)?;
            base_of(&object)
        };
        let (base, local) = (of_type("full_attention")?, of_type("sliding_attention")?);
        Ok(Self { base, local, llama3: None })
    }
}

fn scaled(scaling: &Object<'_>, arch: Arch) -> Result<Option<Llama3Rope>, KeyError> {
    // Before `rope_type` the key was `type`.
    let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
    match scaling.text(key)? {
        None | Some("default") => Ok(None),
        Some("llama3") if arch == Arch::Llama => {
            let number = |key: &str| -> Result<f64, KeyError> {
                scaling.positive(key)?.ok_or_else(|| scaling.missing(key))
            };
            let rope = Llama3Rope {
                factor: number("factor")?,
                low_freq_factor: number("low_freq_factor")?,
                high_freq_factor: number("high_freq_factor")?,
                original_context: number("original_max_position_embeddings")?,
            };
            if rope.high_freq_factor <= rope.low_freq_factor {
                let why = format!("it is not above low_freq_factor, {}", rope.low_freq_factor);
                return Err(scaling.refused("high_freq_factor", why));
            }
            Ok(Some(rope))
        }
        Some(_) => {
            Err(scaling.refused(key, format!("this rope scaling is not implemented for {arch}")))
        }
    }
}
