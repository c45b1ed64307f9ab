//! Tokens to text as they come, whole characters only.

use super::Tokenizer;
use super::tokens::Kind;

/// What a tokenizer takes off the beginning of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strip {
    /// The character.
    pub(super) what: char,
    /// How many of it at most.
    pub(super) most: usize,
    /// Also after every control token, unless a user-defined token follows.
    pub(super) every_run: bool,
}

/// The text of tokens that come one after another: what [`Tokenizer::decode`] gives for all of
/// them, in parts. A character that is spelled by several tokens is held back until it is whole;
/// bytes that cannot become UTF-8 any more show as U+FFFD.
#[derive(Debug, Clone)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// The beginning of a character.
    bytes: Vec<u8>,
    /// Characters that may still be taken off.
    strip: usize,
    first: bool,
    /// No token since the last control token.
    fresh: bool,
}

impl<'t> TextStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, bytes: Vec::new(), strip: 0, first: true, fresh: true }
    }

    /// The text that `id` completes; empty where it only begins a character or is a control token.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        let kind = self.tokenizer.tokens.kind(id);
        if kind == Some(Kind::Control) {
            self.flush(&mut text);
            self.fresh = true;
            return text;
        }
        let Strip { most, every_run, .. } = self.tokenizer.strip;
        if self.fresh && (self.first || every_run) {
            let keeps = every_run && kind == Some(Kind::UserDefined);
            self.strip = if keeps { 0 } else { most };
        }
        self.tokenizer.push_bytes(id, self.first, &mut self.bytes);
        (self.first, self.fresh) = (false, false);
        self.drain(&mut text);
        text
    }

    /// What is left when no more tokens come: U+FFFD for a character that was not finished.
    pub fn finish(mut self) -> String {
        let mut text = String::new();
        self.flush(&mut text);
        text
    }

    /// Moves what is whole, or can no longer become so, to `text`.
    fn drain(&mut self, text: &mut String) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut rest = &bytes[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => return self.show(whole, text),
                Err(error) => {
                    let (whole, after) = rest.split_at(error.valid_up_to());
                    self.show(&String::from_utf8_lossy(whole), text);
                    let Some(invalid) = error.error_len() else {
                        self.bytes = after.to_vec();
                        return;
                    };
                    self.show("\u{fffd}", text);
                    rest = &after[invalid..];
                }
            }
        }
    }

    fn flush(&mut self, text: &mut String) {
        if !self.bytes.is_empty() {
            self.bytes.clear();
            self.show("\u{fffd}", text);
        }
    }

    fn show(&mut self, whole: &str, text: &mut String) {
        for c in whole.chars() {
            let c = self.tokenizer.spelling.shown(c);
            if self.strip > 0 && c == self.tokenizer.strip.what {
                self.strip -= 1;
            } else {
                self.strip = 0;
                text.push(c);
            }
        }
    }
}
