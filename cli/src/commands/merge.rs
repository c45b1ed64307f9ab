//! `lathe merge`: results and stores of many runs and machines as one file.

use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::data::merge::{Merged, Prefer, merge};
use lathe_harness::data::row::{self, Run};
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::plan::tuned::Store;
use serde::Serialize;
use serde_json::Value;

use crate::global::Global;
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// Records, CSV files of results, or stores of `tune`
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// Output: a CSV file for results, with environments.jsonl beside it; a store for stores. A
    /// file that is there is the first of the inputs
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Input that counts in a contradiction, the later by its date or the file named first: newest,
    /// first
    #[arg(long, value_name = "WHICH")]
    prefer: Option<Prefer>,
}

/// Contents of the written file.
#[derive(Serialize)]
struct Report {
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    output: PathBuf,
    /// Runs of a CSV file; none of a store.
    runs: Option<usize>,
    /// Rows of these, or choices of a store.
    entries: usize,
    notes: Vec<String>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let known = opts.output.exists().then_some(&opts.output);
    let (mut runs, mut stores) = (Vec::new(), Vec::new());
    for path in known.into_iter().chain(&opts.inputs) {
        match is_store(path)? {
            true => stores.push((path.clone(), Store::read(path)?)),
            false => runs.extend(Run::read(path)?.into_iter().map(|run| (path.clone(), run))),
        }
    }
    if let (Some((run, _)), Some((store, _))) = (runs.first(), stores.first()) {
        return Err(Error::Usage(format!(
            "{} has results and {} is a store of tuned choices: merge each kind by itself",
            run.display(),
            store.display()
        )));
    }
    let output = opts.output.clone();
    let report = if stores.is_empty() {
        if !row::is_table(&opts.output) {
            let output = opts.output.display();
            return Err(Error::Usage(format!("{output}: results become a .csv file")));
        }
        let Merged { merged, notes, .. } = settled(merge(runs, opts.prefer))?;
        row::write_table(&opts.output, &merged)?;
        let entries = merged.iter().map(|run| run.rows.len()).sum();
        Report { output, runs: Some(merged.len()), entries, notes }
    } else {
        let Merged { merged, notes, .. } = settled(Store::merge(stores, opts.prefer))?;
        merged.write(&opts.output)?;
        Report { output, runs: None, entries: merged.entries.len(), notes }
    };
    if global.json {
        out::json(&report);
        return Ok(());
    }
    for note in &report.notes {
        eprintln!("lathe: {}", out::escaped(note));
    }
    let (output, entries) = (report.output.display(), report.entries);
    match report.runs {
        Some(runs) => outln!("{output}: {runs} run(s), {entries} row(s)"),
        None => outln!("{output}: {entries} choice(s)"),
    }
    Ok(())
}

/// Refuses a result with contradictions, which it says.
fn settled<T>(merged: Merged<T>) -> Result<Merged<T>> {
    for contradiction in &merged.contradictions {
        eprintln!("CONTRADICTION {}", out::escaped(contradiction));
    }
    match merged.contradictions.len() {
        0 => Ok(merged),
        n => Err(Error::CheckFailed(format!(
            "{n} contradiction(s), nothing was written; --prefer first takes that of the file named \
             first, of stores --prefer newest the later by its date"
        ))),
    }
}

/// Returns true if a file is a store, by its content.
fn is_store(path: &Path) -> Result<bool> {
    if row::is_table(path) {
        return Ok(false);
    }
    let text = files::read_text(path, files::DATA).map_err(Error::io(path))?;
    let document: Value = serde_json::from_str(&text)
        .map_err(|e| Error::Usage(format!("{}: not JSON: {e}", path.display())))?;
    match (document.get("kind"), document.get("entries")) {
        (Some(_), _) => Ok(false),
        (None, Some(_)) => Ok(true),
        (None, None) => Err(Error::Usage(format!(
            "{}: neither a record, which has `kind`, nor a store of `tune`, which has `entries`",
            path.display()
        ))),
    }
}
