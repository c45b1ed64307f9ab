//! `tokenizer.json` in the words of GGUF's tokenizer metadata: byte-level BPE with a known
//! pre-tokenizer. An unknown setting is refused; a guess would silently give other ids.

use std::collections::HashSet;

use serde_json::Value;

use crate::config::{Config, Keys};
use crate::fault::Fault;
use crate::json::{Object, shown};
use crate::token_type::{CONTROL, NORMAL, UNUSED, USER_DEFINED};
use crate::tokenizer::around;
use crate::vocabulary::{PRE, Pre, Vocabulary};

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
    if model.bool("byte_fallback")? == Some(true) {
        let why = "bytes of their own are SentencePiece's, whose scores are not in this file";
        return Err(model.refused("byte_fallback", why));
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model.text(key)?.is_some_and(|text| !text.is_empty()) {
            return Err(model.refused(key, "byte-level BPE has none"));
        }
    }
    if model.f64("dropout")?.is_some_and(|p| p != 0.0) {
        return Err(model.refused("dropout", "merges are not left to chance here"));
    }
    let split = pre_tokenizer(&root)?;
    if model.bool("ignore_merges")?.unwrap_or(false) != split.whole_words {
        let why = format!("{} has {}", split.names[0], split.whole_words);
        return Err(model.refused("ignore_merges", why));
    }
    normalizer(&root)?;
    let (tokens, token_types) = tokens(&root, &model, config.vocab)?;
    let merges = merges(&model)?;
    let add_bos = Some(begins_with_bos(&root, config)?);
    Ok(Vocabulary {
        model: "gpt2".to_owned(),
        pre: Some(split.names[0].to_owned()),
        tokens,
        scores: Vec::new(),
        token_types,
        merges,
        bos: config.bos,
        eos: config.eos,
        unknown: None,
        add_bos,
        add_space_prefix: None,
    })
}

fn normalizer(root: &Object<'_>) -> Result<(), Fault> {
    let Some(normalizer) = root.object("normalizer")? else { return Ok(()) };
    match normalizer.text("type")? {
        Some("NFC") => Ok(()),
        _ => Err(normalizer.refused("type", "NFC or none is understood")),
    }
}

fn pre_tokenizer(root: &Object<'_>) -> Result<&'static Pre, Fault> {
    let key = "pre_tokenizer";
    let pre = root.object(key)?.ok_or_else(|| root.missing(key))?;
    let parts = pre.array("pretokenizers")?.map_or(&[][..], Vec::as_slice);
    let unknown = || root.refused(key, "a split of Llama 3 or Qwen, then bytes, is understood");
    let [split, bytes] = parts else { return Err(unknown()) };
    let (split, bytes) = (Object::root(split)?, Object::root(bytes)?);
    let pattern = split.object("pattern")?.ok_or_else(unknown)?;
    let plain = split.text("type")? == Some("Split")
        && split.text("behavior")? == Some("Isolated")
        && split.bool("invert")? != Some(true)
        && bytes.text("type")? == Some("ByteLevel")
        && bytes.bool("add_prefix_space")? == Some(false)
        && bytes.bool("use_regex")? == Some(false);
    let pattern = pattern.text("Regex")?;
    // Llama 3's and Qwen's.
    let found = PRE[..2].iter().find(|pre| Some(pre.pattern) == pattern);
    found.filter(|_| plain).ok_or_else(unknown)
}

fn tokens(
    root: &Object<'_>,
    model: &Object<'_>,
    vocab: usize,
) -> Result<(Vec<String>, Vec<i32>), Fault> {
    let mut tokens: Vec<Option<String>> = vec![None; vocab];
    let mut types = vec![NORMAL; vocab];
    let key = "vocab";
    let map = model.object(key)?.ok_or_else(|| model.missing(key))?;
    for (spelling, _) in map.iter() {
        let id = map.u32(spelling)?.ok_or_else(|| map.missing(spelling))?;
        let place = tokens.get_mut(id as usize);
        let place = place.ok_or_else(|| map.refused(spelling, beyond(vocab)))?;
        if let Some(other) = place.replace(spelling.clone()) {
            return Err(map.refused(spelling, format!("{other:?} has this id too")));
        }
    }
    let key = "added_tokens";
    for entry in root.array(key)?.map_or(&[][..], Vec::as_slice) {
        let token = Object::root(entry)?;
        let wrong = |why: String| root.error(key, format!("{}: {why}", shown(entry)));
        let content = token.text("content")?.ok_or_else(|| wrong("has no content".to_owned()))?;
        let id = token.u32("id")?.ok_or_else(|| wrong("has no id".to_owned()))? as usize;
        for flag in ["single_word", "lstrip", "rstrip"] {
            if token.bool(flag)? == Some(true) {
                return Err(wrong(format!("{flag} is not implemented")));
            }
        }
        let place = tokens.get_mut(id).ok_or_else(|| wrong(beyond(vocab)))?;
        if let Some(other) = place.as_ref().filter(|other| *other != content) {
            return Err(wrong(format!("{other:?} has this id too")));
        }
        *place = Some(content.to_owned());
        types[id] = if token.bool("special")? == Some(true) { CONTROL } else { USER_DEFINED };
    }
    // Embeddings are padded to round numbers of rows; GGUF gives each a spelling.
    let taken: HashSet<String> = tokens.iter().flatten().cloned().collect();
    let spelled = tokens.into_iter().enumerate().map(|(id, token)| match token {
        Some(token) => Ok(token),
        None => {
            types[id] = UNUSED;
            let filler = format!("[PAD{id}]");
            match taken.contains(&filler) {
                true => Err(root.error(key, format!("{filler:?} is a token, and a filler's name"))),
                false => Ok(filler),
            }
        }
    });
    Ok((spelled.collect::<Result<_, _>>()?, types))
}

fn beyond(vocab: usize) -> String {
    format!("the embedding has {vocab} rows")
}

/// A merge is two spellings, with a space between in older files.
fn merges(model: &Object<'_>) -> Result<Vec<String>, Fault> {
    let key = "merges";
    let list = model.array(key)?.ok_or_else(|| model.missing(key))?;
    let merge = |entry: &Value| match entry {
        Value::String(merge) => Some(merge.clone()),
        Value::Array(pair) => match &pair[..] {
            [Value::String(a), Value::String(b)] => Some(format!("{a} {b}")),
            _ => None,
        },
        _ => None,
    };
    let wrong = |entry| model.error(key, format!("{} is no merge", shown(entry)));
    list.iter().map(|entry| merge(entry).ok_or_else(|| wrong(entry))).collect()
}

/// Returns true if the post-processor puts the BOS before a text. Anything else that it adds is
/// refused.
fn begins_with_bos(root: &Object<'_>, config: &Config) -> Result<bool, Fault> {
    let key = "post_processor";
    let only = "only the BOS before a text is understood";
    let Some(post) = root.get(key) else { return Ok(false) };
    let added = serde_json::from_value(post.clone()).map_err(|error| error.to_string());
    let added = added.and_then(|post| around(&post).map_err(|error| error.to_string()));
    let [before, after] = added.map_err(|error| root.refused(key, format!("{only}; {error}")))?;
    match (&before[..], &after[..]) {
        ([], []) => Ok(false),
        ([id], []) if Some(*id) == config.bos => Ok(true),
        _ => Err(root.refused(key, only)),
    }
}
