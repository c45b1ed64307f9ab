//! `lathe report`: one offline HTML page from saved runs.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use crate::error::{Error, Result};
use crate::report::record::Record;
use crate::report::{html, json};

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// Records
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// HTML file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let records = opts
        .records
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            Ok((name.into_owned(), Record::read(path)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let page = html::render(&records);
    if std::fs::metadata(&opts.output).is_ok_and(|m| m.len() > 0) {
        // A page can be made again from its records; only another kind of file is kept.
        let old = std::fs::read_to_string(&opts.output).unwrap_or_default();
        if !old.starts_with("<!doctype html>") && !old.starts_with("<!DOCTYPE html>") {
            return Err(Error::Usage(format!(
                "{}: exists and is no HTML page; remove it first",
                opts.output.display()
            )));
        }
        eprintln!("lathe: {} is replaced", opts.output.display());
    }
    std::fs::write(&opts.output, &page)
        .map_err(|source| Error::Io { path: opts.output.clone(), source })?;
    if global.json {
        json::print(&serde_json::json!({ "output": opts.output, "bytes": page.len() }));
    } else {
        println!("{}: {} bytes", opts.output.display(), page.len());
    }
    Ok(())
}
