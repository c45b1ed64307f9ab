//! A checkpoint on disk, mapped.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::Config;
use super::error::ModelError;
use super::folder::{self, Folder};
use super::gguf::{Gguf, TensorInfo};
use super::mapped::Mapped;
#[cfg(feature = "text")]
use super::vocabulary::Vocabulary;

/// A checkpoint: a GGUF file, or a configuration and safetensors files. The bytes are mapped; the
/// index over them has GGUF's names and dimensions, whatever the format.
#[derive(Debug)]
pub struct ModelFile {
    /// The path it was opened at.
    pub path: PathBuf,
    /// Every file with tensors.
    files: Vec<Arc<Mapped>>,
    source: Source,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

/// Source of the index.
#[derive(Debug)]
enum Source {
    Gguf(Box<Gguf>),
    Folder(Box<Folder>),
}

impl ModelFile {
    /// Maps a checkpoint and reads its index. `path` is a GGUF file, a folder with `config.json`
    /// and `model.safetensors` or its shards, or a `.safetensors` file beside a `config.json`.
    ///
    /// # Errors
    /// A file cannot be opened or mapped, is not what its name says, or the shards do not make one
    /// model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let (files, source, tensors) = if folder::is_huggingface(path) {
            let (folder, files, tensors) = Folder::open(path)?;
            (files, Source::Folder(Box::new(folder)), tensors)
        } else {
            let file = Mapped::open(path)?;
            let gguf = Gguf::parse(file.bytes()).map_err(ModelError::at(path))?;
            let tensors = gguf.tensors.clone();
            (vec![file], Source::Gguf(Box::new(gguf)), tensors)
        };
        let by_name = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        let files = files.into_iter().map(Arc::new).collect();
        Ok(Self { path: path.to_owned(), files, source, tensors, by_name })
    }

    /// The shape of the model, checked against the tensors.
    ///
    /// # Errors
    /// The file holds no model that is understood; the message names the key or tensor.
    pub fn config(&self) -> Result<Config, ModelError> {
        match &self.source {
            Source::Gguf(gguf) => {
                Config::from_gguf(gguf, self.files[0].bytes()).map_err(ModelError::at(&self.path))
            }
            Source::Folder(folder) => folder.config(&self.tensors),
        }
    }

    /// Returns the checkpoint's vocabulary, if it has one. It is read from a GGUF's metadata or a
    /// folder's `tokenizer.json`, which must be byte-level BPE of a known kind.
    ///
    /// # Errors
    /// An entry has another type than it must have, or the tokenizer is of another kind.
    #[cfg(feature = "text")]
    pub fn vocabulary(&self) -> Result<Option<Vocabulary>, ModelError> {
        match &self.source {
            Source::Gguf(gguf) => Vocabulary::from_gguf(gguf, self.files[0].bytes())
                .map_err(ModelError::at(&self.path)),
            Source::Folder(folder) => folder.vocabulary(&self.config()?),
        }
    }

    /// The index of a GGUF; none where the checkpoint is in another format.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.source {
            Source::Gguf(gguf) => Some(gguf),
            Source::Folder(_) => None,
        }
    }

    /// Returns the files beside the tensors; none for a GGUF.
    pub(crate) fn folder(&self) -> Option<&Folder> {
        match &self.source {
            Source::Gguf(_) => None,
            Source::Folder(folder) => Some(folder),
        }
    }

    /// `tokenizer.json` of the folder, if there is one.
    pub fn tokenizer_json(&self) -> Option<&Path> {
        self.folder().and_then(|folder| folder.tokenizer_json.as_deref())
    }

    /// The files that hold tensors.
    pub fn files(&self) -> &[Arc<Mapped>] {
        &self.files
    }

    /// The tensors under GGUF's names, in the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// Returns a tensor's name in the files.
    pub fn stored_name(&self, name: &str) -> String {
        self.folder().map_or_else(|| name.to_owned(), |folder| folder.stored_name(name))
    }

    /// The data of a tensor of this checkpoint.
    ///
    /// # Panics
    /// If the tensor is that of another one.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.files[tensor.file].bytes()[tensor.range.clone()]
    }

    /// Offset added to every norm weight: GGUF stores Gemma's as `1 + w`, safetensors as `w`.
    pub fn norm_offset(&self, config: &Config) -> f32 {
        let gemma = config.arch == super::Arch::Gemma3;
        if gemma && self.gguf().is_none() { 1.0 } else { 0.0 }
    }
}
