//! The shape of a model from `config.json`, with the key names of transformers 4 and 5.

use serde_json::Value;

use super::tensors::{self, Tensors};
use super::{Arch, Config, GEMMA3_PERIOD, rope_bases};
use crate::fault::Fault;
use crate::json::Object;
use crate::keys::Keys;
use crate::rope::Llama3Rope;

/// The architecture that a configuration names.
///
/// # Errors
/// It names none, or one that is not supported.
pub(crate) fn arch_of(json: &Value) -> Result<Arch, Fault> {
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

/// The whole configuration, and the object of the text model, which one of text and images has.
fn text_model(json: &Value) -> Result<(Arch, Object<'_>, Object<'_>), Fault> {
    let root = Object::root(json)?;
    let keys = match root.text("model_type")? {
        Some("gemma3") => root.object("text_config")?.ok_or_else(|| root.missing("text_config"))?,
        _ => root.clone(),
    };
    Ok((arch_of(json)?, root, keys))
}

/// Returns true if the head is the embedding.
pub(crate) fn tied_head(json: &Value) -> Result<bool, Fault> {
    let (arch, root, keys) = text_model(json)?;
    let key = "tie_word_embeddings";
    let tied = keys.bool(key)?.map_or_else(|| root.bool(key), |tied| Ok(Some(tied)))?;
    Ok(tied.unwrap_or(arch == Arch::Gemma3))
}

impl Config {
    /// Reads the shape from `config.json` and checks it against the tensors.
    ///
    /// # Errors
    /// The first thing missing, contradictory, senseless or not implemented, with its key or
    /// tensor.
    pub(crate) fn from_json(json: &Value, tensors: &Tensors<'_>) -> Result<Self, Fault> {
        let (arch, root, keys) = text_model(json)?;
        refuse(&root, &keys, arch)?;
        let (bases, scaling) = rope(&keys, arch)?;
        let mut config = Self::of_keys(&keys, arch, tensors, bases)?;
        let gemma = arch == Arch::Gemma3;
        layer_types(&keys, gemma, config.n_layers)?;
        (config.rope_freqs, config.rope_scaling) = (scaling.is_some(), scaling);
        let scaled_by = match gemma {
            true => keys.optional_positive("query_pre_attn_scalar")?,
            false => None,
        };
        config.attention_scale = (1.0 / scaled_by.unwrap_or(config.head_dim as f64).sqrt()) as f32;
        config.tied_head = tied_head(json)?;
        let tokens = |key: &str| {
            let object = if keys.get(key).is_some() { &keys } else { &root };
            token_list(object, key, config.vocab)
        };
        let (ends, begins) = (tokens("eos_token_id")?, tokens("bos_token_id")?);
        (config.eos, config.end_tokens) = (ends.first().copied(), ends);
        config.bos = begins.first().copied();
        tensors::check(&config, tensors, &[])?;
        Ok(config)
    }
}

/// Refuses settings that would change the result and are not implemented.
fn refuse(root: &Object<'_>, keys: &Object<'_>, arch: Arch) -> Result<(), Fault> {
    for object in [root, keys] {
        if object.get("quantization_config").is_some() {
            let why = "weights that transformers has quantised are not implemented";
            return Err(object.error("quantization_config", why));
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

/// Checks the layers with a sliding window: Gemma's pattern, and none elsewhere.
fn layer_types(keys: &Object<'_>, gemma: bool, n_layers: usize) -> Result<(), Fault> {
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

/// One token or a list of them, each in the vocabulary.
pub(crate) fn token_list(object: &Object<'_>, key: &str, vocab: usize) -> Result<Vec<u32>, Fault> {
    let Some(value) = object.get(key) else { return Ok(Vec::new()) };
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.filter(|&id| (id as usize) < vocab)
    };
    let all: Option<Vec<u32>> = values.iter().map(id).collect();
    all.ok_or_else(|| object.refused(key, format!("expected tokens of the {vocab} there are")))
}

/// The bases of rope, and the scaling of Llama 3. transformers 5 has `rope_parameters`, for Gemma
/// one per layer type; before that the base stood alone and `rope_scaling` beside it.
fn rope(keys: &Object<'_>, arch: Arch) -> Result<([f64; 2], Option<Llama3Rope>), Fault> {
    let Some(parameters) = keys.object("rope_parameters")? else {
        let scaling = keys.object("rope_scaling")?;
        let scaling = scaling.map_or(Ok(None), |scaling| scaled(&scaling, arch))?;
        return Ok((rope_bases(keys, arch)?, scaling));
    };
    if arch != Arch::Gemma3 {
        let base = parameters.positive("rope_theta")?;
        return Ok(([base; 2], scaled(&parameters, arch)?));
    }
    let of_type = |key: &str| -> Result<f64, Fault> {
        let object = parameters.object(key)?.ok_or_else(|| parameters.missing(key))?;
        scaled(&object, arch)?;
        object.positive("rope_theta")
    };
    Ok(([of_type("full_attention")?, of_type("sliding_attention")?], None))
}

fn scaled(scaling: &Object<'_>, arch: Arch) -> Result<Option<Llama3Rope>, Fault> {
    // Before `rope_type` the key was `type`.
    let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
    match scaling.text(key)? {
        None | Some("default") => Ok(None),
        Some("llama3") if arch == Arch::Llama => {
            let rope = Llama3Rope {
                factor: scaling.positive("factor")?,
                low_freq_factor: scaling.positive("low_freq_factor")?,
                high_freq_factor: scaling.positive("high_freq_factor")?,
                original_context: scaling.positive("original_max_position_embeddings")?,
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
