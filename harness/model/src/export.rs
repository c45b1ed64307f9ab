//! A checkpoint written as a GGUF file in other weight types.
//!
//! ```text
//! ModelFile → jobs (which tensor is stored how), metadata → rows → search for scales → file
//! ```
//!
//! Matrices take the type asked for, or the substitute of [`super::quantise::fitting`] where their
//! rows are no whole blocks; norms and rope factors stay f32. Tensors that Hugging Face stores
//! otherwise than GGUF are converted: Q and K rows of a Llama are reordered, Gemma's norms become 1
//! + w, Llama 3's rope factors a tensor.

mod metadata;
pub(crate) mod vocabulary;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lathe_kernels::Format;

use super::config::Config;
use super::error::ModelError;
use super::file::ModelFile;
use super::folder::Folder;
use super::gguf::TensorInfo;
use super::quantise::{decode, quantise, quantise_searched};
use super::write::{Fallback, Job, fallbacks, in_parts, write};

/// Settings of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportSpec {
    /// Storage of the matrices.
    pub weights: Format,
    /// Storage of the embedding and of a separate head, if different.
    pub embed: Option<Format>,
    /// Replace a file that is there.
    pub overwrite: bool,
    /// Leave the tokenizer out.
    pub without_tokenizer: bool,
}

/// Summary of the written file.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ExportSummary {
    /// The file.
    #[serde(serialize_with = "lathe_record::files::lossy")]
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Bytes of the tensors that were read.
    pub source_bytes: u64,
    /// Values in all tensors.
    pub parameters: u64,
    /// The file has a tokenizer.
    pub tokenizer: bool,
    /// Matrices by how they are stored, quantised anew or copied.
    pub types: Vec<TypeError>,
    /// Matrices whose rows hold no whole blocks of the requested type.
    pub fallbacks: Vec<Fallback>,
    /// Tensors that were quantised before: errors are relative to the values after that.
    pub requantised: usize,
}

/// Error of the matrices that are stored in one type.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TypeError {
    /// The type.
    pub ty: &'static str,
    /// Tensors in it.
    pub tensors: usize,
    /// Values in them.
    pub parameters: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// √(Σ(x - x̂)² / Σx²) over the tensors that were converted; none where all were copied.
    pub relative_rms_error: Option<f64>,
    /// This error with codes rounded to the nearest and scales taken from the extremes.
    pub nearest_relative_rms_error: Option<f64>,
}

/// Writes a checkpoint as GGUF under a temporary name, which is renamed when it is complete.
/// `progress` is told the bytes written so far and in all.
///
/// # Errors
/// `path` exists and is not to be replaced; the checkpoint is no model that is understood, has a
/// tensor in a type that is not decoded or with values that are no numbers, or a tokenizer that
/// GGUF cannot name; or the file system refuses.
pub fn write_gguf(
    file: &ModelFile,
    spec: &ExportSpec,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ExportSummary, ModelError> {
    let config = file.config()?;
    let (head, tokenizer) = metadata::of(file, &config, spec)?;
    let jobs = jobs(file, &config, spec)?;
    let source = Source { file, config: &config };
    let mut errors: BTreeMap<Format, Squares> = BTreeMap::new();
    let bytes = write(path, spec.overwrite, head, &jobs, progress, |job, sink| {
        let sums = errors.entry(job.stored).or_default();
        let k = job.dims.first().copied().unwrap_or(1);
        let rows = |rows| source.rows(job, rows);
        in_parts(job.elements() / k, k, rows, |part| {
            let (bytes, of_part) = part?;
            sums.iter_mut().zip(of_part).for_each(|(sum, part)| *sum += part);
            sink(&bytes)
        })
    })?;
    let requantises = |job: &&Job<Values<'_>>| match job.values {
        Values::Tensor(_, format) => !format.is_dense() && format != job.stored,
        Values::Given(_) => false,
    };
    Ok(ExportSummary {
        path: path.to_owned(),
        bytes,
        source_bytes: file.tensors().iter().map(|t| t.range.len() as u64).sum(),
        parameters: jobs.iter().map(Job::elements).sum(),
        tokenizer,
        types: types(&jobs, &errors),
        fallbacks: fallbacks(&jobs),
        requantised: jobs.iter().filter(requantises).count(),
    })
}

fn types(jobs: &[Job<Values<'_>>], errors: &BTreeMap<Format, Squares>) -> Vec<TypeError> {
    let mut types: BTreeMap<Format, TypeError> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.is_matrix()) {
        let [values, searched, nearest] = errors.get(&job.stored).copied().unwrap_or_default();
        let relative = |error: f64| (values > 0.0).then(|| (error / values).sqrt());
        let entry = types.entry(job.stored).or_insert_with(|| TypeError {
            ty: job.stored.name(),
            tensors: 0,
            parameters: 0,
            bytes: 0,
            relative_rms_error: relative(searched),
            nearest_relative_rms_error: relative(nearest),
        });
        entry.tensors += 1;
        entry.parameters += job.elements();
        entry.bytes += job.bytes();
    }
    types.into_values().collect()
}

/// Lists the tensors to write, in the order of the file.
fn jobs<'a>(
    file: &'a ModelFile,
    config: &Config,
    spec: &ExportSpec,
) -> Result<Vec<Job<Values<'a>>>, ModelError> {
    let mut jobs = Vec::new();
    for tensor in file.tensors() {
        let Some(format) = tensor.ty.format() else {
            let known: Vec<_> = Format::ALL.iter().map(|f| f.name()).collect();
            let why = format!(
                "tensor `{}` is stored as {}, which is not decoded; supported are {}",
                file.stored_name(&tensor.name),
                tensor.ty,
                known.join(", ")
            );
            return Err(ModelError::at(&file.path)(why));
        };
        let asked = match (tensor.dims.len(), tensor.name.as_str()) {
            (0 | 1, _) => Format::F32,
            (_, "token_embd.weight" | "output.weight") => spec.embed.unwrap_or(spec.weights),
            _ => spec.weights,
        };
        let (name, dims) = (tensor.name.clone(), tensor.dims.clone());
        jobs.push(Job::new(name, dims, asked, Values::Tensor(tensor, format)));
    }
    if let Some(divisors) = config.computed_rope_freqs() {
        let (name, dims) = ("rope_freqs.weight".to_owned(), vec![divisors.len() as u64]);
        jobs.push(Job::new(name, dims, Format::F32, Values::Given(divisors)));
    }
    Ok(jobs)
}

/// Source of a tensor's values.
enum Values<'a> {
    Tensor(&'a TensorInfo, Format),
    Given(Vec<f32>),
}

/// Sums of squares over the values of matrices that were converted to one format: of the values, of
/// their errors, and of their errors if rounded to the nearest.
type Squares = [f64; 3];

struct Source<'a> {
    file: &'a ModelFile,
    config: &'a Config,
}

impl Source<'_> {
    /// Rows of a tensor as they are to be stored, and their errors.
    ///
    /// # Errors
    /// A value is no number.
    fn rows(
        &self,
        job: &Job<Values<'_>>,
        rows: Range<u64>,
    ) -> Result<(Vec<u8>, Squares), ModelError> {
        let (tensor, format) = match &job.values {
            Values::Tensor(tensor, format) => (*tensor, *format),
            Values::Given(all) => {
                return Ok((quantise(job.stored, all.len(), all), <_>::default()));
            }
        };
        let bytes = self.file.tensor_bytes(tensor);
        let shift = if job.is_matrix() { 0.0 } else { self.file.norm_offset(self.config) };
        let from_folder = self.file.gguf().is_none();
        let interleaved = from_folder && Folder::interleaves(self.config.arch, &job.name);
        let k = tensor.row_len() as usize;
        let row_bytes = format.row_bytes(k);
        let source_row = |row: u64| match interleaved {
            true => interleaved_row(row as usize, self.config.head_dim),
            false => row as usize,
        };
        let row_of = |row: u64| &bytes[source_row(row) * row_bytes..][..row_bytes];
        if interleaved && !job.is_matrix() {
            let mut values = vec![0.0; k];
            decode(format, bytes, &mut values);
            let values: Vec<_> = (0..k).map(|i| values[source_row(i as u64)]).collect();
            return Ok((quantise_searched(job.stored, k, &values), <_>::default()));
        }
        // As it is where nothing changes; Q and K of a Llama by whole rows.
        if format == job.stored && shift == 0.0 {
            return Ok((rows.flat_map(row_of).copied().collect(), <_>::default()));
        }
        let mut values = vec![0.0; (rows.end - rows.start) as usize * k];
        for (row, values) in rows.zip(values.chunks_exact_mut(k)) {
            decode(format, row_of(row), values);
            values.iter_mut().for_each(|v| *v += shift);
            if !values.iter().all(|v| v.is_finite()) {
                let (name, row) = (self.file.stored_name(&job.name), source_row(row));
                let why = format!("tensor `{name}`, row {row}: not every value is finite");
                return Err(ModelError::at(&self.file.files()[tensor.file].path)(why));
            }
        }
        let stored = quantise_searched(job.stored, k, &values);
        if !job.is_matrix() {
            return Ok((stored, <_>::default()));
        }
        let error = |bytes: &[u8]| squared_error(job.stored, k, &values, bytes);
        let searched = error(&stored);
        let nearest = match job.stored.is_dense() {
            true => searched,
            false => error(&quantise(job.stored, k, &values)),
        };
        let squares = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        Ok((stored, [squares, searched, nearest]))
    }
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
