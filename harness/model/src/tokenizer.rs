//! Text to token ids and back, through the `tokenizers` library: by a Hugging Face `tokenizer.json`
//! ([`Tokenizer::open`]), which that library defines, or by the vocabulary of a GGUF file
//! ([`Tokenizer::new`]), from which the library's parts are built.
//!
//! ```text
//! text → literals (control and user-defined tokens, leftmost, longest first)
//!          └ between them: normalizer → pre-tokenizer → model (merges by rank; of a GGUF's
//!                                                       SentencePiece by score)
//! ids  → decoder (piece → bytes) → stream (bytes → whole characters) → text
//! ```

mod gguf;
mod score;
mod stream;
mod tables;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::path::Path;

use serde::Deserialize;
use tokenizers::models::ModelWrapper;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{
    AddedToken, AddedVocabulary, Decoder as _, Encoding, Model as _, OffsetType,
    PostProcessor as _, PreTokenizer as _, Token, Tokenizer as Library,
};

use super::error::ModelError;
use super::fault::Fault;
use super::mapped;
use score::Scores;

pub use crate::error::TokenizerError;
pub use crate::token_type;
pub use crate::vocabulary::Vocabulary;
pub use stream::TextStream;
pub use tables::Tables;

/// Longest `tokenizer.json` that is read; the largest public one has 33 MB.
const LONGEST: u64 = 256 << 20;

/// Longest run of white space that is split into words, in bytes. The library's regex engine gives
/// up on a million characters and then silently makes one word of the rest of the text.
const LONGEST_SPACE: usize = 500_000;

/// Encodes text to token ids and decodes them, by one vocabulary.
#[derive(Debug)]
pub struct Tokenizer {
    library: Library,
    /// The literals that are no control tokens.
    plain: AddedVocabulary,
    /// Scores of a GGUF file's SentencePiece, which replace the library's model.
    scores: Option<Scores>,
    /// Control tokens that go before and after a text.
    around: [Vec<u32>; 2],
    /// Spellings of control tokens that a GGUF types as text.
    mistyped: Vec<String>,
    spelling: Spelling,
}

/// The bytes that a piece of the model stands for.
#[derive(Debug)]
enum Spelling {
    /// One character per byte, in GPT-2's alphabet.
    Bytes(HashMap<char, u8>),
    /// Text of the library's decoder; with `bytes`, `<0xNN>` is a byte.
    Text { bytes: bool },
}

/// The part of a `tokenizer.json` that the library overrules without an error.
#[derive(Deserialize)]
struct Declared {
    #[serde(default)]
    added_tokens: Vec<DeclaredToken>,
}

#[derive(Deserialize)]
struct DeclaredToken {
    id: u32,
    content: String,
}

impl Tokenizer {
    /// The tokenizer of a `tokenizer.json` file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as for [`Tokenizer::from_json`]; the message names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let bytes = mapped::read(path, LONGEST)?;
        Self::from_json(&bytes).map_err(ModelError::at(path))
    }

    /// A note for the user where control tokens are typed as text: they are matched all the same.
    pub fn note(&self) -> Option<String> {
        let first = self.mistyped.first()?;
        let (key, n) = (crate::vocabulary::key::TYPES, self.mistyped.len());
        Some(format!(
            "metadata `{key}`: {n} tokens, such as {first}, are spelled as control tokens and typed \
             as text; they are taken for control tokens"
        ))
    }

    /// Tokens between brackets, such as `<start>` and `[END]`, that `text` has and that are encoded
    /// in pieces there, in the order of their spelling.
    pub fn divided(&self, text: &str) -> Vec<String> {
        let mut found = BTreeSet::new();
        for (open, close) in [('<', '>'), ('[', ']')] {
            for (at, _) in text.match_indices(open) {
                let Some(end) = text[at..].find(close) else { break };
                let marker = &text[at..=at + end];
                let Some(id) = self.library.token_to_id(marker) else { continue };
                // A space prefix may go before it.
                if self.encode_markup(marker).is_ok_and(|ids| ids.last() != Some(&id)) {
                    found.insert(marker.to_owned());
                }
            }
        }
        found.into_iter().collect()
    }

    /// The tokenizer of the bytes of a `tokenizer.json`. Its ids are those of the `tokenizers`
    /// library, but [`Tokenizer::encode`] adds a BOS once if the text spells it already.
    ///
    /// # Errors
    ///
    /// The library does not accept the bytes, numbers an added token otherwise than the file does,
    /// or would leave ids to chance or cut texts off.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let refused = |key: &str, why: &str| TokenizerError::Fault(Fault::of(key, why));
        let declared: Declared = serde_json::from_slice(bytes)
            .map_err(|error| Fault::of("is no tokenizer.json", error.to_string()))?;
        let library = guarded(|| Library::from_bytes(bytes))?;
        for DeclaredToken { id, content } in &declared.added_tokens {
            let found = library.token_to_id(content);
            if found.is_some_and(|found| found != *id) {
                let why = format!("{content:?} has id {id}, but is number {found:?}");
                return Err(refused("added_tokens", &why));
            }
        }
        if library.get_truncation().is_some() {
            return Err(refused("truncation", "is not supported; only null is"));
        }
        if let ModelWrapper::BPE(model) = library.get_model()
            && model.dropout.is_some_and(|share| share != 0.0)
        {
            return Err(refused("model.dropout", "is not supported; only null is"));
        }
        let around = library.get_post_processor().map_or_else(|| Ok(<_>::default()), around)?;
        if let Some(id) = around.iter().flatten().find(|id| library.id_to_token(**id).is_none()) {
            return Err(refused("post_processor", &format!("there is no token {id}")));
        }
        Self::of(library, None, around)
    }

    fn of(
        library: Library,
        scores: Option<Scores>,
        around: [Vec<u32>; 2],
    ) -> Result<Self, TokenizerError> {
        let Some(decoder) = library.get_decoder() else {
            return Err(Fault::of("decoder", "there is none").into());
        };
        let decodes = |piece: &str, text: &str| {
            let decoded = guarded(|| decoder.decode(vec![piece.to_owned()]));
            decoded.is_ok_and(|decoded| decoded == text)
        };
        let spelling = match decodes("\u{120}", " ") {
            true => Spelling::Bytes(alphabet().into_iter().zip(0..=u8::MAX).collect()),
            false => Spelling::Text { bytes: decodes("<0x41>", "A") },
        };
        let added = library.get_added_tokens_decoder().into_iter();
        let plain = literals(added.filter(|added| !added.1.special), library.get_normalizer())?;
        let mistyped = Vec::new();
        Ok(Self { plain, library, scores, around, mistyped, spelling })
    }

    /// The ids of `text`. With `special`, the tokens that the vocabulary puts around a text are
    /// there (a BOS or an EOS only once if the text spells it too), and control tokens spelled in the text,
    /// such as `<start_of_turn>`, are matched; without, no control token comes out. User-defined
    /// tokens are always matched.
    ///
    /// # Errors
    ///
    /// SentencePiece without an unknown token meets a character that has neither a token nor bytes,
    /// or a run of white space is longer than half a million bytes.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        if !special {
            return self.ids(&self.plain, text);
        }
        let [before, after] = &self.around;
        let ids = self.encode_markup(text)?;
        let spelled =
            |id: Option<&u32>, found: Option<&u32>| usize::from(id.is_some() && id == found);
        let from = spelled(before.last(), ids.first());
        let to = ids.len() - spelled(after.first(), ids[from..].last());
        Ok([before, &ids[from..to], after].concat())
    }

    /// The ids of text in which every control token is spelled, such as a rendered chat template:
    /// those are matched, and none is added.
    ///
    /// # Errors
    ///
    /// Errors of [`Tokenizer::encode`].
    pub fn encode_markup(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids(self.library.get_added_vocabulary(), text)
    }

    fn ids(&self, literals: &AddedVocabulary, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let words = self.library.get_pre_tokenizer();
        if words.is_some() {
            let spaces = text.split(|c: char| !c.is_whitespace());
            let longest = spaces.map(str::len).max().unwrap_or(0);
            if longest > LONGEST_SPACE {
                return Err(TokenizerError::Spaces { found: longest, limit: LONGEST_SPACE });
            }
        }
        guarded(|| {
            let mut parts = literals.extract_and_normalize(self.library.get_normalizer(), text);
            if let Some(words) = words {
                words.pre_tokenize(&mut parts)?;
            }
            parts.tokenize(|part| match &self.scores {
                Some(scores) => Ok(scores.tokenize(part.get())?),
                None => self.library.get_model().tokenize(part.get()),
            })?;
            Ok(parts.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
        })
    }

    /// The text of `ids`. Control tokens are left out; unknown tokens, ids beyond the vocabulary
    /// and bytes that are not UTF-8 show as U+FFFD. Text that was normalised comes back normalised.
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
    pub fn piece(&self, id: u32) -> Option<String> {
        self.library.get_model().id_to_token(id).or_else(|| self.library.id_to_token(id))
    }

    /// Bytes of text that a token stands for, `first` of a text; none for a control token.
    pub fn bytes(&self, id: u32, first: bool) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.push_bytes(id, first, &mut bytes).then_some(bytes)
    }

    /// Appends the bytes of text that a token stands for, `first` of a text. False where it is a
    /// control token, which stands for none.
    fn push_bytes(&self, id: u32, first: bool, bytes: &mut Vec<u8>) -> bool {
        let added = self.library.get_added_vocabulary().get_added_tokens_decoder().get(&id);
        match (added, self.library.get_model().id_to_token(id)) {
            _ if self.scores.as_ref().is_some_and(|scores| scores.unknown == Some(id)) => {
                bytes.extend("\u{fffd}".as_bytes());
            }
            (Some(token), _) if token.special => return false,
            (Some(token), _) => match self.spelling {
                Spelling::Bytes(_) => bytes.extend(token.content.as_bytes()),
                Spelling::Text { .. } => self.push_piece(&token.content, false, bytes),
            },
            (None, Some(piece)) => self.push_piece(&piece, first, bytes),
            (None, None) => bytes.extend("\u{fffd}".as_bytes()),
        }
        true
    }

    /// Appends the bytes that a piece of the model stands for.
    fn push_piece(&self, piece: &str, first: bool, bytes: &mut Vec<u8>) {
        match &self.spelling {
            Spelling::Bytes(alphabet) => {
                let spelled: Option<Vec<u8>> =
                    piece.chars().map(|c| alphabet.get(&c).copied()).collect();
                bytes.extend(spelled.unwrap_or_else(|| piece.as_bytes().to_vec()));
            }
            Spelling::Text { bytes: true } if let Some(byte) = byte_of(piece) => bytes.push(byte),
            Spelling::Text { .. } => {
                // What decoders take off the beginning of a text stays where a text precedes.
                let before = if first { "" } else { "x" };
                let pieces = [before, piece].into_iter().filter(|p| !p.is_empty());
                let pieces: Vec<String> = pieces.map(str::to_owned).collect();
                let decoder = self.library.get_decoder();
                let text = guarded(|| decoder.map_or(Ok(String::new()), |d| d.decode(pieces)));
                let text = text.unwrap_or_else(|_| format!("{before}\u{fffd}"));
                bytes.extend(text.strip_prefix(before).unwrap_or(&text).as_bytes());
            }
        }
    }
}

/// Tokens that are matched in the text as they are spelled, each with its id.
fn literals(
    tokens: impl Iterator<Item = (u32, AddedToken)>,
    normalizer: Option<&NormalizerWrapper>,
) -> Result<AddedVocabulary, TokenizerError> {
    let (ids, tokens): (Vec<_>, Vec<_>) =
        tokens.map(|(id, token)| ((token.content.clone(), id), token)).unzip();
    guarded(|| {
        // Where the library looks for ids.
        let ids = WordLevel::builder().vocab(ids.into_iter().collect()).build()?;
        let mut literals = AddedVocabulary::new();
        literals.add_tokens(tokens, &ids, normalizer)?;
        Ok(literals)
    })
}

const LIBRARY: &str = "the tokenizers library";

/// Calls the library. Unchecked files make it panic in places; that is an error.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, TokenizerError> {
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| match error.downcast() {
            Ok(own) => *own,
            Err(other) => Fault::of(LIBRARY, other.to_string()).into(),
        }),
        Err(_) => Err(Fault::of(LIBRARY, "it panicked").into()),
    }
}

/// Ids that a post-processor puts before and after a text.
pub(crate) fn around(processor: &PostProcessorWrapper) -> Result<[Vec<u32>; 2], TokenizerError> {
    let text = Token::new(u32::MAX, String::new(), (0, 0));
    let text = Encoding::from_tokens(vec![text], 0);
    let whole = guarded(|| processor.process(text, None, true))?;
    let mut parts = whole.get_ids().split(|id| *id == u32::MAX).map(<[u32]>::to_vec);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(before), Some(after), None) => Ok([before, after]),
        _ => Err(Fault::of("post_processor", "does not have the text once").into()),
    }
}

/// GPT-2's alphabet, a character per byte: printable Latin-1 stands for itself, the other 68 bytes
/// for U+0100 onwards.
fn alphabet() -> [char; 256] {
    let mut others = '\u{100}'..='\u{143}';
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(byte),
        _ => others.next().unwrap_or_default(),
    })
}

/// The byte that `<0xNN>` spells.
fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    // from_str_radix would take a sign too.
    let two = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| two)
}
