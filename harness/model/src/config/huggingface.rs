//! The shape of a model from `config.json`, with the key names of transformers 4 and 5.

use serde_json::Value;

use super::tensors::{self, Tensors};
use super::{Arch, BIASES, Config, GEMMA3_PERIOD, WINDOW, rope_bases};
use crate::fault::Fault;
use crate::json::Object;
use crate::keys::Keys;
use crate::rope::{Llama3Rope, RopeScaling, YarnRope};

/// The window of Mistral where the key is left out; null is none.
const MISTRAL_WINDOW: usize = 4096;

/// The architecture that a configuration names.
///
/// # Errors
/// It names none, or one that is not supported.
pub(crate) fn arch_of(json: &Value) -> Result<Arch, Fault> {
    let root = Object::root(json)?;
    let found = root.text("model_type")?.ok_or_else(|| root.missing("model_type"))?;
    match found {
        "gemma3" | "gemma3_text" => Ok(Arch::Gemma3),
        "llama" | "mistral" => Ok(Arch::Llama),
        "qwen2" => Ok(Arch::Qwen2),
        "qwen3" => Ok(Arch::Qwen3),
        _ => Err(root.refused(
            "model_type",
            "supported are gemma3_text, gemma3 (its text model), llama, mistral, qwen2, qwen3",
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
    let (inside, whole) = (keys.bool(key)?, root.bool(key)?);
    if inside.is_some() && whole.is_some() && inside != whole {
        return Err(root.refused(key, "it contradicts `text_config`"));
    }
    Ok(inside.or(whole).unwrap_or(arch == Arch::Gemma3))
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
        config.global_period = global_period(&keys, gemma, config.n_layers)?;
        if keys.text("model_type")? == Some("mistral") {
            config.window = match keys.has(WINDOW[1]) {
                true => keys.optional_size(WINDOW[1])?,
                false => Some(MISTRAL_WINDOW),
            };
            config.window = config.window.filter(|window| *window < config.context_length);
        }
        config.rope_scaling = scaling;
        let scaled_by = match gemma {
            true => keys.optional_positive("query_pre_attn_scalar")?,
            false => None,
        };
        config.attention_scale = (1.0 / scaled_by.unwrap_or(config.head_dim as f64).sqrt()) as f32;
        let bias = "attention_bias";
        match (keys.bool(bias)?, arch) {
            (Some(true), Arch::Gemma3) => return Err(keys.refused(bias, BIASES)),
            (Some(true), _) => config.qkv_bias = true,
            (Some(false) | None, _) => {}
        }
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
        if object.get("per_layer_config").is_some() {
            let why = "layers that differ in their settings are not implemented";
            return Err(object.error("per_layer_config", why));
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

/// Layers from one global layer of Gemma to the next, by the list of layers or else by its pattern.
/// Lists of others name no windows.
fn global_period(keys: &Object<'_>, gemma: bool, n_layers: usize) -> Result<Option<usize>, Fault> {
    let names = ["sliding_window_pattern", "_sliding_window_pattern"];
    let (old, new) = (keys.optional_size(names[0])?, keys.optional_size(names[1])?);
    if gemma && old.is_some() && new.is_some() && old != new {
        return Err(keys.refused(names[0], format!("it contradicts `{}`", names[1])));
    }
    // transformers looks at it only where there is no list.
    let pattern = old.or(new);
    let key = "layer_types";
    let Some(types) = keys.array(key)? else {
        return Ok(gemma.then(|| pattern.unwrap_or(GEMMA3_PERIOD)));
    };
    if types.len() != n_layers {
        let why = format!("{} entries for {n_layers} layers", types.len());
        return Err(keys.error(key, why));
    }
    const GLOBAL: &str = "full_attention";
    let first = types.iter().position(|ty| ty.as_str() == Some(GLOBAL));
    // Without a global layer the next one would be.
    let period = if gemma { first.unwrap_or(n_layers) + 1 } else { 1 };
    for (layer, found) in types.iter().enumerate() {
        let global = layer % period == period - 1;
        let expected = if global { GLOBAL } else { "sliding_attention" };
        if found.as_str() != Some(expected) {
            let why = format!("layer {layer}: only {expected} is implemented there");
            return Err(keys.error(key, why));
        }
    }
    Ok(gemma.then_some(period))
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

/// The bases of rope, and its scaling. transformers 5 has `rope_parameters`, for Gemma one per layer
/// type; before that the base stood alone and `rope_scaling` beside it, for Gemma that of its global
/// layers.
fn rope(keys: &Object<'_>, arch: Arch) -> Result<([f64; 2], Option<RopeScaling>), Fault> {
    let Some(parameters) = keys.object("rope_parameters")? else {
        let scaling = keys.object("rope_scaling")?;
        let bases = rope_bases(keys, arch)?;
        let scaling = scaling.map_or(Ok(None), |scaling| scaled(&scaling, keys, arch, bases[0]))?;
        return Ok((bases, scaling));
    };
    one_source(keys, &parameters)?;
    if arch != Arch::Gemma3 {
        let base = parameters.positive("rope_theta")?;
        return Ok(([base; 2], scaled(&parameters, keys, arch, base)?));
    }
    let of_type = |key: &str| -> Result<_, Fault> {
        let object = parameters.object(key)?.ok_or_else(|| parameters.missing(key))?;
        let base = object.positive("rope_theta")?;
        Ok((base, scaled(&object, keys, arch, base)?, object))
    };
    let (base, scaling, _) = of_type("full_attention")?;
    let (local, local_scaling, object) = of_type("sliding_attention")?;
    if local_scaling.is_some() {
        let why = "scaled rope is not implemented for layers with a window";
        return Err(object.refused(type_key(&object), why));
    }
    Ok(([base, local], scaling))
}

/// Refuses the keys of transformers 4 where they contradict `rope_parameters`, which it reads.
fn one_source(keys: &Object<'_>, parameters: &Object<'_>) -> Result<(), Fault> {
    let contradicts = |key: &str| Err(keys.refused(key, "it contradicts `rope_parameters`"));
    let whole = parameters.object("full_attention").ok().flatten();
    let global = whole.as_ref().unwrap_or(parameters);
    let local = parameters.object("sliding_attention").ok().flatten();
    for (key, object) in [("rope_theta", Some(global)), ("rope_local_base_freq", local.as_ref())] {
        let inside = object.map_or(Ok(None), |object| object.f64("rope_theta"))?;
        if keys.f64(key)?.is_some_and(|beside| inside.is_some_and(|inside| inside != beside)) {
            return contradicts(key);
        }
    }
    let Some(scaling) = keys.object("rope_scaling")? else { return Ok(()) };
    let entries = |object: &Object<'_>| -> Vec<(String, Value)> {
        let named = |key: &str| if key == "type" { "rope_type" } else { key }.to_owned();
        let given = object.iter().filter(|(key, v)| !v.is_null() && *key != "rope_theta");
        let mut all: Vec<_> = given.map(|(key, v)| (named(key), v.clone())).collect();
        all.retain(|(key, value)| !(key == "rope_type" && value == "default"));
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.dedup();
        all
    };
    // Of Gemma, either the scaling of global layers or the same two objects.
    let same = entries(&scaling) == entries(global) || entries(&scaling) == entries(parameters);
    if same { Ok(()) } else { contradicts("rope_scaling") }
}

/// Parameters of the scalings, by the type that has them.
const PARAMETERS: [(&str, &[&str]); 4] = [
    ("default", &[]),
    ("linear", &["factor"]),
    ("llama3", &["factor", "low_freq_factor", "high_freq_factor", ORIGINAL]),
    (
        "yarn",
        &[
            "factor",
            ORIGINAL,
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ],
    ),
];

/// Refuses a scaling without a type, with two, or with a parameter that its type does not have.
fn complete(scaling: &Object<'_>) -> Result<(), Fault> {
    let (ty, old) = (scaling.text("rope_type")?, scaling.text("type")?);
    if ty.is_some() && old.is_some_and(|old| ty != Some(old)) {
        return Err(scaling.refused("type", "it contradicts `rope_type`"));
    }
    let ty = ty.or(old);
    let known = PARAMETERS.iter().find(|(name, _)| *name == ty.unwrap_or("default"));
    // An unknown type is refused by its name.
    let Some((_, parameters)) = known else { return Ok(()) };
    if scaling.f64("partial_rotary_factor")?.is_some_and(|part| part != 1.0) {
        return Err(scaling.refused("partial_rotary_factor", "partial rope is not implemented"));
    }
    let others = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];
    let given = scaling.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str());
    match given.into_iter().find(|key| !others.contains(key) && !parameters.contains(key)) {
        Some(_) if ty.is_none() => Err(scaling.missing("rope_type")),
        Some(key) => {
            let ty = ty.unwrap_or("default");
            Err(scaling.refused(key, format!("rope of type {ty} has no such parameter")))
        }
        None if ty.is_none() && scaling.f64("rope_theta")?.is_none() => {
            Err(scaling.missing("rope_type"))
        }
        None => Ok(()),
    }
}

/// The key of a scaling's type: before `rope_type` it was `type`.
fn type_key(scaling: &Object<'_>) -> &'static str {
    if scaling.get("rope_type").is_some() { "rope_type" } else { "type" }
}

const ORIGINAL: &str = "original_max_position_embeddings";

/// Positions that a model was trained for before its rope was scaled. transformers reads them in the
/// scaling and beside it.
fn original_context(scaling: &Object<'_>, keys: &Object<'_>) -> Result<Option<f64>, Fault> {
    let (inside, beside) =
        (scaling.optional_positive(ORIGINAL)?, keys.optional_positive(ORIGINAL)?);
    if inside.is_some() && beside.is_some() && inside != beside {
        return Err(keys.refused(ORIGINAL, "it contradicts the one inside the scaling of rope"));
    }
    Ok(beside.or(inside))
}

/// A scaling as transformers reads it from `rope_parameters` or `rope_scaling`; `keys` is the
/// object that this stands in.
fn scaled(
    scaling: &Object<'_>,
    keys: &Object<'_>,
    arch: Arch,
    base: f64,
) -> Result<Option<RopeScaling>, Fault> {
    complete(scaling)?;
    let key = type_key(scaling);
    match scaling.text(key)? {
        None | Some("default") => Ok(None),
        Some("linear") => Ok(Some(RopeScaling::Linear { factor: scaling.positive("factor")? })),
        Some("yarn") if arch != Arch::Gemma3 => {
            if scaling.bool("truncate")? == Some(false) {
                return Err(scaling.refused("truncate", "only true is implemented"));
            }
            let longest = keys.optional_positive("max_position_embeddings")?;
            let original = original_context(scaling, keys)?;
            // One of the two follows from the other and the positions there are now.
            let grown = longest.zip(original).map(|(longest, original)| longest / original);
            let factor = scaling.optional_positive("factor")?.or(grown);
            let factor = factor.ok_or_else(|| scaling.missing("factor"))?;
            let original = original.or(longest);
            let original_context = original.ok_or_else(|| scaling.missing(ORIGINAL))?;
            let weights = ["mscale", "mscale_all_dim"].map(|key| scaling.f64(key));
            let [weight, weight_of_all] = weights;
            let computed = match (weight?.unwrap_or(0.0), weight_of_all?.unwrap_or(0.0)) {
                (0.0, _) | (_, 0.0) => YarnRope::mscale(factor, 1.0),
                (one, all) => YarnRope::mscale(factor, one) / YarnRope::mscale(factor, all),
            };
            // Zero counts as not given.
            let beta = |key: &str, usual: f64| match scaling.f64(key)? {
                None | Some(0.0) => Ok(usual),
                Some(_) => scaling.positive(key),
            };
            let attention_factor = scaling.optional_positive("attention_factor")?;
            let yarn = YarnRope {
                factor,
                original_context,
                beta_fast: beta("beta_fast", YarnRope::BETAS[0])?,
                beta_slow: beta("beta_slow", YarnRope::BETAS[1])?,
                attention_factor: attention_factor.unwrap_or(computed),
            };
            yarn.check(base).map_err(|why| scaling.refused(key, why))?;
            Ok(Some(RopeScaling::Yarn(yarn)))
        }
        Some("llama3") if arch == Arch::Llama => {
            let rope = Llama3Rope {
                factor: scaling.positive("factor")?,
                low_freq_factor: scaling.positive("low_freq_factor")?,
                high_freq_factor: scaling.positive("high_freq_factor")?,
                original_context: original_context(scaling, keys)?
                    .ok_or_else(|| scaling.missing(ORIGINAL))?,
            };
            if rope.high_freq_factor <= rope.low_freq_factor {
                let why = format!("it is not above low_freq_factor, {}", rope.low_freq_factor);
                return Err(scaling.refused("high_freq_factor", why));
            }
            Ok(Some(RopeScaling::Llama3(rope)))
        }
        Some(_) => {
            Err(scaling.refused(key, format!("this rope scaling is not implemented for {arch}")))
        }
    }
}
