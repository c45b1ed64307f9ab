//! Text in and out through the file's own tokenizer.

use crate::error::{Error, Result};
use crate::model::ModelFile;

/// Tokens of a prompt.
pub(super) fn encode(file: &ModelFile, _text: &str) -> Result<Vec<u32>> {
    Err(Error::Usage(format!("{}: no tokenizer", file.path.display())))
}

/// Text of generated tokens, where the file has a tokenizer.
pub(super) fn decode(_file: &ModelFile, _tokens: &[u32]) -> Option<String> {
    None
}
