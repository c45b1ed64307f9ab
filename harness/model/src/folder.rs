//! A Hugging Face checkpoint: `config.json` and safetensors files, one or several.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use ::safetensors::Dtype;
use serde_json::Value;

#[cfg(feature = "text")]
use super::config::Arch;
use super::config::{Config, Tensors, arch_of, tied_head, token_list, unexpected};
use super::error::ModelError;
#[cfg(feature = "text")]
use super::export::vocabulary;
use super::fault::Fault;
use super::gguf::{GgmlType, TensorInfo};
use super::json::{self, Object};
use super::keys::Keys;
use super::mapped::{self, Mapped};
use super::names::Names;
use super::safetensors::{self, Listed};
#[cfg(feature = "text")]
use super::tokenizer::Vocabulary;

/// Longest JSON file that is read: tokenizers run to tens of megabytes.
const MAX_JSON: u64 = 1 << 28;

/// A Hugging Face checkpoint without its tensors: configuration, tokenizer and tensor names.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    config_path: PathBuf,
    config: Value,
    generation: Option<(Value, PathBuf)>,
    pub(crate) tokenizer_json: Option<PathBuf>,
    /// Naming of the tensors; none if the architecture is unknown.
    names: Option<Names>,
    /// Tensors without a place in the text model, by their stored names.
    pub(crate) others: Vec<TensorInfo>,
    /// The first of `others` that cannot be left aside.
    unknown: Option<String>,
    /// The file or index that says which tensors there are.
    weights: PathBuf,
    /// Said to the user of the checkpoint.
    pub(crate) notes: Vec<String>,
}

/// Returns true if a path means a configuration with safetensors, not a GGUF file.
pub(crate) fn is_huggingface(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|e| e == "safetensors")
}

/// The shape of a checkpoint whose `config.json` and one safetensors file are in memory.
///
/// # Errors
/// Errors of [`ModelFile::open`](super::ModelFile::open) and
/// [`ModelFile::config`](super::ModelFile::config) for files of these names.
pub fn config_of(config: &[u8], weights: &[u8]) -> Result<Config, ModelError> {
    let (config_path, path) = (PathBuf::from("config.json"), Path::new("model.safetensors"));
    let config = parse_json(&config_path, config)?;
    let listed = safetensors::index(weights).map_err(ModelError::at(path))?;
    let weights = path.to_owned();
    let mut folder = Folder { config_path, config, weights, ..Folder::default() };
    let tensors = folder.named(&[path], listed.into_iter().map(|tensor| (0, tensor)).collect())?;
    folder.config(&tensors)
}

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<Mapped>, Vec<TensorInfo>), ModelError> {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        let config_path = folder.join("config.json");
        let config = read_json(&config_path)?;
        Object::root(&config).map_err(ModelError::at(&config_path))?;
        let optional = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        let generation = match optional("generation_config.json") {
            Some(path) => Some((read_json(&path)?, path)),
            None => None,
        };

        let (weights, files, listed) = tensors(path, folder)?;
        let index = folder.join(INDEX);
        let mut notes = Vec::new();
        if path.is_dir() && weights != index && index.exists() {
            let [read, left] = [&weights, &index].map(|path| path.display());
            notes.push(format!("{read} is read; {left} and its shards are not"));
        }
        let tokenizer_json = optional("tokenizer.json");
        let mut this = Self {
            config_path,
            config,
            generation,
            tokenizer_json,
            weights,
            notes,
            ..Self::default()
        };
        let paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
        let tensors = this.named(&paths, listed)?;
        Ok((this, files, tensors))
    }

    /// The tensors of the text model under GGUF's names; the others are kept aside.
    fn named(
        &mut self,
        paths: &[&Path],
        listed: Vec<(usize, Listed)>,
    ) -> Result<Vec<TensorInfo>, ModelError> {
        let stored_names = || listed.iter().map(|(_, tensor)| tensor.name.as_str());
        // An architecture that is not known is for `config` to report.
        let names = arch_of(&self.config).ok().map(|arch| Names::of(arch, stored_names()));
        self.names = names;
        let mut tensors = Vec::new();
        for (file, tensor) in listed {
            let gguf = names.and_then(|names| names.to_gguf(&tensor.name));
            let aside = |name: &str| names.is_some_and(|names| names.is_aside(name));
            if gguf.is_none() && !aside(&tensor.name) && self.unknown.is_none() {
                self.unknown = Some(tensor.name.clone());
            }
            let Some(ty) = ggml_type(tensor.dtype) else {
                if gguf.is_none() {
                    continue;
                }
                let why = format!(
                    "tensor `{}` is stored as {}, supported are F32, F16, BF16",
                    tensor.name, tensor.dtype
                );
                return Err(ModelError::at(paths[file])(why));
            };
            let known = gguf.is_some();
            let name = gguf.unwrap_or(tensor.name);
            let dims = tensor.shape.into_iter().rev().collect();
            let info = TensorInfo { name, ty, dims, range: tensor.range, file };
            if known { tensors.push(info) } else { self.others.push(info) }
        }
        // transformers saves the head of some models although it is the embedding, and ignores it
        // when it loads them. A faulty configuration is for `config` to report.
        let head = tensors.iter().position(|t| t.name == "output.weight");
        if let Some(at) = head.filter(|_| tied_head(&self.config).unwrap_or(false)) {
            self.others.push(tensors.remove(at));
        }
        Ok(tensors)
    }

    pub(crate) fn config(&self, tensors: &[TensorInfo]) -> Result<Config, ModelError> {
        // Tensors are missing from the files with tensors.
        let error = |fault: Fault| {
            let of_tensor = fault.site.starts_with("tensor ");
            ModelError::at(if of_tensor { &self.weights } else { &self.config_path })(fault)
        };
        let stored = |name: &str| self.stored_name(name);
        let tensors = Tensors::new(tensors, &stored);
        let mut config = Config::from_json(&self.config, &tensors).map_err(error)?;
        if let Some(name) = &self.unknown {
            return Err(error(unexpected(name, config.arch)));
        }
        if let Some((generation, path)) = &self.generation {
            let key = ModelError::at(path);
            let object = Object::root(generation).map_err(key)?;
            let list = |name| token_list(&object, name, config.vocab).map_err(key);
            let (ends, begins) = (list("eos_token_id")?, list("bos_token_id")?);
            if let Some(&eos) = ends.first() {
                (config.eos, config.end_tokens) = (Some(eos), ends);
            }
            config.bos = begins.first().copied().or(config.bos);
        }
        Ok(config)
    }

    #[cfg(feature = "text")]
    pub(crate) fn vocabulary(&self, config: &Config) -> Result<Option<Vocabulary>, ModelError> {
        let Some(path) = &self.tokenizer_json else { return Ok(None) };
        let value = read_json(path)?;
        let vocabulary = vocabulary::from_tokenizer_json(&value, config);
        let advice = "give token ids (--prompt-tokens), or --no-tokenizer to quantise";
        vocabulary.map(Some).map_err(|fault| ModelError::at(path)(format!("{fault}; {advice}")))
    }

    pub(crate) fn stored_name(&self, name: &str) -> String {
        self.names.map_or_else(|| name.to_owned(), |names| names.stored(name))
    }

    /// The configuration as the file has it.
    pub(crate) fn config_json(&self) -> &Value {
        &self.config
    }

    /// Returns true for Q and K matrices whose rows GGUF interleaves, and for their biases: Hugging
    /// Face pairs elements half a head apart, GGUF pairs neighbours.
    #[cfg(feature = "text")]
    pub(crate) fn interleaves(arch: Arch, tensor: &str) -> bool {
        let part = tensor.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let rotated = ["attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias"];
        arch == Arch::Llama && part.is_some_and(|(_, part)| rotated.contains(&part))
    }
}

fn ggml_type(dtype: Dtype) -> Option<GgmlType> {
    match dtype {
        Dtype::F32 => Some(GgmlType::F32),
        Dtype::F16 => Some(GgmlType::F16),
        Dtype::BF16 => Some(GgmlType::Bf16),
        _ => None,
    }
}

fn read_json(path: &Path) -> Result<Value, ModelError> {
    parse_json(path, &mapped::read(path, MAX_JSON)?)
}

fn parse_json(path: &Path, bytes: &[u8]) -> Result<Value, ModelError> {
    json::parse(bytes).map_err(|error| ModelError::at(path)(format!("no valid JSON: {error}")))
}

/// The files of a checkpoint and their tensors, each with the number of its file, after the file or
/// index that was opened.
type Listing = (PathBuf, Vec<Mapped>, Vec<(usize, Listed)>);

const INDEX: &str = "model.safetensors.index.json";

fn tensors(path: &Path, folder: &Path) -> Result<Listing, ModelError> {
    if !path.is_dir() {
        return one_file(path);
    }
    let single = folder.join("model.safetensors");
    let index = folder.join(INDEX);
    if single.exists() {
        one_file(&single)
    } else if index.exists() {
        shards(folder, &index)
    } else {
        let why = "has neither model.safetensors nor model.safetensors.index.json".to_owned();
        Err(ModelError::at(folder)(why))
    }
}

fn open_indexed(path: &Path) -> Result<(Mapped, Vec<Listed>), ModelError> {
    let file = Mapped::open(path)?;
    let listed = safetensors::index(file.bytes()).map_err(ModelError::at(path))?;
    Ok((file, listed))
}

fn one_file(path: &Path) -> Result<Listing, ModelError> {
    let (file, listed) = open_indexed(path)?;
    let listed = listed.into_iter().map(|tensor| (0, tensor)).collect();
    Ok((path.to_owned(), vec![file], listed))
}

/// Every tensor of the index is in the shard that it names, and the shards hold no other.
fn shards(folder: &Path, index: &Path) -> Result<Listing, ModelError> {
    let key = ModelError::at(index);
    let document = read_json(index)?;
    let root = Object::root(&document).map_err(key)?;
    let map = root.object("weight_map").map_err(key)?;
    let map = map.ok_or_else(|| key(root.missing("weight_map")))?;
    let mut by_shard: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, _) in map.iter() {
        let shard = map.text(tensor).map_err(key)?.ok_or_else(|| key(map.missing(tensor)))?;
        by_shard.entry(shard).or_default().push(tensor);
    }
    // No file is opened before every name is known to be good.
    let mut paths = Vec::new();
    for (shard, expected) in by_shard {
        let of_index = |why: String| key(map.error(expected[0], format!("`{shard}` {why}")));
        paths.push((shard_path(folder, shard).map_err(of_index)?, expected));
    }
    let (mut files, mut all) = (Vec::new(), Vec::new());
    for (number, (path, mut expected)) in paths.into_iter().enumerate() {
        let (file, listed) = open_indexed(&path)?;
        expected.sort_unstable();
        for tensor in &listed {
            if let Err(_absent) = expected.binary_search(&tensor.name.as_str()) {
                let why = format!(
                    "tensor `{}` is not what {} says of this file",
                    tensor.name,
                    index.display()
                );
                return Err(ModelError::at(&path)(why));
            }
        }
        let present: HashSet<&str> = listed.iter().map(|tensor| tensor.name.as_str()).collect();
        if let Some(name) = expected.iter().find(|name| !present.contains(**name)) {
            let why = format!("tensor `{name}` is missing; {} says it is here", index.display());
            return Err(ModelError::at(&path)(why));
        }
        files.push(file);
        all.extend(listed.into_iter().map(|tensor| (number, tensor)));
    }
    Ok((index.to_owned(), files, all))
}

/// Returns a shard's path. It must be a file of the folder, since an index is not trusted with
/// other files. A link may lead only to the blobs beside the snapshots of Hugging Face's own cache.
fn shard_path(folder: &Path, shard: &str) -> Result<PathBuf, String> {
    let mut parts = Path::new(shard).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if !plain || shard.contains(['/', '\\', ':']) {
        return Err("is no plain file name; shards lie in the folder of their index".to_owned());
    }
    let path = folder.join(shard);
    let resolve =
        |path: &Path| fs::canonicalize(path).map_err(|e| format!("cannot be opened: {e}"));
    let (real_folder, real) = (resolve(folder)?, resolve(&path)?);
    if !real.is_file() {
        return Err("is no file".to_owned());
    }
    let blobs = real_folder
        .parent()
        .filter(|snapshots| snapshots.ends_with("snapshots"))
        .and_then(Path::parent)
        .map(|cache| cache.join("blobs"));
    let home = real.parent();
    if home != Some(&*real_folder) && (home.is_none() || home != blobs.as_deref()) {
        return Err(format!("is a link out of the folder, to {}", real.display()));
    }
    Ok(path)
}
