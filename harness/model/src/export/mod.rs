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
mod tensors;
pub(crate) mod vocabulary;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lathe_kernels::Format;
use lathe_record::files::Partial;
use tensors::{Errors, Job, Values};

use super::config::Config;
use super::file::{ModelError, ModelErrorKind, ModelFile};
use super::gguf::GgmlType;
use super::gguf::writer::GgufWriter;
use super::synth::{Fallback, Fallbacks};

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

/// Writes a checkpoint as GGUF. It is written under a temporary name in the folder of `path` and
/// renamed when complete, so a file at `path` is always whole. `progress` is told the bytes written
/// so far and in all.
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
    let refused =
        |action| move |error| ModelError::at(path)(ModelErrorKind::Output { action, error });
    let absent = || match path.try_exists() {
        Ok(true) if !spec.overwrite => Err(ModelError::at(path)(ModelErrorKind::Exists)),
        Ok(_) => Ok(()),
        Err(error) => Err(refused("look at")(error)),
    };
    absent()?;
    if path.is_dir() {
        let why = "is a folder, and a file is to be written".to_owned();
        return Err(ModelError::at(path)(why));
    }
    let config = file.config()?;
    let vocabulary = match (file.gguf(), spec.without_tokenizer) {
        (None, false) => Some(metadata::vocabulary(file)?),
        _ => None,
    };
    let mut writer = GgufWriter::new();
    metadata::add(&mut writer, file, &config, spec, vocabulary.as_ref())?;
    let (jobs, fallbacks) = jobs(file, &config, spec, &mut writer)?;

    let mut partial = Partial::create(path).map_err(refused("create"))?;
    let head = writer.head();
    let total = head.len() as u64 + writer.data_len();
    let mut out = io::BufWriter::new(&mut partial.file);
    out.write_all(&head).map_err(refused("write"))?;
    let mut written = head.len() as u64;
    let mut errors: BTreeMap<Format, Errors> = BTreeMap::new();
    for job in &jobs {
        let padding = head.len() as u64 + job.offset - written;
        io::copy(&mut io::Read::take(io::repeat(0), padding), &mut out)
            .map_err(refused("write"))?;
        written += padding;
        let sum = errors.entry(job.stored).or_default();
        job.write(file, sum, &mut |bytes| {
            out.write_all(bytes).map_err(refused("write"))?;
            written += bytes.len() as u64;
            progress(written, total);
            Ok(())
        })?;
    }
    out.flush().map_err(refused("write"))?;
    drop(out);
    // Someone else may have put a file there meanwhile.
    absent()?;
    partial.finish(path).map_err(refused("rename the finished file to"))?;
    let gguf_tokenizer = || file.gguf().is_some_and(|g| g.metadata.get(metadata::MODEL).is_some());
    Ok(ExportSummary {
        path: path.to_owned(),
        bytes: total,
        source_bytes: file.tensors().iter().map(|t| t.range.len() as u64).sum(),
        parameters: jobs.iter().map(Job::elements).sum(),
        tokenizer: !spec.without_tokenizer && (vocabulary.is_some() || gguf_tokenizer()),
        types: types(&jobs, &errors),
        fallbacks,
        requantised: jobs.iter().filter(|job| job.requantises()).count(),
    })
}

fn types(jobs: &[Job<'_>], errors: &BTreeMap<Format, Errors>) -> Vec<TypeError> {
    let mut types: BTreeMap<Format, TypeError> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.is_matrix()) {
        let error = errors.get(&job.stored);
        let entry = types.entry(job.stored).or_insert_with(|| TypeError {
            ty: job.stored.name(),
            tensors: 0,
            parameters: 0,
            bytes: 0,
            relative_rms_error: error.and_then(Errors::searched),
            nearest_relative_rms_error: error.and_then(Errors::nearest),
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
    config: &'a Config,
    spec: &ExportSpec,
    writer: &mut GgufWriter,
) -> Result<(Vec<Job<'a>>, Vec<Fallback>), ModelError> {
    let mut jobs = Vec::new();
    let mut fallbacks = Fallbacks::default();
    let mut add = |name: &str, dims: Vec<u64>, stored: Format, values: Values<'a>| {
        let offset = writer.add_tensor(name, GgmlType::of(stored), &dims);
        jobs.push(Job { name: name.to_owned(), dims, stored, offset, values });
    };
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
        let stored = fallbacks.fitting(asked, tensor.row_len());
        let values = Values::Tensor { tensor, format, config };
        add(&tensor.name, tensor.dims.clone(), stored, values);
    }
    if let Some(divisors) = file.computed_rope_freqs()? {
        let dims = vec![divisors.len() as u64];
        add("rope_freqs.weight", dims, Format::F32, Values::Given(divisors));
    }
    Ok((jobs, fallbacks.list()))
}
