//! The vocabulary of a GGUF file in the parts of the `tokenizers` library.

use std::collections::{HashMap, HashSet};

use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::strip::Strip;
use tokenizers::decoders::{self, DecoderWrapper};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::normalizers::{self, NFC, NormalizerWrapper, Prepend, Replace};
use tokenizers::pre_tokenizers::sequence::Sequence as Words;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, AddedVocabulary, SplitDelimiterBehavior, Tokenizer as Library};

use super::score::{self, Scores};
use super::{Tokenizer, TokenizerError, byte_of, guarded, literals};
use crate::fault::Fault;
use crate::token_type::{BYTE, CONTROL, UNKNOWN, USER_DEFINED};
use crate::vocabulary::{PRE, Pre, Vocabulary, key};

/// SentencePiece's spelling of a space.
const SPACE: &str = "▁";

impl Vocabulary {
    /// Ids, spellings and types of the tokens that have a spelling.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, i32)> {
        let tokens = (0..).zip(&self.tokens).zip(&self.token_types);
        let tokens = tokens.map(|((id, piece), &ty)| (id, piece.as_str(), ty));
        tokens.filter(|token| !token.1.is_empty())
    }

    /// Tokens that are spelled as control tokens and typed as text, with their ids.
    fn mistyped(&self) -> Vec<(u32, String)> {
        let named = |id: u32| self.bos == Some(id) || self.eos == Some(id);
        let bracketed = |piece: &str| {
            ["<>", "[]"].iter().any(|b| piece.starts_with(&b[..1]) && piece.ends_with(&b[1..]))
        };
        let mistyped = |(id, piece, ty): &(u32, &str, i32)| {
            !matches!(*ty, UNKNOWN | CONTROL | USER_DEFINED | BYTE)
                && (is_markup(piece) || named(*id) && bracketed(piece))
        };
        self.iter().filter(mistyped).map(|(id, piece, _)| (id, piece.to_owned())).collect()
    }

    fn check(&self) -> Result<(), Fault> {
        let count = self.tokens.len();
        if count == 0 {
            return Err(refused(key::TOKENS, "is empty or missing"));
        }
        if u32::try_from(count).is_err() {
            return Err(refused(key::TOKENS, format!("{count} entries have no 32-bit ids")));
        }
        let length = |key, found| match found == count {
            true => Ok(()),
            false => Err(refused(key, format!("{found} entries for {count} tokens"))),
        };
        if self.token_types.is_empty() {
            return Err(refused(key::TYPES, "is empty or missing"));
        }
        length(key::TYPES, self.token_types.len())?;
        if self.model == "llama" || !self.scores.is_empty() {
            length(key::SCORES, self.scores.len())?;
        }
        let ids = [(key::BOS, self.bos), (key::EOS, self.eos), (key::UNKNOWN, self.unknown)];
        for (key, id) in ids {
            if let Some(id) = id.filter(|&id| id as usize >= count) {
                return Err(refused(key, format!("{id} is beyond the {count} tokens")));
            }
        }
        let wrong = (0..).zip(&self.token_types).find(|(_, ty)| !(0..=BYTE).contains(*ty));
        if let Some((id, ty)) = wrong {
            return Err(refused(key::TYPES, format!("{ty} of token {id} is none of 0 to 6")));
        }
        if let Some(id) = self.scores.iter().position(|score| score.is_nan()) {
            return Err(refused(key::SCORES, format!("the score of token {id} is not a number")));
        }
        let bytes = (0..).zip(&self.tokens).zip(&self.token_types).filter(|token| *token.1 == BYTE);
        for ((id, piece), _) in bytes {
            if byte_of(piece).is_none() {
                let why = format!("token {id} is a byte but is spelled {piece:?}, not <0xNN>");
                return Err(refused(key::TYPES, why));
            }
        }
        let mut seen = HashMap::with_capacity(count);
        for (id, piece, _) in self.iter() {
            if let Some(first) = seen.insert(piece, id) {
                let why = format!("tokens {first} and {id} are both {piece:?}");
                return Err(refused(key::TOKENS, why));
            }
        }
        for (key, add, token, id) in [
            (key::ADD_BOS, self.add_bos, key::BOS, self.bos),
            (key::ADD_EOS, self.add_eos, key::EOS, self.eos),
        ] {
            if add == Some(true) && id.is_none() {
                return Err(refused(key, format!("is true, but there is no `{token}`")));
            }
        }
        Ok(())
    }

    /// The merges as pairs. The first of two equal pairs counts.
    pub(super) fn pairs(&self, text: &Vocab) -> Result<Vec<(String, String)>, Fault> {
        if self.merges.is_empty() {
            return Err(refused(key::MERGES, "is empty or missing"));
        }
        let mut seen = HashSet::with_capacity(self.merges.len());
        let mut pairs = Vec::with_capacity(self.merges.len());
        for (index, merge) in self.merges.iter().enumerate() {
            let wrong =
                |why: String| refused(key::MERGES, format!("entry {index}, {merge:?}, {why}"));
            let pair = merge.split_once(' ').filter(|(left, right)| {
                !left.is_empty() && !right.is_empty() && !right.contains(' ')
            });
            let (left, right) =
                pair.ok_or_else(|| wrong("is not two spellings and a space".into()))?;
            for spelling in [left, right, &format!("{left}{right}")] {
                if !text.contains_key(spelling) {
                    return Err(wrong(format!("needs {spelling:?}, which is no token of text")));
                }
            }
            if seen.insert((left, right)) {
                pairs.push((left.to_owned(), right.to_owned()));
            }
        }
        Ok(pairs)
    }

    /// Control and user-defined tokens, matched in the text as they are spelled; SentencePiece has
    /// U+2581 for their spaces, and takes one for the other where there is nothing else.
    pub(super) fn literals(&self, scored: bool) -> Result<AddedVocabulary, TokenizerError> {
        let mut tokens: Vec<(u32, AddedToken)> = Vec::new();
        let mut seen = HashSet::new();
        for (id, piece, ty) in self.iter() {
            let contents = match ty {
                UNKNOWN | CONTROL => vec![piece.to_owned()],
                USER_DEFINED if scored && is_space(piece) => {
                    vec![piece.replace(SPACE, " "), piece.replace(' ', SPACE)]
                }
                USER_DEFINED if scored => vec![piece.replace(SPACE, " ")],
                USER_DEFINED => vec![piece.to_owned()],
                _ => continue,
            };
            for content in contents {
                if seen.insert(content.clone()) {
                    let token = AddedToken::from(content, ty != USER_DEFINED).normalized(false);
                    tokens.push((id, token));
                }
            }
        }
        literals(tokens.into_iter(), None)
    }

    /// Checks the vocabulary, and types control tokens as such. Returns true for one that merges by
    /// score, and the spellings of tokens that were typed as text.
    pub(super) fn prepare(&mut self) -> Result<(bool, Vec<String>), TokenizerError> {
        let scored = match self.model.as_str() {
            "llama" => true,
            "gpt2" => false,
            other => {
                let why = format!("`{other}` is not supported; supported are llama, gpt2");
                return Err(refused(key::MODEL, why).into());
            }
        };
        self.check()?;
        let mistyped = self.mistyped();
        for (id, _) in &mistyped {
            self.token_types[*id as usize] = CONTROL;
        }
        Ok((scored, mistyped.into_iter().map(|(_, piece)| piece).collect()))
    }

    /// Control tokens that go before and after a text.
    pub(super) fn around(&self, scored: bool) -> Result<[Vec<u32>; 2], TokenizerError> {
        let adds_bos = scored || Pre::find(self.pre.as_deref())?.bos;
        let bos = self.bos.filter(|_| self.add_bos.unwrap_or(adds_bos));
        let eos = self.eos.filter(|_| self.add_eos == Some(true));
        Ok([bos, eos].map(Vec::from_iter))
    }

    /// Token of text that SentencePiece has none for.
    pub(super) fn unknown_token(&self) -> Option<u32> {
        self.unknown.or(self.iter().find(|token| token.2 == UNKNOWN).map(|token| token.0))
    }

    /// True if SentencePiece puts a space before a text.
    pub(super) fn has_prefix(&self) -> bool {
        self.add_space_prefix.unwrap_or(true)
    }

    /// Tokens that merges make: without control tokens, which text cannot become.
    pub(super) fn text_tokens(&self) -> Vocab {
        let text = self.iter().filter(|&(_, _, ty)| !matches!(ty, UNKNOWN | CONTROL));
        text.map(|(id, piece, _)| (piece.to_owned(), id)).collect()
    }

    pub(super) fn scores(&self, unknown: Option<u32>) -> Scores {
        let mut scores = Scores { text: HashMap::new(), longest: 0, bytes: [None; 256], unknown };
        for (id, piece, ty) in self.iter() {
            match ty {
                // Where a text mixes the two spellings, no literal is found: they merge first.
                USER_DEFINED if is_space(piece) => {
                    let spaces = piece.replace(' ', SPACE);
                    scores.longest = scores.longest.max(spaces.len());
                    scores.text.insert(spaces, (0, id));
                }
                UNKNOWN | CONTROL | USER_DEFINED => {}
                BYTE => {
                    if let Some(byte) = byte_of(piece) {
                        scores.bytes[usize::from(byte)] = Some(id);
                    }
                }
                _ => {
                    scores.longest = scores.longest.max(piece.len());
                    let place = score::place(self.scores[id as usize]);
                    scores.text.insert(piece.to_owned(), (place, id));
                }
            }
        }
        scores
    }
}

impl Tokenizer {
    /// Checks the vocabulary of a GGUF file and indexes it.
    ///
    /// # Errors
    ///
    /// The model or the pre-tokenizer is not supported, or two entries do not fit together. The
    /// message names the metadata key.
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let (scored, mistyped) = vocabulary.prepare()?;
        let literals = vocabulary.literals(scored)?;
        let (mut library, scores) = match scored {
            true => {
                let scores = vocabulary.scores(vocabulary.unknown_token());
                (sentencepiece(&vocabulary, vocabulary.has_prefix())?, Some(scores))
            }
            false => (byte_level(&vocabulary, Pre::find(vocabulary.pre.as_deref())?)?, None),
        };
        library.with_added_vocabulary(literals);
        let made = Self::of(library, scores, vocabulary.around(scored)?)?;
        Ok(Self { mistyped, ..made })
    }
}

impl Pre {
    /// The rules as the library has them, and after them bytes as characters.
    fn words(&self) -> tokenizers::Result<Words> {
        let split = |pattern: &&str| {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into())
        };
        let mut rules: Vec<_> =
            self.patterns.iter().map(split).collect::<tokenizers::Result<_>>()?;
        rules.push(ByteLevel::new(false, true, false).into());
        Ok(Words::new(rules))
    }

    pub(super) fn find(name: Option<&str>) -> Result<&'static Self, Fault> {
        let found = PRE.iter().find(|pre| name.is_some_and(|name| pre.names.contains(&name)));
        found.ok_or_else(|| {
            let supported: Vec<_> = PRE.iter().flat_map(|pre| pre.names).copied().collect();
            let found = name.map_or_else(
                || "is missing, and model gpt2 needs it".to_owned(),
                |name| format!("`{name}` is not supported with model gpt2"),
            );
            let why = format!("{found}; supported are {}", supported.join(", "));
            refused(key::PRE, why)
        })
    }
}

/// Builds SentencePiece without its merging: spaces become U+2581 and back.
fn sentencepiece(vocabulary: &Vocabulary, prefix: bool) -> Result<Library, TokenizerError> {
    guarded(|| {
        let ids = vocabulary.iter().map(|(id, piece, _)| (piece.to_owned(), id)).collect();
        let mut library = Library::new(WordLevel::builder().vocab(ids).build()?);
        let mut normalizers: Vec<NormalizerWrapper> = vec![Replace::new(" ", SPACE)?.into()];
        let mut decoders: Vec<DecoderWrapper> =
            vec![Replace::new(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
        if prefix {
            normalizers.push(Prepend::new(SPACE.to_owned()).into());
            decoders.push(Strip::new(' ', 1, 0).into());
        }
        library.with_normalizer(Some(normalizers::Sequence::new(normalizers)))?;
        library.with_decoder(Some(decoders::sequence::Sequence::new(decoders)));
        Ok(library)
    })
}

/// Merges by rank over bytes, each spelled as a character.
fn byte_level(vocabulary: &Vocabulary, pre: &Pre) -> Result<Library, TokenizerError> {
    let text = vocabulary.text_tokens();
    let merges = vocabulary.pairs(&text)?;
    guarded(|| {
        let model = BPE::builder().vocab_and_merges(text, merges).ignore_merges(pre.whole_words);
        let mut library = Library::new(model.build()?);
        library.with_pre_tokenizer(Some(pre.words()?));
        library.with_normalizer(pre.composes.then_some(NFC))?;
        library.with_decoder(Some(ByteLevel::new(false, true, false)));
        Ok(library)
    })
}

/// Returns true for spaces alone, in either of SentencePiece's spellings.
fn is_space(piece: &str) -> bool {
    piece.chars().all(|c| c == ' ' || SPACE.starts_with(c))
}

/// Returns true for a token that is spelled as the marks of chat templates are: `<|…|>`, or those
/// of Gemma and Mistral.
fn is_markup(piece: &str) -> bool {
    let inner = piece.strip_prefix("<|").and_then(|rest| rest.strip_suffix("|>"));
    let word = |inner: &str| {
        inner.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && inner.len() > 1
    };
    let known = ["<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"];
    known.contains(&piece) || inner.is_some_and(word)
}

fn refused(key: &str, why: impl Into<String>) -> Fault {
    Fault::of(format!("metadata `{key}`"), why)
}
