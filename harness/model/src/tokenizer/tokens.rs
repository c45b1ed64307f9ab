//! The tokens of a vocabulary, each with its kind, found by id or by spelling.

use std::collections::HashMap;

use super::token_type::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED};
use super::{TokenizerError, key};

/// What a token stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text, in the spelling of the model.
    Text,
    /// Text that was not known when the model was trained.
    Unknown,
    /// No text: the structure around it.
    Control,
    /// Text as it is spelled, never merged or split.
    UserDefined,
    /// One byte.
    Byte(u8),
}

#[derive(Debug)]
pub(super) struct Tokens {
    pieces: Vec<String>,
    kinds: Vec<Kind>,
    /// What merging may end in. Control tokens are not here, so that text cannot become one. Empty
    /// once a byte-level model has taken it over.
    pub(super) text: HashMap<String, u32>,
    bytes: [Option<u32>; 256],
    pub(super) unknown: Option<u32>,
}

impl Tokens {
    pub(super) fn new(
        pieces: Vec<String>,
        types: &[i32],
        mut unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        if pieces.is_empty() {
            return Err(TokenizerError::Empty { key: key::TOKENS });
        }
        if u32::try_from(pieces.len()).is_err() {
            return Err(TokenizerError::TooMany { key: key::TOKENS, found: pieces.len() });
        }
        same_length(key::TYPES, types.len(), pieces.len(), false)?;
        let mut kinds = Vec::with_capacity(pieces.len());
        let mut text = HashMap::with_capacity(pieces.len());
        let mut bytes = [None; 256];
        let mut seen = HashMap::with_capacity(pieces.len());
        for ((id, piece), &ty) in (0..).zip(&pieces).zip(types) {
            if let Some(first) = seen.insert(piece.as_str(), id).filter(|_| !piece.is_empty()) {
                let spelling = piece.clone();
                return Err(TokenizerError::Duplicate { spelling, first, second: id });
            }
            let kind = match ty {
                0 | NORMAL | UNUSED => Kind::Text,
                UNKNOWN => Kind::Unknown,
                CONTROL => Kind::Control,
                USER_DEFINED => Kind::UserDefined,
                BYTE => Kind::Byte(
                    byte_of(piece)
                        .ok_or_else(|| TokenizerError::Byte { id, spelling: piece.clone() })?,
                ),
                found => return Err(TokenizerError::Type { id, found }),
            };
            match kind {
                Kind::Text | Kind::UserDefined if !piece.is_empty() => {
                    text.insert(piece.clone(), id);
                }
                Kind::Text | Kind::UserDefined | Kind::Control => {}
                Kind::Unknown => unknown = unknown.or(Some(id)),
                Kind::Byte(byte) => bytes[usize::from(byte)] = Some(id),
            }
            kinds.push(kind);
        }
        Ok(Self { pieces, kinds, text, bytes, unknown })
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize).map(String::as_str)
    }

    pub(super) fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// Every token in the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, Kind)> {
        (0..)
            .zip(&self.pieces)
            .zip(&self.kinds)
            .map(|((id, piece), &kind)| (id, piece.as_str(), kind))
    }

    /// The token of text with this spelling.
    pub(super) fn find(&self, spelling: &str) -> Option<u32> {
        self.text.get(spelling).copied()
    }

    /// The token `<0xNN>`.
    pub(super) fn byte(&self, byte: u8) -> Option<u32> {
        self.bytes[usize::from(byte)]
    }

    /// The token for text that has none.
    pub(super) fn unknown(&self, text: &str) -> Result<u32, TokenizerError> {
        self.unknown.ok_or_else(|| TokenizerError::Unencodable { text: text.to_owned() })
    }
}

/// An entry per token, or none at all where it is `optional`.
pub(super) fn same_length(
    key: &'static str,
    found: usize,
    tokens: usize,
    optional: bool,
) -> Result<(), TokenizerError> {
    if found == tokens || (optional && found == 0) {
        Ok(())
    } else {
        Err(TokenizerError::Length { key, found, tokens })
    }
}

/// The byte that `<0xNN>` spells.
pub(super) fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    // from_str_radix would take a sign too.
    let two = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| two)
}
