//! GGUF: an index over the bytes of a file.
//!
//! [`Gguf::parse`] reads header, metadata and tensor list, checks them, and owns names and scalars;
//! arrays and tensor data stay in the file as byte ranges, so the index of a checkpoint of any size
//! is small and borrows nothing.
//!
//! Accepted is exactly this (the fuzz oracle states the same rules a second time):
//! - magic `GGUF`, version 2 or 3, little-endian;
//! - keys of 1 to 65535 bytes of UTF-8, each once; value types 0 to 12; bools 0 or 1; strings
//!   UTF-8; arrays of anything but arrays;
//! - `general.alignment`, if there is one, an u32 and a power of two from 8 to 65536 (default 32);
//! - tensor names of 1 to 64 bytes of UTF-8, each once; up to 4 dimensions, the product of those
//!   that are not zero below 2⁶³; a known type whose blocks divide the rows; an aligned offset;
//!   data inside the file and shared with no other tensor. Order and gaps are free. Dimensions
//!   may be zero.

mod parse;
mod types;
mod value;
pub mod writer;

use std::collections::HashMap;
use std::ops::Range;

use crate::fault::Fault;
use crate::keys::{Found, Keys};

pub use types::GgmlType;
pub use value::{ArrayView, Field, Value, ValueType};

/// The index of a GGUF file.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// Version of the format, 2 or 3.
    pub version: u32,
    /// Tensor offsets are multiples of this many bytes.
    pub alignment: u32,
    /// Offset of the tensor data; past the end in a file that has no tensors and no padding.
    pub data_start: u64,
    /// Metadata in the order of the file.
    pub metadata: Metadata,
    /// Tensors in the order of the file.
    pub tensors: Vec<TensorInfo>,
    tensor_index: HashMap<String, usize>,
}

/// A tensor of the index. Checkpoints in other formats are indexed by the same names and
/// dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, unique in the file.
    pub name: String,
    /// Storage of its values.
    pub ty: GgmlType,
    /// GGUF order: `dims[0]` is the row length, the fastest to vary.
    pub dims: Vec<u64>,
    /// Its bytes in the file.
    pub range: Range<usize>,
    /// Index of its file in the checkpoint.
    pub file: usize,
}

impl TensorInfo {
    /// Values in a row: the first dimension, 1 for a scalar.
    pub fn row_len(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all other dimensions.
    pub fn rows(&self) -> u64 {
        // The parser bounded the product of the dimensions that are not zero.
        self.dims.iter().skip(1).fold(1, |n, &d| n.saturating_mul(d))
    }

    /// Number of values.
    pub fn elements(&self) -> u64 {
        self.rows().saturating_mul(self.row_len())
    }
}

/// Metadata in the order of the file, found by key.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    entries: Vec<(String, Entry)>,
    index: HashMap<String, usize>,
}

/// A value and the place in the file where its entry begins.
#[derive(Debug, Clone)]
struct Entry {
    value: Value,
    offset: usize,
}

impl Metadata {
    fn entry(&self, key: &str) -> Option<&Entry> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    fn insert(&mut self, key: &str, entry: Entry) {
        self.index.insert(key.to_owned(), self.entries.len());
        self.entries.push((key.to_owned(), entry));
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|e| &e.value)
    }

    /// Keys and values in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, entry)| (key.as_str(), &entry.value))
    }

    /// Returns true if there is no metadata.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Gguf {
    /// Reads and checks the index of a whole file.
    ///
    /// # Errors
    /// The first fault, with its byte offset and the header field, key or tensor concerned.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        parse::parse(bytes)
    }

    /// Adds the tensors of another part of the file.
    pub(crate) fn join(&mut self, tensors: Vec<TensorInfo>) -> Result<(), Fault> {
        for tensor in tensors {
            let at = self.tensors.len();
            if self.tensor_index.insert(tensor.name.clone(), at).is_some() {
                return Err(Fault::of_tensor(&tensor.name, "is in another part too"));
            }
            self.tensors.push(tensor);
        }
        Ok(())
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensor_index.get(name).map(|&i| &self.tensors[i])
    }

    /// Returns an array's place in the file; none if the key is missing.
    ///
    /// # Errors
    /// The value is no array.
    pub fn array(&self, key: &str) -> Result<Option<&ArrayView>, Fault> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(_) => Err(self.wrong(key, "an array")),
        }
    }

    /// The strings of an array. `bytes` are those that were parsed.
    ///
    /// # Errors
    /// The value is no array of strings, or the bytes are not those that were parsed.
    pub fn strings(&self, key: &str, bytes: &[u8]) -> Result<Option<Vec<String>>, Fault> {
        self.elements(key, bytes, "an array of strings", |value| match value {
            Value::String(v) => Some(v),
            _ => None,
        })
    }

    /// The floats of an array, an f64 rounded to f32.
    ///
    /// # Errors
    /// The value is no array of floats, or the bytes are not those that were parsed.
    pub fn floats(&self, key: &str, bytes: &[u8]) -> Result<Option<Vec<f32>>, Fault> {
        self.elements(key, bytes, "an array of floats", |value| value.as_float())
    }

    /// The integers of an array of any integer type, as i32.
    ///
    /// # Errors
    /// The value is no array of integers, one does not fit, or the bytes are not those that were
    /// parsed.
    pub fn integers(&self, key: &str, bytes: &[u8]) -> Result<Option<Vec<i32>>, Fault> {
        let convert = |value: Value| i32::try_from(value.as_integer()?).ok();
        self.elements(key, bytes, "an array of i32", convert)
    }

    /// The switches of an array of bools or of integers, where zero is off.
    ///
    /// # Errors
    /// The value is no such array, or the bytes are not those that were parsed.
    pub fn switches(&self, key: &str, bytes: &[u8]) -> Result<Option<Vec<bool>>, Fault> {
        self.elements(key, bytes, "an array of bools or integers", |value| match value {
            Value::Bool(v) => Some(v),
            value => Some(value.as_integer()? != 0),
        })
    }

    fn elements<T>(
        &self,
        key: &str,
        bytes: &[u8],
        expected: &str,
        convert: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Fault> {
        let Some(array) = self.array(key)? else { return Ok(None) };
        let mut cursor = parse::Cursor::new(bytes, array.range.clone(), at_key(key));
        let mut out = Vec::with_capacity(array.len);
        for index in 0..array.len {
            let value = cursor.value(array.ty)?;
            let wrong = || format!("{}; element {index} does not fit", self.shown(key));
            let wrong = || self.error(key, format!("expected {expected}, found {}", wrong()));
            out.push(convert(value).ok_or_else(wrong)?);
        }
        Ok(Some(out))
    }
}

impl Keys for Gguf {
    const FORMAT: usize = 0;

    fn find(&self, key: &str) -> Option<Found<'_>> {
        let value = self.metadata.get(key)?;
        Some(match value {
            Value::Bool(v) => Found::Switch(*v),
            Value::String(v) => Found::Text(v),
            Value::Array(_) => Found::Other,
            Value::Number(..) => match value.as_integer() {
                Some(v) => Found::Whole(v),
                None => Found::Real(value.as_float()?.into()),
            },
        })
    }

    fn shown(&self, key: &str) -> String {
        let shown = |value: &Value| format!("{} {value}", value.value_type());
        self.metadata.get(key).map_or_else(|| "nothing".to_owned(), shown)
    }

    fn error(&self, key: &str, why: impl Into<String>) -> Fault {
        let offset = self.metadata.entry(key).map(|entry| entry.offset);
        Fault { offset, site: at_key(key), why: why.into() }
    }
}

/// The place of a metadata entry in messages.
fn at_key(key: &str) -> String {
    format!("metadata `{key}`")
}
