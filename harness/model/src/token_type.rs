//! Types of tokens in `tokenizer.ggml.token_type`; 0 is undefined.

/// A piece of text.
pub const NORMAL: i32 = 1;
/// Stands for text that no token holds.
pub const UNKNOWN: i32 = 2;
/// Marks a place, such as the beginning of a text; is no text itself.
pub const CONTROL: i32 = 3;
/// Text that is always one token.
pub const USER_DEFINED: i32 = 4;
/// Fills the vocabulary up.
pub const UNUSED: i32 = 5;
/// One byte of a text.
pub const BYTE: i32 = 6;
