//! Metadata values. Scalars and strings are owned; arrays stay in the file.

use std::fmt;
use std::ops::Range;

/// The type of a metadata value or of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// In the order of the format's numbers, from 0: the type, its name, bytes of a value.
    const TABLE: [(Self, &str, Option<u64>); 13] = [
        (Self::U8, "u8", Some(1)),
        (Self::I8, "i8", Some(1)),
        (Self::U16, "u16", Some(2)),
        (Self::I16, "i16", Some(2)),
        (Self::U32, "u32", Some(4)),
        (Self::I32, "i32", Some(4)),
        (Self::F32, "f32", Some(4)),
        (Self::Bool, "bool", Some(1)),
        (Self::String, "string", None),
        (Self::Array, "array", None),
        (Self::U64, "u64", Some(8)),
        (Self::I64, "i64", Some(8)),
        (Self::F64, "f64", Some(8)),
    ];

    /// The type with this number in the file.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::TABLE.get(usize::try_from(code).ok()?).map(|row| row.0)
    }

    /// The number in the file.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The name used in messages, as `u32`.
    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// Bytes of a value of fixed size; none for strings and arrays.
    pub fn fixed_size(self) -> Option<u64> {
        Self::TABLE[self as usize].2
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(ArrayView),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Place of an array in the file. Its elements were checked when the file was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayView {
    /// Type of the elements; never [`ValueType::Array`].
    pub ty: ValueType,
    /// Number of elements.
    pub len: usize,
    /// Bytes of the elements in the file. A string is an u64 length and as many bytes.
    pub range: Range<usize>,
}

impl Value {
    /// The type of this value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The value of any integer type.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Bytes of the value as a file has them, without its type. `file` holds the bytes of arrays.
    ///
    /// # Panics
    /// If the value is an array of another, longer file.
    pub fn encoded(&self, file: &[u8]) -> Vec<u8> {
        match self {
            Self::U8(v) => v.to_le_bytes().to_vec(),
            Self::I8(v) => v.to_le_bytes().to_vec(),
            Self::U16(v) => v.to_le_bytes().to_vec(),
            Self::I16(v) => v.to_le_bytes().to_vec(),
            Self::U32(v) => v.to_le_bytes().to_vec(),
            Self::I32(v) => v.to_le_bytes().to_vec(),
            Self::F32(v) => v.to_le_bytes().to_vec(),
            Self::U64(v) => v.to_le_bytes().to_vec(),
            Self::I64(v) => v.to_le_bytes().to_vec(),
            Self::F64(v) => v.to_le_bytes().to_vec(),
            Self::Bool(v) => vec![u8::from(*v)],
            Self::String(v) => [&(v.len() as u64).to_le_bytes(), v.as_bytes()].concat(),
            Self::Array(array) => {
                let (ty, len) = (array.ty.code().to_le_bytes(), (array.len as u64).to_le_bytes());
                [&ty[..], &len, &file[array.range.clone()]].concat()
            }
        }
    }

    /// The value of either float type, an f64 rounded.
    pub(super) fn as_float(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            Self::F64(v) => Some(v as f32),
            _ => None,
        }
    }

    /// The type in words for messages: an array also names its elements.
    pub(super) fn describe_type(&self) -> String {
        match self {
            Self::Array(array) => format!("array of {}", array.ty),
            other => other.value_type().name().to_owned(),
        }
    }
}

impl fmt::Display for Value {
    /// The value in full, except that an array shows only its length and type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => v.fmt(f),
            Self::Array(v) => write!(f, "[{} × {}]", v.len, v.ty),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
        }
    }
}
