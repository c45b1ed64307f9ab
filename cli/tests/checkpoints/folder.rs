//! Folders for tests: a golden read into its parts, changed, and written again.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::common;

/// A tensor of a safetensors file.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) data: Vec<u8>,
}

/// A checkpoint in parts.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) config: Value,
    pub(crate) tensors: Vec<Stored>,
}

impl Parts {
    pub(crate) fn golden(name: &str) -> Self {
        let folder = common::golden(name);
        let config = fs::read(folder.join("config.json")).unwrap();
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let stored = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| Stored {
            name: name.to_owned(),
            dtype: view.dtype().to_string(),
            shape: view.shape().iter().map(|&n| n as u64).collect(),
            data: view.data().to_vec(),
        };
        let mut tensors: Vec<_> = file.iter().map(stored).collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        Self { config: serde_json::from_slice(&config).unwrap(), tensors }
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Stored {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap()
    }

    /// The header entries, and the data.
    pub(crate) fn header(tensors: &[Stored]) -> (Map<String, Value>, Vec<u8>) {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for t in tensors {
            let start = data.len();
            data.extend_from_slice(&t.data);
            let offsets = json!([start, data.len()]);
            let entry = json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": offsets});
            header.insert(t.name.clone(), entry);
        }
        (header, data)
    }

    pub(crate) fn file(tensors: &[Stored]) -> Vec<u8> {
        let (header, data) = Self::header(tensors);
        raw(&Value::Object(header).to_string(), &data)
    }

    pub(crate) fn write(&self) -> Folder {
        let folder = Folder::empty();
        folder.put("config.json", self.config.to_string().as_bytes());
        folder.put("model.safetensors", &Self::file(&self.tensors));
        folder
    }

    /// Every third tensor in its own shard, with an index.
    pub(crate) fn shards(&self) -> Folder {
        let folder = Folder::empty();
        folder.put("config.json", self.config.to_string().as_bytes());
        let mut map = Map::new();
        for shard in 0..3 {
            let name = format!("model-{:05}-of-00003.safetensors", shard + 1);
            let own = self.tensors.iter().skip(shard).step_by(3).cloned().collect::<Vec<_>>();
            map.extend(own.iter().map(|t| (t.name.clone(), json!(name))));
            folder.put(&name, &Self::file(&own));
        }
        folder.index(&json!({"metadata": {"total_size": 1}, "weight_map": map}));
        folder
    }
}

/// A safetensors file of any header.
pub(crate) fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(data);
    out
}

/// A folder that goes away with its owner.
pub(crate) struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn empty() -> Self {
        let folder = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(folder.path()).unwrap();
        folder
    }

    /// The checkpoint's folder, within a larger temporary one.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join("model")
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.join(name), bytes).unwrap();
    }

    pub(crate) fn index(&self, value: &Value) {
        self.put("model.safetensors.index.json", value.to_string().as_bytes());
    }

    pub(crate) fn outside(&self) -> &Path {
        self.root.path()
    }
}
