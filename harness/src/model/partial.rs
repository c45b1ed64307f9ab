//! Files that appear only when they are whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A file under a temporary name that removes itself unless it is finished.
pub(super) struct Partial {
    path: PathBuf,
    pub(super) file: File,
    finished: bool,
}

impl Partial {
    pub(super) fn create(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.partial", std::process::id()));
        let path = target.with_file_name(hidden);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file, finished: false })
    }

    pub(super) fn finish(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // The first error is the one to report; a leftover is only untidy.
            let _ = fs::remove_file(&self.path);
        }
    }
}
