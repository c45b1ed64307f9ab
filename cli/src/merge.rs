//! `lathe merge`: records and stores of many runs and machines as few files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::data::merge::{Merged, Prefer, merge, missing, take_row};
use lathe_harness::data::record::{Body, Record};
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::plan::tuned::Store;
use serde::Serialize;
use serde_json::{Value, json};

use super::Global;
use super::out;
use crate::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// Records (saved ones, rows of `bench --format jsonl`, and what was merged before), or stores
    /// of `tune`
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// Of records a folder to make, with a record an adapter and build; of stores a file
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Where inputs contradict each other take the later by its date, or that of the file named
    /// first: newest, first
    #[arg(long, value_name = "WHICH")]
    prefer: Option<Prefer>,
    /// Replace OUT if it is there and holds what this command writes
    #[arg(long)]
    force: bool,
}

/// What was written.
#[derive(Serialize)]
struct Report {
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    output: PathBuf,
    /// Records of a folder; empty for a store.
    records: Vec<Line>,
    /// Choices of a store; absent for records.
    #[serde(skip_serializing_if = "Option::is_none")]
    choices: Option<usize>,
    notes: Vec<String>,
}

/// One written record.
#[derive(Serialize)]
struct Line {
    file: String,
    adapter: String,
    driver: String,
    kind: &'static str,
    runs: usize,
    cases: usize,
    failed: usize,
}

/// What a file holds.
enum Input {
    Records(Vec<Record>),
    Store(Store),
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let (mut records, mut stores) = (Vec::new(), Vec::new());
    for path in &opts.inputs {
        match read(path)? {
            Input::Records(found) => {
                records.extend(found.into_iter().map(|record| (path.clone(), record)));
            }
            Input::Store(store) => stores.push((path.clone(), store)),
        }
    }
    if let (Some((record, _)), Some((store, _))) = (records.first(), stores.first()) {
        return Err(Error::Usage(format!(
            "{} is a record and {} a store of tuned choices: merge each kind by itself",
            record.display(),
            store.display()
        )));
    }
    let report = if stores.is_empty() {
        let merged = settled(merge(records, opts.prefer).map_err(Error::Usage)?)?;
        write_records(opts, merged)?
    } else {
        let merged = settled(Store::merge(stores, opts.prefer))?;
        write_store(opts, merged)?
    };
    if global.json {
        out::json(&report);
        return Ok(());
    }
    for note in &report.notes {
        eprintln!("lathe: {}", out::escaped(note));
    }
    let output = opts.output.display();
    let Some(choices) = report.choices else {
        let mut t = table::table(&["record", "kind", "adapter", "runs", "cases"], &[3, 4]);
        for line in &report.records {
            t.add_row(vec![
                line.file.clone(),
                line.kind.to_owned(),
                line.adapter.clone(),
                line.runs.to_string(),
                line.cases.to_string(),
            ]);
        }
        out::fitted(t);
        outln!("{output}: {} record(s)", report.records.len());
        return Ok(());
    };
    outln!("{output}: {choices} choice(s)");
    Ok(())
}

/// What was merged without a contradiction; or all of them, said.
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

/// What a file holds, by its content: JSON documents one after the other.
fn read(path: &Path) -> Result<Input> {
    let text = files::read_text(path, files::DATA).map_err(Error::io(path))?;
    let bad = |why: String| Error::Usage(format!("{}: {why}", path.display()));
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let documents: Vec<Value> =
        documents.collect::<Result<_, _>>().map_err(|e| bad(format!("not JSON: {e}")))?;
    let several = documents.len() > 1;
    if let [one] = documents.as_slice()
        && one.get("kind").is_none()
        && one.get("entries").is_some()
    {
        return Store::parse(&text, path).map(Input::Store);
    }
    let mut records: Vec<Record> = Vec::new();
    for (at, mut document) in documents.into_iter().enumerate() {
        let place = match several {
            true => PathBuf::from(format!("{}: document {}", path.display(), at + 1)),
            false => path.to_owned(),
        };
        let Some(kind) = document.get("kind").map(Value::to_string) else {
            return Err(Error::Usage(format!(
                "{}: neither a record, which has `kind`, nor a store of `tune`, which has `entries`",
                place.display()
            )));
        };
        let is_row = kind == "\"bench_case\"";
        if is_row {
            document = record_of(document);
        }
        let record = Record::parse(&document.to_string(), &place)?;
        // Rows of one run stand one after the other.
        let row = match records.last_mut().filter(|_| is_row) {
            Some(last) => take_row(last, record),
            None => Some(record),
        };
        records.extend(row);
    }
    match records.is_empty() {
        true => Err(bad("holds no document".into())),
        false => Ok(Input::Records(records)),
    }
}

/// A row of `bench --format jsonl` as a record of one case.
fn record_of(mut row: Value) -> Value {
    let mut taken = |key: &str| row.as_object_mut().and_then(|row| row.remove(key));
    let (version, environment) = (taken("schema_version"), taken("environment"));
    taken("kind");
    json!({ "schema_version": version, "environment": environment, "kind": "bench", "cases": [row] })
}

fn write_records(opts: &Opts, merged: Merged<Vec<Record>>) -> Result<Report> {
    let io = || Error::io(&opts.output);
    if opts.output.exists() {
        replaceable(&opts.output, opts.force, |path| {
            let entries = std::fs::read_dir(path).map_err(io())?;
            for entry in entries {
                let path = entry.map_err(io())?.path();
                if let Some(what) = missing(&merged.merged, &Record::read(&path)?) {
                    return Err(lost(&path, &what));
                }
            }
            Ok(())
        })?;
    }
    let mut names = BTreeSet::new();
    let (mut files, mut lines) = (Vec::new(), Vec::new());
    for record in &merged.merged {
        let kind = record.body.what();
        let (runs, cases, failed) = match &record.body {
            Body::Bench(bench) => (bench.runs.len().max(1), bench.cases.len(), bench.failed.len()),
            _ => (1, 0, 0),
        };
        let mut name = file_name(&record.environment.adapter);
        if !matches!(record.body, Body::Bench(_)) {
            name += &format!("-{}", file_name(kind));
        }
        let file = free_name(&name, &mut names);
        let environment = &record.environment;
        files.push((file.clone(), record.line(&opts.output)?));
        let (adapter, driver) = (environment.adapter.clone(), environment.driver.clone());
        lines.push(Line { file, adapter, driver, kind, runs, cases, failed });
    }
    if let Some(folder) = opts.output.parent() {
        std::fs::create_dir_all(folder).map_err(io())?;
    }
    files::replace_folder(&opts.output, &files).map_err(io())?;
    let output = opts.output.clone();
    Ok(Report { output, records: lines, choices: None, notes: merged.notes })
}

fn write_store(opts: &Opts, merged: Merged<Store>) -> Result<Report> {
    if opts.output.exists() {
        replaceable(&opts.output, opts.force, |path| {
            let old = Store::read(path)?.entries.into_iter();
            let mut gone = old.filter(|entry| !merged.merged.has(entry));
            gone.next().map_or(Ok(()), |entry| {
                Err(lost(path, &format!("{} {} on {}", entry.kernel, entry.shape, entry.adapter)))
            })
        })?;
    }
    merged.merged.write(&opts.output)?;
    let choices = Some(merged.merged.entries.len());
    Ok(Report { output: opts.output.clone(), records: Vec::new(), choices, notes: merged.notes })
}

/// What is there has something that would be gone.
fn lost(path: &Path, what: &str) -> Error {
    Error::Usage(format!(
        "{}: {what} is in none of the inputs; name the file among them, or another output",
        path.display()
    ))
}

/// Refuses to replace what is there, unless that is asked for and it holds nothing else.
fn replaceable(path: &Path, force: bool, read: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let refuse = |why: String| Err(Error::Usage(format!("{}: {why}", path.display())));
    if !force {
        return refuse("exists; --force replaces it".into());
    }
    match read(path) {
        Ok(()) => Ok(()),
        Err(e) => refuse(format!("is not replaced, since it holds what the result does not: {e}")),
    }
}

/// A name in letters, digits and hyphens that every file system takes.
pub(super) fn file_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        match c.is_ascii_alphanumeric() {
            true => name.push(c.to_ascii_lowercase()),
            false if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            false => {}
        }
    }
    name.truncate(64);
    let name = name.trim_end_matches('-');
    if name.is_empty() { "adapter".into() } else { name.into() }
}

/// The first of `NAME.json`, `NAME-2.json`, … that is not taken yet, and now is.
pub(super) fn free_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut file = format!("{name}.json");
    for number in 2.. {
        if taken.insert(file.clone()) {
            break;
        }
        file = format!("{name}-{number}.json");
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(file_name("NVIDIA H200"), "nvidia-h200");
        assert_eq!(file_name("llvmpipe (LLVM 15.0.6, 256 bits)"), "llvmpipe-llvm-15-0-6-256-bits");
        assert_eq!(file_name("../../é"), "adapter");
        assert!(file_name(&"x y".repeat(100)).len() <= 64);
        let mut taken = BTreeSet::new();
        let names = ["a", "a", "a-2", "a"].map(|name| free_name(name, &mut taken));
        assert_eq!(names, ["a.json", "a-2.json", "a-2-2.json", "a-3.json"]);
    }
}
