//! Tokens of benchmark runs, drawn from a seed.

use lathe_device::error::{Error, Result};
use lathe_model::tokenizer::token_type::{CONTROL, UNKNOWN, UNUSED, USER_DEFINED};
use lathe_record::rng::Rng;

use super::Model;

/// Token types that stand for no text of their own.
const SPECIAL: [i32; 4] = [UNKNOWN, CONTROL, USER_DEFINED, UNUSED];

/// Uniform draws from a model's ordinary tokens: those inside the vocabulary that are text, as a
/// tokenizer may put them into a prompt.
///
/// # Errors
/// The model has no ordinary token.
pub fn drawn(model: &Model, seed: u32, count: usize) -> Result<Vec<u32>> {
    let config = &model.config;
    let types = model.file.vocabulary()?.map(|v| v.token_types).unwrap_or_default();
    let is_text = |id: &u32| {
        let special = types.get(*id as usize).is_some_and(|ty| SPECIAL.contains(ty));
        !special && ![config.bos, config.eos].contains(&Some(*id))
    };
    let ordinary: Vec<u32> = (0..config.vocab as u32).filter(is_text).collect();
    if ordinary.is_empty() {
        return Err(Error::Undecodable {
            path: model.file.path.clone(),
            reason: "tokenizer.ggml.token_type calls every token special".into(),
        });
    }
    let mut rng = Rng::derive(u64::from(seed), "prompt");
    Ok((0..count).map(|_| ordinary[rng.below(ordinary.len() as u32) as usize]).collect())
}
