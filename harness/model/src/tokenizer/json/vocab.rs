//! The model's vocabulary and merges, and the tokens added to it.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::node::refused;
use crate::tokenizer::TokenizerError;
use crate::tokenizer::merge::Merge;
use crate::tokenizer::token_type::{BYTE, CONTROL, NORMAL, USER_DEFINED};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelJson {
    #[serde(rename = "type")]
    _ty: IgnoredAny,
    dropout: Option<f64>,
    pub(super) unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    pub(super) vocab: Vocab,
    pub(super) merges: Vec<MergeJson>,
}

impl ModelJson {
    /// Refuses what the model asks for and is not implemented.
    pub(super) fn check(&self) -> Result<(), TokenizerError> {
        if self.dropout.is_some_and(|share| share != 0.0) {
            return Err(refused("model.dropout", "is not supported; only null and 0 are"));
        }
        let affixes = [
            ("model.continuing_subword_prefix", &self.continuing_subword_prefix),
            ("model.end_of_word_suffix", &self.end_of_word_suffix),
        ];
        match affixes.iter().find(|(_, affix)| affix.as_ref().is_some_and(|a| !a.is_empty())) {
            Some((key, _)) => Err(refused(*key, "is not supported; only null and \"\" are")),
            None => Ok(()),
        }
    }
}

/// Two spellings: a list, or as older files have it, with a space between.
pub(super) enum MergeJson {
    Pair([String; 2]),
    Joined(String),
}

// By hand: there are half a million of them, and `untagged` would copy each before it looks.
impl<'de> Deserialize<'de> for MergeJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = MergeJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: two spellings in a list, or with a space between")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MergeJson, E> {
                Ok(MergeJson::Joined(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MergeJson, A::Error> {
                let mut next = |index| {
                    let next = seq.next_element::<String>()?;
                    next.ok_or_else(|| A::Error::invalid_length(index, &self))
                };
                let pair = [next(0)?, next(1)?];
                match seq.next_element::<IgnoredAny>()? {
                    None => Ok(MergeJson::Pair(pair)),
                    Some(_) => Err(A::Error::invalid_length(3, &Either)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Spellings and ids in the file's order, no spelling twice.
pub(super) struct Vocab(pub(super) Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of spellings and ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut entries = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some((spelling, id)) = map.next_entry::<String, u32>()? {
                    if !seen.insert(spelling.clone()) {
                        return Err(A::Error::custom(format!("vocab has {spelling:?} twice")));
                    }
                    entries.push((spelling, id));
                }
                Ok(Vocab(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A token beside the model's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Added {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    pub(super) normalized: bool,
    pub(super) special: bool,
}

/// Every id with its spelling and type.
pub(super) struct Spellings {
    pieces: Vec<Option<String>>,
    types: Vec<i32>,
}

impl Spellings {
    pub(super) fn new(vocab: &Vocab, added: &[Added]) -> Result<Self, TokenizerError> {
        let count = vocab.0.len() + added.len();
        if vocab.0.is_empty() {
            return Err(refused("model.vocab", "is empty"));
        }
        // A few ids may be left out, but one id must not make a list of billions.
        let ids = vocab.0.iter().map(|entry| entry.1).chain(added.iter().map(|a| a.id));
        let last = ids.max().unwrap_or(0) as usize;
        if last > 2 * count + 4096 {
            let why = format!("id {last} is far beyond the {count} tokens");
            return Err(refused("model.vocab", why));
        }
        let mut pieces = vec![None; last + 1];
        let mut types = vec![NORMAL; last + 1];
        let mut by_spelling = HashMap::with_capacity(count);
        for (spelling, id) in &vocab.0 {
            by_spelling.insert(spelling.as_str(), *id);
            if let Some(first) = pieces[*id as usize].replace(spelling.clone()) {
                let why = format!("{first:?} and {spelling:?} both have id {id}");
                return Err(refused("model.vocab", why));
            }
        }
        // In 32 bits: the largest id was checked.
        let mut next = vocab.0.len() as u32;
        for (index, token) in added.iter().enumerate() {
            let Added { id, content, special, .. } = token;
            let error =
                |key: &str, why: String| Err(refused(format!("added_tokens[{index}].{key}"), why));
            let strips = [
                ("single_word", token.single_word),
                ("lstrip", token.lstrip),
                ("rstrip", token.rstrip),
            ];
            if let Some((key, _)) = strips.into_iter().find(|(_, set)| *set) {
                return error(key, format!("of {content:?} is true, which is not supported"));
            }
            if content.is_empty() {
                return error("content", "is empty".into());
            }
            let expected = match by_spelling.get(content.as_str()) {
                Some(known) => *known,
                // The library does not look at the id of a token that the model lacks, but
                // counts on; a file in which that is another id means two things.
                None => next,
            };
            if expected != *id {
                let why = format!("{content:?} has id {id}, but is number {expected}");
                return error("id", why);
            }
            if by_spelling.insert(content, *id).is_none() {
                next += 1;
                if let Some(other) = pieces[*id as usize].replace(content.clone()) {
                    return error("id", format!("{id} is that of {other:?} too"));
                }
            }
            types[*id as usize] = if *special { CONTROL } else { USER_DEFINED };
        }
        Ok(Self { pieces, types })
    }

    pub(super) fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize)?.as_deref()
    }

    /// Spellings and types by id; ids that are left out have an empty one.
    pub(super) fn into_tokens(self, is_byte: impl Fn(&str) -> bool) -> (Vec<String>, Vec<i32>) {
        let Self { pieces, mut types } = self;
        for (ty, piece) in types.iter_mut().zip(&pieces) {
            if *ty == NORMAL && piece.as_deref().is_some_and(&is_byte) {
                *ty = BYTE;
            }
        }
        (pieces.into_iter().map(Option::unwrap_or_default).collect(), types)
    }
}

/// Merges by the ids they join. A pair named twice has its last rank, as in the `tokenizers`
/// library.
pub(super) fn merges(
    merges: &[MergeJson],
    vocab: &HashMap<String, u32>,
) -> Result<HashMap<(u32, u32), Merge>, TokenizerError> {
    let mut pairs = HashMap::with_capacity(merges.len());
    for (rank, (index, merge)) in (0..).zip(merges.iter().enumerate()) {
        let error = |why: String| refused(format!("model.merges[{index}]"), why);
        let (left, right) = match merge {
            MergeJson::Pair([left, right]) => (left.as_str(), right.as_str()),
            MergeJson::Joined(text) => text
                .split_once(' ')
                .filter(|(_, right)| !right.contains(' '))
                .ok_or_else(|| error(format!("{text:?} is not two spellings and a space")))?,
        };
        let find = |spelling: &str| {
            let id = vocab.get(spelling).copied();
            id.ok_or_else(|| error(format!("needs {spelling:?}, which is not in the vocabulary")))
        };
        let pair = (find(left)?, find(right)?);
        let id = find(&format!("{left}{right}"))?;
        pairs.insert(pair, Merge { rank, id });
    }
    Ok(pairs)
}
