//! Bytes to index. Every length and count is compared with the bytes that are left before it is
//! used, all arithmetic is checked, and nothing larger than the file warrants is allocated.

use std::collections::HashMap;
use std::ops::Range;

use super::error::{GgufError, GgufErrorKind, Site};
use super::{ArrayView, Entry, GgmlType, Gguf, TensorInfo, Value, ValueType};

/// The longest key and tensor name of the specification, in bytes.
const MAX_KEY: u64 = 65535;
const MAX_TENSOR_NAME: u64 = 64;
/// An entry of metadata takes at least a length, one byte of key, a type and one byte of value.
const MIN_ENTRY: u64 = 8 + 1 + 4 + 1;
/// A tensor takes at least a length, one byte of name, n_dims, a type and an offset.
const MIN_TENSOR: u64 = 8 + 1 + 4 + 4 + 8;
/// Alignments that are accepted: a larger one is no writer's choice and hides where data begin.
const ALIGNMENTS: std::ops::RangeInclusive<u32> = 8..=65536;
const DEFAULT_ALIGNMENT: u32 = 32;

/// A fault without its site, which the caller knows.
type Fault = (usize, GgufErrorKind);

trait At<T> {
    fn at(self, site: impl FnOnce() -> Site) -> Result<T, GgufError>;
}

impl<T> At<T> for Result<T, Fault> {
    fn at(self, site: impl FnOnce() -> Site) -> Result<T, GgufError> {
        self.map_err(|(offset, kind)| GgufError { offset, site: site(), kind })
    }
}

/// A position in the file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `range` of `bytes`; a range beyond the bytes is cut, and reading then fails.
    pub(super) fn new(bytes: &'a [u8], range: Range<usize>) -> Self {
        Self { bytes: &bytes[..range.end.min(bytes.len())], at: range.start.min(bytes.len()) }
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let slice = usize::try_from(len)
            .ok()
            .and_then(|len| self.at.checked_add(len))
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or((self.at, GgufErrorKind::Truncated { needed: len, left: self.left() }))?;
        self.at += slice.len();
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn string(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        let len = self.u64()?;
        let left = self.left();
        if len > left {
            return Err((start, GgufErrorKind::StringLength { len, left }));
        }
        let text_at = self.at;
        std::str::from_utf8(self.take(len)?)
            .map_err(|e| (text_at, GgufErrorKind::NotUtf8 { valid: e.valid_up_to() }))
    }

    /// A key or tensor name: a string that is neither empty nor longer than `most`.
    fn name(&mut self, most: u64) -> Result<&'a str, Fault> {
        let start = self.at;
        let name = self.string()?;
        match name.len() as u64 {
            0 => Err((start, GgufErrorKind::EmptyName)),
            len if len > most => Err((start, GgufErrorKind::NameLength { len, most })),
            _ => Ok(name),
        }
    }

    fn bool(&mut self) -> Result<bool, Fault> {
        let start = self.at;
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => Err((start, GgufErrorKind::BadBool { found })),
        }
    }

    fn value_type(&mut self) -> Result<ValueType, Fault> {
        let start = self.at;
        let code = self.u32()?;
        ValueType::from_code(code).ok_or((start, GgufErrorKind::UnknownValueType { code }))
    }

    /// A scalar or string; none for an array.
    pub(super) fn scalar(&mut self, ty: ValueType) -> Result<Option<Value>, Fault> {
        Ok(Some(match ty {
            ValueType::U8 => Value::U8(u8::from_le_bytes(self.array()?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(self.array()?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(self.array()?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(self.array()?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(self.array()?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(self.array()?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(self.array()?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(self.array()?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(self.array()?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(self.array()?)),
            ValueType::Bool => Value::Bool(self.bool()?),
            ValueType::String => Value::String(self.string()?.to_owned()),
            ValueType::Array => return Ok(None),
        }))
    }

    fn array_view(&mut self) -> Result<ArrayView, Fault> {
        let start = self.at;
        let ty = self.value_type()?;
        if ty == ValueType::Array {
            return Err((start, GgufErrorKind::NestedArray));
        }
        let len_at = self.at;
        let len = self.u64()?;
        let left = self.left();
        let too_long = || (len_at, GgufErrorKind::ArrayLength { len, ty, left });
        // A string takes at least its own length.
        let min = len.checked_mul(ty.fixed_size().unwrap_or(8)).ok_or_else(too_long)?;
        if min > left {
            return Err(too_long());
        }
        let count = usize::try_from(len).map_err(|_| too_long())?;
        let first = self.at;
        match ty {
            ValueType::String => {
                for _ in 0..count {
                    self.string()?;
                }
            }
            ValueType::Bool => {
                for _ in 0..count {
                    self.bool()?;
                }
            }
            _ => {
                self.take(min)?;
            }
        }
        Ok(ArrayView { ty, len: count, range: first..self.at })
    }

    fn value(&mut self) -> Result<Value, Fault> {
        let ty = self.value_type()?;
        match self.scalar(ty)? {
            Some(value) => Ok(value),
            None => self.array_view().map(Value::Array),
        }
    }
}

/// A tensor as the index lists it, before its place in the file is known.
struct Listed {
    name: String,
    ty: GgmlType,
    dims: Vec<u64>,
    bytes: u64,
    offset: u64,
    /// Offset of the name in the file.
    name_at: usize,
    offset_at: usize,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Gguf, GgufError> {
    let mut cursor = Cursor::new(bytes, 0..bytes.len());
    let version = header_version(&mut cursor)?;
    let n_tensors = header_count(&mut cursor, "tensor_count", MIN_TENSOR)?;
    let n_entries = header_count(&mut cursor, "metadata_kv_count", MIN_ENTRY)?;

    let mut gguf = Gguf {
        version,
        alignment: DEFAULT_ALIGNMENT,
        data_start: 0,
        metadata: super::Metadata::default(),
        tensors: Vec::new(),
        tensor_index: HashMap::new(),
    };
    for index in 0..n_entries {
        let key_at = cursor.at;
        let key = cursor.name(MAX_KEY).at(|| Site::Key(index))?;
        if let Some(first) = gguf.metadata.entry(key) {
            let kind = GgufErrorKind::Duplicate { first: first.offset };
            return Err(kind).map_err(|k| (key_at, k)).at(|| Site::Metadata(key.to_owned()));
        }
        let value = cursor.value().at(|| Site::Metadata(key.to_owned()))?;
        gguf.metadata.insert(key, Entry { value, offset: key_at });
    }
    gguf.alignment = alignment(&gguf)?;

    let mut listed: Vec<Listed> = Vec::new();
    for index in 0..n_tensors {
        let name_at = cursor.at;
        let name = cursor.name(MAX_TENSOR_NAME).at(|| Site::TensorName(index))?;
        let site = || Site::Tensor(name.to_owned());
        if let Some(&other) = gguf.tensor_index.get(name) {
            let first = listed[other].name_at;
            return Err((name_at, GgufErrorKind::Duplicate { first })).at(site);
        }
        let tensor = list_tensor(&mut cursor, name, name_at).at(site)?;
        gguf.tensor_index.insert(name.to_owned(), listed.len());
        listed.push(tensor);
    }

    // Without tensors the padding may be missing, so the data may begin past the end.
    let data_start = (cursor.at as u64).next_multiple_of(u64::from(gguf.alignment));
    gguf.data_start = data_start;
    gguf.tensors = Vec::with_capacity(listed.len());
    for tensor in listed {
        let range = place(&tensor, gguf.alignment, data_start, bytes.len())
            .map_err(|kind| (tensor.offset_at, kind))
            .at(|| Site::Tensor(tensor.name.clone()))?;
        let Listed { name, ty, dims, .. } = tensor;
        gguf.tensors.push(TensorInfo { name, ty, dims, range, file: 0 });
    }
    no_overlap(&gguf.tensors)?;
    Ok(gguf)
}

fn header_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let site = || Site::Header("magic");
    let found = cursor.array::<4>().at(site)?;
    if &found != b"GGUF" {
        return Err((0, GgufErrorKind::BadMagic { found })).at(site);
    }
    let site = || Site::Header("version");
    let start = cursor.at;
    let found = cursor.u32().at(site)?;
    match found {
        2 | 3 => Ok(found),
        // A small number read from the wrong end.
        _ if found != 0 && found.trailing_zeros() >= 16 => {
            Err((start, GgufErrorKind::BigEndian { found })).at(site)
        }
        _ => Err((start, GgufErrorKind::Version { found })).at(site),
    }
}

/// A count of things that take at least `min` bytes each.
fn header_count(cursor: &mut Cursor<'_>, field: &'static str, min: u64) -> Result<u64, GgufError> {
    let site = || Site::Header(field);
    let start = cursor.at;
    let count = cursor.u64().at(site)?;
    let most = cursor.left() / min;
    if count > most {
        return Err((start, GgufErrorKind::Count { count, most })).at(site);
    }
    Ok(count)
}

fn alignment(gguf: &Gguf) -> Result<u32, GgufError> {
    const KEY: &str = "general.alignment";
    let Some(entry) = gguf.metadata.entry(KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    let kind = match entry.value {
        Value::U32(found) if found.is_power_of_two() && ALIGNMENTS.contains(&found) => {
            return Ok(found);
        }
        Value::U32(found) => GgufErrorKind::Alignment { found },
        ref other => GgufErrorKind::WrongType { found: other.describe_type(), expected: "u32" },
    };
    Err((entry.offset, kind)).at(|| Site::Metadata(KEY.to_owned()))
}

fn list_tensor(cursor: &mut Cursor<'_>, name: &str, name_at: usize) -> Result<Listed, Fault> {
    let start = cursor.at;
    let found = cursor.u32()?;
    if found > 4 {
        return Err((start, GgufErrorKind::Dimensions { found }));
    }
    let dims_at = cursor.at;
    let dims = (0..found).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
    let type_at = cursor.at;
    let code = cursor.u32()?;
    let ty = GgmlType::from_code(code).ok_or_else(|| {
        let kind = match GgmlType::removed(code) {
            Some(name) => GgufErrorKind::RemovedTensorType { code, name },
            None => GgufErrorKind::UnknownTensorType { code },
        };
        (type_at, kind)
    })?;
    let row_len = dims.first().copied().unwrap_or(1);
    if !row_len.is_multiple_of(ty.block_len()) {
        return Err((dims_at, GgufErrorKind::PartialBlock { row_len, ty }));
    }
    let Some(bytes) = tensor_bytes(&dims, ty) else {
        return Err((dims_at, GgufErrorKind::SizeOverflow { dims }));
    };
    let offset_at = cursor.at;
    let offset = cursor.u64()?;
    Ok(Listed { name: name.to_owned(), ty, dims, bytes, offset, name_at, offset_at })
}

/// Bytes of a tensor; none where the size overflows. A zero among the dimensions does not hide an
/// overflow of the others: strides would still overflow.
fn tensor_bytes(dims: &[u64], ty: GgmlType) -> Option<u64> {
    let nonzero = dims.iter().filter(|&&d| d > 0).try_fold(1u64, |n, &d| n.checked_mul(d))?;
    i64::try_from(nonzero).ok()?;
    if dims.contains(&0) {
        return Some(0);
    }
    (nonzero / ty.block_len()).checked_mul(ty.block_bytes())
}

/// The bytes of the file that a tensor takes.
fn place(
    tensor: &Listed,
    alignment: u32,
    data_start: u64,
    file: usize,
) -> Result<Range<usize>, GgufErrorKind> {
    let Listed { offset, bytes, .. } = *tensor;
    if !offset.is_multiple_of(u64::from(alignment)) {
        return Err(GgufErrorKind::Misaligned { offset, alignment });
    }
    let past = GgufErrorKind::PastEnd { offset, bytes, file, data_start };
    let Some(start) = data_start.checked_add(offset) else { return Err(past) };
    let Some(end) = start.checked_add(bytes) else { return Err(past) };
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if end <= file => Ok(start..end),
        _ => Err(past),
    }
}

fn no_overlap(tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    order.sort_unstable_by_key(|t| t.range.start);
    for pair in order.windows(2) {
        let [before, after] = pair else { continue };
        if before.range.end > after.range.start {
            let kind = GgufErrorKind::Overlap { other: before.name.clone() };
            let site = || Site::Tensor(after.name.clone());
            return Err((after.range.start, kind)).at(site);
        }
    }
    Ok(())
}
