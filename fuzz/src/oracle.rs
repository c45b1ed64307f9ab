//! A second GGUF reader as an oracle for the first: read front to back, everything in u128 so that
//! nothing overflows, no care for speed or messages. It follows the rules at the top of
//! `harness/model/src/gguf/mod.rs`.

use std::collections::BTreeMap;

use lathe_harness::model::gguf::{Gguf, Value, ValueType};
use lathe_harness::model::{Config, GgmlType, Keys};

/// Contents of a GGUF file in the oracle's own types.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain {
    version: u32,
    alignment: u128,
    /// In the order of the file.
    entries: Vec<(String, PlainValue)>,
    tensors: Vec<PlainTensor>,
}

/// The type number and either the bytes of a scalar or string, or the elements of an array.
#[derive(Debug, PartialEq, Eq)]
enum PlainValue {
    Bytes(u32, Vec<u8>),
    Array { ty: u32, len: u128, start: u128, end: u128 },
}

#[derive(Debug, PartialEq, Eq)]
struct PlainTensor {
    name: String,
    ty: u32,
    dims: Vec<u64>,
    start: u128,
    end: u128,
}

/// Reads a file, or refuses it.
pub fn read(bytes: &[u8]) -> Option<Plain> {
    let mut r = Reader { bytes, at: 0 };
    if r.bytes(4)? != b"GGUF" {
        return None;
    }
    let version = r.u32()?;
    if version != 2 && version != 3 {
        return None;
    }
    let n_tensors = r.u64()?;
    let n_entries = r.u64()?;

    let mut alignment = 32;
    let mut seen = BTreeMap::new();
    let mut entries = Vec::new();
    for _ in 0..n_entries {
        let key = r.name(65535)?;
        let value = r.value()?;
        if key == "general.alignment" {
            let PlainValue::Bytes(4, bytes) = &value else { return None };
            alignment = little(bytes);
            // The powers of two from 8 to 65536, one by one.
            if !(3..=16).any(|bit| alignment == 1 << bit) {
                return None;
            }
        }
        if seen.insert(key.clone(), ()).is_some() {
            return None;
        }
        entries.push((key, value));
    }

    let mut seen = BTreeMap::new();
    let mut listed = Vec::new();
    for _ in 0..n_tensors {
        let name = r.name(64)?;
        let n_dims = r.u32()?;
        if n_dims > 4 {
            return None;
        }
        let mut dims = Vec::new();
        for _ in 0..n_dims {
            dims.push(r.u64()?);
        }
        let ty = r.u32()?;
        let offset = u128::from(r.u64()?);
        if seen.insert(name.clone(), ()).is_some() {
            return None;
        }
        listed.push((name, ty, dims, offset));
    }

    let data = r.at.div_ceil(alignment) * alignment;
    let mut tensors: Vec<PlainTensor> = Vec::new();
    for (name, ty, dims, offset) in listed {
        let (block_len, block_bytes) = block(ty)?;
        let mut product = 1;
        for &dim in dims.iter().filter(|&&dim| dim != 0) {
            product *= u128::from(dim);
            if product >= 1 << 63 {
                return None;
            }
        }
        if u128::from(dims.first().copied().unwrap_or(1)) % block_len != 0 {
            return None;
        }
        let len = if dims.contains(&0) { 0 } else { product / block_len * block_bytes };
        // The size of a tensor is an u64 even where the file could not hold it.
        if len > u128::from(u64::MAX) || offset % alignment != 0 {
            return None;
        }
        let (start, end) = (data + offset, data + offset + len);
        if end > bytes.len() as u128 {
            return None;
        }
        let apart =
            |t: &PlainTensor| len == 0 || t.start == t.end || end <= t.start || t.end <= start;
        if !tensors.iter().all(apart) {
            return None;
        }
        tensors.push(PlainTensor { name, ty, dims, start, end });
    }
    Some(Plain { version, alignment, entries, tensors })
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: u128,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: u128) -> Option<&'a [u8]> {
        let end = self.at + len;
        if end > self.bytes.len() as u128 {
            return None;
        }
        let bytes = &self.bytes[self.at as usize..end as usize];
        self.at = end;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(|b| little(b) as u32)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8).map(|b| little(b) as u64)
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u64()?;
        let bytes = self.bytes(len.into())?;
        std::str::from_utf8(bytes).is_ok().then_some(bytes)
    }

    fn name(&mut self, most: usize) -> Option<String> {
        let name = self.string()?;
        if name.is_empty() || name.len() > most {
            return None;
        }
        String::from_utf8(name.to_vec()).ok()
    }

    /// The bytes of a value that is no array.
    fn plain(&mut self, ty: u32) -> Option<&'a [u8]> {
        match ty {
            0 | 1 => self.bytes(1),
            2 | 3 => self.bytes(2),
            4..=6 => self.bytes(4),
            7 => self.bytes(1).filter(|b| b[0] < 2),
            8 => self.string(),
            10..=12 => self.bytes(8),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<PlainValue> {
        let ty = self.u32()?;
        if ty != 9 {
            return Some(PlainValue::Bytes(ty, self.plain(ty)?.to_vec()));
        }
        let ty = self.u32()?;
        // An empty array must name a type, too.
        if ty == 9 || ty > 12 {
            return None;
        }
        let len = self.u64()?;
        let start = self.at;
        for _ in 0..len {
            self.plain(ty)?;
        }
        Some(PlainValue::Array { ty, len: len.into(), start, end: self.at })
    }
}

fn little(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |n, &byte| n << 8 | u128::from(byte))
}

/// Values and bytes of a block, from the definitions of the blocks: scales and minima first, then
/// high bits, then low bits.
fn block(ty: u32) -> Option<(u128, u128)> {
    const K: u128 = 256;
    Some(match ty {
        0 | 26 => (1, 4),
        1 | 25 | 30 => (1, 2),
        24 => (1, 1),
        27 | 28 => (1, 8),
        2 => (32, 2 + 32 / 2),
        3 => (32, 2 + 2 + 32 / 2),
        6 => (32, 2 + 4 + 32 / 2),
        7 => (32, 2 + 2 + 4 + 32 / 2),
        8 => (32, 2 + 32),
        9 => (32, 2 + 2 + 32),
        10 => (K, 2 + 2 + K / 16 + K / 4),
        11 => (K, 2 + K / 8 + K / 4 + 12),
        12 => (K, 2 + 2 + 12 + K / 2),
        13 => (K, 2 + 2 + 12 + K / 8 + K / 2),
        14 => (K, 2 + K / 16 + K / 4 + K / 2),
        15 => (K, 4 + K + 2 * K / 16),
        16 => (K, 2 + 2 * K / 8),
        17 => (K, 2 + 2 * K / 8 + K / 32),
        18 => (K, 2 + 3 * K / 8),
        19 => (K, 2 + K / 8 + 2 * K / 32),
        20 => (32, 2 + 32 / 2),
        21 => (K, 2 + K / 4 + K / 32 + K / 8 + K / 64),
        22 => (K, 2 + K / 4 + K / 32 + K / 32),
        23 => (K, 2 + 2 + K / 64 + K / 2),
        29 => (K, K / 8 + K / 16 + K / 32),
        34 => (K, 2 + (K - 4 * K / 64) / 5 + K / 64),
        35 => (K, 2 + K / 4),
        39 => (32, 1 + 32 / 2),
        40 => (64, 4 + 64 / 2),
        41 => (128, 2 + 128 / 8),
        _ => return None,
    })
}

/// Reads a file both ways and says whether it was accepted.
///
/// # Errors
/// In what the two differ.
pub fn agree(bytes: &[u8]) -> Result<bool, String> {
    let gguf = match (read(bytes), Gguf::parse(bytes)) {
        (None, Err(_)) => return Ok(false),
        (Some(_), Err(error)) => return Err(format!("only the reader refuses: {error}")),
        (None, Ok(_)) => return Err("only the oracle refuses".to_owned()),
        (Some(plain), Ok(gguf)) => {
            let seen = plainly(&gguf);
            if seen != plain {
                return Err(format!("the oracle reads {plain:#?}\nthe reader {seen:#?}"));
            }
            gguf
        }
    };
    walk(&gguf, bytes)?;
    Ok(true)
}

/// Converts the reader's result to the oracle's types.
pub fn plainly(gguf: &Gguf) -> Plain {
    let value = |value: &Value| match value {
        Value::Array(v) => PlainValue::Array {
            ty: v.ty.code(),
            len: v.len as u128,
            start: v.range.start as u128,
            end: v.range.end as u128,
        },
        Value::String(v) => PlainValue::Bytes(8, v.clone().into_bytes()),
        other => PlainValue::Bytes(other.value_type().code(), other.encoded(&[])),
    };
    let tensor = |t: &lathe_harness::model::TensorInfo| PlainTensor {
        name: t.name.clone(),
        ty: t.ty.code(),
        dims: t.dims.clone(),
        start: t.range.start as u128,
        end: t.range.end as u128,
    };
    Plain {
        version: gguf.version,
        alignment: gguf.alignment.into(),
        entries: gguf.metadata.iter().map(|(k, v)| (k.to_owned(), value(v))).collect(),
        tensors: gguf.tensors.iter().map(tensor).collect(),
    }
}

/// Calls the accessors of an accepted file; none of them may panic.
fn walk(gguf: &Gguf, bytes: &[u8]) -> Result<(), String> {
    for (key, value) in gguf.metadata.iter() {
        if let Value::Array(array) = value {
            let len = match array.ty {
                ValueType::String => gguf.strings(key, bytes).map(|v| v.map(|v| v.len())),
                ValueType::F32 | ValueType::F64 => {
                    gguf.floats(key, bytes).map(|v| v.map(|v| v.len()))
                }
                // Others may fail on a value that does not fit.
                _ => {
                    let _ = gguf.integers(key, bytes);
                    continue;
                }
            };
            if len != Ok(Some(array.len)) {
                return Err(format!("`{key}` has {} elements, its getter {len:?}", array.len));
            }
        }
        let _ = (gguf.u32(key), gguf.f64(key), gguf.bool(key), gguf.text(key));
    }
    for tensor in &gguf.tensors {
        let blocks = tensor.elements() / tensor.ty.block_len();
        if gguf.tensor(&tensor.name) != Some(tensor) {
            return Err(format!("`{}` is not found by its name", tensor.name));
        }
        if blocks * tensor.ty.block_bytes() != tensor.range.len() as u64 {
            return Err(format!("`{}` has {blocks} blocks and {:?}", tensor.name, tensor.range));
        }
        if GgmlType::from_code(tensor.ty.code()) != Some(tensor.ty) {
            return Err(format!("`{}` has a type without a number", tensor.name));
        }
    }
    if let Ok(config) = Config::from_gguf(gguf, bytes) {
        for layer in 0..config.n_layers {
            let _ = (config.layer_window(layer), config.layer_rope_base(layer));
        }
    }
    Ok(())
}
