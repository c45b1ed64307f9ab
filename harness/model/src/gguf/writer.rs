//! Writes the head of a GGUF file: header, metadata, tensor list, padding. The caller streams the
//! tensor data after it, so a checkpoint of any size can be written.
//!
//! Only the layout of the file is checked here: the raw methods exist so that tests can build every
//! broken file.

use super::value::Field;
use super::{GgmlType, Value};

const VERSION: u32 = 3;

/// Collects metadata and tensors, then lays out the head of the file.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    alignment: u64,
    entries: u64,
    metadata: Vec<u8>,
    tensors: u64,
    /// The tensor list as the file has it.
    list: Vec<u8>,
    /// End of the tensor data so far, from the start of the data.
    data_end: u64,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// An empty file of version 3, alignment 32.
    pub fn new() -> Self {
        let (metadata, list) = (Vec::new(), Vec::new());
        Self { alignment: 32, entries: 0, metadata, tensors: 0, list, data_end: 0 }
    }

    /// Sets the alignment (above 0) of the tensors added from here on, and writes
    /// `general.alignment`.
    pub fn set_alignment(&mut self, alignment: u32) -> &mut Self {
        self.alignment = u64::from(alignment);
        self.add("general.alignment", &alignment)
    }

    /// Adds an entry as it stands: any key, type number and bytes.
    pub fn add_raw(&mut self, key: &[u8], type_code: u32, value: &[u8]) -> &mut Self {
        (key.len() as u64).put(&mut self.metadata);
        self.metadata.extend_from_slice(key);
        type_code.put(&mut self.metadata);
        self.metadata.extend_from_slice(value);
        self.entries += 1;
        self
    }

    /// Adds a number, a string or an array of such.
    pub fn add<T: Field + ?Sized>(&mut self, key: &str, value: &T) -> &mut Self {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        self.add_raw(key.as_bytes(), T::TYPE.code(), &bytes)
    }

    /// Adds a value as a parsed file has it. `bytes` are those of that file.
    ///
    /// # Panics
    /// If `value` is an array of another, longer file.
    pub fn add_value(&mut self, key: &str, value: &Value, bytes: &[u8]) -> &mut Self {
        self.add_raw(key.as_bytes(), value.value_type().code(), &value.encoded(bytes))
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
        self.tensors += 1;
        name.put(&mut self.list);
        (dims.len() as u32).put(&mut self.list);
        dims.iter().for_each(|dim| dim.put(&mut self.list));
        type_code.put(&mut self.list);
        offset.put(&mut self.list);
    }

    /// Bytes of the tensor data from the first to the end of the last, without padding after it.
    pub fn data_len(&self) -> u64 {
        self.data_end
    }

    /// The head of the file, padded to where the tensor data begin.
    pub fn head(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        VERSION.put(&mut out);
        self.tensors.put(&mut out);
        self.entries.put(&mut out);
        out.extend_from_slice(&self.metadata);
        out.extend_from_slice(&self.list);
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
