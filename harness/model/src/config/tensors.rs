//! The tensors of a file, checked against the architecture.

use std::collections::{HashMap, HashSet};

use super::{Arch, Config};
use crate::fault::Fault;
use crate::gguf::{GgmlType, TensorInfo};
use crate::names::expected;

const EMBEDDING: &str = "token_embd.weight";
pub(crate) const ROPE_FREQS: &str = "rope_freqs.weight";

/// The tensors of a checkpoint by GGUF's names, with their names in the files.
pub(crate) struct Tensors<'a> {
    list: &'a [TensorInfo],
    index: HashMap<&'a str, usize>,
    stored: &'a dyn Fn(&str) -> String,
}

impl<'a> Tensors<'a> {
    pub(crate) fn new(list: &'a [TensorInfo], stored: &'a dyn Fn(&str) -> String) -> Self {
        let index = list.iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
        Self { list, index, stored }
    }

    fn get(&self, name: &str) -> Option<&'a TensorInfo> {
        self.index.get(name).map(|&i| &self.list[i])
    }

    /// The rows of the embedding: as many as the vocabulary has tokens.
    pub(super) fn vocab(&self) -> Result<usize, Fault> {
        let name = (self.stored)(EMBEDDING);
        let tensor = self.get(EMBEDDING).ok_or_else(|| Fault::of_tensor(&name, "is missing"))?;
        let rows = tensor.rows();
        let size = u32::try_from(rows).ok().filter(|&v| v > 0).map(|v| v as usize);
        size.ok_or_else(|| {
            let why = format!("{rows} rows make no vocabulary");
            Fault::at(tensor.range.start, format!("tensor `{name}`"), why)
        })
    }

    /// Reason for refusing a setting that contradicts the embedding.
    pub(super) fn embedding_rows(&self, vocab: usize) -> String {
        format!("`{}` has {vocab} rows", (self.stored)(EMBEDDING))
    }
}

/// A tensor that the architecture does not have.
pub(crate) fn unexpected(name: &str, arch: Arch) -> Fault {
    let why =
        format!("is not part of {arch} as implemented here, ignoring it would change the result");
    Fault::of_tensor(name, why)
}

/// Every tensor the architecture has is there with its dimensions, and no other. `bytes` are those
/// of the file with `rope_freqs.weight`, where there is one.
pub(super) fn check(config: &Config, tensors: &Tensors<'_>, bytes: &[u8]) -> Result<(), Fault> {
    let mut known = HashSet::with_capacity(tensors.list.len());
    for (name, expected, why) in expected(config) {
        let stored = || (tensors.stored)(&name);
        let tensor = tensors.get(&name);
        let tensor = tensor.ok_or_else(|| Fault::of_tensor(&stored(), "is missing"))?;
        if tensor.dims != expected {
            let found = &tensor.dims;
            let why =
                format!("has dimensions {found:?}, the metadata ask for {expected:?} ({why})");
            return Err(Fault::of_tensor(&stored(), why));
        }
        known.insert(tensor.name.as_str());
        // Of a split file, the other parts are checked where they are open.
        if name == ROPE_FREQS && tensor.file == 0 {
            divisors(tensor, bytes)?;
        }
    }
    match tensors.list.iter().find(|t| !known.contains(t.name.as_str())) {
        Some(tensor) => Err(unexpected(&(tensors.stored)(&tensor.name), config.arch)),
        None => Ok(()),
    }
}

/// Checks the values that rope divides by.
pub(crate) fn divisors(tensor: &TensorInfo, bytes: &[u8]) -> Result<(), Fault> {
    if tensor.ty != GgmlType::F32 {
        return Ok(());
    }
    let data = bytes.get(tensor.range.clone()).unwrap_or_default();
    for (index, value) in data.chunks_exact(4).enumerate() {
        let value = value.try_into().map_or(f32::NAN, f32::from_le_bytes);
        if !(value.is_finite() && value > 0.0) {
            let why = format!("value {index} is {value}, rope divides by it");
            let at = tensor.range.start + 4 * index;
            return Err(Fault::at(at, format!("tensor `{}`", tensor.name), why));
        }
    }
    Ok(())
}
