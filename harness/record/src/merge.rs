//! Results of many files and machines as one list of runs, each once.

use std::path::PathBuf;
use std::str::FromStr;

use super::row::Run;

/// Choice between two contradicting inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// The later by its date; equal dates stay a contradiction, and so do files of one run.
    Newest,
    /// The file that was named first.
    First,
}

impl Prefer {
    /// Says whether the later named counts, by the dates of both; none where that does not decide.
    /// RFC 3339 in UTC sorts as text.
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

/// Result of merging.
#[derive(Clone, Debug, Default)]
pub struct Merged<T> {
    /// All inputs as one.
    pub merged: T,
    /// Inputs counted once or left out, with the reason.
    pub notes: Vec<String>,
    /// Contradictions, each with the names of the files; the result is then no result.
    pub contradictions: Vec<String>,
}

/// Joins runs, each with the file it is from, the earliest first. A run that is given twice counts
/// once; its files may have different cases of it, and contradict each other where one case has two
/// results. Another run of the same name gets a number behind it.
pub fn merge(inputs: Vec<(PathBuf, Run)>, prefer: Option<Prefer>) -> Merged<Vec<Run>> {
    let mut result = Merged::default();
    let mut all: Vec<(PathBuf, Run)> = Vec::new();
    for (from, mut run) in inputs {
        if let Some((known_from, known)) = all.iter_mut().find(|(_, known)| is_same(known, &run)) {
            let names = format!("{} and {}", known_from.display(), from.display());
            let told = format!("{names} are one run of {}", run.environment.date);
            match differing(known, &run) {
                Some(case) if prefer != Some(Prefer::First) => {
                    result.contradictions.push(format!("{told} and differ in {case}"));
                }
                Some(case) => {
                    result.notes.push(format!("{told} and differ in {case}: the first counts"));
                }
                None => result.notes.push(format!("{told}: each case counts once")),
            }
            let id = known.id.clone();
            for mut row in run.rows {
                if !known.rows.iter().any(|other| other.key() == row.key()) {
                    row.id.clone_from(&id);
                    known.rows.push(row);
                }
            }
            continue;
        }
        let name = run.id.clone();
        for number in 2.. {
            if !all.iter().any(|(_, known)| known.id == run.id) {
                break;
            }
            run.id = format!("{name}-{number}");
        }
        run.rows.iter_mut().for_each(|row| row.id.clone_from(&run.id));
        all.push((from, run));
    }
    all.sort_by(|(_, a), (_, b)| a.environment.date.cmp(&b.environment.date));
    result.merged = all.into_iter().map(|(_, run)| run).collect();
    result
}

/// Returns true if one process wrote both runs: they share start, seed and bandwidth.
fn is_same(a: &Run, b: &Run) -> bool {
    let begun = |run: &Run| {
        run.rows.first().map(|row| {
            let row = row.clone();
            (row.environment, row.date, row.commit, row.command, row.seed, row.copy_gb_s)
        })
    };
    begun(a) == begun(b)
}

/// A case that two files of one run have with different results.
fn differing(known: &Run, run: &Run) -> Option<String> {
    let of =
        |row: &super::row::Row| super::row::Row { id: String::new(), drift: None, ..row.clone() };
    let differs = |row: &&super::row::Row| {
        known.rows.iter().any(|other| other.key() == row.key() && of(other) != of(row))
    };
    run.rows.iter().find(differs).map(super::row::Row::key)
}
