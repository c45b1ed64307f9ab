//! Byte-level BPE: text split into words by a regex, the bytes of each merged by rank. A token is
//! spelled with one printable character per byte.

use std::collections::HashMap;

use fancy_regex::Regex;

use super::merge::{self, Merge, Symbol};
use super::normalize::{Form, Normalize};
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
pub(in crate::model) struct Pre {
    /// Names in `tokenizer.ggml.pre`.
    pub(in crate::model) names: &'static [&'static str],
    pub(in crate::model) pattern: &'static str,
    /// What is done to text before it is split.
    normalize: &'static [Normalize],
    /// A word that is a token is that token, whatever its merges would give.
    pub(in crate::model) whole_words: bool,
    /// BOS is added unless the file says otherwise.
    bos: bool,
}

pub(in crate::model) static PRE: [Pre; 4] = [
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

#[derive(Debug)]
pub(super) struct ByteLevel {
    pre: &'static Pre,
    words: Regex,
    /// The character of each byte.
    alphabet: [char; 256],
    /// The token of each byte.
    ids: [Option<u32>; 256],
    merges: HashMap<(u32, u32), Merge>,
}

impl ByteLevel {
    pub(super) fn new(
        tokens: &Tokens,
        pre: Option<String>,
        merges: &[String],
    ) -> Result<Self, TokenizerError> {
        let names = |known: &&Pre| pre.as_deref().is_some_and(|pre| known.names.contains(&pre));
        let Some(pre) = PRE.iter().find(names) else {
            let supported = PRE.iter().flat_map(|pre| pre.names).copied().collect::<Vec<_>>();
            return Err(TokenizerError::Pre { found: pre, supported: supported.join(", ") });
        };
        let alphabet = alphabet();
        Ok(Self {
            pre,
            words: Regex::new(pre.pattern).map_err(Box::new)?,
            alphabet,
            ids: alphabet.map(|c| tokens.find(c.encode_utf8(&mut [0; 4]))),
            merges: parse_merges(tokens, merges)?,
        })
    }

    pub(super) fn bos_by_default(&self) -> bool {
        self.pre.bos
    }

    pub(super) fn normalize(&self) -> &'static [Normalize] {
        self.pre.normalize
    }

    pub(super) fn encode(
        &self,
        tokens: &Tokens,
        text: &str,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut done = 0;
        for word in self.words.find_iter(text) {
            let word = word.map_err(Box::new)?;
            // The patterns leave nothing out; if one did, its text must still not be lost.
            self.encode_word(tokens, &text[done..word.start()], ids)?;
            self.encode_word(tokens, word.as_str(), ids)?;
            done = word.end();
        }
        self.encode_word(tokens, &text[done..], ids)
    }

    fn encode_word(
        &self,
        tokens: &Tokens,
        word: &str,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if self.pre.whole_words {
            let spelling: String =
                word.bytes().map(|byte| self.alphabet[usize::from(byte)]).collect();
            if let Some(id) = tokens.find(&spelling) {
                ids.push(id);
                return Ok(());
            }
        }
        let symbols: Vec<Symbol> = word
            .bytes()
            .enumerate()
            .map(|(start, byte)| Symbol { start, end: start + 1, id: self.ids[usize::from(byte)] })
            .collect();
        let merged =
            merge::merge(&symbols, |left, right| self.merges.get(&(left.id?, right.id?)).copied());
        for symbol in merged {
            let bytes = &word.as_bytes()[symbol.start..symbol.end];
            ids.push(match symbol.id {
                Some(id) => id,
                None => tokens.unknown(&String::from_utf8_lossy(bytes))?,
            });
        }
        Ok(())
    }
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
