//! Results of many files and machines as one list of runs, each once.

use std::path::PathBuf;
use std::str::FromStr;

use super::row::{Row, Run};

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
    let mut result = Merged::<Vec<Run>>::default();
    let mut files: Vec<PathBuf> = Vec::new();
    for (file, mut run) in inputs {
        let known = result.merged.iter_mut().position(|known| start(known) == start(&run));
        if let Some(at) = known {
            let known = &mut result.merged[at];
            let date = &run.environment.date;
            let told =
                format!("{} and {} are one run of {date}", files[at].display(), file.display());
            let mut differ = None;
            for row in std::mem::take(&mut run.rows) {
                let row = Row { id: known.id.clone(), ..row };
                match known.rows.iter().find(|other| other.key() == row.key()) {
                    // The canary of a part may have moved less.
                    Some(other) if (Row { drift: other.drift, ..row.clone() }) != *other => {
                        differ.get_or_insert(row.key());
                    }
                    Some(_) => {}
                    None => known.rows.push(row),
                }
            }
            match differ {
                Some(case) if prefer != Some(Prefer::First) => {
                    result.contradictions.push(format!("{told} and differ in {case}"));
                }
                Some(case) => {
                    result.notes.push(format!("{told} and differ in {case}: the first counts"));
                }
                None => result.notes.push(format!("{told}: each case counts once")),
            }
            continue;
        }
        let names = (2..).map(|number| format!("{}-{number}", run.id));
        let is_free = |name: &String| result.merged.iter().all(|known| known.id != *name);
        run.id = [run.id.clone()].into_iter().chain(names).find(is_free).unwrap_or_default();
        run.rows.iter_mut().for_each(|row| row.id.clone_from(&run.id));
        files.push(file);
        result.merged.push(run);
    }
    result.merged.sort_by(|a, b| a.environment.date.cmp(&b.environment.date));
    result
}

/// Facts that two files share only if one process wrote both.
fn start(run: &Run) -> Option<impl PartialEq + '_> {
    let row = run.rows.first()?;
    let Row { environment, date, commit, command, seed, copy_gb_s, .. } = row;
    Some((environment, date, commit, command, seed, copy_gb_s))
}
