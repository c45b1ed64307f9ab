//! Text to token ids and back, by the vocabulary of a GGUF file ([`Tokenizer::new`]) or by a
//! Hugging Face `tokenizer.json` ([`Tokenizer::from_json`], [`Tokenizer::open`]).
//!
//! ```text
//! text → literals (control and user-defined tokens, longest first)
//!          └ between them: normalize → one of
//!              sentencepiece (merge by score)              GGUF, model llama
//!              pieces (split, merge by rank)               GGUF, model gpt2; tokenizer.json
//!                                └────── merge ──────┘
//! ids  → spelling (piece → bytes) → stream (bytes → whole characters) → text
//! ```
//!
//! What a file asks for and is not implemented is an error that names its key: text that is split a
//! little otherwise gives other ids, and no error later on.

mod byte_level;
mod error;
mod json;
mod literals;
mod merge;
mod normalize;
mod pieces;
mod sentencepiece;
mod spelling;
mod split;
mod stream;
mod tokens;

#[cfg(test)]
mod tests;

use literals::{Literals, Part};
use normalize::Normalize;
use pieces::Pieces;
use sentencepiece::SentencePiece;
use spelling::{Bytes, Spelling};
use stream::Strip;
use tokens::{Kind, Tokens};

use super::gguf::{Gguf, GgufError};

pub(crate) use byte_level::{PRE, Pre};
pub use error::TokenizerError;
pub(crate) use json::around;
pub use stream::TextStream;

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

/// Types of tokens in `tokenizer.ggml.token_type`; 0 is undefined.
pub mod token_type {
    /// A piece of text.
    pub const NORMAL: i32 = 1;
    /// Stands for text that no token holds.
    pub const UNKNOWN: i32 = 2;
    /// Marks a place, such as the beginning of a text; is no text itself.
    pub const CONTROL: i32 = 3;
    /// Text that is always one token.
    pub const USER_DEFINED: i32 = 4;
    /// Fills the vocabulary up.
    pub const UNUSED: i32 = 5;
    /// One byte of a text.
    pub const BYTE: i32 = 6;
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

impl Vocabulary {
    /// What a GGUF file says of its tokenizer, if it has one. `bytes` are the whole file.
    ///
    /// # Errors
    ///
    /// An entry has another type than it must have.
    pub fn from_gguf(gguf: &Gguf, bytes: &[u8]) -> Result<Option<Self>, GgufError> {
        let Some(model) = gguf.get_str(key::MODEL)? else { return Ok(None) };
        let strings = |key| -> Result<Vec<String>, GgufError> {
            let all = gguf.string_array(key, bytes)?.unwrap_or_default();
            Ok(all.into_iter().map(str::to_owned).collect())
        };
        Ok(Some(Self {
            model: model.to_owned(),
            pre: gguf.get_str(key::PRE)?.map(str::to_owned),
            tokens: strings(key::TOKENS)?,
            scores: gguf.f32_array(key::SCORES, bytes)?.unwrap_or_default(),
            token_types: gguf.i32_array(key::TYPES, bytes)?.unwrap_or_default(),
            merges: strings(key::MERGES)?,
            bos: gguf.get_u32(key::BOS)?,
            eos: gguf.get_u32(key::EOS)?,
            unknown: gguf.get_u32(key::UNKNOWN)?,
            add_bos: gguf.get_bool(key::ADD_BOS)?,
            add_space_prefix: gguf.get_bool("tokenizer.ggml.add_space_prefix")?,
        }))
    }
}

#[derive(Debug)]
enum Model {
    SentencePiece(SentencePiece),
    Pieces(Box<Pieces>),
}

/// Encodes text to token ids and decodes them, by one vocabulary.
#[derive(Debug)]
pub struct Tokenizer {
    tokens: Tokens,
    /// Matched in text as it is.
    literals: Literals,
    /// Matched in normalised text, and normalised themselves.
    normalized_literals: Option<Literals>,
    normalize: Vec<Normalize>,
    model: Model,
    /// Control tokens that go before and after a text.
    around: [Vec<u32>; 2],
    space_prefix: bool,
    spelling: Spelling,
    strip: Strip,
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
        let mut tokens = Tokens::new(tokens, &token_types, vocabulary.unknown)?;
        let literals = Literals::new(&tokens, escaped);
        let (model, spelling, normalize, bos_by_default) = if escaped {
            let model = Model::SentencePiece(SentencePiece::new(&tokens, &scores)?);
            (model, Spelling::Scores, Vec::new(), true)
        } else {
            tokens::same_length(key::SCORES, scores.len(), tokens.len(), true)?;
            let (pieces, pre) = byte_level::model(&mut tokens, pre, &merges)?;
            let spelling = Spelling::Bytes(Bytes::new(false));
            (Model::Pieces(Box::new(pieces)), spelling, pre.normalize.to_vec(), pre.bos)
        };
        let bos = match (vocabulary.add_bos, vocabulary.bos) {
            (Some(true), None) => return Err(TokenizerError::NoBos),
            (add, bos) => bos.filter(|_| add.unwrap_or(bos_by_default)),
        };
        let space_prefix = escaped && vocabulary.add_space_prefix.unwrap_or(true);
        Ok(Self {
            tokens,
            literals,
            normalized_literals: None,
            normalize,
            model,
            around: [Vec::from_iter(bos), Vec::new()],
            space_prefix,
            spelling,
            strip: Strip { what: ' ', most: usize::from(space_prefix), every_run: true },
        })
    }

    /// The ids of `text`. With `special`, the tokens that the vocabulary puts around a text are
    /// there (a BOS only once if the text spells it too), and control tokens spelled in the text,
    /// such as `<start_of_turn>`, are matched; without, no control token comes out. User-defined
    /// tokens are always matched. Of literals that overlap, the leftmost is taken, of those the
    /// longest.
    ///
    /// A space prefix goes before text that begins the input or follows a control token.
    ///
    /// # Errors
    ///
    /// A character has neither a token nor bytes and there is no unknown token, or splitting the
    /// text passes a limit of the regex engine (a million white-space characters in a row do).
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        let none = [Vec::new(), Vec::new()];
        self.encode_around(text, special, if special { &self.around } else { &none })
    }

    /// The ids of text in which every control token is spelled, such as a rendered chat template:
    /// those are matched, and none is added.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::encode`].
    pub fn encode_markup(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_around(text, true, &[Vec::new(), Vec::new()])
    }

    fn encode_around(
        &self,
        text: &str,
        special: bool,
        [before, after]: &[Vec<u32>; 2],
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = before.clone();
        let mut begins = true;
        for (index, part) in self.literals.split(text, special).enumerate() {
            match part {
                Part::Token(id) => {
                    begins = self.tokens.kind(id) != Some(Kind::UserDefined);
                    if index > 0 || before.last() != Some(&id) {
                        ids.push(id);
                    }
                }
                Part::Text(text) => {
                    let text = normalize::apply(&self.normalize, text);
                    self.encode_normalized(&text, special, index == 0, begins, &mut ids)?;
                    begins = false;
                }
            }
        }
        ids.extend(after);
        Ok(ids)
    }

    /// Text between literals. `first` of the input; `begins` it or follows a control token.
    fn encode_normalized(
        &self,
        text: &str,
        special: bool,
        first: bool,
        begins: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        match &self.model {
            Model::SentencePiece(model) => {
                model.encode(&self.tokens, text, begins && self.space_prefix, ids)
            }
            Model::Pieces(model) => {
                let Some(literals) = &self.normalized_literals else {
                    return model.encode(text, first, ids);
                };
                for (index, part) in literals.split(text, special).enumerate() {
                    match part {
                        Part::Token(id) => ids.push(id),
                        Part::Text(text) => model.encode(text, first && index == 0, ids)?,
                    }
                }
                Ok(())
            }
        }
    }

    /// The text of `ids`. Control tokens are left out together with the space prefix after them;
    /// unknown tokens, ids beyond the vocabulary and bytes that are not UTF-8 show as U+FFFD.
    ///
    /// For `llama` vocabularies a U+2581 in the encoded text comes back as a space: the two are one
    /// there. Text that was normalised comes back normalised.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = self.stream();
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// Decodes tokens as they come.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream::new(self)
    }

    /// The spelling of a token as the vocabulary has it: `▁the`, `Ġthe`, `<0x0A>`.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.tokens.piece(id)
    }

    /// Appends the bytes of text that a token stands for; `first` of a text.
    fn push_bytes(&self, id: u32, first: bool, bytes: &mut Vec<u8>) {
        let piece = self.tokens.piece(id).unwrap_or_default();
        match self.tokens.kind(id) {
            Some(Kind::Control) => {}
            None | Some(Kind::Unknown) => bytes.extend("\u{fffd}".as_bytes()),
            Some(Kind::Byte(byte)) => bytes.push(byte),
            Some(Kind::UserDefined) if matches!(self.spelling, Spelling::Bytes(_)) => {
                bytes.extend(piece.as_bytes());
            }
            Some(Kind::Text | Kind::UserDefined) => self.spelling.push(piece, first, bytes),
        }
    }
}
