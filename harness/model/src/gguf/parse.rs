//! Bytes to index. Every length and count is compared with the bytes that are left before it is
//! used, all arithmetic is checked, and nothing larger than the file warrants is allocated.

use std::collections::HashMap;
use std::ops::Range;

use super::{ArrayView, Entry, GgmlType, Gguf, TensorInfo, Value, ValueType, at_key};
use crate::fault::Fault;

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

/// A position in the file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The part of the file that is read, for messages.
    site: String,
}

impl<'a> Cursor<'a> {
    /// Reads `range` of `bytes`; a range beyond the bytes is cut, and reading then fails.
    pub(super) fn new(bytes: &'a [u8], range: Range<usize>, site: String) -> Self {
        let (at, end) = (range.start.min(bytes.len()), range.end.min(bytes.len()));
        Self { bytes: &bytes[..end], at, site }
    }

    fn fault<T>(&self, at: usize, why: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::at(at, self.site.clone(), why))
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let Some(slice) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            let left = self.left();
            let why = format!("the file ends too early: {len} more bytes needed, {left} left");
            return self.fault(self.at, why);
        };
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
            let why = format!("a string of {len} bytes is beyond the file: {left} bytes left");
            return self.fault(start, why);
        }
        let text_at = self.at;
        std::str::from_utf8(self.take(len)?).or_else(|e| {
            let valid = e.valid_up_to();
            self.fault(text_at, format!("the string is not UTF-8 (valid for {valid} bytes)"))
        })
    }

    /// A key or tensor name: a string that is neither empty nor longer than `most`.
    fn name(&mut self, most: u64) -> Result<&'a str, Fault> {
        let start = self.at;
        let name = self.string()?;
        match name.len() as u64 {
            0 => self.fault(start, "the name is empty"),
            len if len > most => {
                let why =
                    format!("the name has {len} bytes, more than the {most} that GGUF allows");
                self.fault(start, why)
            }
            _ => Ok(name),
        }
    }

    fn bool(&mut self) -> Result<bool, Fault> {
        let start = self.at;
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => self.fault(start, format!("a bool is 0 or 1, not {found}")),
        }
    }

    fn value_type(&mut self) -> Result<ValueType, Fault> {
        let start = self.at;
        let code = self.u32()?;
        let ty = ValueType::from_code(code);
        ty.map_or_else(|| self.fault(start, format!("unknown value type {code}")), Ok)
    }

    /// A value of this type.
    pub(super) fn value(&mut self, ty: ValueType) -> Result<Value, Fault> {
        Ok(match (ty, ty.fixed_size()) {
            (ValueType::Bool, _) => Value::Bool(self.bool()?),
            (_, Some(size)) => {
                let mut bits = [0; 8];
                bits[..size as usize].copy_from_slice(self.take(size)?);
                Value::Number(ty, u64::from_le_bytes(bits))
            }
            (ValueType::Array, None) => Value::Array(self.array_view()?),
            (_, None) => Value::String(self.string()?.to_owned()),
        })
    }

    fn array_view(&mut self) -> Result<ArrayView, Fault> {
        let start = self.at;
        let ty = self.value_type()?;
        if ty == ValueType::Array {
            return self.fault(start, "arrays of arrays are not supported");
        }
        let len_at = self.at;
        let len = self.u64()?;
        let left = self.left();
        // A string takes at least its own length.
        let min = len.checked_mul(ty.fixed_size().unwrap_or(8)).filter(|&min| min <= left);
        let (Some(min), Ok(count)) = (min, usize::try_from(len)) else {
            let why = format!("an array of {len} {ty} is beyond the file: {left} bytes left");
            return self.fault(len_at, why);
        };
        let first = self.at;
        match ty {
            ValueType::String => (0..count).try_for_each(|_| self.string().map(drop))?,
            ValueType::Bool => (0..count).try_for_each(|_| self.bool().map(drop))?,
            _ => drop(self.take(min)?),
        }
        Ok(ArrayView { ty, len: count, range: first..self.at })
    }

    /// Begins another part of the file.
    fn enter(&mut self, site: String) -> usize {
        self.site = site;
        self.at
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

pub(super) fn parse(bytes: &[u8]) -> Result<Gguf, Fault> {
    let mut cursor = Cursor::new(bytes, 0..bytes.len(), String::new());
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
        let key_at = cursor.enter(format!("key of metadata entry {index}"));
        let key = cursor.name(MAX_KEY)?;
        cursor.enter(at_key(key));
        if let Some(first) = gguf.metadata.entry(key) {
            return cursor.fault(key_at, used_before(first.offset));
        }
        let ty = cursor.value_type()?;
        let value = cursor.value(ty)?;
        gguf.metadata.insert(key, Entry { value, offset: key_at });
    }
    gguf.alignment = alignment(&gguf)?;

    let mut listed: Vec<Listed> = Vec::new();
    for index in 0..n_tensors {
        let name_at = cursor.enter(format!("name of tensor {index}"));
        let name = cursor.name(MAX_TENSOR_NAME)?;
        cursor.enter(format!("tensor `{name}`"));
        if let Some(&other) = gguf.tensor_index.get(name) {
            return cursor.fault(name_at, used_before(listed[other].name_at));
        }
        let tensor = list_tensor(&mut cursor, name, name_at)?;
        gguf.tensor_index.insert(name.to_owned(), listed.len());
        listed.push(tensor);
    }

    // Without tensors the padding may be missing, so the data may begin past the end.
    let data_start = (cursor.at as u64).next_multiple_of(u64::from(gguf.alignment));
    gguf.data_start = data_start;
    gguf.tensors = Vec::with_capacity(listed.len());
    for tensor in listed {
        let range = place(&tensor, gguf.alignment, data_start, bytes.len())
            .map_err(|why| Fault::at(tensor.offset_at, format!("tensor `{}`", tensor.name), why))?;
        let Listed { name, ty, dims, .. } = tensor;
        gguf.tensors.push(TensorInfo { name, ty, dims, range, file: 0 });
    }
    no_overlap(&gguf.tensors)?;
    Ok(gguf)
}

fn used_before(first: usize) -> String {
    format!("the name was used before, at byte {first}")
}

fn header_version(cursor: &mut Cursor<'_>) -> Result<u32, Fault> {
    cursor.enter("header field `magic`".to_owned());
    let found = cursor.array::<4>()?;
    if &found != b"GGUF" {
        let begins = found.escape_ascii();
        let why = format!("not a GGUF file: it begins with \"{begins}\", not \"GGUF\"");
        return cursor.fault(0, why);
    }
    let start = cursor.enter("header field `version`".to_owned());
    let found = cursor.u32()?;
    match found {
        2 | 3 => Ok(found),
        // A small number read from the wrong end.
        _ if found != 0 && found.trailing_zeros() >= 16 => {
            let why = format!("big-endian GGUF is not supported (the version reads {found:#010x})");
            cursor.fault(start, why)
        }
        _ => {
            cursor.fault(start, format!("GGUF version {found} is not supported, only 2 and 3 are"))
        }
    }
}

/// A count of things that take at least `min` bytes each.
fn header_count(cursor: &mut Cursor<'_>, field: &'static str, min: u64) -> Result<u64, Fault> {
    let start = cursor.enter(format!("header field `{field}`"));
    let count = cursor.u64()?;
    let most = cursor.left() / min;
    if count > most {
        let why =
            format!("{count} entries are beyond the file: the bytes left hold at most {most}");
        return cursor.fault(start, why);
    }
    Ok(count)
}

fn alignment(gguf: &Gguf) -> Result<u32, Fault> {
    const KEY: &str = "general.alignment";
    let Some(entry) = gguf.metadata.entry(KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    let why = match (entry.value.value_type(), entry.value.as_integer()) {
        (ValueType::U32, Some(found)) => {
            let found = found as u32;
            if found.is_power_of_two() && ALIGNMENTS.contains(&found) {
                return Ok(found);
            }
            format!("the alignment {found} is not a power of two from 8 to 65536")
        }
        (other, _) => format!("the value is {other}, expected u32"),
    };
    Err(Fault::at(entry.offset, at_key(KEY), why))
}

fn list_tensor(cursor: &mut Cursor<'_>, name: &str, name_at: usize) -> Result<Listed, Fault> {
    let start = cursor.at;
    let found = cursor.u32()?;
    if found > 4 {
        return cursor.fault(start, format!("{found} dimensions, at most 4 are possible"));
    }
    let dims_at = cursor.at;
    let dims = (0..found).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
    let type_at = cursor.at;
    let code = cursor.u32()?;
    let Some(ty) = GgmlType::from_code(code) else {
        let why = match GgmlType::removed(code) {
            Some(name) => format!("tensor type {code} ({name}) was removed from the format"),
            None => format!("unknown tensor type {code}"),
        };
        return cursor.fault(type_at, why);
    };
    let row_len = dims.first().copied().unwrap_or(1);
    if !row_len.is_multiple_of(ty.block_len()) {
        let block = ty.block_len();
        let why = format!("rows of {row_len} values do not divide into {ty} blocks of {block}");
        return cursor.fault(dims_at, why);
    }
    let Some(bytes) = tensor_bytes(&dims, ty) else {
        return cursor.fault(dims_at, format!("the size of {dims:?} overflows"));
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
) -> Result<Range<usize>, String> {
    let Listed { offset, bytes, .. } = *tensor;
    if !offset.is_multiple_of(u64::from(alignment)) {
        return Err(format!(
            "its data offset {offset} is not a multiple of the alignment {alignment}"
        ));
    }
    let start = data_start.checked_add(offset).and_then(|start| usize::try_from(start).ok());
    let range = start.and_then(|start| Some(start..start.checked_add(bytes.try_into().ok()?)?));
    range.filter(|range| range.end <= file).ok_or_else(|| {
        format!(
            "its data ({bytes} bytes at offset {offset} of the data) reach past the end: the file \
             has {file} bytes, the data begin at {data_start}"
        )
    })
}

fn no_overlap(tensors: &[TensorInfo]) -> Result<(), Fault> {
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    order.sort_unstable_by_key(|t| t.range.start);
    for pair in order.windows(2) {
        let [before, after] = pair else { continue };
        if before.range.end > after.range.start {
            let why = format!("its data overlap those of tensor `{}`", before.name);
            return Err(Fault::at(after.range.start, format!("tensor `{}`", after.name), why));
        }
    }
    Ok(())
}
