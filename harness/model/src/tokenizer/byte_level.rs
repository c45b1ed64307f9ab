//! Byte-level BPE: text split into words by a regex, the bytes of each merged by rank. A token is
//! spelled with one printable character per byte.

use std::collections::HashMap;

use super::merge::Merge;
use super::normalize::{Form, Normalize};
use super::pieces::Pieces;
use super::split::{self, Behaviour, Pattern, Split};
use super::tokens::Tokens;
use super::{TokenizerError, key};

/// GPT-2's words.
pub(super) const GPT_2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Llama 3's words but for the digits, which `$digits` is.
macro_rules! words {
    ($digits:literal) => {
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        )
    };
}

/// A way to split text into words.
#[derive(Debug)]
pub(crate) struct Pre {
    /// Names in `tokenizer.ggml.pre`.
    pub(crate) names: &'static [&'static str],
    pub(crate) pattern: &'static str,
    /// What is done to text before it is split.
    pub(super) normalize: &'static [Normalize],
    /// A word that is a token is that token, whatever its merges would give.
    pub(crate) whole_words: bool,
    /// BOS is added unless the file says otherwise.
    pub(super) bos: bool,
}

pub(crate) static PRE: [Pre; 4] = [
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3"],
        pattern: words!(r"\p{N}{1,3}"),
        normalize: &[],
        whole_words: true,
        bos: true,
    },
    Pre {
        names: &["qwen2"],
        pattern: words!(r"\p{N}"),
        normalize: &[Normalize::Form(Form::Nfc)],
        whole_words: false,
        bos: false,
    },
    // Qwen's words, but its tokenizer does not compose.
    Pre {
        names: &["deepseek-r1-qwen"],
        pattern: words!(r"\p{N}"),
        normalize: &[],
        whole_words: false,
        bos: false,
    },
    Pre { names: &["gpt-2"], pattern: GPT_2, normalize: &[], whole_words: false, bos: false },
];

/// The model of a GGUF file's vocabulary, which takes over what `tokens` finds by spelling, and how
/// it splits text. A byte without a token merges as the unknown token does.
pub(super) fn model(
    tokens: &mut Tokens,
    pre: Option<String>,
    merges: &[String],
) -> Result<(Pieces, &'static Pre), TokenizerError> {
    let names = |known: &&Pre| pre.as_deref().is_some_and(|pre| known.names.contains(&pre));
    let Some(pre) = PRE.iter().find(names) else {
        let supported = PRE.iter().flat_map(|pre| pre.names).copied().collect::<Vec<_>>();
        return Err(TokenizerError::Pre { found: pre, supported: supported.join(", ") });
    };
    let merges = parse_merges(tokens, merges)?;
    let words = Split::Pattern {
        pattern: Pattern::Regex(split::regex(pre.pattern)?),
        behaviour: Behaviour::Isolated,
        invert: false,
    };
    let pieces = Pieces {
        splits: vec![words],
        alphabet: Some(alphabet()),
        vocab: std::mem::take(&mut tokens.text),
        merges,
        bytes: None,
        unknown: tokens.unknown,
        fuse_unknown: false,
        whole_words: pre.whole_words,
    };
    Ok((pieces, pre))
}

/// GPT-2's table: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards.
pub(super) fn alphabet() -> [char; 256] {
    let mut others = '\u{100}'..='\u{143}';
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(byte),
        _ => others.next().unwrap_or_default(),
    })
}

/// Merges by the ids they join. A pair named twice keeps its first rank.
fn parse_merges(
    tokens: &Tokens,
    merges: &[String],
) -> Result<HashMap<(u32, u32), Merge>, TokenizerError> {
    if merges.is_empty() {
        return Err(TokenizerError::Empty { key: key::MERGES });
    }
    let mut pairs = HashMap::with_capacity(merges.len());
    for (index, merge) in merges.iter().enumerate() {
        let rank = u32::try_from(index)
            .map_err(|_| TokenizerError::TooMany { key: key::MERGES, found: merges.len() })?;
        let (left, right) = merge
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
            .ok_or_else(|| TokenizerError::Merge { index, merge: merge.clone() })?;
        let find = |spelling: &str| {
            tokens.find(spelling).ok_or_else(|| TokenizerError::MergeToken {
                index,
                merge: merge.clone(),
                missing: spelling.to_owned(),
            })
        };
        let pair = (find(left)?, find(right)?);
        let id = find(&format!("{left}{right}"))?;
        pairs.entry(pair).or_insert(Merge { rank, id });
    }
    Ok(pairs)
}
