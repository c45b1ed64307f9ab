//! Errors of records and of figures computed from them.

use std::path::PathBuf;

/// A record that cannot be read, written or compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The records contradict themselves or each other.
    #[error("{0}")]
    Usage(String),
    /// Reading or writing a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps the system's error for a file; for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Error::Io { path: path.into(), source }
    }
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
