//! BPE: characters, or bytes spelled as characters, merged by rank.

use std::collections::HashMap;

use super::TokenizerError;
use super::merge::{self, Merge, Symbol};
use super::split::{self, Split};

#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) splits: Vec<Split>,
    /// Each byte is spelled as one character of this alphabet before it is looked up.
    pub(super) alphabet: Option<[char; 256]>,
    pub(super) vocab: HashMap<String, u32>,
    pub(super) merges: HashMap<(u32, u32), Merge>,
    /// The tokens `<0x00>` to `<0xFF>`, where what has no token becomes its bytes.
    pub(super) bytes: Option<Box<[Option<u32>; 256]>>,
    pub(super) unknown: Option<u32>,
    /// Neighbours that are unknown become one.
    pub(super) fuse_unknown: bool,
    /// A word that is a token is that token, whatever its merges would give.
    pub(super) whole_words: bool,
}

impl Pieces {
    /// `first` says that `text` begins the input.
    pub(super) fn encode(
        &self,
        text: &str,
        first: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        for word in split::apply(&self.splits, text, first)? {
            match &self.alphabet {
                None => self.encode_word(&word, ids)?,
                Some(alphabet) => {
                    let spelled: String =
                        word.bytes().map(|byte| alphabet[usize::from(byte)]).collect();
                    self.encode_word(&spelled, ids).map_err(|e| as_written(e, alphabet))?;
                }
            }
        }
        Ok(())
    }

    fn encode_word(&self, word: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.whole_words
            && let Some(&id) = self.vocab.get(word)
        {
            ids.push(id);
            return Ok(());
        }
        let merges =
            |left: &Symbol, right: &Symbol| self.merges.get(&(left.id?, right.id?)).copied();
        for symbol in merge::merge(&self.symbols(word)?, merges) {
            // Every symbol has an id: what has none was refused.
            ids.extend(symbol.id);
        }
        Ok(())
    }

    /// A word's characters as tokens, or bytes, or unknown.
    fn symbols(&self, word: &str) -> Result<Vec<Symbol>, TokenizerError> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(word.len());
        let mut after_unknown = false;
        for (start, c) in word.char_indices() {
            let end = start + c.len_utf8();
            let spelling = &word[start..end];
            let known = self.vocab.get(spelling);
            let bytes = || -> Option<Vec<u32>> {
                let tokens = self.bytes.as_ref()?;
                spelling.bytes().map(|byte| tokens[usize::from(byte)]).collect()
            };
            if let Some(&id) = known {
                symbols.push(Symbol { start, end, id: Some(id) });
                after_unknown = false;
            } else if let Some(bytes) = bytes() {
                let each = (start..).zip(bytes);
                symbols.extend(each.map(|(at, id)| Symbol {
                    start: at,
                    end: at + 1,
                    id: Some(id),
                }));
                after_unknown = false;
            } else {
                let id = self
                    .unknown
                    .ok_or_else(|| TokenizerError::Unencodable { text: spelling.to_owned() })?;
                match symbols.last_mut() {
                    Some(last) if after_unknown && self.fuse_unknown => last.end = end,
                    _ => symbols.push(Symbol { start, end, id: Some(id) }),
                }
                after_unknown = true;
            }
        }
        Ok(symbols)
    }
}

/// The error about a byte names the byte and not the character that spells it.
fn as_written(error: TokenizerError, alphabet: &[char; 256]) -> TokenizerError {
    match error {
        TokenizerError::Unencodable { text } => {
            let is_byte = |byte: &u8| text.starts_with(alphabet[usize::from(*byte)]);
            let bytes: Vec<_> = (0..=255).filter(is_byte).collect();
            TokenizerError::Unencodable { text: String::from_utf8_lossy(&bytes).into_owned() }
        }
        other => other,
    }
}
