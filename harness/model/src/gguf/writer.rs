//! Writes the head of a GGUF file: header, metadata, tensor list, padding. The caller streams the
//! tensor data after it, so a checkpoint of any size can be written.
//!
//! Only the layout of the file is checked here: the raw methods exist so that tests can build every
//! broken file.

use super::{GgmlType, Value, ValueType};

const VERSION: u32 = 3;

/// Collects metadata and tensors, then lays out the head of the file.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    alignment: u64,
    entries: u64,
    metadata: Vec<u8>,
    tensors: Vec<Listed>,
    /// End of the tensor data so far, from the start of the data.
    data_end: u64,
}

#[derive(Debug, Clone)]
struct Listed {
    name: String,
    type_code: u32,
    dims: Vec<u64>,
    offset: u64,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// An empty file of version 3, alignment 32.
    pub fn new() -> Self {
        Self { alignment: 32, entries: 0, metadata: Vec::new(), tensors: Vec::new(), data_end: 0 }
    }

    /// Sets the alignment (above 0) of the tensors added from here on, and writes
    /// `general.alignment`.
    pub fn set_alignment(&mut self, alignment: u32) -> &mut Self {
        self.alignment = u64::from(alignment);
        self.add_u32("general.alignment", alignment)
    }

    /// Adds an entry as it stands: any key, type number and bytes.
    pub fn add_raw(&mut self, key: &[u8], type_code: u32, value: &[u8]) -> &mut Self {
        push_bytes(&mut self.metadata, key);
        self.metadata.extend_from_slice(&type_code.to_le_bytes());
        self.metadata.extend_from_slice(value);
        self.entries += 1;
        self
    }

    fn add(&mut self, key: &str, ty: ValueType, value: &[u8]) -> &mut Self {
        self.add_raw(key.as_bytes(), ty.code(), value)
    }

    /// Adds a value as a parsed file has it. `bytes` are those of that file.
    ///
    /// # Panics
    /// If `value` is an array of another, longer file.
    pub fn add_value(&mut self, key: &str, value: &Value, bytes: &[u8]) -> &mut Self {
        self.add(key, value.value_type(), &value.encoded(bytes))
    }

    /// Adds a string.
    pub fn add_str(&mut self, key: &str, value: &str) -> &mut Self {
        let mut bytes = Vec::with_capacity(8 + value.len());
        push_bytes(&mut bytes, value.as_bytes());
        self.add(key, ValueType::String, &bytes)
    }

    /// Adds an u32.
    pub fn add_u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.add(key, ValueType::U32, &value.to_le_bytes())
    }

    /// Adds an u64.
    pub fn add_u64(&mut self, key: &str, value: u64) -> &mut Self {
        self.add(key, ValueType::U64, &value.to_le_bytes())
    }

    /// Adds an f32.
    pub fn add_f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.add(key, ValueType::F32, &value.to_le_bytes())
    }

    /// Adds a bool.
    pub fn add_bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.add(key, ValueType::Bool, &[u8::from(value)])
    }

    /// Adds an array of strings.
    pub fn add_str_array<S: AsRef<str>>(&mut self, key: &str, values: &[S]) -> &mut Self {
        let mut bytes = array_head(ValueType::String, values.len());
        for value in values {
            push_bytes(&mut bytes, value.as_ref().as_bytes());
        }
        self.add(key, ValueType::Array, &bytes)
    }

    /// Adds an array of f32.
    pub fn add_f32_array(&mut self, key: &str, values: &[f32]) -> &mut Self {
        let mut bytes = array_head(ValueType::F32, values.len());
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self.add(key, ValueType::Array, &bytes)
    }

    /// Adds an array of i32.
    pub fn add_i32_array(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let mut bytes = array_head(ValueType::I32, values.len());
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self.add(key, ValueType::Array, &bytes)
    }

    /// Adds a tensor after those added before and returns its offset in the data. `dims` as GGUF
    /// has them, row length first; rows must divide into blocks.
    pub fn add_tensor(&mut self, name: &str, ty: GgmlType, dims: &[u64]) -> u64 {
        let offset = self.data_end.next_multiple_of(self.alignment);
        let bytes = dims.iter().product::<u64>() / ty.block_len() * ty.block_bytes();
        self.data_end = offset + bytes;
        self.add_tensor_raw(name, ty.code(), dims, offset);
        offset
    }

    /// Adds a tensor as it stands: any type number, dimensions and offset.
    pub fn add_tensor_raw(&mut self, name: &str, type_code: u32, dims: &[u64], offset: u64) {
        self.tensors.push(Listed { name: name.to_owned(), type_code, dims: dims.to_vec(), offset });
    }

    /// Bytes of the tensor data from the first to the end of the last, without padding after it.
    pub fn data_len(&self) -> u64 {
        self.data_end
    }

    /// The head of the file, padded to where the tensor data begin.
    pub fn head(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.metadata.len() + 96 * (self.tensors.len() + 1));
        out.extend_from_slice(b"GGUF");
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.metadata);
        for tensor in &self.tensors {
            push_bytes(&mut out, tensor.name.as_bytes());
            out.extend_from_slice(&(tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|d| d.to_le_bytes()));
            out.extend_from_slice(&tensor.type_code.to_le_bytes());
            out.extend_from_slice(&tensor.offset.to_le_bytes());
        }
        let padded = (out.len() as u64).next_multiple_of(self.alignment);
        out.resize(padded as usize, 0);
        out
    }

    /// A whole small file, every data byte zero.
    pub fn zeroed(&self) -> Vec<u8> {
        let mut out = self.head();
        out.resize(out.len() + self.data_end as usize, 0);
        out
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn array_head(ty: ValueType, len: usize) -> Vec<u8> {
    let mut out = ty.code().to_le_bytes().to_vec();
    out.extend_from_slice(&(len as u64).to_le_bytes());
    out
}
