//! Metadata values. Scalars and strings are owned; arrays stay in the file.

use std::fmt;
use std::ops::Range;

/// The type of a metadata value or of an array's elements, in the order of the format's numbers.
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

use ValueType::{Array, Bool, F32, F64, I8, I16, I32, I64, String as Text, U8, U16, U32, U64};

/// Each type with its name and the bytes of a value, where they are fixed.
#[rustfmt::skip]
const TYPES: [(ValueType, &str, Option<u64>); 13] = [
    (U8, "u8", Some(1)), (I8, "i8", Some(1)), (U16, "u16", Some(2)), (I16, "i16", Some(2)),
    (U32, "u32", Some(4)), (I32, "i32", Some(4)), (F32, "f32", Some(4)), (Bool, "bool", Some(1)),
    (Text, "string", None), (Array, "array", None),
    (U64, "u64", Some(8)), (I64, "i64", Some(8)), (F64, "f64", Some(8)),
];

impl ValueType {
    /// The type with this number in the file.
    pub fn from_code(code: u32) -> Option<Self> {
        TYPES.get(usize::try_from(code).ok()?).map(|row| row.0)
    }

    /// The number in the file.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The name used in messages, as `u32`.
    pub fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// Bytes of a value of fixed size; none for strings and arrays.
    pub fn fixed_size(self) -> Option<u64> {
        TYPES[self as usize].2
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

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number of this type, by the bits that the file has of it.
    Number(ValueType, u64),
    /// A bool.
    Bool(bool),
    /// A string.
    String(String),
    /// An array.
    Array(ArrayView),
}

impl Value {
    /// The type of this value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Number(ty, _) => *ty,
            Self::Bool(_) => Bool,
            Self::String(_) => Text,
            Self::Array(_) => Array,
        }
    }

    /// The value of any integer type.
    pub fn as_integer(&self) -> Option<i128> {
        let Self::Number(ty, bits) = *self else { return None };
        match ty {
            F32 | F64 => None,
            I8 => Some((bits as i8).into()),
            I16 => Some((bits as i16).into()),
            I32 => Some((bits as i32).into()),
            I64 => Some((bits as i64).into()),
            _ => Some(bits.into()),
        }
    }

    /// The value of either float type, an f64 rounded.
    pub(super) fn as_float(&self) -> Option<f32> {
        match *self {
            Self::Number(F32, bits) => Some(f32::from_bits(bits as u32)),
            Self::Number(F64, bits) => Some(f64::from_bits(bits) as f32),
            _ => None,
        }
    }

    /// Bytes of the value as a file has them, without its type. `file` holds the bytes of arrays.
    ///
    /// # Panics
    /// If the value is an array of another, longer file.
    pub fn encoded(&self, file: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Number(ty, bits) => {
                let size = ty.fixed_size().unwrap_or_default();
                out.extend_from_slice(&bits.to_le_bytes()[..size as usize]);
            }
            Self::Bool(v) => v.put(&mut out),
            Self::String(v) => v.put(&mut out),
            Self::Array(array) => {
                array.ty.code().put(&mut out);
                (array.len as u64).put(&mut out);
                out.extend_from_slice(&file[array.range.clone()]);
            }
        }
        out
    }
}

impl fmt::Display for Value {
    /// The value in full, except that an array shows only its length and type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(F64, bits) => f64::from_bits(*bits).fmt(f),
            Self::Number(F32, bits) => f32::from_bits(*bits as u32).fmt(f),
            Self::Number(..) => self.as_integer().unwrap_or_default().fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => v.fmt(f),
            Self::Array(v) => write!(f, "[{} × {}]", v.len, v.ty),
        }
    }
}

/// A Rust type whose values can be written as metadata.
pub trait Field {
    /// The type in the file.
    const TYPE: ValueType;

    /// Appends the bytes of a value, without its type.
    fn put(&self, out: &mut Vec<u8>);
}

/// A field type, with a closure that appends a value to a list of bytes.
macro_rules! field {
    ($([$($generic:tt)*] $ty:ty, $value_type:expr, $put:expr;)*) => {
        $(impl<$($generic)*> Field for $ty {
            const TYPE: ValueType = $value_type;
            fn put(&self, out: &mut Vec<u8>) {
                let put: fn(&Self, &mut Vec<u8>) = $put;
                put(self, out);
            }
        })*
    };
}

field! {
    [] u32, U32, |v, out| out.extend_from_slice(&v.to_le_bytes());
    [] i32, I32, |v, out| out.extend_from_slice(&v.to_le_bytes());
    [] u64, U64, |v, out| out.extend_from_slice(&v.to_le_bytes());
    [] f32, F32, |v, out| out.extend_from_slice(&v.to_le_bytes());
    [] bool, Bool, |v, out| out.push(u8::from(*v));
    [] String, Text, |v, out| v.as_str().put(out);
    [] str, Text, |v, out| {
        (v.len() as u64).put(out);
        out.extend_from_slice(v.as_bytes());
    };
    [T: Field + ?Sized] &T, T::TYPE, |v, out| (*v).put(out);
    [T: Field] [T], Array, |all, out| {
        T::TYPE.code().put(out);
        (all.len() as u64).put(out);
        all.iter().for_each(|v| v.put(out));
    };
}
