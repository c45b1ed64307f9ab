//! Texts and bytes of a plan, each kept once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use lathe_device::error::{Error, Result};
use lathe_device::plan::backend_text::Language;
use lathe_device::plan::recording::TensorId;
use lathe_device::plan::{Code, Plan, PlannedStage};
use lathe_kernels::ReflectError;
use serde::Serialize;

use crate::io;

/// A shader's text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Text {
    pub(crate) wgsl: String,
    pub(crate) entry: String,
    /// Variant that it is of, for errors.
    pub(crate) name: String,
}

/// All texts of a plan.
#[derive(Default)]
pub(crate) struct Texts {
    all: Vec<Text>,
    known: HashMap<(String, String), usize>,
}

impl Texts {
    /// Index of a text.
    pub(crate) fn index(&mut self, text: Text) -> usize {
        let key = (text.wgsl.clone(), text.entry.clone());
        *self.known.entry(key).or_insert_with(|| {
            self.all.push(text);
            self.all.len() - 1
        })
    }

    pub(crate) fn all(self) -> Vec<Text> {
        self.all
    }
}

/// A dispatch, before its text is in a pool.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) text: Text,
    pub(crate) groups: [u32; 3],
    pub(crate) bindings: Vec<Binding>,
}

/// A dispatch of a plan.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StagePlan {
    text: usize,
    groups: [u32; 3],
    bindings: Vec<Binding>,
}

/// A binding: its group and number, its access (`read`, `write` or `uniform`), and its tensor.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Binding(u32, u32, &'static str, usize);

impl Stage {
    /// A stage of a plan with its tensors.
    ///
    /// # Errors
    /// naga cannot write it.
    pub(crate) fn of(
        plan: &Plan,
        stage: &PlannedStage,
        tensor: &dyn Fn(&str) -> TensorId,
    ) -> Result<Self> {
        let Code { reflection, constants, .. } = &*stage.code;
        let entry = &stage.entry;
        let name = format!("{}/{}", plan.kernel.name, plan.variant);
        let (module, info) = reflection.unrolled(entry, constants)?;
        let wgsl = Language::Wgsl.write(&module, &info, entry);
        let wgsl = wgsl.map_err(|e| ReflectError::Constants(format!("{name} ({entry}): {e}")))?;
        let used = reflection.entry(entry).map_or(&[][..], |entry| &entry.buffers);
        let bindings = used.iter().map(|&i| &reflection.buffers[i]).map(|buffer| {
            let access = match (&buffer.uniform, buffer.writable) {
                (Some(_), _) => "uniform",
                (None, true) => "write",
                (None, false) => "read",
            };
            let tensor = tensor(stage.code.binding(&buffer.name));
            Binding(buffer.group, buffer.binding, access, tensor.0)
        });
        let bindings = bindings.collect();
        Ok(Self { text: Text { wgsl, entry: entry.clone(), name }, groups: stage.groups, bindings })
    }

    pub(crate) fn pooled(self, texts: &mut Texts) -> StagePlan {
        StagePlan { text: texts.index(self.text), groups: self.groups, bindings: self.bindings }
    }
}

/// A range of bytes in a plan's data: offset and length.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Range(pub(crate) u64, pub(crate) u64);

/// Alignment of ranges, at which JavaScript can look at them as 64-bit floats.
const ALIGN: u64 = 16;

/// Bytes of a plan, in a file that grows.
pub(crate) struct Data {
    path: PathBuf,
    file: BufWriter<tempfile::NamedTempFile>,
    at: u64,
    /// Ranges by two hashes of their bytes.
    known: HashMap<[u64; 2], Range>,
}

impl Data {
    /// An empty file in a folder, where it will stay or be read from.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let file = tempfile::NamedTempFile::new_in(folder).map_err(io(folder))?;
        let (path, file) = (file.path().to_owned(), BufWriter::with_capacity(8 << 20, file));
        Ok(Self { path, file, at: 0, known: HashMap::new() })
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.at
    }

    fn failed(&self) -> impl Fn(std::io::Error) -> Error + '_ {
        io(&self.path)
    }

    /// Range of these bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<Range> {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, bytes).hash(&mut hasher);
            hasher.finish()
        };
        let key = [hash(0), hash(1)];
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let range = self.stream(bytes.len() as u64, |write| write(0, bytes))?;
        self.known.insert(key, range);
        Ok(range)
    }

    /// Range of so many bytes, which `fill` writes in pieces with their offsets.
    pub(crate) fn stream(
        &mut self,
        bytes: u64,
        fill: impl FnOnce(&mut dyn FnMut(u64, &[u8])),
    ) -> Result<Range> {
        let (begin, mut failed) = (self.at, Ok(()));
        let file = &mut self.file;
        fill(&mut |offset, bytes| {
            if failed.is_ok() {
                failed =
                    file.seek(SeekFrom::Start(begin + offset)).and_then(|_| file.write_all(bytes));
            }
        });
        failed.map_err(self.failed())?;
        self.at = (begin + bytes).next_multiple_of(ALIGN);
        Ok(Range(begin, bytes))
    }

    /// The whole file, at its full length.
    fn finished(self) -> Result<tempfile::NamedTempFile> {
        let Self { path, file, at, .. } = self;
        let file = file.into_inner().map_err(|e| io(&path)(e.into_error()))?;
        file.as_file().set_len(at).map_err(io(&path))?;
        Ok(file)
    }

    /// Keeps the file under a name.
    pub(crate) fn keep(self, path: &Path) -> Result<()> {
        let file = self.finished()?;
        file.persist_noclobber(path).map_err(|e| io(path)(e.error))?;
        // A server of the folder may be another user.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let everybody = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(path, everybody).map_err(io(path))?;
        }
        Ok(())
    }

    /// Writes the bytes in base64.
    pub(crate) fn base64(self, out: &mut impl Write) -> Result<()> {
        let path = self.path.clone();
        let mut file = self.finished()?;
        let mut encoder = EncoderWriter::new(out, &STANDARD);
        let copied = file.rewind().and_then(|()| std::io::copy(&mut file, &mut encoder));
        copied.and_then(|_| encoder.finish()).map(drop).map_err(io(&path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_are_kept_once_and_ranges_are_aligned() -> Result<()> {
        let folder = tempfile::tempdir().map_err(io(Path::new("temporary")))?;
        let mut data = Data::create(folder.path())?;
        let (a, b, c) = (data.add(b"abc")?, data.add(b"defg")?, data.add(b"abc")?);
        assert_eq!((a.0, a.1, b.0, b.1, c.0, c.1), (0, 3, 16, 4, 0, 3));
        let path = folder.path().join("kept");
        data.keep(&path)?;
        let kept = std::fs::read(&path).map_err(io(&path))?;
        assert_eq!((kept.len(), &kept[..3], &kept[16..20]), (32, &b"abc"[..], &b"defg"[..]));
        Ok(())
    }
}
