//! Text to token ids and back, from the vocabulary in a GGUF file.
//!
//! ```text
//! text → literals (control and user-defined tokens, longest first)
//!          └ between them: sentencepiece (merge by score) or byte_level (split, merge by rank)
//!                                          └────────────── merge ──────────────┘
//! ```
//!
//! Text is taken as it is: no Unicode normalisation. (Qwen's own tokenizer composes to NFC first;
//! text that is not in NFC gives other ids there.)

mod byte_level;
mod error;
mod literals;
mod merge;
mod sentencepiece;
mod tokens;

#[cfg(test)]
mod tests;

use byte_level::ByteLevel;
use literals::{Literals, Part};
use sentencepiece::SentencePiece;
use tokens::{Kind, Tokens};

pub use error::TokenizerError;

/// The metadata keys that are read, as errors name them.
mod key {
    pub(super) const MODEL: &str = "tokenizer.ggml.model";
    pub(super) const PRE: &str = "tokenizer.ggml.pre";
    pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
    pub(super) const SCORES: &str = "tokenizer.ggml.scores";
    pub(super) const TYPES: &str = "tokenizer.ggml.token_type";
    pub(super) const MERGES: &str = "tokenizer.ggml.merges";
    pub(super) const BOS: &str = "tokenizer.ggml.bos_token_id";
    pub(super) const EOS: &str = "tokenizer.ggml.eos_token_id";
    pub(super) const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
    pub(super) const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
}

/// What a GGUF file says of its tokenizer; nothing is checked yet. The index into `tokens` is the
/// id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `llama` is SentencePiece, merged by score (Gemma 3); `gpt2` is
    /// byte-level BPE (Llama 3, Qwen3).
    pub model: String,
    /// `tokenizer.ggml.pre`: how `gpt2` splits text before merging, one of `llama-bpe`, `qwen2`,
    /// `gpt-2` or another name for one of them. `llama` does not split and does not look at it.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: spellings, no two alike. Empty ones are never matched.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: one per token for `llama`; none or one per token for `gpt2`.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`, one per token: 1 normal, 2 unknown, 3 control, 4 user-defined,
    /// 6 byte. 0 (undefined) and 5 (unused) are taken as normal.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges` for `gpt2`: two spellings with a space between, best first. Both
    /// and their concatenation must be tokens of text. `llama` does not look at it.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`; where it is not given, the first token of type 2.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; where it is not given, true for `llama` and `llama-bpe` if
    /// there is a BOS.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`; true for `llama` where it is not given. `gpt2` does not
    /// look at it.
    pub add_space_prefix: Option<bool>,
}

#[derive(Debug)]
enum Model {
    SentencePiece(SentencePiece),
    ByteLevel(Box<ByteLevel>),
}

/// Encodes text to token ids and decodes them, by one vocabulary.
#[derive(Debug)]
pub struct Tokenizer {
    tokens: Tokens,
    literals: Literals,
    model: Model,
    /// The BOS, where one is added.
    bos: Option<u32>,
    space_prefix: bool,
}

impl Tokenizer {
    /// Checks a vocabulary and indexes it.
    ///
    /// # Errors
    ///
    /// The model or the pre-tokenizer is not supported, or two entries do not fit together. The
    /// message names the metadata key.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let Vocabulary { model, pre, tokens, scores, token_types, merges, .. } = vocabulary;
        let escaped = match model.as_str() {
            "llama" => true,
            "gpt2" => false,
            _ => return Err(TokenizerError::Model { found: model }),
        };
        let named = [
            (key::BOS, vocabulary.bos),
            (key::EOS, vocabulary.eos),
            (key::UNKNOWN, vocabulary.unknown),
        ];
        for (key, id) in named {
            if let Some(id) = id.filter(|&id| id as usize >= tokens.len()) {
                return Err(TokenizerError::Id { key, id, tokens: tokens.len() });
            }
        }
        let tokens = Tokens::new(tokens, &token_types, vocabulary.unknown)?;
        let literals = Literals::new(&tokens, escaped);
        let (model, bos_by_default) = if escaped {
            (Model::SentencePiece(SentencePiece::new(&tokens, &scores)?), true)
        } else {
            tokens::same_length(key::SCORES, scores.len(), tokens.len(), true)?;
            let byte_level = ByteLevel::new(&tokens, pre, &merges)?;
            let bos_by_default = byte_level.bos_by_default();
            (Model::ByteLevel(Box::new(byte_level)), bos_by_default)
        };
        let bos = match (vocabulary.add_bos, vocabulary.bos) {
            (Some(true), None) => return Err(TokenizerError::NoBos),
            (add, bos) => bos.filter(|_| add.unwrap_or(bos_by_default)),
        };
        let space_prefix = escaped && vocabulary.add_space_prefix.unwrap_or(true);
        Ok(Self { tokens, literals, model, bos, space_prefix })
    }

    /// The ids of `text`. With `special`, BOS comes first where the vocabulary asks for it (and
    /// only once if the text spells it too), and control tokens spelled in the text, such as
    /// `<start_of_turn>`, are matched; without, no control token comes out. User-defined tokens are
    /// always matched. Of literals that overlap, the leftmost is taken, of those the longest.
    ///
    /// A space prefix goes before text that begins the input or follows a control token.
    ///
    /// # Errors
    ///
    /// A character has neither a token nor bytes and there is no unknown token, or splitting the
    /// text passes a limit of the regex engine (a million white-space characters in a row do).
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let bos = self.bos.filter(|_| special);
        ids.extend(bos);
        let mut begins = true;
        for (index, part) in self.literals.split(text, special).enumerate() {
            match part {
                Part::Token(id) => {
                    begins = self.tokens.kind(id) != Some(Kind::UserDefined);
                    if index > 0 || bos != Some(id) {
                        ids.push(id);
                    }
                }
                Part::Text(text) => {
                    match &self.model {
                        Model::SentencePiece(model) => {
                            let prefix = begins && self.space_prefix;
                            model.encode(&self.tokens, text, prefix, &mut ids)?;
                        }
                        Model::ByteLevel(model) => model.encode(&self.tokens, text, &mut ids)?,
                    }
                    begins = false;
                }
            }
        }
        Ok(ids)
    }

    /// The text of `ids`. Control tokens are left out together with the space prefix after them;
    /// unknown tokens, ids beyond the vocabulary and bytes that are not UTF-8 show as U+FFFD.
    ///
    /// For `llama` vocabularies a U+2581 in the encoded text comes back as a space: the two are one
    /// there.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let is_control = |&id: &u32| self.tokens.kind(id) == Some(Kind::Control);
        for run in ids.split(is_control).filter(|run| !run.is_empty()) {
            let mut bytes = Vec::new();
            for &id in run {
                self.push_bytes(id, &mut bytes);
            }
            let run_text = String::from_utf8_lossy(&bytes);
            let Model::SentencePiece(_) = self.model else {
                text.push_str(&run_text);
                continue;
            };
            let spaced = run_text.replace(sentencepiece::SPACE, " ");
            let prefixed = self.space_prefix && self.tokens.kind(run[0]) != Some(Kind::UserDefined);
            let trimmed = spaced.strip_prefix(' ').filter(|_| prefixed);
            text.push_str(trimmed.unwrap_or(&spaced));
        }
        text
    }

    /// The spelling of a token as the vocabulary has it: `▁the`, `Ġthe`, `<0x0A>`.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.tokens.piece(id)
    }

    fn push_bytes(&self, id: u32, bytes: &mut Vec<u8>) {
        let piece = self.tokens.piece(id).unwrap_or_default();
        match (self.tokens.kind(id), &self.model) {
            (Some(Kind::Control), _) => {}
            (None | Some(Kind::Unknown), _) => bytes.extend("\u{fffd}".as_bytes()),
            (Some(Kind::Byte(byte)), _) => bytes.push(byte),
            (Some(Kind::Text), Model::ByteLevel(model)) => model.decode(piece, bytes),
            (Some(Kind::Text | Kind::UserDefined), _) => bytes.extend(piece.as_bytes()),
        }
    }
}
