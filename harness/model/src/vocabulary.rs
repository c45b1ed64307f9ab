//! The tokenizer of a checkpoint as data: the vocabulary and the named pre-tokenizers of GGUF.
//! `tokenizer` makes an engine of it.

use crate::fault::Fault;
use crate::gguf::Gguf;
use crate::keys::Keys;

/// The metadata keys that are read, as errors name them.
pub(crate) mod key {
    pub(crate) const MODEL: &str = "tokenizer.ggml.model";
    pub(crate) const PRE: &str = "tokenizer.ggml.pre";
    pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
    pub(crate) const SCORES: &str = "tokenizer.ggml.scores";
    pub(crate) const TYPES: &str = "tokenizer.ggml.token_type";
    pub(crate) const MERGES: &str = "tokenizer.ggml.merges";
    pub(crate) const BOS: &str = "tokenizer.ggml.bos_token_id";
    pub(crate) const EOS: &str = "tokenizer.ggml.eos_token_id";
    pub(crate) const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
    pub(crate) const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
}

/// The tokenizer of a GGUF file as its metadata say it; nothing is checked yet. The index into
/// `tokens` is the id.
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

/// A pre-tokenizer: a rule to split text into words.
#[derive(Debug)]
pub(crate) struct Pre {
    /// Names in `tokenizer.ggml.pre`.
    pub(crate) names: &'static [&'static str],
    pub(crate) pattern: &'static str,
    /// Text is composed (NFC) before it is split.
    pub(crate) composes: bool,
    /// A word that is a token is that token, whatever its merges would give.
    pub(crate) whole_words: bool,
    /// BOS is added unless the file says otherwise.
    pub(crate) bos: bool,
}

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

pub(crate) static PRE: [Pre; 4] = [
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3"],
        pattern: words!(r"\p{N}{1,3}"),
        composes: false,
        whole_words: true,
        bos: true,
    },
    Pre {
        names: &["qwen2"],
        pattern: words!(r"\p{N}"),
        composes: true,
        whole_words: false,
        bos: false,
    },
    // Qwen's words, but its tokenizer does not compose.
    Pre {
        names: &["deepseek-r1-qwen"],
        pattern: words!(r"\p{N}"),
        composes: false,
        whole_words: false,
        bos: false,
    },
    Pre {
        names: &["gpt-2"],
        pattern: r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        composes: false,
        whole_words: false,
        bos: false,
    },
];

impl Vocabulary {
    /// The tokenizer metadata of a GGUF file, if it has some. `bytes` are the whole file.
    ///
    /// # Errors
    ///
    /// An entry has another type than it must have.
    pub fn from_gguf(gguf: &Gguf, bytes: &[u8]) -> Result<Option<Self>, Fault> {
        let Some(model) = gguf.text(key::MODEL)? else { return Ok(None) };
        let strings = |key| Ok::<_, Fault>(gguf.strings(key, bytes)?.unwrap_or_default());
        Ok(Some(Self {
            model: model.to_owned(),
            pre: gguf.text(key::PRE)?.map(str::to_owned),
            tokens: strings(key::TOKENS)?,
            scores: gguf.floats(key::SCORES, bytes)?.unwrap_or_default(),
            token_types: gguf.integers(key::TYPES, bytes)?.unwrap_or_default(),
            merges: strings(key::MERGES)?,
            bos: gguf.u32(key::BOS)?,
            eos: gguf.u32(key::EOS)?,
            unknown: gguf.u32(key::UNKNOWN)?,
            add_bos: gguf.bool(key::ADD_BOS)?,
            add_space_prefix: gguf.bool("tokenizer.ggml.add_space_prefix")?,
        }))
    }
}
