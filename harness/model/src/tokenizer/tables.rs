//! A vocabulary as tables for an encoder in another program: `web/tokenizer.js`.

use serde::Serialize;

use super::TokenizerError;
use crate::token_type::{CONTROL, UNKNOWN};
use crate::vocabulary::{Pre, Vocabulary};

/// Everything that turns text into ids.
#[derive(Debug, Serialize)]
pub struct Tables {
    /// Control and user-defined tokens as they are matched in the text, with their ids.
    literals: Vec<(String, u32)>,
    /// Control tokens that go before and after a text.
    around: [Vec<u32>; 2],
    #[serde(flatten)]
    model: Model,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "merges_by")]
enum Model {
    /// Byte-level BPE.
    Rank {
        /// Spellings of text, in an alphabet of a character per byte.
        pieces: Vec<String>,
        /// Their ids.
        ids: Vec<u32>,
        /// Pairs of ids, best first.
        merges: Vec<[u32; 2]>,
        /// Rules that split text into words, as JavaScript's regular expressions.
        words: Vec<String>,
        /// Text is composed before.
        composes: bool,
        /// A word that is a token is that token.
        whole_words: bool,
    },
    /// SentencePiece.
    Score {
        pieces: Vec<String>,
        ids: Vec<u32>,
        /// Lower for higher scores.
        places: Vec<u32>,
        /// Tokens of bytes.
        bytes: Vec<Option<u32>>,
        unknown: Option<u32>,
        /// A space is put before text.
        prefix: bool,
    },
}

impl Tables {
    /// The tables of a vocabulary.
    ///
    /// # Errors
    /// It is one that [`Tokenizer::new`](super::Tokenizer::new) refuses.
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let scored = vocabulary.prepare()?.0;
        let around = vocabulary.around(scored)?;
        // As the library matches them: of two spellings of a token the last alone.
        let literals = vocabulary.literals(scored)?;
        let literals = literals.get_added_tokens_decoder().iter();
        let mut literals: Vec<_> =
            literals.map(|(id, token)| (token.content.clone(), *id)).collect();
        literals.sort_unstable_by_key(|(_, id)| *id);
        let model = match scored {
            true => scores(&vocabulary),
            false => ranks(&vocabulary)?,
        };
        Ok(Self { literals, around, model })
    }
}

fn scores(vocabulary: &Vocabulary) -> Model {
    let scores = vocabulary.scores(vocabulary.unknown_token());
    let mut text: Vec<(String, (u32, u32))> = scores.text.into_iter().collect();
    text.sort_unstable_by_key(|(_, (_, id))| *id);
    let (pieces, rest): (_, Vec<(u32, u32)>) = text.into_iter().unzip();
    let (places, ids) = rest.into_iter().unzip();
    let (bytes, unknown) = (scores.bytes.to_vec(), scores.unknown);
    Model::Score { pieces, ids, places, bytes, unknown, prefix: vocabulary.has_prefix() }
}

fn ranks(vocabulary: &Vocabulary) -> Result<Model, TokenizerError> {
    let pre = Pre::find(vocabulary.pre.as_deref())?;
    let text = vocabulary.text_tokens();
    let id = |spelling: &String| text[spelling];
    let merges = vocabulary.pairs(&text)?;
    let merges = merges.iter().map(|(left, right)| [id(left), id(right)]).collect();
    let all = vocabulary.iter().filter(|&(_, _, ty)| !matches!(ty, UNKNOWN | CONTROL));
    let (ids, pieces) = all.map(|(id, piece, _)| (id, piece.to_owned())).unzip();
    Ok(Model::Rank {
        pieces,
        ids,
        merges,
        words: pre.patterns.iter().map(|pattern| for_javascript(pattern)).collect(),
        composes: pre.composes,
        whole_words: pre.whole_words,
    })
}

/// A pattern in the words of JavaScript, where `\s` has other characters and older engines no
/// `(?i:`. Letters of either case are those that fold to one another: `ſ` is an `s`.
fn for_javascript(pattern: &str) -> String {
    let mut parts = pattern.split("(?i:");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (inner, rest) = part.split_once(')').unwrap_or((part, ""));
        all.push_str("(?:");
        for c in inner.chars() {
            match c {
                's' => all.push_str("[sSſ]"),
                'a'..='z' => all.extend(['[', c, c.to_ascii_uppercase(), ']']),
                _ => all.push(c),
            }
        }
        all.push(')');
        all.push_str(rest);
    }
    let all = all.replace(r"\x{", r"\u{");
    all.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"\P{White_Space}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_javascripts() {
        assert_eq!(
            for_javascript(r"(?i:'s|'ll)?|\x{1F5F}\s+(?!\S)"),
            r"(?:'[sSſ]|'[lL][lL])?|\u{1F5F}\p{White_Space}+(?!\P{White_Space})"
        );
    }
}
