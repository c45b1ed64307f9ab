//! A checkpoint on disk, mapped.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::chat::ChatError;
use super::config::{Config, ConfigError};
use super::gguf::{Gguf, GgufError, TensorInfo};
use super::tokenizer::{TokenizerError, Vocabulary};

/// Why a checkpoint could not be read or written. Every message begins with the path; the cause is
/// part of the message.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file system refused.
    #[error("{}: cannot {action}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The refusal.
        error: io::Error,
    },
    /// The bytes are no GGUF file that can be read.
    #[error("{}: {error}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: GgufError,
    },
    /// The file holds no model that is understood.
    #[error("{}: {error}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ConfigError,
    },
    /// The file holds no tokenizer that can be used.
    #[error("{}: {error}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: TokenizerError,
    },
    /// The file holds no chat template that can be used.
    #[error("{}: {error}", path.display())]
    Chat {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ChatError,
    },
    /// A file to be written is there already.
    #[error("{}: exists already and is not overwritten; remove it first", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// A checkpoint: the mapped bytes and the index over them.
#[derive(Debug)]
pub struct ModelFile {
    /// Where it was opened.
    pub path: PathBuf,
    /// The index.
    pub gguf: Gguf,
    map: Mmap,
}

impl ModelFile {
    /// Maps a file and reads its index.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is no valid GGUF.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let io = |action| move |error| ModelError::Io { path: path.to_owned(), action, error };
        let file = File::open(path).map_err(io("open"))?;
        // SAFETY: the map is read-only and lives as long as `self`. Another process that cuts the
        // file meanwhile can end this one with SIGBUS, as for every program that maps its input;
        // writing into it can change values under us, which every reader of the bytes tolerates
        // because the index is owned and all ranges were checked against the mapped length.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map"))?;
        let gguf =
            Gguf::parse(&map).map_err(|error| ModelError::Gguf { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), gguf, map })
    }

    /// The shape of the model, checked against the tensors.
    ///
    /// # Errors
    /// The file holds no model that is understood; the message names the key or tensor.
    pub fn config(&self) -> Result<Config, ModelError> {
        Config::from_gguf(&self.gguf, &self.map)
            .map_err(|error| ModelError::Config { path: self.path.clone(), error })
    }

    /// What the file's tokenizer is made of, if it has one.
    ///
    /// # Errors
    /// An entry has another type than it must have.
    pub fn vocabulary(&self) -> Result<Option<Vocabulary>, ModelError> {
        Vocabulary::from_gguf(&self.gguf, &self.map)
            .map_err(|error| ModelError::Gguf { path: self.path.clone(), error })
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The data of a tensor of this file.
    ///
    /// # Panics
    /// If the tensor is that of another, longer file.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.map[tensor.range.clone()]
    }
}

/// A file's bytes, if there are at most `longest`.
pub(super) fn read(path: &Path, longest: u64) -> Result<Vec<u8>, ModelError> {
    let io = |action| move |error| ModelError::Io { path: path.to_owned(), action, error };
    let file = File::open(path).map_err(io("open"))?;
    let mut bytes = Vec::new();
    file.take(longest + 1).read_to_end(&mut bytes).map_err(io("read"))?;
    if bytes.len() as u64 > longest {
        let error = io::Error::other(format!("it has more than {longest} bytes"));
        return Err(io("read")(error));
    }
    Ok(bytes)
}
