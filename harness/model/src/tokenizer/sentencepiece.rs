//! SentencePiece: characters merged by score, spaces as U+2581, bytes for what has no token.

use super::merge::{self, Merge, Symbol};
use super::tokens::{self, Kind, Tokens};
use super::{TokenizerError, key};

/// How a space is spelled.
pub(super) const SPACE: char = '▁';

#[derive(Debug)]
pub(super) struct SentencePiece {
    /// Per token the place of its score among all scores, highest first; equal scores share it.
    ranks: Vec<u32>,
    /// Bytes of the longest token: what is longer need not be looked up.
    longest: usize,
}

impl SentencePiece {
    pub(super) fn new(tokens: &Tokens, scores: &[f32]) -> Result<Self, TokenizerError> {
        tokens::same_length(key::SCORES, scores.len(), tokens.len(), false)?;
        let mut order: Vec<(f32, u32)> = Vec::with_capacity(scores.len());
        for (id, &score) in (0..).zip(scores) {
            if score.is_nan() {
                return Err(TokenizerError::Score { id });
            }
            // -0 and 0 are one score, though total_cmp tells them apart.
            order.push((score + 0.0, id));
        }
        order.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut ranks = vec![0; order.len()];
        for (place, same) in (0..).zip(order.chunk_by(|a, b| a.0 == b.0)) {
            for &(_, id) in same {
                ranks[id as usize] = place;
            }
        }
        let text = tokens.iter().filter(|(.., kind)| *kind == Kind::Text);
        let longest = text.map(|(_, piece, _)| piece.len()).max().unwrap_or(0);
        Ok(Self { ranks, longest })
    }

    pub(super) fn encode(
        &self,
        tokens: &Tokens,
        text: &str,
        prefix: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        // Not a user-defined token: a prefix must not become one, decoding could not tell it apart.
        let find =
            |piece: &str| tokens.find(piece).filter(|&id| tokens.kind(id) == Some(Kind::Text));
        let escape = |c| if c == ' ' { SPACE } else { c };
        let escaped: String =
            prefix.then_some(SPACE).into_iter().chain(text.chars().map(escape)).collect();
        let symbols: Vec<Symbol> = escaped
            .char_indices()
            .map(|(start, c)| {
                let end = start + c.len_utf8();
                Symbol { start, end, id: find(&escaped[start..end]) }
            })
            .collect();
        let merged = merge::merge(&symbols, |left, right| {
            let together = left.start..right.end;
            let fits = together.len() <= self.longest;
            let id = fits.then(|| find(&escaped[together])).flatten()?;
            Some(Merge { rank: self.ranks[id as usize], id })
        });
        for symbol in merged {
            let piece = &escaped[symbol.start..symbol.end];
            let bytes = || piece.bytes().map(|byte| tokens.byte(byte)).collect::<Option<Vec<_>>>();
            match symbol.id {
                Some(id) => ids.push(id),
                None => match bytes() {
                    Some(bytes) => ids.extend(bytes),
                    None => ids.push(tokens.unknown(piece)?),
                },
            }
        }
        Ok(())
    }
}
