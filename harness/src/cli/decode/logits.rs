//! Raw logits of every position in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Raw logits on their way to a file.
pub(super) struct LogitsFile {
    path: PathBuf,
    out: BufWriter<File>,
}

impl LogitsFile {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let error = |source| Error::Io { path: path.to_owned(), source };
        if std::fs::metadata(path).is_ok_and(|m| m.len() > 0) {
            eprintln!("lathe: {} is replaced", path.display());
        }
        let out = BufWriter::new(File::create(path).map_err(error)?);
        Ok(Self { path: path.to_owned(), out })
    }

    pub(super) fn write(&mut self, row: &[f32]) -> Result<()> {
        for value in row {
            self.out
                .write_all(&value.to_le_bytes())
                .map_err(|source| Error::Io { path: self.path.clone(), source })?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|source| Error::Io { path: self.path, source })
    }
}
