//! What a checkpoint holds, for `lathe inspect`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::config::Config;
use super::file::ModelFile;
use super::gguf::GgmlType;

/// What a checkpoint holds.
#[derive(Debug, Clone, Serialize)]
pub struct ModelSummary {
    /// The file.
    pub path: PathBuf,
    /// Version of GGUF.
    pub gguf_version: u32,
    /// Alignment of the tensor data in bytes.
    pub alignment: u32,
    /// `general.architecture` as it stands, supported or not.
    pub architecture: Option<String>,
    /// `general.name`.
    pub name: Option<String>,
    /// The shape, if the model is understood.
    pub config: Option<Config>,
    /// Why there is no shape.
    pub config_error: Option<String>,
    /// Tensors by type, most bytes first.
    pub types: Vec<TypeSummary>,
    /// All tensors.
    pub tensor_count: usize,
    /// Values in all tensors.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Metadata in the order of the file.
    pub metadata: Vec<MetadataLine>,
}

/// The tensors of one type.
#[derive(Debug, Clone, Serialize)]
pub struct TypeSummary {
    /// The type.
    pub ty: GgmlType,
    /// How many tensors have it.
    pub tensors: usize,
    /// Values in them.
    pub parameters: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// One metadata entry.
#[derive(Debug, Clone, Serialize)]
pub struct MetadataLine {
    /// The key.
    pub key: String,
    /// The type of the value.
    #[serde(rename = "type")]
    pub ty: &'static str,
    /// The value; of an array its length and type, of a long string the beginning.
    pub value: String,
}

/// Longest string shown in full: chat templates run to pages.
const SHOWN: usize = 80;

/// Summarises a checkpoint, whether it can be decoded or not.
pub fn describe(file: &ModelFile) -> ModelSummary {
    let gguf = &file.gguf;
    let mut types: BTreeMap<GgmlType, TypeSummary> = BTreeMap::new();
    for tensor in &gguf.tensors {
        let ty = tensor.ty;
        let of_type =
            types.entry(ty).or_insert(TypeSummary { ty, tensors: 0, parameters: 0, bytes: 0 });
        of_type.tensors += 1;
        of_type.parameters += tensor.elements();
        of_type.bytes += tensor.range.len() as u64;
    }
    let mut types: Vec<TypeSummary> = types.into_values().collect();
    types.sort_by_key(|t| std::cmp::Reverse(t.bytes));

    let text = |key: &str| gguf.get_str(key).ok().flatten().map(str::to_owned);
    let (config, config_error) = match Config::from_gguf(gguf, file.bytes()) {
        Ok(config) => (Some(config), None),
        Err(error) => (None, Some(error.to_string())),
    };
    ModelSummary {
        path: file.path.clone(),
        gguf_version: gguf.version,
        alignment: gguf.alignment,
        architecture: text("general.architecture"),
        name: text("general.name"),
        config,
        config_error,
        tensor_count: gguf.tensors.len(),
        parameters: types.iter().map(|t| t.parameters).sum(),
        tensor_bytes: types.iter().map(|t| t.bytes).sum(),
        types,
        file_bytes: file.bytes().len() as u64,
        metadata: gguf.metadata.iter().map(|(key, value)| line(key, value)).collect(),
    }
}

fn line(key: &str, value: &super::gguf::Value) -> MetadataLine {
    let mut shown = value.to_string();
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.truncate(end);
        shown.push('…');
    }
    MetadataLine { key: key.to_owned(), ty: value.value_type().name(), value: shown }
}
