//! Errors of checkpoints, each with the path or the place that it is about.

use std::io;
use std::path::{Path, PathBuf};

use super::fault::Fault;

/// A fault in reading or writing a checkpoint. Every message begins with the path; the cause is
/// part of the message.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct ModelError {
    /// The file or folder.
    pub path: PathBuf,
    /// The fault.
    pub kind: ModelErrorKind,
}

impl ModelError {
    /// Puts the path before the fault.
    pub(super) fn at<E: Into<ModelErrorKind>>(path: &Path) -> impl Fn(E) -> Self + Copy {
        move |error| Self { path: path.to_owned(), kind: error.into() }
    }
}

/// A fault of a checkpoint's file or folder.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum ModelErrorKind {
    /// The file system refused to read.
    #[error("cannot {action}: {error}")]
    Io { action: &'static str, error: io::Error },
    /// The contents of a file are not as they must be, or hold no model that is understood.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The files of a checkpoint do not make one.
    #[error("{0}")]
    Folder(String),
    /// The file holds no tokenizer that can be used.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The file holds no chat template that can be used.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The file system refused to write.
    #[error("cannot {action}: {error}")]
    Output { action: &'static str, error: io::Error },
    /// A file to be written is there already.
    #[error("exists already and is not overwritten; remove it first")]
    Exists,
}

impl From<String> for ModelErrorKind {
    fn from(why: String) -> Self {
        Self::Folder(why)
    }
}

#[cfg(feature = "text")]
/// A vocabulary that cannot be used, or text that cannot be encoded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum TokenizerError {
    /// A fault of a vocabulary, at a metadata key or at a place in `tokenizer.json`.
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("{text:?} has no token, its bytes have none, and there is no unknown token")]
    Unencodable { text: String },
    #[error("{found} bytes of white space in a row; at most {limit} can be split into words")]
    Spaces { found: usize, limit: usize },
}

#[cfg(feature = "text")]
/// The reason why a chat template cannot be used, with its line where there is one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ChatError(pub(super) String);
