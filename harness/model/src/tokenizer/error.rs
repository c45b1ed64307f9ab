//! What can be wrong with a vocabulary, and what it cannot encode.

use super::key;

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
    #[error("metadata `{key}` is empty or missing")]
    Empty { key: &'static str },
    #[error("metadata `{key}`: {found} entries cannot be numbered in 32 bits")]
    TooMany { key: &'static str, found: usize },
    #[error("metadata `{key}` has {found} entries for {tokens} tokens")]
    Length { key: &'static str, found: usize, tokens: usize },
    #[error("metadata `{key}`: {id} is beyond the {tokens} tokens")]
    Id { key: &'static str, id: u32, tokens: usize },
    #[error("metadata `{}`: tokens {first} and {second} are both {spelling:?}", key::TOKENS)]
    Duplicate { spelling: String, first: u32, second: u32 },
    #[error("metadata `{}`: {found} of token {id} is none of 0 to 6", key::TYPES)]
    Type { id: u32, found: i32 },
    #[error(
        "metadata `{}`: token {id} is a byte but is spelled {spelling:?}, not <0x00> to <0xFF>",
        key::TYPES
    )]
    Byte { id: u32, spelling: String },
    #[error("metadata `{}`: the score of token {id} is not a number", key::SCORES)]
    Score { id: u32 },
    #[error(
        "metadata `{}`: entry {index}, {merge:?}, is not two spellings and a space",
        key::MERGES
    )]
    Merge { index: usize, merge: String },
    #[error(
        "metadata `{}`: entry {index}, {merge:?}, needs {missing:?}, which is no token of text",
        key::MERGES
    )]
    MergeToken { index: usize, merge: String, missing: String },
    #[error("metadata `{}` is true, but there is no `{}`", key::ADD_BOS, key::BOS)]
    NoBos,
    #[error("{key}: {why}")]
    Json { key: String, why: String },
    #[error("is no tokenizer.json: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("{text:?} has no token, its bytes have none, and there is no unknown token")]
    Unencodable { text: String },
    #[error("the text cannot be split into words: {0}")]
    Split(#[from] Box<fancy_regex::Error>),
}
