//! SentencePiece as a GGUF file has it: the pair of neighbours whose concatenation has the highest
//! score is merged, of equal scores the leftmost. The library's BPE cannot do that: it ranks pairs,
//! not their results, and no two alike.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use tokenizers::Token;

use super::TokenizerError;

#[derive(Debug)]
pub(super) struct Scores {
    /// Tokens of text, each with the place of its score, highest first, and its id.
    pub(super) text: HashMap<String, (u32, u32)>,
    /// Bytes of the longest of them: longer pieces need not be looked up.
    pub(super) longest: usize,
    /// The tokens `<0x00>` to `<0xFF>`.
    pub(super) bytes: [Option<u32>; 256],
    pub(super) unknown: Option<u32>,
}

/// A number that is lower for a higher score and alike for equal ones.
pub(super) fn place(score: f32) -> u32 {
    // -0 and 0 are one score.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 { bits } else { !(bits | 1 << 31) }
}

impl Scores {
    /// The tokens of text in which spaces are U+2581.
    pub(super) fn tokenize(&self, text: &str) -> Result<Vec<Token>, TokenizerError> {
        let (mut tokens, mut start) = (Vec::new(), 0);
        let mut push = |id| tokens.push(Token::new(id, String::new(), (0, 0)));
        for end in self.merge(text) {
            let piece = &text[start..end];
            start = end;
            if let Some((_, id)) = self.text.get(piece) {
                push(*id);
                continue;
            }
            let bytes = piece.bytes().map(|byte| self.bytes[usize::from(byte)]);
            match bytes.collect::<Option<Vec<u32>>>() {
                Some(bytes) => bytes.into_iter().for_each(&mut push),
                None => push(
                    self.unknown
                        .ok_or_else(|| TokenizerError::Unencodable { text: piece.to_owned() })?,
                ),
            }
        }
        Ok(tokens)
    }

    /// The ends of the pieces of `text`.
    fn merge(&self, text: &str) -> Vec<usize> {
        // By the start of a piece its end and the start of the one before.
        let (mut ends, mut before) = (vec![0; text.len()], vec![0; text.len()]);
        let mut last = 0;
        for (at, c) in text.char_indices() {
            ends[at] = at + c.len_utf8();
            before[at] = std::mem::replace(&mut last, at);
        }
        let candidate = |ends: &[usize], left: usize| {
            let mid = ends[left];
            let end = *ends.get(mid)?;
            let fits = end - left <= self.longest;
            let (place, _) = fits.then(|| self.text.get(&text[left..end])).flatten()?;
            Some(Reverse((*place, left, mid, end)))
        };
        let starts = text.char_indices().map(|(at, _)| at);
        let mut queue: BinaryHeap<_> = starts.filter_map(|at| candidate(&ends, at)).collect();
        while let Some(Reverse((_, left, mid, end))) = queue.pop() {
            // One of the two may have become part of another piece meanwhile.
            if ends[left] != mid || ends[mid] != end {
                continue;
            }
            (ends[left], ends[mid]) = (end, 0);
            if let Some(next) = before.get_mut(end) {
                *next = left;
            }
            queue.extend(candidate(&ends, left));
            queue.extend((left > 0).then(|| candidate(&ends, before[left])).flatten());
        }
        let whole = |from: &usize| ends.get(*from).copied();
        std::iter::successors(whole(&0), whole).collect()
    }
}
