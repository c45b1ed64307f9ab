//! Records of many runs and machines as few documents. A run is what one process wrote; runs of one
//! adapter, build and setting become one record, those of others stay apart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;

use super::add_new;
use super::record::{Bench, BenchCase, BenchRun, Body, Environment, Record};

/// Which of two contradicting inputs counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// That of the later date; equal dates stay a contradiction, and so do files of one run.
    Newest,
    /// That of the file that was named first.
    First,
}

impl Prefer {
    /// Which of the earlier and the later named counts, by their dates. RFC 3339 in UTC sorts as
    /// text.
    pub fn takes_later(self, earlier: &str, later: &str) -> Option<bool> {
        match self {
            Prefer::First => Some(false),
            Prefer::Newest if earlier == later => None,
            Prefer::Newest => Some(later > earlier),
        }
    }
}

impl FromStr for Prefer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "newest" => Ok(Prefer::Newest),
            "first" => Ok(Prefer::First),
            _ => Err("expected newest or first".into()),
        }
    }
}

/// What came of merging.
#[derive(Clone, Debug, Default)]
pub struct Merged<T> {
    /// The result.
    pub merged: T,
    /// What was counted once or left out, and why.
    pub notes: Vec<String>,
    /// What contradicts, each with the names of the files; the result is then no result.
    pub contradictions: Vec<String>,
}

/// A record on its way.
struct Run {
    from: PathBuf,
    record: Record,
}

/// Merges records, each with the file it is from. Runs of one setting that share no case become one
/// record, the earliest first. Runs that measured the same case again are kept in further records,
/// which `compare` takes as several runs of a side.
///
/// # Errors
/// A record whose list of runs does not fit its cases, by its file.
pub fn merge(
    inputs: Vec<(PathBuf, Record)>,
    prefer: Option<Prefer>,
) -> Result<Merged<Vec<Record>>, String> {
    let mut result = Merged::default();
    let mut runs: Vec<Run> = Vec::new();
    for (from, record) in inputs {
        let records =
            apart(record).map_err(|why| format!("{}: {why}", from.display()))?.into_iter();
        for record in records {
            let run = Run { from: from.clone(), record };
            let known = runs.iter_mut().find(|known| is_same_run(&known.record, &run.record));
            match known {
                None => runs.push(run),
                Some(known) => reconcile(known, run, prefer, &mut result),
            }
        }
    }
    runs.sort_by(|a, b| a.record.environment.date.cmp(&b.record.environment.date));
    let mut documents: Vec<Document> = Vec::new();
    for run in runs {
        place(run, &mut documents, &mut result.notes);
    }
    // Those of one adapter stand together, the earliest first.
    documents.sort_by_key(Document::adapter);
    result.merged = documents.into_iter().map(Document::record).collect();
    Ok(result)
}

/// The runs that a record was merged of, each as its process wrote it; or the record itself.
fn apart(mut record: Record) -> Result<Vec<Record>, String> {
    let Body::Bench(bench) = &mut record.body else { return Ok(vec![record]) };
    let runs = std::mem::take(&mut bench.runs);
    if runs.is_empty() {
        return Ok(vec![record]);
    }
    let total = |of: fn(&BenchRun) -> usize| {
        runs.iter().try_fold(0usize, |sum, run| sum.checked_add(of(run)))
    };
    let (cases, failed) = (total(|run| run.cases), total(|run| run.failed));
    if cases != Some(bench.cases.len()) || failed != Some(bench.failed.len()) {
        return Err(format!(
            "`runs` counts other cases than there are ({} cases, {} failed): the record was changed \
             by hand",
            bench.cases.len(),
            bench.failed.len()
        ));
    }
    let (mut cases, mut failed) = (bench.cases.drain(..), bench.failed.drain(..));
    let of = |run: BenchRun| {
        let bench = Bench {
            cases: cases.by_ref().take(run.cases).collect(),
            failed: failed.by_ref().take(run.failed).collect(),
            runs: Vec::new(),
        };
        Record::new(run.environment, Body::Bench(bench))
    };
    Ok(runs.into_iter().map(of).collect())
}

/// Whether two records were written by one process: what it knew when it began is equal, the
/// moment, the seed and the measured bandwidth among it.
fn is_same_run(a: &Record, b: &Record) -> bool {
    let begun = |record: &Record| {
        let mut environment = Environment { canary_drift: None, ..record.environment.clone() };
        if let Some(machine) = &mut environment.machine {
            machine.gpu.truncate(1);
        }
        environment
    };
    a.body.what() == b.body.what() && begun(a) == begun(b)
}

/// Two files of one run: equal, one of them cut short, or contradicting.
fn reconcile(known: &mut Run, run: Run, prefer: Option<Prefer>, result: &mut Merged<Vec<Record>>) {
    let names = format!("{} and {}", known.from.display(), run.from.display());
    let date = run.record.environment.date.clone();
    match (beyond(&known.record, &run.record), beyond(&run.record, &known.record)) {
        (None, _) => {
            result.notes.push(format!("{names} are one run of {date}: counted once"));
        }
        (Some(_), None) => {
            result.notes.push(format!("{names} are one run of {date}: the longer one counts"));
            *known = run;
        }
        (Some(_), Some(_)) => match differing(&known.record, &run.record) {
            None => {
                result.notes.push(format!("{names} are parts of one run of {date}"));
                add(&mut known.record, run.record);
            }
            Some(what) => {
                let told = format!("{names} are one run of {date} and differ in {what}");
                // Of one run no date is the later.
                match prefer {
                    Some(Prefer::First) => result.notes.push(format!("{told}: the first counts")),
                    _ => result.contradictions.push(told),
                }
            }
        },
    }
}

/// What two records of one run both have, and not alike.
fn differing(first: &Record, second: &Record) -> Option<String> {
    let (Body::Bench(first), Body::Bench(bench)) = (&first.body, &second.body) else {
        return beyond(first, second);
    };
    let known: BTreeMap<String, &BenchCase> = first.cases.iter().map(|c| (c.key(), c)).collect();
    let differs = |case: &&BenchCase| known.get(&case.key()).is_some_and(|known| known != case);
    bench.cases.iter().find(differs).map(BenchCase::key)
}

/// Puts a row, a record of one case, into the record of its run; gives it back where that is
/// another run, or has the case with other figures. A row that is there twice counts once.
pub fn take_row(whole: &mut Record, row: Record) -> Option<Record> {
    let (Body::Bench(bench), Body::Bench(of_row)) = (&mut whole.body, &row.body) else {
        return Some(row);
    };
    if whole.environment != row.environment {
        return Some(row);
    }
    for case in &of_row.cases {
        match bench.cases.iter().find(|known| known.key() == case.key()) {
            Some(known) if known != case => return Some(row),
            Some(_) => {}
            None => bench.cases.push(case.clone()),
        }
    }
    None
}

/// Puts what a record of a run has beyond another of it, into that.
fn add(whole: &mut Record, part: Record) {
    if let (Body::Bench(whole), Body::Bench(part)) = (&mut whole.body, part.body) {
        add_new(&mut whole.cases, part.cases);
        add_new(&mut whole.failed, part.failed);
    }
}

/// What a record has that none of others has: a case, a failure, or all of it.
pub fn missing(others: &[Record], record: &Record) -> Option<String> {
    let Body::Bench(bench) = &record.body else {
        let has = others.iter().any(|other| beyond(other, record).is_none());
        return (!has).then(|| format!("a {}", record.body.what()));
    };
    let benches = || {
        others.iter().filter_map(|other| match &other.body {
            Body::Bench(bench) => Some(bench),
            _ => None,
        })
    };
    let case = bench.cases.iter().find(|case| !benches().any(|other| other.cases.contains(case)));
    let failed = || {
        let mut texts = bench.failed.iter();
        texts.find(|text| !benches().any(|other| other.failed.contains(text))).cloned()
    };
    case.map(BenchCase::key).or_else(failed)
}

/// What the second of two records of one run has that the first has not, or has otherwise.
fn beyond(first: &Record, second: &Record) -> Option<String> {
    match (&first.body, &second.body) {
        (Body::Bench(_), Body::Bench(_)) => missing(std::slice::from_ref(first), second),
        (first, second) => (first != second).then(|| format!("the figures of a {}", first.what())),
    }
}

/// What has to be equal of two runs in one record; none where a record does not say what ran.
fn setting(record: &Record) -> Option<String> {
    let e = &record.environment;
    // The text of a tree with changes is known by the hash of its WGSL alone.
    if e.wgsl.is_none() && (e.commit.is_none() || e.dirty != Some(false)) {
        return None;
    }
    let variables: BTreeMap<_, _> = e
        .machine
        .iter()
        .flat_map(|machine| &machine.variables)
        .filter(|(name, _)| name.starts_with("WGPU_") || *name == "LATHE_VALIDATION")
        .collect();
    Some(format!(
        "{:?}",
        (
            (&e.adapter, &e.driver, &e.backend, &e.os, e.software),
            (&e.lathe, &e.wgpu, &e.runtime_checks, e.processes),
            (&e.commit, e.dirty, &e.wgsl, variables),
        )
    ))
}

/// A record in the making.
struct Document {
    setting: Option<String>,
    /// Cases with a time, and those without.
    keys: BTreeSet<String>,
    failed: Vec<String>,
    runs: Vec<Record>,
}

/// Puts a run into the first record of its setting that has none of its cases.
fn place(run: Run, documents: &mut Vec<Document>, notes: &mut Vec<String>) {
    let (keys, failed) = match &run.record.body {
        Body::Bench(bench) => {
            (bench.cases.iter().map(BenchCase::key).collect(), bench.failed.clone())
        }
        _ => Default::default(),
    };
    let is_bench = matches!(run.record.body, Body::Bench(_));
    let setting = if is_bench { setting(&run.record) } else { None };
    let mut again = None;
    if setting.is_some() {
        for document in documents.iter_mut().filter(|known| known.setting == setting) {
            match document.shared(&keys, &failed) {
                Some(case) => again = again.or(Some(case)),
                None => {
                    document.keys.extend(keys);
                    document.failed.extend(failed);
                    document.runs.push(run.record);
                    return;
                }
            }
        }
    }
    if let Some(case) = again {
        let (from, e) = (run.from.display(), &run.record.environment);
        notes.push(format!(
            "{from}: {case} was measured before on {}; this run of {} is a record of its own",
            e.adapter, e.date
        ));
    }
    documents.push(Document { setting, keys, failed, runs: vec![run.record] });
}

impl Document {
    /// A case that a run has too.
    fn shared(&self, keys: &BTreeSet<String>, failed: &[String]) -> Option<String> {
        let failed_in = |texts: &[String], key: &str| {
            texts.iter().any(|text| {
                text.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            })
        };
        let twice =
            keys.iter().find(|key| self.keys.contains(*key) || failed_in(&self.failed, key));
        let wrong = || self.keys.iter().find(|key| failed_in(failed, key));
        let both = || failed.iter().find(|text| self.failed.contains(text));
        twice.or_else(wrong).or_else(both).cloned()
    }

    fn adapter(&self) -> (String, String) {
        let e = &self.runs[0].environment;
        (e.adapter.clone(), e.driver.clone())
    }

    fn record(mut self) -> Record {
        if self.runs.len() == 1 {
            return self.runs.swap_remove(0);
        }
        let environment = joined(&self.runs);
        let mut whole = Bench::default();
        for Record { environment, body, .. } in self.runs {
            // Others are never joined.
            let Body::Bench(bench) = body else { continue };
            let (cases, failed) = (bench.cases.len(), bench.failed.len());
            whole.runs.push(BenchRun { environment, cases, failed });
            whole.cases.extend(bench.cases);
            whole.failed.extend(bench.failed);
        }
        Record::new(environment, Body::Bench(whole))
    }
}

/// The environment of several runs of one setting: what they have in common, the date of the
/// earliest, the best bandwidths, the largest drift. The runs keep their own.
fn joined(runs: &[Record]) -> Environment {
    let mut all = runs.iter().map(|run| &run.environment);
    let mut whole = all.next().cloned().unwrap_or_default();
    for other in all {
        let faster = other.copy_gb_s > whole.copy_gb_s;
        whole.ceilings = match (whole.ceilings, other.ceilings) {
            (Some(own), Some(other)) => Some(if faster { other } else { own }),
            (own, other) => own.or(other),
        };
        let largest = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        whole.copy_gb_s = largest(whole.copy_gb_s, other.copy_gb_s);
        whole.read_gb_s = largest(whole.read_gb_s, other.read_gb_s);
        whole.canary_drift = largest(whole.canary_drift, other.canary_drift);
        whole.cache_bytes = whole.cache_bytes.max(other.cache_bytes);
        whole.timestamp_quantum_ns =
            largest(whole.timestamp_quantum_ns, other.timestamp_quantum_ns);
        whole.command = whole.command.filter(|command| other.command.as_ref() == Some(command));
        whole.seed = whole.seed.filter(|seed| other.seed == Some(*seed));
        whole.machine = whole.machine.filter(|machine| other.machine.as_ref() == Some(machine));
    }
    whole
}
