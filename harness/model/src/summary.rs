//! Summary of a checkpoint, for `lathe inspect`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::config::Config;
use super::file::ModelFile;
use super::gguf::GgmlType;
use super::json::{cut, shown};
use super::keys::Keys;

/// Summary of a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct ModelSummary {
    /// The file.
    #[serde(serialize_with = "lathe_record::files::lossy")]
    pub path: PathBuf,
    /// `gguf` or `safetensors`.
    pub format: &'static str,
    /// Files with tensors.
    pub files: usize,
    /// Version of GGUF, where it is one.
    pub gguf_version: Option<u32>,
    /// Alignment of the tensor data in bytes, in GGUF.
    pub alignment: Option<u32>,
    /// `general.architecture` or `model_type` as it stands, supported or not.
    pub architecture: Option<String>,
    /// `general.name` or `_name_or_path`.
    pub name: Option<String>,
    /// The shape, if the model is understood.
    pub config: Option<Config>,
    /// Reason why there is no shape.
    pub config_error: Option<String>,
    /// Tensors by type, most bytes first.
    pub types: Vec<TypeSummary>,
    /// All tensors.
    pub tensor_count: usize,
    /// Values in all tensors.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// Bytes of the files with tensors.
    pub file_bytes: u64,
    /// Metadata, or the configuration, in the order of the file.
    pub metadata: Vec<MetadataLine>,
}

/// The tensors of one type.
#[derive(Debug, Clone, Serialize)]
pub struct TypeSummary {
    /// The type.
    pub ty: GgmlType,
    /// Number of tensors.
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
    let folder = file.folder();
    let others = folder.map_or(&[][..], |folder| &folder.others);
    let all = || file.tensors().iter().chain(others);
    let mut types: BTreeMap<GgmlType, TypeSummary> = BTreeMap::new();
    for tensor in all() {
        let ty = tensor.ty;
        let empty = TypeSummary { ty, tensors: 0, parameters: 0, bytes: 0 };
        let of_type = types.entry(ty).or_insert(empty);
        of_type.tensors += 1;
        of_type.parameters += tensor.elements();
        of_type.bytes += tensor.range.len() as u64;
    }
    let mut types: Vec<TypeSummary> = types.into_values().collect();
    types.sort_by_key(|t| std::cmp::Reverse(t.bytes));

    let config = file.config();
    let config_error = config.as_ref().err().map(|error| match error.path == file.path {
        // The path stands beside it.
        true => error.kind.to_string(),
        false => error.to_string(),
    });
    let gguf = file.gguf();
    let gguf_text = |key: &str| Some(gguf?.text(key).ok()??.to_owned());
    let config_text = |key: &str| Some(folder?.config_json().get(key)?.as_str()?.to_owned());
    let metadata = match (gguf, folder.and_then(|folder| folder.config_json().as_object())) {
        (Some(gguf), _) => gguf.metadata.iter().map(|(key, value)| line(key, value)).collect(),
        (None, Some(keys)) => keys.iter().map(|(key, value)| json_line(key, value)).collect(),
        (None, None) => Vec::new(),
    };
    ModelSummary {
        path: file.path.clone(),
        format: if gguf.is_some() { "gguf" } else { "safetensors" },
        files: file.files().len(),
        gguf_version: gguf.map(|gguf| gguf.version),
        alignment: gguf.map(|gguf| gguf.alignment),
        architecture: gguf_text("general.architecture").or_else(|| config_text("model_type")),
        name: gguf_text("general.name").or_else(|| config_text("_name_or_path")),
        config: config.ok(),
        config_error,
        tensor_count: all().count(),
        parameters: types.iter().map(|t| t.parameters).sum(),
        tensor_bytes: types.iter().map(|t| t.bytes).sum(),
        types,
        file_bytes: file.files().iter().map(|file| file.bytes().len() as u64).sum(),
        metadata,
    }
}

fn json_line(key: &str, value: &serde_json::Value) -> MetadataLine {
    use serde_json::Value;
    let ty = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    MetadataLine { key: key.to_owned(), ty, value: shown(value) }
}

fn line(key: &str, value: &super::gguf::Value) -> MetadataLine {
    let shown = cut(value.to_string(), SHOWN);
    MetadataLine { key: key.to_owned(), ty: value.value_type().name(), value: shown }
}
