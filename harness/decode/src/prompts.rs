//! Tokens for benchmark runs: drawn from a seed, or read from a file.

use std::path::Path;

use super::Model;
use lathe_device::error::{Error, Result};
use lathe_model::tokenizer::token_type::{CONTROL, UNKNOWN, UNUSED, USER_DEFINED};
use lathe_record::files;
use lathe_record::rng::Rng;

/// Seed of the tokens of a benchmark run.
pub const SEED: u64 = 42;

/// Token types that stand for no text of their own.
const SPECIAL: [i32; 4] = [UNKNOWN, CONTROL, USER_DEFINED, UNUSED];

/// Where the tokens of a benchmark run come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// Uniform draws from the model's ordinary tokens.
    Seed(u64),
    /// The text of a file, through the model's tokenizer.
    Text(&'a Path),
    /// Token ids of a file, separated by spaces, commas or line ends.
    Ids(&'a Path),
}

impl Source<'_> {
    /// For records, such as `seed 42`.
    pub fn name(&self) -> String {
        match self {
            Source::Seed(seed) => format!("seed {seed}"),
            Source::Text(path) => format!("text of {}", file(path)),
            Source::Ids(path) => format!("ids of {}", file(path)),
        }
    }

    /// The first `count` tokens.
    ///
    /// # Errors
    /// The file cannot be read, holds no ids or fewer tokens than asked for, or its text cannot be
    /// encoded; or the model has no ordinary token.
    pub fn tokens(&self, model: &Model, count: usize) -> Result<Vec<u32>> {
        let (path, mut tokens) = match self {
            Source::Seed(seed) => return random(model, *seed, count),
            Source::Text(path) => (path, model.encode(&read(path)?)?),
            Source::Ids(path) => (path, ids(path, &read(path)?, model.config.vocab)?),
        };
        if tokens.len() < count {
            return Err(Error::Usage(format!(
                "{}: holds {} tokens, {count} are needed",
                path.display(),
                tokens.len()
            )));
        }
        tokens.truncate(count);
        Ok(tokens)
    }
}

/// The file without its folders.
fn file(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn read(path: &Path) -> Result<String> {
    files::read_text(path, files::DATA).map_err(Error::io(path))
}

fn ids(path: &Path, text: &str, vocab: usize) -> Result<Vec<u32>> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|w| !w.is_empty());
    let mut ids = Vec::new();
    for (i, word) in words.enumerate() {
        match word.parse() {
            Ok(id) if (id as usize) < vocab => ids.push(id),
            _ => {
                let word: String = word.chars().take(40).collect();
                return Err(Error::Usage(format!(
                    "{}: entry {} is `{word}`, no token id below {vocab}",
                    path.display(),
                    i + 1
                )));
            }
        }
    }
    Ok(ids)
}

fn random(model: &Model, seed: u64, count: usize) -> Result<Vec<u32>> {
    let ordinary = ordinary(model)?;
    let mut rng = Rng::derive(seed, "prompt");
    Ok((0..count).map(|_| ordinary[rng.below(ordinary.len() as u32) as usize]).collect())
}

/// Ids inside the vocabulary that are text: what a tokenizer may make of a prompt.
fn ordinary(model: &Model) -> Result<Vec<u32>> {
    let config = &model.config;
    let types = model.file.vocabulary()?.map(|v| v.token_types).unwrap_or_default();
    let ends = [config.bos, config.eos];
    let is_text = |id: &u32| {
        let special = types.get(*id as usize).is_some_and(|ty| SPECIAL.contains(ty));
        !special && !ends.contains(&Some(*id))
    };
    let ordinary: Vec<u32> = (0..config.vocab as u32).filter(is_text).collect();
    if ordinary.is_empty() {
        return Err(Error::Undecodable {
            path: model.file.path.clone(),
            reason: "tokenizer.ggml.token_type calls every token special; give --prompt-ids".into(),
        });
    }
    Ok(ordinary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_file_name_the_entry_that_is_none() {
        let path = Path::new("prompt.txt");
        assert_eq!(ids(path, " 1,2\n3\t 4,", 5).unwrap(), [1, 2, 3, 4]);
        for (text, entry) in [("1 2 x", "entry 3 is `x`"), ("5", "entry 1 is `5`"), ("-1", "`-1`")]
        {
            let error = ids(path, text, 5).unwrap_err().to_string();
            assert!(error.contains(entry) && error.contains("prompt.txt"), "{error}");
        }
    }
}
