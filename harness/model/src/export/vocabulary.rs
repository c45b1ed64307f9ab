//! `tokenizer.json` in the words of GGUF's tokenizer metadata: byte-level BPE with a known
//! pre-tokenizer. An unknown setting is refused; a guess would silently give other ids.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper as Words;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use crate::config::Config;
use crate::fault::Fault;
use crate::json::Object;
use crate::keys::Keys;
use crate::token_type::{CONTROL, NORMAL, UNUSED, USER_DEFINED};
use crate::tokenizer::around;
use crate::vocabulary::{DIGIT, GPT2, PRE, Pre, Vocabulary};

#[derive(Deserialize)]
struct Added {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// Two spellings, with a space between in older files.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair([String; 2]),
    Spaced(String),
}

/// A part of the file as the library reads it; none where the key is missing.
fn part<T: DeserializeOwned>(root: &Object<'_>, key: &str) -> Result<Option<T>, Fault> {
    let value = root.get(key).cloned();
    let read = |value| serde_json::from_value(value).map_err(|e| root.error(key, e.to_string()));
    value.map(read).transpose()
}

/// Converts a `tokenizer.json` to GGUF's vocabulary, a token for each row of the embedding.
///
/// # Errors
/// It is of another kind, or contradicts itself or the model; the message names the key.
pub(crate) fn from_tokenizer_json(json: &Value, config: &Config) -> Result<Vocabulary, Fault> {
    let root = Object::root(json)?;
    let model = root.object("model")?.ok_or_else(|| root.missing("model"))?;
    if model.text("type")? != Some("BPE") {
        return Err(model.refused("type", "only byte-level BPE is understood"));
    }
    let pre = pre_tokenizer(&root, &model)?;
    let filled = |key: &str| Ok::<_, Fault>(model.text(key)?.is_some_and(|text| !text.is_empty()));
    let on = |key: &str| Ok::<_, Fault>(model.bool(key)?.unwrap_or(false));
    let scores = "bytes of their own are SentencePiece's, whose scores are not in this file";
    for (key, wrong, why) in [
        ("byte_fallback", on("byte_fallback")?, scores),
        ("continuing_subword_prefix", filled("continuing_subword_prefix")?, "bytes have none"),
        ("end_of_word_suffix", filled("end_of_word_suffix")?, "bytes have none"),
        ("dropout", model.f64("dropout")?.is_some_and(|p| p != 0.0), "chance has no part here"),
    ] {
        if wrong {
            return Err(model.refused(key, why));
        }
    }
    let vocab = part(&model, "vocab")?.ok_or_else(|| model.missing("vocab"))?;
    let (tokens, token_types) = tokens(&root, vocab, config.vocab)?;
    let merges: Vec<Merge> = part(&model, "merges")?.ok_or_else(|| model.missing("merges"))?;
    let spaced = |merge| match merge {
        Merge::Pair(pair) => pair.join(" "),
        Merge::Spaced(pair) => pair,
    };
    let [add_bos, add_eos] = around_text(&root, config)?;
    Ok(Vocabulary {
        model: "gpt2".to_owned(),
        pre: Some(pre.names[0].to_owned()),
        tokens,
        token_types,
        merges: merges.into_iter().map(spaced).collect(),
        bos: config.bos,
        eos: config.eos,
        add_bos: Some(add_bos),
        add_eos: add_eos.then_some(true),
        ..Vocabulary::default()
    })
}

/// The pre-tokenizer of GGUF that splits and treats words as this file does.
fn pre_tokenizer(root: &Object<'_>, model: &Object<'_>) -> Result<&'static Pre, Fault> {
    let key = "pre_tokenizer";
    let parts = match part(root, key)? {
        Some(Words::Sequence(parts)) => parts.as_ref().to_vec(),
        other => Vec::from_iter(other),
    };
    let (mut patterns, mut bytes) = (Vec::new(), false);
    for part in &parts {
        match part {
            Words::Split(Split {
                pattern: SplitPattern::Regex(pattern), behavior, invert, ..
            }) if *behavior == SplitDelimiterBehavior::Isolated && !invert => {
                patterns.push(pattern.as_str());
            }
            Words::Digits(digits) if digits.individual_digits => patterns.push(DIGIT),
            Words::ByteLevel(level) if !level.add_prefix_space && !bytes => {
                bytes = true;
                patterns.extend(level.use_regex.then_some(GPT2));
            }
            _ => patterns.clear(),
        }
    }
    let normalizer = part::<NormalizerWrapper>(root, "normalizer")?;
    if !matches!(normalizer, None | Some(NormalizerWrapper::NFC(_))) {
        return Err(root.refused("normalizer", "NFC or none is understood"));
    }
    let whole_words = model.bool("ignore_merges")?.unwrap_or(false);
    let last = matches!(parts.last(), Some(Words::ByteLevel(_)));
    let same = |pre: &&Pre| last && pre.patterns == patterns;
    if !PRE.iter().any(|pre| same(&pre)) {
        return Err(root.refused(key, "no pre-tokenizer of GGUF splits text in this way"));
    }
    let alike = |pre: &&Pre| same(pre) && pre.whole_words == whole_words;
    if !PRE.iter().any(|pre| alike(&pre)) {
        return Err(model.refused("ignore_merges", "GGUF has this split with the other value"));
    }
    let found = PRE.iter().find(|pre| alike(pre) && pre.composes == normalizer.is_some());
    found.ok_or_else(|| root.refused("normalizer", "GGUF has this split with another one"))
}

/// Spellings and types by id. Embeddings are padded to round numbers of rows; GGUF gives each a
/// spelling.
fn tokens(
    root: &Object<'_>,
    vocab: HashMap<String, u32>,
    rows: usize,
) -> Result<(Vec<String>, Vec<i32>), Fault> {
    let (mut tokens, mut types) = (vec![None; rows], vec![UNUSED; rows]);
    let added = part::<Vec<Added>>(root, "added_tokens")?.unwrap_or_default();
    let ordinary = vocab.into_iter().map(|(content, id)| ("model.vocab", content, id, NORMAL));
    let mut all: Vec<_> = ordinary.collect();
    for Added { id, token } in added {
        if token.single_word || token.lstrip || token.rstrip {
            let why = format!("{:?}: single_word, lstrip and rstrip are refused", token.content);
            return Err(root.error("added_tokens", why));
        }
        let ty = if token.special { CONTROL } else { USER_DEFINED };
        all.push(("added_tokens", token.content, id, ty));
    }
    for (key, content, id, ty) in all {
        let wrong = |why: String| root.error(key, format!("{content:?} has id {id}; {why}"));
        let place: Option<&mut Option<String>> = tokens.get_mut(id as usize);
        let place = place.ok_or_else(|| wrong(format!("the embedding has {rows} rows")))?;
        if let Some(other) = place.as_ref().filter(|other| **other != content) {
            return Err(wrong(format!("{other:?} has this id too")));
        }
        (types[id as usize], *place) = (ty, Some(content));
    }
    let taken: HashSet<String> = tokens.iter().flatten().cloned().collect();
    let filler = |id: usize| Some(format!("[PAD{id}]")).filter(|filler| !taken.contains(filler));
    let spelled = tokens.into_iter().enumerate().map(|(id, token)| {
        let wrong = || root.error("added_tokens", format!("[PAD{id}] is a filler's name"));
        token.or_else(|| filler(id)).ok_or_else(wrong)
    });
    Ok((spelled.collect::<Result<_, _>>()?, types))
}

/// Returns true for the BOS before a text and for the EOS after it, if the post-processor puts them
/// there. Anything else that it adds is refused.
fn around_text(root: &Object<'_>, config: &Config) -> Result<[bool; 2], Fault> {
    let key = "post_processor";
    let Some(post) = part::<PostProcessorWrapper>(root, key)? else { return Ok([false; 2]) };
    let [before, after] = around(&post).map_err(|error| root.error(key, error.to_string()))?;
    let is = |found: &[u32], id: Option<u32>| found.is_empty() || found == id.as_slice();
    match is(&before, config.bos) && is(&after, config.eos) {
        true => Ok([before, after].map(|ids| !ids.is_empty())),
        false => Err(root.refused(key, "only BOS before and EOS after a text are understood")),
    }
}
