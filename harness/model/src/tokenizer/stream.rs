//! Tokens to text as they come, whole characters only.

use super::Tokenizer;

/// The text of tokens that come one after another: the result of [`Tokenizer::decode`] for all of
/// them, in parts. A character that is spelled by several tokens is held back until it is whole;
/// bytes that cannot become UTF-8 any more show as U+FFFD.
#[derive(Debug, Clone)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// The beginning of a character.
    bytes: Vec<u8>,
    /// No token of text came yet.
    first: bool,
}

impl<'t> TextStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, bytes: Vec::new(), first: true }
    }

    /// The text that `id` completes; empty where it only begins a character or is a control token.
    pub fn push(&mut self, id: u32) -> String {
        if !self.tokenizer.push_bytes(id, self.first, &mut self.bytes) {
            return self.take(true);
        }
        self.first = false;
        self.take(false)
    }

    /// Returns the rest after the last token: U+FFFD for a character that was not finished.
    pub fn finish(mut self) -> String {
        self.take(true)
    }

    /// Takes the text that is complete or can no longer become so; all of it at an `end`.
    fn take(&mut self, end: bool) -> String {
        let (mut text, mut done) = (String::new(), 0);
        for chunk in self.bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let rest = chunk.invalid();
            let last = done + rest.len() == self.bytes.len();
            let begun = str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            if rest.is_empty() || (begun && last && !end) {
                break;
            }
            text.push('\u{fffd}');
            done += rest.len();
        }
        self.bytes.drain(..done);
        text
    }
}
