//! GGUF files for tests: taken apart or built from nothing, changed, and written again.

use lathe_harness::model::gguf::ValueType;
use lathe_harness::model::gguf::writer::GgufWriter;
use lathe_harness::model::{GgmlType, Gguf};
use serde::de::DeserializeOwned;

/// Type and bytes of a metadata value.
pub(crate) type Meta = (ValueType, Vec<u8>);

/// A metadata value: `TYPE VALUE`.
pub(crate) fn meta(text: &str) -> Meta {
    let (ty, value) = text.split_once(' ').unwrap();
    match ty {
        "u32" => (ValueType::U32, value.parse::<u32>().unwrap().to_le_bytes().to_vec()),
        "u64" => (ValueType::U64, value.parse::<u64>().unwrap().to_le_bytes().to_vec()),
        "f32" => (ValueType::F32, value.parse::<f32>().unwrap().to_le_bytes().to_vec()),
        "bool" => (ValueType::Bool, vec![u8::from(value == "true")]),
        "str" => (ValueType::String, prefixed(value)),
        "strs" => list(ValueType::String, value, |text: String| prefixed(&text)),
        "f32s" => list(ValueType::F32, value, |v: f32| v.to_le_bytes().to_vec()),
        "i32s" => list(ValueType::I32, value, |v: i32| v.to_le_bytes().to_vec()),
        _ => panic!("{text}: no such type"),
    }
}

/// An array of a JSON list's elements.
fn list<T: DeserializeOwned>(ty: ValueType, json: &str, bytes: impl Fn(T) -> Vec<u8>) -> Meta {
    let all: Vec<T> = serde_json::from_str(json).unwrap();
    let n = all.len() as u64;
    let elements: Vec<u8> = all.into_iter().flat_map(bytes).collect();
    (ValueType::Array, array(ty.code(), n, &elements))
}

/// An array value: element type, length, elements.
pub(crate) fn array(type_code: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&type_code.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

/// A string after its length, as keys, names and values have it.
fn prefixed(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Position of `needle` in `bytes`.
pub(crate) fn find(bytes: &[u8], needle: &[u8]) -> usize {
    let found = bytes.windows(needle.len()).position(|w| w == needle);
    found.expect("the file holds what the case speaks of")
}

/// Position of the length before `text`: where the entry or the listed tensor begins.
pub(crate) fn find_name(bytes: &[u8], text: &str) -> usize {
    find(bytes, &prefixed(text))
}

/// A GGUF file in parts.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) metadata: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<Tensor>,
}

#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) ty: GgmlType,
    pub(crate) dims: Vec<u64>,
    /// Bytes of the values; those that are missing are written as zeros.
    pub(crate) data: Vec<u8>,
}

impl Parts {
    /// The parts of a sound file.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let gguf = Gguf::parse(bytes).unwrap();
        let entry = |(key, value): (&str, &lathe_harness::model::gguf::Value)| {
            (key.to_owned(), (value.value_type(), value.encoded(bytes)))
        };
        let tensor = |t: &lathe_harness::model::TensorInfo| Tensor {
            name: t.name.clone(),
            ty: t.ty,
            dims: t.dims.clone(),
            data: bytes[t.range.clone()].to_vec(),
        };
        Self {
            metadata: gguf.metadata.iter().map(entry).collect(),
            tensors: gguf.tensors.iter().map(tensor).collect(),
        }
    }

    /// The smallest model of an architecture: hidden 8, ffn 12, 2 heads over 1 KV head,
    /// head_dim 4, 6 tokens, all weights zero.
    pub(crate) fn smallest(arch: &str) -> Self {
        let mut model = Self::default()
            .set("general.architecture", &format!("str {arch}"))
            .set(".context_length", "u32 64")
            .set(".embedding_length", "u32 8")
            .set(".block_count", "u32 1")
            .set(".feed_forward_length", "u32 12")
            .set(".attention.head_count", "u32 2")
            .set(".attention.head_count_kv", "u32 1")
            .set(".attention.key_length", "u32 4")
            .set(".attention.value_length", "u32 4")
            .set(".attention.layer_norm_rms_epsilon", "f32 1e-6")
            .set(".rope.freq_base", "f32 1e6")
            .set("tokenizer.ggml.tokens", r#"strs ["a", "b", "c", "d", "e", "f"]"#)
            .set("tokenizer.ggml.bos_token_id", "u32 2")
            .set("tokenizer.ggml.eos_token_id", "u32 1")
            .tensor("token_embd.weight", &[8, 6])
            .tensor("output_norm.weight", &[8]);
        let mut layer: Vec<(&str, &[u64])> = vec![
            ("attn_norm", &[8]),
            ("attn_q", &[8, 8]),
            ("attn_k", &[8, 4]),
            ("attn_v", &[8, 4]),
            ("attn_output", &[8, 8]),
            ("ffn_norm", &[8]),
            ("ffn_gate", &[8, 12]),
            ("ffn_up", &[8, 12]),
            ("ffn_down", &[12, 8]),
        ];
        if arch == "qwen2" {
            for (part, len) in [("q", 8), ("k", 4), ("v", 4)] {
                model = model.tensor(&format!("blk.0.attn_{part}.bias"), &[len]);
            }
        } else if arch != "llama" {
            layer.extend([("attn_q_norm", &[4][..]), ("attn_k_norm", &[4])]);
        }
        if arch == "gemma3" {
            layer.extend([("post_attention_norm", &[8][..]), ("post_ffw_norm", &[8])]);
            model = model.set(".attention.sliding_window", "u32 4");
        }
        for (part, dims) in layer {
            model = model.tensor(&format!("blk.0.{part}.weight"), dims);
        }
        model
    }

    /// A full key: `.x` stands for `<architecture>.x`.
    pub(crate) fn full(&self, key: &str) -> String {
        let arch = || String::from_utf8_lossy(&self.metadata[0].1.1[8..]).into_owned();
        if key.starts_with('.') { format!("{}{key}", arch()) } else { key.to_owned() }
    }

    /// Adds an entry or gives it another value.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        let (key, value) = (self.full(key), meta(value));
        match self.metadata.iter_mut().find(|(k, _)| *k == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key, value)),
        }
        self
    }

    pub(crate) fn unset(mut self, key: &str) -> Self {
        let key = self.full(key);
        self.metadata.retain(|(k, _)| *k != key);
        self
    }

    /// Adds a tensor of f32 zeros or gives it other dimensions.
    pub(crate) fn tensor(mut self, name: &str, dims: &[u64]) -> Self {
        let dims = dims.to_vec();
        match self.tensors.iter_mut().find(|t| t.name == name) {
            Some(tensor) => tensor.dims = dims,
            None => {
                let (name, ty, data) = (name.to_owned(), GgmlType::F32, Vec::new());
                self.tensors.push(Tensor { name, ty, dims, data });
            }
        }
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|t| t.name != name);
        self
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        for (key, (ty, value)) in &self.metadata {
            writer.add_raw(key.as_bytes(), ty.code(), value);
        }
        let offsets: Vec<u64> =
            self.tensors.iter().map(|t| writer.add_tensor(&t.name, t.ty, &t.dims)).collect();
        let mut out = writer.zeroed();
        let start = out.len() - writer.data_len() as usize;
        for (tensor, offset) in self.tensors.iter().zip(offsets) {
            let at = start + offset as usize;
            // Dimensions that overflow leave no room for data; the file is refused for them.
            if let Some(place) = out.get_mut(at..at + tensor.data.len()) {
                place.copy_from_slice(&tensor.data);
            }
        }
        out
    }
}
