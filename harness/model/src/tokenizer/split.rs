//! How text is split into words before merging.

use std::borrow::Cow;

use fancy_regex::Regex;

use super::TokenizerError;
use super::byte_level::GPT_2;

/// One step; each splits what the one before left.
#[derive(Debug)]
pub(super) enum Split {
    /// At what a pattern matches.
    Pattern { pattern: Pattern, behaviour: Behaviour, invert: bool },
    /// Spaces become `replacement`, which may go before a word, and words begin with it.
    Metaspace { replacement: char, prepend: Prepend, split: bool },
    /// GPT-2's words; the bytes of each are spelled afterwards, by the model.
    Words { space_before: bool, regex: Option<Box<Regex>> },
}

#[derive(Debug)]
pub(super) enum Pattern {
    /// Not empty.
    Text(String),
    Regex(Box<Regex>),
}

/// What becomes of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// Before which words a replacement for a space is put, if they do not begin with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prepend {
    Always,
    /// The first of the text.
    First,
    Never,
}

/// Compiles a pattern of a file. Patterns are short; what compiles to megabytes is refused.
pub(super) fn regex(pattern: &str) -> Result<Box<Regex>, Box<fancy_regex::Error>> {
    let built = fancy_regex::RegexBuilder::new(pattern).delegate_size_limit(1 << 21).build();
    Ok(Box::new(built.map_err(Box::new)?))
}

impl Split {
    /// GPT-2's own pattern, as `ByteLevel` with `use_regex` has it.
    pub(super) fn words(space_before: bool, split: bool) -> Result<Self, Box<fancy_regex::Error>> {
        let regex = if split { Some(regex(GPT_2)?) } else { None };
        Ok(Split::Words { space_before, regex })
    }

    fn apply<'t>(
        &self,
        text: Cow<'t, str>,
        first: bool,
        out: &mut Vec<Cow<'t, str>>,
    ) -> Result<(), TokenizerError> {
        match self {
            Split::Pattern { pattern, behaviour, invert } => {
                let mut spans = pattern.spans(&text)?;
                spans.iter_mut().for_each(|span| span.2 ^= invert);
                out.extend(cut(&spans, *behaviour).map(|span| part(&text, span)));
            }
            Split::Metaspace { replacement, prepend, split } => {
                let mut text = text.replace(' ', replacement.encode_utf8(&mut [0; 4]));
                let prepends = match prepend {
                    Prepend::Always => true,
                    Prepend::First => first,
                    Prepend::Never => false,
                };
                if prepends && !text.starts_with(*replacement) {
                    text.insert(0, *replacement);
                }
                if *split {
                    let spans = Pattern::Text(replacement.to_string()).spans(&text)?;
                    let cuts = cut(&spans, Behaviour::MergedWithNext);
                    out.extend(cuts.map(|(from, to)| text[from..to].to_owned().into()));
                } else {
                    out.push(text.into());
                }
            }
            Split::Words { space_before, regex } => {
                let text = match *space_before && !text.starts_with(' ') {
                    true => format!(" {text}").into(),
                    false => text,
                };
                let Some(regex) = regex else {
                    out.push(text);
                    return Ok(());
                };
                let spans = matches(regex, &text)?;
                out.extend(spans.iter().map(|&(from, to, _)| part(&text, (from, to))));
            }
        }
        Ok(())
    }
}

/// A stretch of `text`, borrowed where that is.
fn part<'t>(text: &Cow<'t, str>, (from, to): (usize, usize)) -> Cow<'t, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[from..to]),
        Cow::Owned(text) => Cow::Owned(text[from..to].to_owned()),
    }
}

/// The words of `text` after all steps, none of them empty. `first` says that `text` begins the
/// input.
pub(super) fn apply<'t>(
    steps: &[Split],
    text: &'t str,
    first: bool,
) -> Result<Vec<Cow<'t, str>>, TokenizerError> {
    let mut words = vec![Cow::Borrowed(text)];
    for step in steps {
        let mut next = Vec::with_capacity(words.len());
        for (index, word) in words.into_iter().enumerate() {
            step.apply(word, first && index == 0, &mut next)?;
        }
        next.retain(|word| !word.is_empty());
        words = next;
    }
    words.retain(|word| !word.is_empty());
    Ok(words)
}

/// From, to, and whether it was matched; together the whole text.
type Span = (usize, usize, bool);

impl Pattern {
    fn spans(&self, text: &str) -> Result<Vec<Span>, TokenizerError> {
        match self {
            Pattern::Regex(regex) => matches(regex, text),
            Pattern::Text(wanted) => {
                let found = text.match_indices(wanted.as_str());
                Ok(around(found.map(|(at, found)| (at, at + found.len())), text.len()))
            }
        }
    }
}

fn matches(regex: &Regex, text: &str) -> Result<Vec<Span>, TokenizerError> {
    let mut found = Vec::new();
    for word in regex.find_iter(text) {
        let word = word.map_err(Box::new)?;
        found.push((word.start(), word.end()));
    }
    Ok(around(found.into_iter(), text.len()))
}

/// Matches with what lies between them.
fn around(found: impl Iterator<Item = (usize, usize)>, len: usize) -> Vec<Span> {
    let (mut spans, mut done) = (Vec::new(), 0);
    for (from, to) in found {
        if from > done {
            spans.push((done, from, false));
        }
        spans.push((from, to, true));
        done = to;
    }
    if done < len {
        spans.push((done, len, false));
    }
    spans
}

/// What remains of the spans.
fn cut(spans: &[Span], behaviour: Behaviour) -> impl Iterator<Item = (usize, usize)> {
    let mut cuts: Vec<(usize, usize)> = Vec::with_capacity(spans.len());
    match behaviour {
        Behaviour::Isolated => cuts.extend(spans.iter().map(|&(from, to, _)| (from, to))),
        Behaviour::Removed => {
            let kept = spans.iter().filter(|span| !span.2);
            cuts.extend(kept.map(|&(from, to, _)| (from, to)));
        }
        Behaviour::MergedWithPrevious => {
            let mut after_match = false;
            for &(from, to, matched) in spans {
                match cuts.last_mut() {
                    Some(last) if matched && !after_match => last.1 = to,
                    _ => cuts.push((from, to)),
                }
                after_match = matched;
            }
        }
        Behaviour::MergedWithNext => {
            let mut before_match = false;
            for &(from, to, matched) in spans.iter().rev() {
                match cuts.last_mut() {
                    Some(last) if matched && !before_match => last.0 = from,
                    _ => cuts.push((from, to)),
                }
                before_match = matched;
            }
            cuts.reverse();
        }
        Behaviour::Contiguous => {
            for group in spans.chunk_by(|a, b| a.2 == b.2) {
                cuts.push((group[0].0, group[group.len() - 1].1));
            }
        }
    }
    cuts.into_iter()
}
