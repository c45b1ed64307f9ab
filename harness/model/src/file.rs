//! A checkpoint on disk, mapped.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::{Config, ROPE_FREQS, divisors};
use super::error::ModelError;
use super::fault::Fault;
use super::folder::{self, Folder};
use super::gguf::{Gguf, TensorInfo};
use super::keys::Keys;
use super::mapped::Mapped;
#[cfg(feature = "text")]
use super::tokenizer::Tokenizer;
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
    /// Maps a checkpoint and reads its index. `path` is a GGUF file or a part of one, a folder with `config.json`
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
            let (files, gguf) = gguf_parts(path)?;
            let tensors = gguf.tensors.clone();
            (files, Source::Gguf(Box::new(gguf)), tensors)
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
                let at = ModelError::at(&self.path);
                let config = Config::from_gguf(gguf, self.files[0].bytes()).map_err(at)?;
                if let Some(tensor) = self.tensor(ROPE_FREQS).filter(|tensor| tensor.file > 0) {
                    let file = &self.files[tensor.file];
                    divisors(tensor, file.bytes()).map_err(ModelError::at(&file.path))?;
                }
                Ok(config)
            }
            Source::Folder(folder) => folder.config(&self.tensors),
        }
    }

    /// The tokenizer, if there is one: that of a `tokenizer.json`, or of the vocabulary.
    ///
    /// # Errors
    ///
    /// It is not understood; the message names the file.
    #[cfg(feature = "text")]
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, ModelError> {
        if let Some(path) = self.tokenizer_json() {
            return Tokenizer::open(path).map(Some);
        }
        let made = self.vocabulary()?.map(Tokenizer::new).transpose();
        made.map_err(ModelError::at(&self.path))
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

    /// Notes on the checkpoint that its user should read.
    pub fn notes(&self) -> &[String] {
        self.folder().map_or(&[], |folder| &folder.notes)
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

const SPLIT: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

/// A GGUF file, or all parts of one that was split, with the index of them together. The metadata
/// are those of the first part; `path` may be any.
fn gguf_parts(path: &Path) -> Result<(Vec<Mapped>, Gguf), ModelError> {
    let open = |path: &Path| {
        let file = Mapped::open(path)?;
        let gguf = Gguf::parse(file.bytes()).map_err(ModelError::at(path))?;
        Ok::<_, ModelError>((file, gguf))
    };
    let opened = open(path)?;
    let at = ModelError::at::<Fault>(path);
    let [number, count, _] = SPLIT.map(|key| opened.1.u32(key).map_err(at));
    let (number, count) = (number?, count?);
    let Some(count) = count.filter(|count| *count > 1) else {
        return Ok((vec![opened.0], opened.1));
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let own = number.and_then(|number| number.checked_add(1));
    let end = own.map(|own| format!("-{own:05}-of-{count:05}.gguf"));
    let base = name.as_deref().zip(end.as_deref()).and_then(|(name, end)| name.strip_suffix(end));
    let Some(base) = base else {
        let end = end.unwrap_or_else(|| "-NNNNN-of-NNNNN.gguf".to_owned());
        let why = format!("the name of this part must end in {end} for the others to be found");
        return Err(at(opened.1.refused(SPLIT[1], why)));
    };
    let (mut files, mut whole) = (Vec::new(), None::<Gguf>);
    for part in 0..count {
        let path = path.with_file_name(format!("{base}-{:05}-of-{count:05}.gguf", part + 1));
        let (file, mut gguf) = open(&path)?;
        let at = ModelError::at::<Fault>(&path);
        for (key, expected) in SPLIT.into_iter().zip([part, count]) {
            if gguf.u32(key).map_err(at)? != Some(expected) {
                let why = format!("{expected} is expected there: a part of another file");
                let found = gguf.metadata.get(key).is_some();
                return Err(at(if found { gguf.refused(key, why) } else { gguf.missing(key) }));
            }
        }
        match &mut whole {
            None => whole = Some(gguf),
            Some(whole) => {
                let all = SPLIT[2];
                if whole.u32(all).map_err(at)? != gguf.u32(all).map_err(at)? {
                    return Err(at(gguf.refused(all, "the first part has another number")));
                }
                // Parts repeat nothing, or the same: the first one's metadata are read.
                let keys = gguf.metadata.iter().map(|(key, _)| key);
                let mut own = keys.filter(|key| !SPLIT.contains(key));
                if let Some(key) = own.find(|key| gguf.shown(key) != whole.shown(key)) {
                    let why = "the first part, whose metadata are read, has another value or none";
                    return Err(at(gguf.refused(key, why)));
                }
                gguf.tensors.iter_mut().for_each(|tensor| tensor.file = files.len());
                whole.join(gguf.tensors).map_err(at)?;
            }
        }
        files.push(file);
    }
    let whole = whole.unwrap_or(opened.1);
    let (all, found) = (whole.u32(SPLIT[2]).map_err(at)?, whole.tensors.len());
    match all.filter(|all| *all as usize != found) {
        None => Ok((files, whole)),
        Some(_) => Err(at(whole.refused(SPLIT[2], format!("the parts have {found} tensors")))),
    }
}
