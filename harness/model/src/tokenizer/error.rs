//! Faults of a vocabulary, and of text that it cannot encode.

use crate::vocabulary::key;

/// A vocabulary that cannot be used or text that cannot be encoded. Messages about a vocabulary
/// name the metadata key or the place in `tokenizer.json`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum TokenizerError {
    #[error("metadata `{}`: `{found}` is not supported; supported are llama, gpt2", key::MODEL)]
    Model { found: String },
    #[error(
        "metadata `{}`: {} is not supported with model gpt2; supported are {supported}",
        key::PRE,
        .found.as_ref().map_or_else(|| "no value".to_owned(), |found| format!("`{found}`"))
    )]
    Pre { found: Option<String>, supported: String },
    #[error("metadata `{key}`: {why}")]
    Metadata { key: &'static str, why: String },
    #[error("{key}: {why}")]
    Json { key: &'static str, why: String },
    #[error("is no tokenizer.json: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("the tokenizers library: {why}")]
    Library { why: String },
    #[error("{text:?} has no token, its bytes have none, and there is no unknown token")]
    Unencodable { text: String },
    #[error("{found} bytes of white space in a row; at most {limit} can be split into words")]
    Spaces { found: usize, limit: usize },
}
