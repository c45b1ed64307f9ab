//! Properties of every folder with `config.json`, an index and shards, whatever is in its files: it
//! is refused with an error, or it is a model all of whose bytes lie in files of the folder.
//!
//! The input is four files, each but the last after its length (u16, little-endian): `config.json`,
//! `model.safetensors.index.json`, `model-1.safetensors`, `model-2.safetensors`. One of length 0 is
//! not there. Another shard lies outside the folder, where an index that points outside would find
//! it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lathe_harness::decode::Weights;
use lathe_harness::model::{ModelFile, describe};

const FILES: [&str; 4] =
    ["config.json", "model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors"];

/// Workplace of [`holds`]: one folder for many inputs.
pub struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    /// A temporary folder, removed when it is dropped.
    pub fn temporary() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(root.path().join("model")).expect("a folder in it");
        Self { root }
    }

    /// The folder of the checkpoint.
    pub fn folder(&self) -> std::path::PathBuf {
        self.root.path().join("model")
    }

    /// Writes an input's files.
    pub fn write(&self, input: &[u8]) {
        let files = split(input);
        fs::write(self.root.path().join("outside.safetensors"), files[3]).expect("a file beside");
        for (name, bytes) in FILES.iter().zip(files) {
            let path = self.folder().join(name);
            match bytes.is_empty() {
                true => drop(fs::remove_file(path)),
                false => fs::write(path, bytes).expect("a file of the folder"),
            }
        }
    }
}

/// Files of an input.
pub fn split(input: &[u8]) -> [&[u8]; 4] {
    let mut rest = input;
    let mut next = || match rest.split_first_chunk::<2>() {
        None => &[][..],
        Some((len, after)) => {
            let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
            let (file, after) = after.split_at(len);
            rest = after;
            file
        }
    };
    let (config, index, first) = (next(), next(), next());
    [config, index, first, rest]
}

/// Writes an input's files and opens them as a checkpoint; says whether its index and shards, and
/// whether its weights were accepted.
///
/// # Errors
/// What does not hold of it.
pub fn holds(folder: &Folder, input: &[u8]) -> Result<(bool, bool), String> {
    folder.write(input);
    let Ok(file) = ModelFile::open(folder.folder()) else { return Ok((false, false)) };
    let home = fs::canonicalize(folder.folder()).map_err(|e| e.to_string())?;
    for part in file.files() {
        let real = fs::canonicalize(&part.path).map_err(|e| e.to_string())?;
        if real.parent() != Some(Path::new(&home)) {
            return Err(format!("{} lies outside", real.display()));
        }
    }
    for tensor in file.tensors() {
        let values = tensor.dims.iter().fold(1u128, |n, d| n.saturating_mul(u128::from(*d)));
        let (bytes, len) = (file.tensor_bytes(tensor).len() as u128, tensor.range.len() as u128);
        // f32 has 4 bytes a value, f16 and bf16 2; nothing else is stored here.
        if bytes != len || (bytes != 4 * values && bytes != 2 * values) {
            return Err(format!("{} has {values} values in {bytes} bytes", tensor.name));
        }
    }
    let _ = (describe(&file), file.vocabulary());
    let file = Arc::new(file);
    let Ok(config) = file.config() else { return Ok((true, false)) };
    match Weights::load(&file, &config, None) {
        Ok(weights) if weights.layers.len() == config.n_layers => Ok((true, true)),
        Ok(weights) => Err(format!("{} of {} layers", weights.layers.len(), config.n_layers)),
        // A configuration vouches for every tensor, not for its storage.
        Err(_) => Ok((true, false)),
    }
}
