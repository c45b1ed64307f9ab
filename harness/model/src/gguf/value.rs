//! Metadata values. Scalars and strings are owned; arrays stay in the file.

use std::fmt;
use std::ops::Range;

/// One line a type, in the order of the format's numbers: the type and the value, its name, bytes.
macro_rules! values {
    ($($variant:ident($inner:ty), $name:literal, $bytes:expr;)*) => {
        /// The type of a metadata value or of an array's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum ValueType {
            $($variant,)*
        }

        /// A metadata value.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum Value {
            $($variant($inner),)*
        }

        impl ValueType {
            const TABLE: &[(Self, &str, Option<u64>)] = &[$((Self::$variant, $name, $bytes),)*];
        }

        impl Value {
            /// The type of this value.
            pub fn value_type(&self) -> ValueType {
                match self {
                    $(Self::$variant(_) => ValueType::$variant,)*
                }
            }
        }
    };
}

values! {
    U8(u8), "u8", Some(1);
    I8(i8), "i8", Some(1);
    U16(u16), "u16", Some(2);
    I16(i16), "i16", Some(2);
    U32(u32), "u32", Some(4);
    I32(i32), "i32", Some(4);
    F32(f32), "f32", Some(4);
    Bool(bool), "bool", Some(1);
    String(String), "string", None;
    Array(ArrayView), "array", None;
    U64(u64), "u64", Some(8);
    I64(i64), "i64", Some(8);
    F64(f64), "f64", Some(8);
}

/// Matches a value: one expression for all numbers, arms for the others.
macro_rules! numbers {
    ($value:expr, $v:ident => $number:expr, $($others:tt)*) => {
        match $value {
            Value::U8($v) => $number,
            Value::I8($v) => $number,
            Value::U16($v) => $number,
            Value::I16($v) => $number,
            Value::U32($v) => $number,
            Value::I32($v) => $number,
            Value::F32($v) => $number,
            Value::U64($v) => $number,
            Value::I64($v) => $number,
            Value::F64($v) => $number,
            $($others)*
        }
    };
}

impl ValueType {
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
        numbers! { self, v => v.to_le_bytes().to_vec(),
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
        numbers! { self, v => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => v.fmt(f),
            Self::Array(v) => write!(f, "[{} × {}]", v.len, v.ty),
        }
    }
}
