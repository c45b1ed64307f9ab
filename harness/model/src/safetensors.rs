//! safetensors: the index over the bytes of one file.
//!
//! The reader accepts the files that the `safetensors` crate accepts (an u64 length, a JSON header
//! of tensors whose data follow each other without gap to the end of the file), except headers that
//! name a tensor twice or whose sizes are beyond 2⁶³. Faults that the crate reports without a
//! tensor are looked for here first, so that every message names one.

use std::ops::Range;

use ::safetensors::tensor::TensorInfo;
use ::safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::fault::Fault;
use super::json::{self, Object};

/// The crate's bound on a header, so that a length alone allocates nothing.
const MAX_HEADER: u64 = 100_000_000;

fn header(why: impl Into<String>) -> Fault {
    Fault::of("header", why)
}

/// A tensor as the header lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name, unique in the file.
    pub name: String,
    /// Storage of its values.
    pub dtype: Dtype,
    /// Slowest dimension first; the product of those that are not zero is below 2⁶³.
    pub shape: Vec<u64>,
    /// Its bytes in the file.
    pub range: Range<usize>,
}

/// Reads and checks the header of a whole file; tensors come in the order of their data.
///
/// # Errors
/// The first fault, with the tensor concerned.
pub fn index(bytes: &[u8]) -> Result<Vec<Listed>, Fault> {
    let (start, text) = header_text(bytes)?;
    let value = json::parse(text).map_err(|e| header(format!("no valid JSON: {e}")))?;
    check_entries(&value, bytes.len() - start)?;

    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| header(e.to_string()))?;
    let mut listed: Vec<Listed> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| Listed {
            name,
            dtype: info.dtype,
            shape: info.shape.iter().map(|&n| n as u64).collect(),
            // The crate held the offsets against the length of the file.
            range: start + info.data_offsets.0..start + info.data_offsets.1,
        })
        .collect();
    listed.sort_by(|a, b| (a.range.start, &a.name).cmp(&(b.range.start, &b.name)));
    Ok(listed)
}

/// Returns the offset of the data and the bytes of the header before them.
fn header_text(bytes: &[u8]) -> Result<(usize, &[u8]), Fault> {
    let Some(len) = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)) else {
        return Err(header(format!("the file ends after {} bytes", bytes.len())));
    };
    let left = bytes.len() - 8;
    if len > MAX_HEADER {
        return Err(header(format!("{len} bytes are more than the {MAX_HEADER} allowed")));
    }
    let text = bytes[8..].get(..len as usize);
    let text = text.ok_or_else(|| {
        header(format!("{len} bytes are beyond the file: {left} left, it is cut or no safetensors"))
    })?;
    Ok((8 + text.len(), text))
}

fn check_entries(value: &Value, data: usize) -> Result<(), Fault> {
    let root = Object::root(value).map_err(|error| header(error.to_string()))?;
    let mut ranges = Vec::new();
    for (name, entry) in root.iter().filter(|(name, _)| *name != "__metadata__") {
        let wrong = |why: String| Fault::of_tensor(name, why);
        Object::root(entry).map_err(|error| wrong(error.why))?;
        let info: TensorInfo =
            serde_json::from_value(entry.clone()).map_err(|e| wrong(e.to_string()))?;
        let (start, end) = info.data_offsets;
        let present = info.shape.iter().filter(|&&n| n != 0);
        let product = present.copied().try_fold(1usize, usize::checked_mul);
        let bits = product
            .filter(|&n| i64::try_from(n).is_ok())
            .and_then(|n| n.checked_mul(info.dtype.bitsize()))
            .ok_or_else(|| wrong("the size of its `shape` overflows".to_owned()))?;
        let bytes = if info.shape.contains(&0) { 0 } else { bits / 8 };
        let span = end.checked_sub(start);
        if span != Some(bytes) {
            let why = format!("{bytes} bytes by type and shape, {start} to {end} by data_offsets");
            return Err(wrong(why));
        }
        if end > data {
            let why = format!("its data end at byte {end} of {data}: the file is cut");
            return Err(wrong(why));
        }
        ranges.push((start, end, name));
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let [(_, end, first), (start, _, second)] = pair else { continue };
        if start < end {
            let why = format!("its data overlap those of `{first}`");
            return Err(Fault::of_tensor(second, why));
        }
    }
    Ok(())
}
