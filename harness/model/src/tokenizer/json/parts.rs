//! Normalisers, pre-tokenisers, post-processors and decoders.

use super::node::Node;
use crate::tokenizer::TokenizerError;
use crate::tokenizer::normalize::{Form, Normalize};
use crate::tokenizer::spelling::{Bytes, Spelling};
use crate::tokenizer::split::{self, Behaviour, Pattern, Prepend, Split};
use crate::tokenizer::stream::Strip;

/// Longest pattern that is compiled; the longest public one has about 400 bytes.
const LONGEST_PATTERN: usize = 4096;

pub(super) fn normalizers(node: &Node<'_>) -> Result<Vec<Normalize>, TokenizerError> {
    let one = |part: &Node<'_>| {
        let form = |form| part.only(&[]).map(|()| Normalize::Form(form));
        match part.ty()? {
            "NFC" => form(Form::Nfc),
            "NFD" => form(Form::Nfd),
            "NFKC" => form(Form::Nfkc),
            "NFKD" => form(Form::Nfkd),
            "Replace" => {
                let (from, to) = replace(part)?;
                Ok(Normalize::Replace { from, to })
            }
            "Prepend" => {
                part.only(&["prepend"])?;
                Ok(Normalize::Prepend(part.get("prepend")?.str()?.to_owned()))
            }
            _ => Err(part.unsupported("Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend")),
        }
    };
    node.flattened("normalizers")?.iter().map(one).collect()
}

/// The string that is replaced, which is not empty, and what by.
fn replace(part: &Node<'_>) -> Result<(String, String), TokenizerError> {
    part.only(&["pattern", "content"])?;
    let pattern = part.get("pattern")?;
    pattern.only(&["String"])?;
    let from = pattern.get("String")?;
    if from.str()?.is_empty() {
        return Err(from.error("is empty"));
    }
    Ok((from.str()?.to_owned(), part.get("content")?.str()?.to_owned()))
}

/// The steps, and whether words are then spelled byte by byte.
pub(super) fn splits(node: &Node<'_>) -> Result<(Vec<Split>, bool), TokenizerError> {
    let mut splits = Vec::new();
    let mut byte_level = false;
    for part in &node.flattened("pretokenizers")? {
        if byte_level {
            return Err(part.error("follows ByteLevel, which must be the last"));
        }
        let compiles = |e: Box<fancy_regex::Error>| part.error(format!("does not compile: {e}"));
        splits.push(match part.ty()? {
            "Split" => {
                part.only(&["pattern", "behavior", "invert"])?;
                Split::Pattern {
                    pattern: pattern(&part.get("pattern")?)?,
                    behaviour: behaviour(&part.get("behavior")?)?,
                    invert: part.get("invert")?.flag(false)?,
                }
            }
            "ByteLevel" => {
                part.only(&["add_prefix_space", "trim_offsets", "use_regex"])?;
                byte_level = true;
                let space_before = part.get("add_prefix_space")?.flag(true)?;
                Split::words(space_before, part.get("use_regex")?.flag(true)?).map_err(compiles)?
            }
            "Metaspace" => {
                let (replacement, prepend, split) = metaspace(part)?;
                Split::Metaspace { replacement, prepend, split }
            }
            _ => return Err(part.unsupported("Sequence, Split, ByteLevel, Metaspace")),
        });
    }
    Ok((splits, byte_level))
}

fn pattern(node: &Node<'_>) -> Result<Pattern, TokenizerError> {
    node.only(&["String", "Regex"])?;
    let (text, regex) = (node.get("String")?, node.get("Regex")?);
    let given = if text.is_null() { &regex } else { &text };
    if !text.is_null() && !regex.is_null() {
        return Err(node.error("has both String and Regex"));
    }
    match given.str()? {
        "" => Err(given.error("is empty")),
        long if long.len() > LONGEST_PATTERN => {
            Err(given.error(format!("has {} bytes; at most {LONGEST_PATTERN} fit", long.len())))
        }
        plain if regex.is_null() => Ok(Pattern::Text(plain.to_owned())),
        pattern => {
            let compiled = split::regex(pattern);
            Ok(Pattern::Regex(compiled.map_err(|e| given.error(format!("does not compile: {e}")))?))
        }
    }
}

fn behaviour(node: &Node<'_>) -> Result<Behaviour, TokenizerError> {
    Ok(match node.str()? {
        "Removed" => Behaviour::Removed,
        "Isolated" => Behaviour::Isolated,
        "MergedWithPrevious" => Behaviour::MergedWithPrevious,
        "MergedWithNext" => Behaviour::MergedWithNext,
        "Contiguous" => Behaviour::Contiguous,
        other => {
            return Err(node.error(format!(
                "`{other}` is not supported; supported are Removed, Isolated, \
                 MergedWithPrevious, MergedWithNext, Contiguous"
            )));
        }
    })
}

/// Replacement, where it is put before words, and whether it splits.
fn metaspace(part: &Node<'_>) -> Result<(char, Prepend, bool), TokenizerError> {
    part.only(&["replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"])?;
    let scheme = part.get("prepend_scheme")?;
    let prepend = match scheme.is_null() {
        true => Prepend::Always,
        false => match scheme.str()? {
            "always" => Prepend::Always,
            "first" => Prepend::First,
            "never" => Prepend::Never,
            other => {
                return Err(scheme.error(format!(
                    "`{other}` is not supported; supported are always, first, never"
                )));
            }
        },
    };
    // An older name of the same setting.
    let older = part.get("add_prefix_space")?;
    let prepend = match older.flag(true)? {
        true => prepend,
        false if scheme.is_null() || prepend == Prepend::Never => Prepend::Never,
        false => return Err(older.error("is false, but prepend_scheme is not `never`")),
    };
    Ok((part.get("replacement")?.char()?, prepend, part.get("split")?.flag(true)?))
}

/// What goes before and after a text. `is` says whether an id has a spelling.
pub(super) fn around(
    node: &Node<'_>,
    is: impl Fn(u32, &str) -> bool,
) -> Result<[Vec<u32>; 2], TokenizerError> {
    let mut around = None;
    for part in &node.flattened("processors")? {
        match part.ty()? {
            // Moves offsets, no ids.
            "ByteLevel" => part.only(&["add_prefix_space", "trim_offsets", "use_regex"])?,
            "TemplateProcessing" if around.is_none() => around = Some(template(part, &is)?),
            "TemplateProcessing" => return Err(part.error("is a second template")),
            _ => return Err(part.unsupported("Sequence, ByteLevel, TemplateProcessing")),
        }
    }
    Ok(around.unwrap_or_default())
}

fn template(
    part: &Node<'_>,
    is: &impl Fn(u32, &str) -> bool,
) -> Result<[Vec<u32>; 2], TokenizerError> {
    part.only(&["single", "pair", "special_tokens"])?;
    let (mut ids, mut texts) = ([Vec::new(), Vec::new()], 0);
    for entry in part.get("single")?.list()? {
        let token = entry.get("SpecialToken")?;
        if token.is_null() {
            let sequence = entry.get("Sequence")?.get("id")?;
            if sequence.str()? != "A" || texts == 1 {
                return Err(sequence.error("expected one text, A"));
            }
            texts = 1;
            continue;
        }
        let name = token.get("id")?;
        let declared = part.get("special_tokens")?.get(name.str()?)?;
        let (listed, spelled) = (declared.get("ids")?.list()?, declared.get("tokens")?.list()?);
        if listed.len() != spelled.len() {
            return Err(declared.error("has not as many ids as tokens"));
        }
        for (id, spelling) in listed.iter().zip(&spelled) {
            if !is(id.number()?, spelling.str()?) {
                return Err(id.error(format!("is not the id of {:?}", spelling.str()?)));
            }
            ids[texts].push(id.number()?);
        }
    }
    match texts {
        1 => Ok(ids),
        _ => Err(part.get("single")?.error("has no text, A")),
    }
}

/// How tokens become text.
pub(super) struct Decoder {
    pub(super) spelling: Spelling,
    /// `<0xNN>` is a byte.
    pub(super) bytes: bool,
    pub(super) strip: Strip,
}

pub(super) fn decoder(node: &Node<'_>) -> Result<Decoder, TokenizerError> {
    const SUPPORTED: &str =
        "ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse, Strip in this order";
    if node.is_null() {
        return Err(node.error(format!("there is none; supported are {SUPPORTED}")));
    }
    let strip = |what, most| Strip { what, most, every_run: false };
    let parts = node.flattened("decoders")?;
    if let [part] = &parts[..] {
        match part.ty()? {
            "ByteLevel" => {
                part.only(&["add_prefix_space", "trim_offsets", "use_regex"])?;
                let spelling = Spelling::Bytes(Bytes::new(true));
                return Ok(Decoder { spelling, bytes: false, strip: strip(' ', 0) });
            }
            "Metaspace" => {
                let (replacement, prepend, _) = metaspace(part)?;
                let spelling =
                    Spelling::Metaspace { replacement, drops: prepend != Prepend::Never };
                return Ok(Decoder { spelling, bytes: false, strip: strip(' ', 0) });
            }
            _ => {}
        }
    }
    // Each works on what the one before left; in this order that can be done token by token.
    let (mut replaces, mut bytes, mut stripped, mut last) = (Vec::new(), false, strip(' ', 0), 0);
    for part in &parts {
        let place = match part.ty()? {
            "Replace" => 0,
            "ByteFallback" => 1,
            "Fuse" => 2,
            "Strip" => 3,
            _ => return Err(part.unsupported(SUPPORTED)),
        };
        let again = place == last && place != 0;
        if place < last || again || (place == 3 && last != 2) {
            return Err(part.error(format!("is out of order; supported are {SUPPORTED}")));
        }
        last = place;
        match place {
            0 => replaces.push(replace(part)?),
            1 => {
                part.only(&[])?;
                bytes = true;
            }
            2 => part.only(&[])?,
            _ => {
                part.only(&["content", "start", "stop"])?;
                let stop = part.get("stop")?;
                if stop.number()? != 0 {
                    return Err(stop.error("is not supported; only 0 is"));
                }
                let most = part.get("start")?.number()? as usize;
                stripped = strip(part.get("content")?.char()?, most);
            }
        }
    }
    Ok(Decoder { spelling: Spelling::Pieces { replace: replaces }, bytes, strip: stripped })
}
