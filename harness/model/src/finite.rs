//! Values of a checkpoint that are not finite.

use rayon::prelude::*;
use serde::Serialize;

use crate::quantise::decode;
use crate::{ModelFile, TensorInfo};

/// A tensor with a value that is not finite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotFinite {
    /// Name of the tensor, as the file has it.
    pub name: String,
    /// Index of the first such value.
    pub index: u64,
    /// The value, as text: JSON has no NaN.
    pub value: String,
    /// File that holds it.
    pub file: String,
    /// Byte in that file at which the value begins, or the block that it is stored in.
    pub byte: usize,
    /// Number of such values in the tensor.
    pub count: u64,
}

/// Values of the tensors of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Values {
    /// Tensors whose values were looked at.
    pub tensors: usize,
    /// Tensors of a type that is not decoded here, of which nothing is known.
    pub unknown: Vec<String>,
    /// Tensors with a value that is not finite, in the order of the file.
    pub not_finite: Vec<NotFinite>,
}

/// Bytes that a task decodes, about.
const TASK_BYTES: usize = 1 << 20;

/// Looks for values that are not finite in all tensors of a checkpoint.
pub fn values(file: &ModelFile) -> Values {
    let mut found = Values::default();
    for tensor in file.tensors() {
        match of_tensor(file, tensor) {
            None => found.unknown.push(file.stored_name(&tensor.name)),
            Some(bad) => {
                found.tensors += 1;
                found.not_finite.extend(bad);
            }
        }
    }
    found
}

/// The values of one tensor; none for a type that is not decoded.
fn of_tensor(file: &ModelFile, tensor: &TensorInfo) -> Option<Option<NotFinite>> {
    let format = tensor.ty.format()?;
    let bytes = file.tensor_bytes(tensor);
    let (elements, block_bytes) = (format.block_len(), format.block_bytes());
    let task = (TASK_BYTES / block_bytes).max(1);
    // The first of each task, and the number of all.
    let looked = bytes.par_chunks(task * block_bytes).enumerate().map(|(at, bytes)| {
        let mut values = vec![0.0; bytes.len() / block_bytes * elements];
        decode(format, &bytes[..bytes.len() / block_bytes * block_bytes], &mut values);
        let first = values.iter().position(|v| !v.is_finite())?;
        let count = values.iter().filter(|v| !v.is_finite()).count() as u64;
        Some((at * task * elements + first, values[first], count))
    });
    let all: Vec<_> = looked.flatten().collect();
    let first = all.iter().min_by_key(|(index, _, _)| *index);
    Some(first.map(|(index, value, _)| NotFinite {
        name: file.stored_name(&tensor.name),
        index: *index as u64,
        value: value.to_string(),
        file: file.files()[tensor.file].path.display().to_string(),
        byte: tensor.range.start + index / elements * block_bytes,
        count: all.iter().map(|(_, _, count)| count).sum(),
    }))
}
