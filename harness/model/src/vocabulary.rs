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
    pub(crate) const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
}

/// The tokenizer of a GGUF file as its metadata say it; nothing is checked yet. The index into
/// `tokens` is the id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `llama` is SentencePiece, merged by score (Gemma 3); `gpt2` is
    /// byte-level BPE (Llama 3, Qwen3).
    pub model: String,
    /// `tokenizer.ggml.pre`: how `gpt2` splits text before merging, such as `llama-bpe`, `qwen2`
    /// or `gpt-2`. `llama` does not split and does not look at it.
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
    /// `tokenizer.ggml.unknown_token_id`; where it is not given, the first token of type 2. `gpt2`
    /// does not look at it: bytes without a token are left out.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; where it is not given, true for `llama` and `llama-bpe` if
    /// there is a BOS.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`: EOS after a text; false where it is not given.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`; true for `llama` where it is not given. `gpt2` does not
    /// look at it.
    pub add_space_prefix: Option<bool>,
}

/// A pre-tokenizer: rules that split text into words, one after another. Each takes the words of
/// the one before and makes a word of each match and of each part between two matches.
#[derive(Debug)]
pub(crate) struct Pre {
    /// Names in `tokenizer.ggml.pre`.
    pub(crate) names: &'static [&'static str],
    pub(crate) patterns: &'static [&'static str],
    /// Text is composed (NFC) before it is split.
    pub(crate) composes: bool,
    /// A word that is a token is that token, whatever its merges would give.
    pub(crate) whole_words: bool,
    /// BOS is added unless the file says otherwise.
    pub(crate) bos: bool,
}

impl Pre {
    const fn new(names: &'static [&'static str], patterns: &'static [&'static str]) -> Self {
        Self { names, patterns, composes: false, whole_words: false, bos: false }
    }
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

/// GPT-4o's words: capitals begin one. `$short` are the English contractions that end one.
macro_rules! capitals {
    ($short:literal, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $short,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $short,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        )
    };
}

const LLAMA3: &str = words!(r"\p{N}{1,3}");
const QWEN2: &str = words!(r"\p{N}");
pub(crate) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Each digit a word.
pub(crate) const DIGIT: &str = r"\p{N}";
/// Letters of DeepSeek's first tokenizers: alphabets that have capitals.
const CASED: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ",
    r"Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\x{1F5F}-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌ\x{1FD0}-\x{1FD3}",
    r"\x{1FD6}-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-\x{212D}ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮ",
    r"ⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ\x{10400}-\x{1044F}\x{104B0}-\x{104D3}",
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}",
    r"\x{1E900}-\x{1E943}]+",
);
const PUNCTUATION: &str = r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+";
/// East Asian letters of DeepSeek's first tokenizers.
const EASTERN: &str = "[一-龥ࠀ-一가-퟿]+";

/// The pre-tokenizers by the names that llama.cpp gives them (`src/llama-vocab.cpp`). A pattern is
/// that of the model's own `tokenizer.json` where llama.cpp approximates it.
#[rustfmt::skip]
pub(crate) static PRE: [Pre; 16] = [
    Pre {
        whole_words: true,
        bos: true,
        ..Pre::new(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
            &[LLAMA3],
        )
    },
    Pre { composes: true, ..Pre::new(&["qwen2"], &[QWEN2]) },
    // Qwen's words, but these tokenizers do not compose.
    Pre::new(&["deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "megrez"], &[QWEN2]),
    Pre::new(&["smaug-bpe", "dbrx", "glm4", "chatglm-bpe"], &[LLAMA3]),
    Pre::new(
        &[
            "gpt-2", "mellum", "phi-2", "olmo", "mpt", "jais", "gigachat", "a.x-4.0", "exaone4",
            "trillion", "granite-docling",
        ],
        &[GPT2],
    ),
    Pre::new(
        &[
            "smollm", "refact", "starcoder", "command-r", "codeshell", "exaone", "minerva-7b",
            "mellum2",
        ],
        &[DIGIT, GPT2],
    ),
    Pre { whole_words: true, bos: true, ..Pre::new(&["tekken"], &[capitals!("", r"\p{N}")]) },
    Pre::new(
        &["gpt-4o", "llama4", "kanana2"],
        &[capitals!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")],
    ),
    Pre::new(
        &["deepseek-llm"],
        &[r"[\r\n]", CASED, PUNCTUATION, r"\s+$", EASTERN, r"\p{N}+"],
    ),
    Pre::new(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EASTERN, DIGIT],
    ),
    Pre::new(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        &[
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
        ],
    ),
    Pre::new(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    Pre::new(&["viking"], &[r" ?[^(\s|.,!?…。，、।۔،)]+", DIGIT]),
    Pre::new(
        &["seed-coder"],
        &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
            r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        )],
    ),
    Pre { whole_words: true, ..Pre::new(&["minicpm5"], &[r"\p{N}{1,3}", words!(r"\p{N}+")]) },
    Pre::new(
        &["default"],
        &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    ),
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
            add_eos: gguf.bool(key::ADD_EOS)?,
            add_space_prefix: gguf.bool("tokenizer.ggml.add_space_prefix")?,
        }))
    }
}
