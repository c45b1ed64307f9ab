//! From a token's spelling to the bytes of text that it stands for.

use std::collections::HashMap;

use super::byte_level::alphabet;
use super::sentencepiece::SPACE;

/// How tokens of text are spelled.
#[derive(Debug)]
pub(super) enum Spelling {
    /// SentencePiece in a GGUF file: U+2581 is a space wherever it comes from, bytes included, so
    /// it is replaced once text is whole.
    Scores,
    /// One character a byte, GPT-2's alphabet.
    Bytes(Bytes),
    /// As in `tokenizer.json`: replacements within a piece, one after another.
    Pieces { replace: Vec<(String, String)> },
    /// `replacement` is a space, but for the first token of a text where `drops` it.
    Metaspace { replacement: char, drops: bool },
}

#[derive(Debug)]
pub(super) struct Bytes {
    bytes: HashMap<char, u8>,
    /// A piece with a character that spells no byte stands for itself as a whole; else such a
    /// character alone does.
    whole: bool,
}

impl Bytes {
    pub(super) fn new(whole: bool) -> Self {
        let bytes = (0..=u8::MAX).zip(alphabet()).map(|(byte, c)| (c, byte)).collect();
        Self { bytes, whole }
    }

    fn push(&self, piece: &str, out: &mut Vec<u8>) {
        let before = out.len();
        for c in piece.chars() {
            match self.bytes.get(&c) {
                Some(&byte) => out.push(byte),
                None if self.whole => {
                    out.truncate(before);
                    out.extend(piece.as_bytes());
                    return;
                }
                None => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

impl Spelling {
    /// Appends the bytes of `piece`, which is a token of text; `first` of a text.
    pub(super) fn push(&self, piece: &str, first: bool, out: &mut Vec<u8>) {
        match self {
            Spelling::Scores => out.extend(piece.as_bytes()),
            Spelling::Bytes(bytes) => bytes.push(piece, out),
            Spelling::Pieces { replace } => {
                let mut piece = piece.to_owned();
                for (from, to) in replace {
                    piece = piece.replace(from, to);
                }
                out.extend(piece.as_bytes());
            }
            Spelling::Metaspace { replacement, drops } => {
                let space = if first && *drops { "" } else { " " };
                out.extend(piece.replace(*replacement, space).as_bytes());
            }
        }
    }

    /// What a character of finished text shows as.
    pub(super) fn shown(&self, c: char) -> char {
        match self {
            Spelling::Scores if c == SPACE => ' ',
            _ => c,
        }
    }
}
