//! Metadata that would change the result and that nothing here implements.

use super::{Arch, ConfigError, GEMMA3_PERIOD, Keys};
use crate::gguf::Value;

/// Counts that must be zero where they are given.
const ZERO_COUNTS: [(&str, &str); 6] = [
    ("expert_count", "experts are not implemented"),
    ("expert_used_count", "experts are not implemented"),
    ("expert_shared_count", "experts are not implemented"),
    ("leading_dense_block_count", "experts are not implemented"),
    ("nextn_predict_layers", "prediction layers are not implemented"),
    ("attention.shared_kv_layers", "shared KV layers are not implemented"),
];

/// Factors that must be neutral where they are given: zero, or the value named.
const NEUTRAL_FACTORS: [(&str, f32, &str); 11] = [
    ("final_logit_softcapping", 0.0, "soft-capping is not implemented"),
    ("attn_logit_softcapping", 0.0, "soft-capping is not implemented"),
    ("attention.clamp_kqv", 0.0, "clamping is not implemented"),
    ("attention.max_alibi_bias", 0.0, "ALiBi is not implemented"),
    ("attention.scale", 0.0, "another attention scale is not implemented"),
    ("attention.temperature_scale", 0.0, "attention temperature is not implemented"),
    ("logit_scale", 1.0, "a logit scale is not implemented"),
    ("residual_scale", 1.0, "a residual scale is not implemented"),
    ("embedding_scale", 1.0, "another embedding scale is not implemented"),
    ("rope.scale_linear", 1.0, "linear rope scaling is not implemented"),
    ("rope.scaling.attn_factor", 1.0, "scaled rope is not implemented"),
];

/// Switches with the only value that is implemented.
const SWITCHES: [(&str, bool, &str); 2] = [
    ("attention.causal", true, "only causal attention is implemented"),
    ("use_parallel_residual", false, "a parallel residual is not implemented"),
];

pub(super) fn metadata(keys: &Keys<'_>) -> Result<(), ConfigError> {
    if keys.integer("split.count")?.is_some_and(|n| n > 1) {
        return Err(keys.refused(
            "split.count",
            "this is one shard of a split file; merge the shards into one file first",
        ));
    }
    for (key, why) in ZERO_COUNTS {
        if keys.integer(key)?.is_some_and(|n| n != 0) {
            return Err(keys.refused(key, why));
        }
    }
    for (key, neutral, why) in NEUTRAL_FACTORS {
        if keys.float(key)?.is_some_and(|v| v != 0.0 && v != neutral) {
            return Err(keys.refused(key, why));
        }
    }
    for (key, only, why) in SWITCHES {
        if keys.gguf.get_bool(&keys.full(key))?.is_some_and(|v| v != only) {
            return Err(keys.refused(key, why));
        }
    }
    rope_scaling(keys)?;
    window(keys)
}

/// The scaling of Llama 3 is no metadata: it lies in `rope_freqs.weight`.
fn rope_scaling(keys: &Keys<'_>) -> Result<(), ConfigError> {
    let kind = keys.gguf.get_str(&keys.full("rope.scaling.type"))?;
    match kind {
        // The factor has no effect then.
        Some("none") => Ok(()),
        None | Some("linear") => {
            let factor = keys.float("rope.scaling.factor")?.unwrap_or(1.0);
            if factor == 1.0 || factor == 0.0 {
                Ok(())
            } else {
                Err(keys.refused("rope.scaling.factor", "linear rope scaling is not implemented"))
            }
        }
        Some(_) => Err(keys.refused("rope.scaling.type", "this rope scaling is not implemented")),
    }
}

fn window(keys: &Keys<'_>) -> Result<(), ConfigError> {
    let pattern_key = "attention.sliding_window_pattern";
    match (keys.arch, keys.value(pattern_key)) {
        (_, None) => {}
        (Arch::Gemma3, Some(value)) if value.as_integer() == Some(GEMMA3_PERIOD as i128) => {}
        (_, Some(_)) => {
            let why =
                format!("only Gemma 3's pattern, every {GEMMA3_PERIOD}th layer, is implemented");
            return Err(keys.refused(pattern_key, why));
        }
    }
    if keys.arch == Arch::Gemma3 {
        return Ok(());
    }
    // A window no shorter than the context hides nothing.
    let window = keys.integer("attention.sliding_window")?.unwrap_or(0);
    let context = keys.value("context_length").and_then(Value::as_integer).unwrap_or(0);
    if window != 0 && i128::from(window) < context {
        let why = format!("a window is not implemented for {}", keys.arch);
        return Err(keys.refused("attention.sliding_window", why));
    }
    Ok(())
}
