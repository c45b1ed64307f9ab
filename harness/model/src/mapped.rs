//! Files of a checkpoint, mapped or read.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lathe_record::files;
use memmap2::Mmap;

use super::error::{ModelError, ModelErrorKind};

/// A file of a checkpoint, mapped.
#[derive(Debug)]
pub struct Mapped {
    /// The path it was opened at.
    pub path: PathBuf,
    map: Mmap,
}

impl Mapped {
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
        let io = |action| move |error| ModelError::at(path)(ModelErrorKind::Io { action, error });
        let file = files::open(path).map_err(io("open"))?;
        // SAFETY: the map is read-only and lives as long as `self`. Another process that cuts the
        // file meanwhile can end this one with SIGBUS, as for every program that maps its input;
        // writing into it can change values under us, which every reader of the bytes tolerates
        // because the index is owned and all ranges were checked against the mapped length.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map"))?;
        Ok(Self { path: path.to_owned(), map })
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Says that a range will be read soon. A page fault fetches little; this lets the system read
    /// all of it at once, while something else is done.
    pub fn prefetch(&self, range: Range<usize>) {
        #[cfg(unix)]
        if !range.is_empty() && range.end <= self.map.len() {
            // It is only advice.
            let _ = self.map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

/// A file's bytes, if there are at most `longest`.
pub(super) fn read(path: &Path, longest: u64) -> Result<Vec<u8>, ModelError> {
    files::read(path, longest).map_err(|error| {
        let action = if error.kind() == io::ErrorKind::NotFound { "open" } else { "read" };
        ModelError::at(path)(ModelErrorKind::Io { action, error })
    })
}
