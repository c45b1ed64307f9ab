//! Tokens matched in the text as they are spelled, before any merging.

use std::collections::HashMap;

use super::sentencepiece::SPACE;
use super::tokens::{Kind, Tokens};

/// A stretch of text, or a token that was spelled in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Text(&'t str),
    Token(u32),
}

/// A trie over the bytes of user-defined, control and unknown tokens. Node 0 is the root.
#[derive(Debug, Default)]
pub(super) struct Literals {
    edges: HashMap<(usize, u8), usize>,
    /// The token that ends at a node, and whether it takes `special` to match it.
    ends: HashMap<usize, (u32, bool)>,
}

impl Literals {
    /// With `escaped`, U+2581 in the spelling of a user-defined token stands for a space.
    pub(super) fn new(tokens: &Tokens, escaped: bool) -> Self {
        let mut literals = Self::default();
        for (id, piece, kind) in tokens.iter() {
            match kind {
                Kind::Text | Kind::Byte(_) => {}
                Kind::Control | Kind::Unknown => literals.insert(piece, id, true),
                Kind::UserDefined if escaped => {
                    literals.insert(&piece.replace(SPACE, " "), id, false);
                }
                Kind::UserDefined => literals.insert(piece, id, false),
            }
        }
        literals
    }

    /// Adds a token; with `special` it is matched only where that is asked for. Of two that are
    /// spelled alike the first stands.
    pub(super) fn insert(&mut self, spelling: &str, id: u32, special: bool) {
        if spelling.is_empty() {
            return;
        }
        let mut node = 0;
        for byte in spelling.bytes() {
            // Every edge leads to a node of its own, so their number is the next free name.
            let fresh = self.edges.len() + 1;
            node = *self.edges.entry((node, byte)).or_insert(fresh);
        }
        self.ends.entry(node).or_insert((id, special));
    }

    /// The longest token that `text` begins with, and its length.
    fn longest(&self, text: &str, special: bool) -> Option<(usize, u32)> {
        let mut node = 0;
        let mut found = None;
        for (index, byte) in text.bytes().enumerate() {
            let Some(&next) = self.edges.get(&(node, byte)) else { break };
            node = next;
            if let Some(&(id, _)) = self.ends.get(&node).filter(|end| special || !end.1) {
                found = Some((index + 1, id));
            }
        }
        found
    }

    /// `text` in parts, none of them empty.
    pub(super) fn split<'t>(&self, text: &'t str, special: bool) -> impl Iterator<Item = Part<'t>> {
        let mut rest = text;
        let mut pending = None;
        std::iter::from_fn(move || {
            if let Some(id) = pending.take() {
                return Some(Part::Token(id));
            }
            let found = rest
                .char_indices()
                .find_map(|(at, _)| Some((at, self.longest(&rest[at..], special)?)));
            let (before, after) = match found {
                Some((at, (length, id))) => {
                    pending = Some(id);
                    (&rest[..at], &rest[at + length..])
                }
                None => (rest, ""),
            };
            rest = after;
            match before {
                "" => pending.take().map(Part::Token),
                text => Some(Part::Text(text)),
            }
        })
    }
}
