//! A word of a record where the vocabulary is fixed, but may grow.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A word this version knows, or one that another version wrote: an unknown word must not make a
/// record unreadable. In JSON and on the page it is its text either way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Word<T> {
    /// One of the words of this version.
    Known(T),
    /// Anything else, as it was written.
    Other(String),
}

/// No word.
impl<T> Default for Word<T> {
    fn default() -> Self {
        Word::Other(String::new())
    }
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Word::Known(word)
    }
}

impl<T: PartialEq> PartialEq<T> for Word<T> {
    fn eq(&self, word: &T) -> bool {
        matches!(self, Word::Known(known) if known == word)
    }
}

impl<T: fmt::Display> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Known(word) => word.fmt(f),
            Word::Other(text) => f.pad(text),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::Word;
    use crate::paired::Verdict;
    use crate::record::{Clock, Flag};

    fn texts<T>(words: &[(T, &str)])
    where
        T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display,
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        for (word, text) in words {
            let json = format!("{text:?}");
            let word = Word::from(*word);
            assert_eq!(serde_json::to_string(&word).unwrap(), json);
            assert_eq!(serde_json::from_str::<Word<T>>(&json).unwrap(), word);
            assert_eq!(word.to_string(), *text);
        }
        let other: Word<T> = serde_json::from_str("\"of another version\"").unwrap();
        assert_eq!(other, Word::Other("of another version".into()));
        assert_eq!(other.to_string(), "of another version");
        assert_eq!(serde_json::to_string(&other).unwrap(), "\"of another version\"");
        assert!(serde_json::from_str::<Word<T>>("7").is_err());
    }

    #[test]
    fn words_keep_the_text_of_earlier_records_and_unknown_ones_pass_through() {
        texts(&[(Clock::Gpu, "gpu"), (Clock::Wall, "wall")]);
        texts(&[
            (Flag::NotSettled, "not settled"),
            (Flag::Drift, "drift"),
            (Flag::Noisy, "noisy"),
            (Flag::TimedOut, "timed out"),
            (Flag::WallClock, "wall clock"),
            (Flag::RuntimeChecksOn, "run-time checks on"),
            (Flag::NotCold, "not cold"),
        ]);
        texts(&[
            (Verdict::Faster, "FASTER"),
            (Verdict::Slower, "SLOWER"),
            (Verdict::Same, "SAME"),
            (Verdict::Inconclusive, "INCONCLUSIVE"),
        ]);
    }
}
