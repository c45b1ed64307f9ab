//! Faults of a GGUF file, each with its place.

use std::fmt;

use super::{GgmlType, ValueType};

/// A fault in a GGUF file. The message always carries the byte offset and the header field, key or
/// tensor concerned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("byte {offset}, {site}: {kind}")]
pub struct GgufError {
    /// Offset from the start of the file at which the fault was seen.
    pub offset: usize,
    /// The part of the file concerned.
    pub site: Site,
    /// The fault.
    pub kind: GgufErrorKind,
}

/// The part of a GGUF file an error speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Site {
    /// A field of the fixed header.
    Header(&'static str),
    /// The key of the metadata entry with this number, which could not be read.
    Key(u64),
    /// A metadata entry.
    Metadata(String),
    /// The name of the tensor with this number, which could not be read.
    TensorName(u64),
    /// A tensor, in the index or its data.
    Tensor(String),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(field) => write!(f, "header field `{field}`"),
            Self::Key(index) => write!(f, "key of metadata entry {index}"),
            Self::Metadata(key) => write!(f, "metadata `{key}`"),
            Self::TensorName(index) => write!(f, "name of tensor {index}"),
            Self::Tensor(name) => write!(f, "tensor `{name}`"),
        }
    }
}

/// A fault at some place in a GGUF file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum GgufErrorKind {
    #[error("the file ends too early: {needed} more bytes needed, {left} left")]
    Truncated { needed: u64, left: u64 },
    #[error("not a GGUF file: it begins with \"{}\", not \"GGUF\"", .found.escape_ascii())]
    BadMagic { found: [u8; 4] },
    #[error("big-endian GGUF is not supported (the version reads {found:#010x})")]
    BigEndian { found: u32 },
    #[error("GGUF version {found} is not supported, only 2 and 3 are")]
    Version { found: u32 },
    #[error("{count} entries are beyond the file: the bytes left hold at most {most}")]
    Count { count: u64, most: u64 },
    #[error("a string of {len} bytes is beyond the file: {left} bytes left")]
    StringLength { len: u64, left: u64 },
    #[error("the name is empty")]
    EmptyName,
    #[error("the name has {len} bytes, more than the {most} that GGUF allows")]
    NameLength { len: u64, most: u64 },
    #[error("the string is not UTF-8 (valid for {valid} bytes)")]
    NotUtf8 { valid: usize },
    #[error("the name was used before, at byte {first}")]
    Duplicate { first: usize },
    #[error("unknown value type {code}")]
    UnknownValueType { code: u32 },
    #[error("a bool is 0 or 1, not {found}")]
    BadBool { found: u8 },
    #[error("arrays of arrays are not supported")]
    NestedArray,
    #[error("an array of {len} {ty} is beyond the file: {left} bytes left")]
    ArrayLength { len: u64, ty: ValueType, left: u64 },
    #[error("the value is {found}, expected {expected}")]
    WrongType { found: String, expected: &'static str },
    #[error("the value {value} does not fit {expected}")]
    OutOfRange { value: String, expected: &'static str },
    #[error("the alignment {found} is not a power of two from 8 to 65536")]
    Alignment { found: u32 },
    #[error("{found} dimensions, at most 4 are possible")]
    Dimensions { found: u32 },
    #[error("the size of {dims:?} overflows")]
    SizeOverflow { dims: Vec<u64> },
    #[error("unknown tensor type {code}")]
    UnknownTensorType { code: u32 },
    #[error("tensor type {code} ({name}) was removed from the format")]
    RemovedTensorType { code: u32, name: &'static str },
    #[error("rows of {row_len} values do not divide into {ty} blocks of {}", .ty.block_len())]
    PartialBlock { row_len: u64, ty: GgmlType },
    #[error("its data offset {offset} is not a multiple of the alignment {alignment}")]
    Misaligned { offset: u64, alignment: u32 },
    #[error(
        "its data ({bytes} bytes at offset {offset} of the data) reach past the end: \
             the file has {file} bytes, the data begin at {data_start}"
    )]
    PastEnd { offset: u64, bytes: u64, file: usize, data_start: u64 },
    #[error("its data overlap those of tensor `{other}`")]
    Overlap { other: String },
}
