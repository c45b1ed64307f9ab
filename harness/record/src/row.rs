//! Results as rows: one line a result, whatever kind of run it is from. Tables, pages, `compare`
//! and `merge` read rows; a record has the samples behind them.
//!
//! A CSV file holds the results of an adapter, the runs one after the other. The machine's
//! description, which runs share, stands once in `environments.jsonl` in the same folder, and rows
//! name it by its hash. `FILE.csv#ID` names one run of a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::{Environment, Record};
use crate::error::{Error, Result};
use crate::files;

mod of_record;

/// File of the environments, in the folder of the CSV files that name them.
const ENVIRONMENTS: &str = "environments.jsonl";

/// Kind of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A kernel alone: variant and shape.
    #[default]
    Bench,
    /// One dispatch of a kernel of several, in committed files alone.
    Stage,
    /// A case that gave no result; `flags` says why.
    Failed,
    /// Two variants, or two ways to decode, in one run.
    Ab,
    /// An operation of a profiled decode, or its unprofiled step.
    Profile,
    /// A test of `bench decode`.
    Test,
    /// Another program that ran in turns with the test above it.
    Beside,
    /// A configuration of `suite`.
    Suite,
}

/// One result. Times are microseconds; absent values are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Run that it is of: the name of the file that the run was saved in, without its ending.
    pub id: String,
    /// Start of the run, UTC.
    pub date: String,
    /// Kind of result.
    pub kind: Kind,
    /// Hash of the environment: its line in `environments.jsonl`.
    pub environment: String,
    /// Commit of the tree that was built.
    pub commit: Option<String>,
    /// The tree had changes that no commit holds.
    pub dirty: Option<bool>,
    /// Hash of all WGSL in the binary.
    pub wgsl: Option<String>,
    /// Command line.
    pub command: Option<String>,
    /// Seed of the inputs.
    pub seed: Option<u64>,
    /// Measured copy bandwidth, read plus written, 10^9 bytes a second.
    pub copy_gb_s: Option<f64>,
    /// Measured read bandwidth.
    pub read_gb_s: Option<f64>,
    /// Largest change of the canary's time during the run.
    pub drift: Option<f64>,
    /// Kernel, or model.
    pub subject: String,
    /// Variant, side A, or the kernels that served an operation.
    pub variant: String,
    /// Parameters, or the test.
    pub shape: String,
    /// Hash of the code that ran: equal hashes are equal code. Empty where that is not known.
    pub source: String,
    /// Way of measuring: results are compared where it is equal.
    pub how: String,
    /// Samples.
    pub n: usize,
    /// Median; for an A/B run, of side A.
    pub median_us: f64,
    /// Lower end of the median's 95 % interval.
    pub low_us: f64,
    /// Upper end.
    pub high_us: f64,
    /// Half-width of that interval over the median; over processes where there were several.
    pub noise: f64,
    /// Median with the inputs in the cache.
    pub warm_us: Option<f64>,
    /// Median where neighbours overlap.
    pub overlapped_us: Option<f64>,
    /// Bytes that an invocation must move.
    pub bytes: Option<f64>,
    /// Floating-point operations of an invocation.
    pub flops: Option<f64>,
    /// Tokens a second, the mean over repetitions.
    pub tok_s: Option<f64>,
    /// Standard deviation of that.
    pub tok_s_sd: Option<f64>,
    /// Normalised mean squared error of the judged outputs; empty if none were judged.
    pub nmse: Option<f64>,
    /// Largest that is accepted.
    pub nmse_bound: Option<f64>,
    /// Reasons to doubt the result, separated by `; `.
    pub flags: String,
    /// Side B.
    pub b: String,
    /// Median of B.
    pub b_us: Option<f64>,
    /// Time of B over time of A.
    pub ratio: Option<f64>,
    /// Lower end of its interval.
    pub ratio_low: Option<f64>,
    /// Upper end.
    pub ratio_high: Option<f64>,
    /// B against A.
    pub verdict: String,
}

impl Row {
    /// Name of the case within a run, by which `compare` finds it in another.
    pub fn key(&self) -> String {
        match self.kind {
            Kind::Bench | Kind::Stage | Kind::Failed => {
                format!("{}/{} {}", self.subject, self.variant, self.shape)
            }
            Kind::Ab => format!("{}/{} {} {}", self.subject, self.variant, self.shape, self.b),
            Kind::Beside => format!("{}, {}: {}", self.subject, self.shape, self.variant),
            Kind::Profile | Kind::Test | Kind::Suite => format!("{}, {}", self.subject, self.shape),
        }
    }

    /// Bytes over the median, 10^9 a second.
    pub fn gb_s(&self) -> Option<f64> {
        Some(self.bytes? / self.median_us / 1e3)
    }

    /// Reasons to doubt the result, one by one.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.flags.split("; ").filter(|flag| !flag.is_empty())
    }
}

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Name of the run: its file's name without the ending.
    pub id: String,
    /// Machine and build of the run.
    pub environment: Environment,
    /// Its results, at least one.
    pub rows: Vec<Row>,
}

impl Run {
    /// The results of a record; `id` names the run.
    pub fn of(id: &str, record: &Record) -> Self {
        let run = Row {
            id: id.to_owned(),
            date: record.environment.date.clone(),
            commit: record.environment.commit.clone(),
            dirty: record.environment.dirty,
            wgsl: record.environment.wgsl.clone(),
            command: record.environment.command.clone(),
            seed: record.environment.seed,
            copy_gb_s: record.environment.copy_gb_s,
            read_gb_s: record.environment.read_gb_s,
            drift: record.environment.canary_drift,
            environment: hash(&shared(&record.environment)),
            ..Row::default()
        };
        Self {
            id: id.to_owned(),
            environment: record.environment.clone(),
            rows: of_record::rows(&run, record),
        }
    }

    /// The runs of a file: a record, or those of a CSV file or of one `#ID` in it.
    pub fn read(path: &Path) -> Result<Vec<Self>> {
        let (file, id) = named(path);
        if !is_table(&file) {
            let record = Record::read(path)?;
            return Ok(vec![Self::of(&stem(path), &record)]);
        }
        let mut runs = read_table(&file)?;
        if let Some(id) = id {
            runs.retain(|run| run.id == id);
            if runs.is_empty() {
                return Err(Error::Usage(format!("{}: no run {id}", file.display())));
            }
        }
        Ok(runs)
    }
}

/// Name of a file without folders and ending.
pub fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns true if a path, with or without `#ID`, is of a CSV file.
pub fn is_table(path: &Path) -> bool {
    named(path).0.extension().is_some_and(|ending| ending == "csv")
}

/// A file and the run of it that is meant, if one is.
fn named(path: &Path) -> (PathBuf, Option<String>) {
    let text = path.to_string_lossy();
    match text.split_once(".csv#") {
        Some((file, id)) => (format!("{file}.csv").into(), Some(id.to_owned())),
        None => (path.to_owned(), None),
    }
}

/// The part of an environment that all runs of one machine and build share.
fn shared(environment: &Environment) -> Environment {
    let mut machine = environment.machine.clone();
    if let Some(machine) = &mut machine {
        machine.gpu.clear();
    }
    Environment {
        date: String::new(),
        commit: None,
        dirty: None,
        wgsl: None,
        command: None,
        seed: None,
        copy_gb_s: None,
        read_gb_s: None,
        canary_drift: None,
        ceilings: None,
        cache_bytes: None,
        timestamp_quantum_ns: environment.timestamp_quantum_ns.map(f64::round),
        machine,
        ..environment.clone()
    }
}

/// FNV-1a over the JSON text, 32 bits.
fn hash(environment: &Environment) -> String {
    let text = serde_json::to_string(environment).unwrap_or_default();
    let mix = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", text.bytes().fold(0x811c_9dc5_u32, mix))
}

/// A line of `environments.jsonl`.
#[derive(Serialize, Deserialize)]
struct Named {
    id: String,
    #[serde(flatten)]
    environment: Environment,
}

fn read_table(path: &Path) -> Result<Vec<Run>> {
    let read = |path: &Path| files::read_text(path, files::DATA).map_err(Error::io(path));
    let beside = path.with_file_name(ENVIRONMENTS);
    let bad = |path: &Path, line: u64, why: String| {
        Error::Usage(format!("{}:{line}: {why}", path.display()))
    };
    let mut environments = BTreeMap::new();
    for (at, line) in read(&beside)?.lines().enumerate() {
        let named: Named =
            serde_json::from_str(line).map_err(|e| bad(&beside, at as u64 + 1, e.to_string()))?;
        environments.insert(named.id, named.environment);
    }
    let text = read(path)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    for (at, row) in rows.deserialize::<Row>().enumerate() {
        let row =
            row.map_err(|e| bad(path, e.position().map_or(1, csv::Position::line), e.to_string()))?;
        if runs.last().is_none_or(|run| run.id != row.id) {
            let line = at as u64 + 2;
            if runs.iter().any(|run| run.id == row.id) {
                return Err(bad(path, line, format!("the rows of {} lie apart", row.id)));
            }
            let shared = environments.get(&row.environment).ok_or_else(|| {
                let name = &row.environment;
                bad(path, line, format!("environment {name} is not in {}", beside.display()))
            })?;
            let environment = Environment {
                date: row.date.clone(),
                commit: row.commit.clone(),
                dirty: row.dirty,
                wgsl: row.wgsl.clone(),
                command: row.command.clone(),
                seed: row.seed,
                copy_gb_s: row.copy_gb_s,
                read_gb_s: row.read_gb_s,
                canary_drift: row.drift,
                ..shared.clone()
            };
            runs.push(Run { id: row.id.clone(), environment, rows: Vec::new() });
        }
        if let Some(run) = runs.last_mut() {
            run.rows.push(row);
        }
    }
    Ok(runs)
}

/// The texts of a CSV file and of its environments.
///
/// # Errors
/// What cannot be written.
pub fn table(runs: &[Run]) -> Result<(Vec<u8>, String)> {
    let failed = |e: &dyn std::fmt::Display| Error::Usage(format!("rows as CSV: {e}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut environments = BTreeMap::new();
    for run in runs {
        for row in &run.rows {
            writer.serialize(row).map_err(|e| failed(&e))?;
            environments.insert(row.environment.clone(), shared(&run.environment));
        }
    }
    let lines = environments.into_iter().map(|(id, environment)| {
        serde_json::to_string(&Named { id, environment }).map(|line| line + "\n")
    });
    let lines = lines.collect::<Result<String, _>>().map_err(|e| failed(&e))?;
    Ok((writer.into_inner().map_err(|e| failed(&e))?, lines))
}

/// Adds runs to a CSV file, and new environments to the file of environments in the same folder.
pub fn write_table(path: &Path, runs: &[Run]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::io(path))?;
    }
    let (rows, mut environments) = table(runs)?;
    let beside = path.with_file_name(ENVIRONMENTS);
    if beside.exists() {
        let known = files::read_text(&beside, files::DATA).map_err(Error::io(&beside))?;
        let new: Vec<_> =
            environments.lines().filter(|line| !known.lines().any(|l| l == *line)).collect();
        environments = known + &new.iter().map(|line| format!("{line}\n")).collect::<String>();
    }
    files::replace(&beside, environments.as_bytes()).map_err(Error::io(&beside))?;
    files::replace(path, &rows).map_err(Error::io(path))
}

/// Kind of run that a result is of, in a word or two.
pub fn what(kind: Kind) -> &'static str {
    match kind {
        Kind::Bench | Kind::Stage | Kind::Failed => "bench",
        Kind::Ab => "A/B run",
        Kind::Profile => "profile",
        Kind::Test | Kind::Beside => "run of `bench decode`",
        Kind::Suite => "suite",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every committed file is written as it was read, and each run is found by name.
    #[test]
    fn the_committed_files_are_read_and_written_alike() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/records");
        for (name, least) in [("nvidia-h100", 150), ("nvidia-h200", 500)] {
            let file = folder.join(format!("{name}.csv"));
            let runs = Run::read(&file).unwrap();
            assert!(runs.len() > least, "{name}: {}", runs.len());
            assert!(runs.is_sorted_by_key(|run| run.environment.date.clone()), "{name}");
            let text = String::from_utf8(table(&runs).unwrap().0).unwrap();
            assert!(text == std::fs::read_to_string(&file).unwrap(), "{name} is written otherwise");
            let last = runs.last().unwrap();
            let one = Run::read(&folder.join(format!("{name}.csv#{}", last.id))).unwrap();
            assert_eq!(one.as_slice(), std::slice::from_ref(last));
        }
        let none = Run::read(&folder.join("nvidia-h200.csv#none")).unwrap_err().to_string();
        assert!(none.ends_with("nvidia-h200.csv: no run none"), "{none}");
    }

    /// A broken file is refused with its name and line.
    #[test]
    fn broken_tables_are_refused() {
        let run = |id: &str| {
            let (id, environment) = (id.to_owned(), shared(&Environment::default()));
            let row = Row { id: id.clone(), environment: hash(&environment), ..Row::default() };
            Run { id, environment, rows: vec![row] }
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        let (rows, environments) = table(&[run("one"), run("two")]).unwrap();
        let (rows, name) = (String::from_utf8(rows).unwrap(), hash(&Environment::default()));
        let beside = folder.path().join(ENVIRONMENTS);
        let line = rows.lines().nth(1).unwrap();
        for (rows, environments, fault) in [
            (rows.clone(), "{}".into(), "environments.jsonl:1: missing field"),
            (rows.clone(), String::new(), "a.csv:2: environment"),
            (rows.replace("median_us", "median"), environments.clone(), "a.csv:2: "),
            (rows.replace(",0.0,0.0,", ",zero,0.0,"), environments.clone(), "a.csv:2: "),
            (format!("{rows}{line}\n"), environments.clone(), "a.csv:4: the rows of one lie apart"),
        ] {
            std::fs::write(&file, rows).unwrap();
            std::fs::write(&beside, environments).unwrap();
            let said = Run::read(&file).unwrap_err().to_string();
            assert!(said.contains(fault), "{name} {fault}: {said}");
        }
    }
}
