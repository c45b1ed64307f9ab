//! Text in and out through the file's own tokenizer.

use crate::error::{Error, Result};
use crate::model::tokenizer::{Tokenizer, Vocabulary};
use crate::model::{GgufError, ModelError, ModelFile};

/// Tokens of a prompt.
pub(super) fn encode(file: &ModelFile, text: &str) -> Result<Vec<u32>> {
    let undecodable = |reason: String| Error::Undecodable { path: file.path.clone(), reason };
    let vocabulary = vocabulary(file)
        .map_err(|error| ModelError::Gguf { path: file.path.clone(), error })?
        .ok_or_else(|| {
            undecodable("has no tokenizer.ggml.model; give --prompt-tokens instead".into())
        })?;
    let tokenizer = Tokenizer::new(vocabulary).map_err(|e| undecodable(e.to_string()))?;
    tokenizer.encode(text, true).map_err(|e| Error::Usage(format!("--prompt: {e}")))
}

/// Text of generated tokens, where the file has a sound tokenizer.
pub(super) fn decode(file: &ModelFile, tokens: &[u32]) -> Option<String> {
    let tokenizer = Tokenizer::new(vocabulary(file).ok()??).ok()?;
    Some(tokenizer.decode(tokens))
}

fn vocabulary(file: &ModelFile) -> Result<Option<Vocabulary>, GgufError> {
    let (gguf, bytes) = (&file.gguf, file.bytes());
    let Some(model) = gguf.get_str("tokenizer.ggml.model")? else { return Ok(None) };
    let strings = |key| -> Result<Vec<String>, GgufError> {
        let all = gguf.string_array(key, bytes)?.unwrap_or_default();
        Ok(all.into_iter().map(str::to_owned).collect())
    };
    Ok(Some(Vocabulary {
        model: model.to_owned(),
        pre: gguf.get_str("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: strings("tokenizer.ggml.tokens")?,
        scores: gguf.f32_array("tokenizer.ggml.scores", bytes)?.unwrap_or_default(),
        token_types: gguf.i32_array("tokenizer.ggml.token_type", bytes)?.unwrap_or_default(),
        merges: strings("tokenizer.ggml.merges")?,
        bos: gguf.get_u32("tokenizer.ggml.bos_token_id")?,
        eos: gguf.get_u32("tokenizer.ggml.eos_token_id")?,
        unknown: gguf.get_u32("tokenizer.ggml.unknown_token_id")?,
        add_bos: gguf.get_bool("tokenizer.ggml.add_bos_token")?,
        add_space_prefix: gguf.get_bool("tokenizer.ggml.add_space_prefix")?,
    }))
}
