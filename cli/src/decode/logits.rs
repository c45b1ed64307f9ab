//! Raw logits of every position in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lathe_harness::error::{Error, Result};
use lathe_harness::files::Partial;

/// Raw logits on their way to a file.
pub(super) struct LogitsFile {
    path: PathBuf,
    partial: Option<Partial>,
    out: BufWriter<File>,
}

impl LogitsFile {
    pub(super) fn create(path: &Path) -> Result<Self> {
        if std::fs::metadata(path).is_ok_and(|m| m.len() > 0) {
            eprintln!("lathe: {} is replaced", path.display());
        }
        // A device or a pipe takes rows as they come; a file is there when it has them all.
        let is_file = std::fs::metadata(path).map_or(true, |m| m.is_file());
        let partial =
            is_file.then(|| Partial::create(path)).transpose().map_err(Error::io(path))?;
        let file = match &partial {
            Some(partial) => partial.file.try_clone(),
            None => File::create(path),
        };
        let out = BufWriter::new(file.map_err(Error::io(path))?);
        Ok(Self { path: path.to_owned(), partial, out })
    }

    pub(super) fn write(&mut self, row: &[f32]) -> Result<()> {
        for value in row {
            self.out.write_all(&value.to_le_bytes()).map_err(Error::io(&self.path))?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        let path = &self.path;
        let finished = self.out.flush().and_then(|()| match self.partial {
            Some(partial) => partial.finish(path),
            None => Ok(()),
        });
        finished.map_err(Error::io(path))
    }
}
