//! Records and pages that commands write.

use std::path::Path;

use lathe_harness::data::record::Record;
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::gpu::Gpu;

use crate::global::Global;
use crate::out;

/// The file of a run's record, if one is asked for.
pub(crate) struct Saved<'a> {
    path: Option<&'a Path>,
    is_begun: bool,
}

impl<'a> Saved<'a> {
    /// The file, which must not be there yet.
    pub(crate) fn new(path: Option<&'a Path>) -> Result<Self> {
        match path.filter(|path| path.exists()) {
            None => Ok(Self { path, is_begun: false }),
            Some(path) => {
                let path = path.display();
                Err(Error::Usage(format!("{path} exists; a record is not overwritten")))
            }
        }
    }

    /// Like [`Saved::new`], for a speed record: a software adapter needs `allow_software`.
    pub(crate) fn of_speed(
        path: Option<&'a Path>,
        gpu: &Gpu,
        allow_software: bool,
    ) -> Result<Self> {
        let saved = Self::new(path)?;
        refuse_software(gpu, path.is_none() || allow_software, "a speed record", "saves")?;
        Ok(saved)
    }

    /// Writes the record as far as it is known: a run that is cut short leaves what it had.
    pub(crate) fn keep(&mut self, record: impl FnOnce() -> Record) -> Result<()> {
        let Some(path) = self.path else { return Ok(()) };
        match std::mem::replace(&mut self.is_begun, true) {
            false => Ok(record().write(path)?),
            true => Ok(record().rewrite(path)?),
        }
    }

    /// Writes and prints the whole record, as JSON or by `print`.
    pub(crate) fn end(self, global: &Global, record: &Record, print: impl FnOnce()) -> Result<()> {
        self.end_with(record, || match global.json {
            true => out::document(record),
            false => print(),
        })
    }

    /// Writes the whole record. `print` shows its figures even if it cannot be saved.
    pub(crate) fn end_with(mut self, record: &Record, print: impl FnOnce()) -> Result<()> {
        let saved = self.keep(|| record.clone());
        print();
        saved?;
        if let Some(path) = self.path {
            eprintln!("saved {}", path.display());
        }
        Ok(())
    }
}

/// Refuses `what` of a software adapter unless that is allowed; `does` completes the message.
pub(crate) fn refuse_software(gpu: &Gpu, allowed: bool, what: &str, does: &str) -> Result<()> {
    if allowed || !gpu.adapter.software {
        return Ok(());
    }
    Err(Error::Unavailable {
        what: what.into(),
        adapter: gpu.adapter.name.clone(),
        reason: format!(
            "a software adapter says nothing about a GPU; --allow-software {does} it anyway"
        ),
    })
}

/// Writes a page. A page is overwritten, since it can be made again; another kind of file is kept.
pub(crate) fn write_page(path: &Path, page: &str) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|m| m.len() > 0) {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        if !old.to_ascii_lowercase().starts_with("<!doctype html>") {
            let why = "exists and is no HTML page; remove it first";
            return Err(Error::Usage(format!("{}: {why}", path.display())));
        }
        eprintln!("lathe: {} is replaced", path.display());
    }
    files::replace(path, page.as_bytes()).map_err(Error::io(path))
}
