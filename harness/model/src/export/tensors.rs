//! Conversion of one tensor's data for a file.

use lathe_kernels::Format;
use rayon::prelude::*;

use crate::config::Config;
use crate::file::{ModelError, ModelFile};
use crate::folder::Folder;
use crate::gguf::TensorInfo;
use crate::quantise::{decode, encode, quantise, quantise_searched};

/// Values between two writes: enough to keep every thread busy, few compared to a model.
const PIECE: usize = 1 << 22;
/// Values that a thread takes at a time, about.
const TASK: usize = 1 << 15;

/// A tensor to be written.
pub(super) struct Job<'a> {
    pub(super) name: String,
    pub(super) dims: Vec<u64>,
    pub(super) stored: Format,
    /// Offset from the start of the tensor data.
    pub(super) offset: u64,
    pub(super) values: Values<'a>,
}

/// Source of a tensor's values.
pub(super) enum Values<'a> {
    Tensor { tensor: &'a TensorInfo, format: Format, config: &'a Config },
    Given(Vec<f32>),
}

/// Sums of squares over the values that were converted to one format.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    values: f64,
    searched: f64,
    nearest: f64,
}

impl Errors {
    fn plus(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            searched: self.searched + other.searched,
            nearest: self.nearest + other.nearest,
        }
    }

    /// Relative to the values; none where there were none.
    pub(super) fn searched(&self) -> Option<f64> {
        (self.values > 0.0).then(|| (self.searched / self.values).sqrt())
    }

    pub(super) fn nearest(&self) -> Option<f64> {
        (self.values > 0.0).then(|| (self.nearest / self.values).sqrt())
    }
}

impl Job<'_> {
    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.elements() / self.stored.block_len() as u64 * self.stored.block_bytes() as u64
    }

    pub(super) fn is_matrix(&self) -> bool {
        self.dims.len() > 1
    }

    /// Returns true if a quantised source is stored in another type.
    pub(super) fn requantises(&self) -> bool {
        match &self.values {
            Values::Tensor { format, .. } => !format.is_dense() && *format != self.stored,
            Values::Given(_) => false,
        }
    }

    /// Hands out the tensor's bytes in pieces.
    ///
    /// # Errors
    /// A value is no number, or the sink's.
    pub(super) fn write(
        &self,
        file: &ModelFile,
        errors: &mut Errors,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let (tensor, format, config) = match &self.values {
            Values::Given(values) => return sink(&encode(self.stored, values)),
            Values::Tensor { tensor, format, config } => (*tensor, *format, *config),
        };
        let bytes = file.tensor_bytes(tensor);
        let from_folder = file.gguf().is_none();
        let shift = if self.is_matrix() { 0.0 } else { file.norm_offset(config) };
        let interleaved = from_folder && Folder::interleaves(config.arch, &self.name);
        let k = tensor.row_len() as usize;
        let row_bytes = format.row_bytes(k);
        // As it is where nothing changes; Q and K of a Llama by whole rows.
        let copied = format == self.stored && shift == 0.0;
        let rows_a_piece = (PIECE / k.max(1)).max(1);
        let rows = bytes.len().checked_div(row_bytes).unwrap_or(0);
        let source_row = |row: usize| match interleaved {
            true => interleaved_row(row, config.head_dim),
            false => row,
        };
        let row_of = |row: usize| &bytes[source_row(row) * row_bytes..][..row_bytes];
        let not_a_number = |row: usize| {
            let name = file.stored_name(&self.name);
            let why =
                format!("tensor `{name}`, row {}: not every value is finite", source_row(row));
            ModelError::at(&file.files()[tensor.file].path)(why)
        };
        for first in (0..rows).step_by(rows_a_piece) {
            let last = (first + rows_a_piece).min(rows);
            if copied {
                let piece: Vec<u8> = (first..last).flat_map(row_of).copied().collect();
                sink(&piece)?;
                continue;
            }
            let task_rows = (TASK / k.max(1)).max(1);
            let tasks: Vec<usize> = (first..last).step_by(task_rows).collect();
            let done: Vec<Result<(Vec<u8>, Errors), usize>> = tasks
                .into_par_iter()
                .map(|start| {
                    let rows = start..(start + task_rows).min(last);
                    let mut values = vec![0.0; rows.len() * k];
                    for (row, values) in rows.zip(values.chunks_exact_mut(k)) {
                        decode(format, row_of(row), values);
                        values.iter_mut().for_each(|v| *v += shift);
                        if !values.iter().all(|v| v.is_finite()) {
                            return Err(row);
                        }
                    }
                    Ok(self.convert(k, &values))
                })
                .collect();
            for task in done {
                let (bytes, sums) = task.map_err(not_a_number)?;
                *errors = errors.plus(sums);
                sink(&bytes)?;
            }
        }
        Ok(())
    }

    /// Values as they are stored, and their errors.
    fn convert(&self, k: usize, values: &[f32]) -> (Vec<u8>, Errors) {
        let dense = self.stored.is_dense();
        let bytes = match dense {
            true => encode(self.stored, values),
            false => quantise_searched(self.stored, k, values),
        };
        if !self.is_matrix() {
            return (bytes, Errors::default());
        }
        let error = |bytes: &[u8]| squared_error(self.stored, k, values, bytes);
        let searched = error(&bytes);
        let nearest = if dense { searched } else { error(&quantise(self.stored, k, values)) };
        (bytes, Errors { values: squares(values), searched, nearest })
    }
}

fn squares(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v) * f64::from(v)).sum()
}

fn squared_error(format: Format, k: usize, values: &[f32], bytes: &[u8]) -> f64 {
    let mut back = vec![0.0; k];
    let rows = values.chunks_exact(k).zip(bytes.chunks_exact(format.row_bytes(k)));
    rows.map(|(row, bytes)| {
        decode(format, bytes, &mut back);
        let error = row.iter().zip(&back).map(|(x, b)| f64::from(x - b).powi(2));
        error.sum::<f64>()
    })
    .sum()
}

/// Returns the stored row for this row of a GGUF. Hugging Face rotates element `i` of a head with
/// element `i + head_dim/2`, GGUF's Llama with its neighbour.
fn interleaved_row(row: usize, head_dim: usize) -> usize {
    let (head, within) = (row / head_dim, row % head_dim);
    head * head_dim + within / 2 + within % 2 * (head_dim / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_neighbours() {
        let rows: Vec<_> = (0..12).map(|row| interleaved_row(row, 6)).collect();
        assert_eq!(rows, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }
}
