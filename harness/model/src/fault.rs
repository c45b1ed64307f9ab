//! Faults of a checkpoint's contents, each with its place.

/// A fault in a file's contents. The message names the byte offset, where there is one, and the
/// header field, key or tensor concerned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{site}: {why}", .offset.map_or_else(String::new, |at| format!("byte {at}, ")))]
pub struct Fault {
    /// Offset from the start of the file at which the fault was seen.
    pub offset: Option<usize>,
    /// The part of the file concerned, such as "metadata `llama.block_count`".
    pub site: String,
    /// The fault.
    pub why: String,
}

impl Fault {
    /// A fault at an offset.
    pub(crate) fn at(offset: usize, site: impl Into<String>, why: impl Into<String>) -> Self {
        Self { offset: Some(offset), site: site.into(), why: why.into() }
    }

    /// A fault without an offset.
    pub(crate) fn of(site: impl Into<String>, why: impl Into<String>) -> Self {
        Self { offset: None, site: site.into(), why: why.into() }
    }

    /// A fault of a tensor, without an offset.
    pub(crate) fn of_tensor(name: &str, why: impl Into<String>) -> Self {
        Self::of(format!("tensor `{name}`"), why)
    }
}
