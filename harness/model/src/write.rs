//! Writes a GGUF file, head first, then tensor after tensor, converted by every thread. `synth` and
//! `export` say what is in it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use lathe_kernels::Format;
use lathe_record::files::Partial;
use rayon::prelude::*;

use super::error::{ModelError, ModelErrorKind};
use super::gguf::GgmlType;
use super::gguf::writer::GgufWriter;
use super::quantise::fitting;

/// Values between two writes: enough to keep every thread busy, few compared to a model.
const PIECE: u64 = 1 << 22;
/// Values that a thread takes at a time, about.
const TASK: u64 = 1 << 15;

/// A tensor to be written.
pub(crate) struct Job<V> {
    pub(crate) name: String,
    /// Row length first.
    pub(crate) dims: Vec<u64>,
    asked: Format,
    /// `asked`, or its substitute where rows are no whole blocks.
    pub(crate) stored: Format,
    /// Source of the values.
    pub(crate) values: V,
}

impl<V> Job<V> {
    pub(crate) fn new(name: String, dims: Vec<u64>, asked: Format, values: V) -> Self {
        let stored = fitting(asked, dims.first().copied().unwrap_or(1));
        Self { name, dims, asked, stored, values }
    }

    pub(crate) fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.elements() / self.stored.block_len() as u64 * self.stored.block_bytes() as u64
    }

    pub(crate) fn is_matrix(&self) -> bool {
        self.dims.len() > 1
    }
}

/// Matrices stored otherwise than asked for. A row of a GGUF file is whole blocks.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fallback {
    /// The format asked for.
    pub asked: &'static str,
    /// The format in its place, as llama-quantize chooses it.
    pub stored: &'static str,
    /// Values of a row.
    pub row_len: u64,
    /// Matrices of such rows.
    pub tensors: usize,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, stored, row_len, tensors } = self;
        write!(
            f,
            "{tensors} of them as {stored} in place of {asked}: rows of {row_len} are no whole \
             blocks"
        )
    }
}

/// Lists the substitutes among tensors.
pub(crate) fn fallbacks<V>(jobs: &[Job<V>]) -> Vec<Fallback> {
    let mut all: BTreeMap<(Format, Format, u64), usize> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.stored != job.asked) {
        *all.entry((job.asked, job.stored, job.dims[0])).or_default() += 1;
    }
    let named = |((asked, stored, row_len), tensors): ((Format, Format, _), _)| {
        let (asked, stored) = (asked.name(), stored.name());
        Fallback { asked, stored, row_len, tensors }
    };
    all.into_iter().map(named).collect()
}

/// Takes the next bytes of a tensor.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), ModelError>;

/// Writes a file and returns its size. `head` has the metadata; `put` hands out the bytes of a
/// tensor. The file is written under a temporary name in the folder of `path` and renamed when
/// complete, so a file at `path` is always whole. `progress` is told the bytes written so far and
/// in all.
///
/// # Errors
/// `path` exists and is not to be replaced, or is a folder; the file system refuses; or errors of
/// `put`.
pub(crate) fn write<V>(
    path: &Path,
    overwrite: bool,
    mut head: GgufWriter,
    jobs: &[Job<V>],
    progress: &mut dyn FnMut(u64, u64),
    mut put: impl FnMut(&Job<V>, Sink<'_>) -> Result<(), ModelError>,
) -> Result<u64, ModelError> {
    let at = ModelError::at(path);
    let refused = |action| move |error| at(ModelErrorKind::Output { action, error });
    let absent = || match path.try_exists() {
        Ok(true) if !overwrite => Err(at(ModelErrorKind::Exists)),
        Ok(_) => Ok(()),
        Err(error) => Err(refused("look at")(error)),
    };
    absent()?;
    if path.is_dir() {
        return Err(ModelError::at(path)("is a folder, and a file is to be written".to_owned()));
    }
    let place = |job: &Job<V>| head.add_tensor(&job.name, GgmlType::of(job.stored), &job.dims);
    let offsets: Vec<u64> = jobs.iter().map(place).collect();
    let bytes = head.head();
    let (start, total) = (bytes.len() as u64, bytes.len() as u64 + head.data_len());
    let mut partial = Partial::create(path).map_err(refused("create"))?;
    let mut out = BufWriter::new(&mut partial.file);
    out.write_all(&bytes).map_err(refused("write"))?;
    let mut written = start;
    for (job, offset) in jobs.iter().zip(offsets) {
        let padding = start + offset - written;
        io::copy(&mut io::Read::take(io::repeat(0), padding), &mut out)
            .map_err(refused("write"))?;
        written += padding;
        put(job, &mut |bytes| {
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
    Ok(total)
}

/// Converts `count` parts of `len` values each, many at a time on every thread, and hands the
/// results out in order.
pub(crate) fn in_parts<T: Send>(
    count: u64,
    len: u64,
    convert: impl Fn(Range<u64>) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let parts = |values: u64| (values / len.max(1)).max(1);
    for first in (0..count).step_by(parts(PIECE) as usize) {
        let last = (first + parts(PIECE)).min(count);
        let tasks: Vec<u64> = (first..last).step_by(parts(TASK) as usize).collect();
        let range = |start: u64| start..(start + parts(TASK)).min(last);
        let done: Vec<T> = tasks.into_par_iter().map(|start| convert(range(start))).collect();
        done.into_iter().try_for_each(&mut take)?;
    }
    Ok(())
}
