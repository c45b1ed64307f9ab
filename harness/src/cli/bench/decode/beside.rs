//! Another program beside a test: a process after each repetition of ours.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Test;
use crate::data::record::BesideRuns;
use crate::data::stats::mean_sd;
use crate::error::{Error, Result};
use crate::plan::file_hash;

/// Characters of what a run printed that are kept, the last ones.
const KEPT: usize = 16 << 10;
/// Lines of stderr that are shown of one that failed, the last ones.
const SAID: usize = 8;

/// A program, its arguments, and what its runs said.
pub(super) struct Beside {
    command: Vec<String>,
    hash: String,
    test: Test,
    outputs: Vec<String>,
    speeds: Vec<f64>,
}

impl Beside {
    /// Of a command line as a shell would split it.
    ///
    /// # Errors
    /// It has an open quote or no word, or its program is not there.
    pub(super) fn of(line: &str, test: Test) -> Result<Self> {
        let bad = |why: String| Error::Usage(format!("--beside {line}: {why}"));
        let command = shlex::split(line).ok_or_else(|| bad("a quote is not closed".into()))?;
        let Some(program) = command.first() else { return Err(bad("names no program".into())) };
        let path = found(program).ok_or_else(|| bad(format!("there is no program {program}")))?;
        let hash = file_hash(&path).map_err(|e| bad(format!("{}: {e}", path.display())))?;
        Ok(Self { command, hash, test, outputs: Vec::new(), speeds: Vec::new() })
    }

    /// The program's name.
    pub(super) fn name(&self) -> String {
        let program = Path::new(&self.command[0]);
        program.file_name().unwrap_or(program.as_os_str()).display().to_string()
    }

    /// Runs the program once.
    ///
    /// # Errors
    /// It does not start, fails, prints no figure, or says that it ran another test.
    pub(super) fn run(&mut self) -> Result<()> {
        let bad = |why: String| Error::Usage(format!("--beside {}: {why}", self.command.join(" ")));
        let output = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| bad(e.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let end = lines[lines.len().saturating_sub(SAID)..].join("\n  ");
            return Err(bad(format!("{}, it said\n  {end}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let speed = figure(&text, self.test).map_err(bad)?;
        let cut = text.chars().count().saturating_sub(KEPT);
        self.outputs.push(text.chars().skip(cut).collect());
        self.speeds.push(speed);
        Ok(())
    }

    /// What all runs were.
    pub(super) fn runs(self) -> BesideRuns {
        let (avg_ts, stddev_ts) = mean_sd(&self.speeds);
        BesideRuns {
            command: self.command,
            program_hash: self.hash,
            outputs: self.outputs,
            samples_ts: self.speeds,
            avg_ts,
            stddev_ts,
        }
    }
}

/// Where a program is, as the system looks for it.
fn found(program: &str) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    let named = |folder: PathBuf| {
        let path = folder.join(program);
        [path.with_extension(std::env::consts::EXE_EXTENSION), path]
            .into_iter()
            .find(|p| p.is_file())
    };
    std::env::split_paths(&folders).find_map(named)
}

/// Tokens a second in what a program printed: `avg_ts` of its last row in JSON (llama-bench's `-o
/// json` and `-o jsonl`), or the number before its last `tok/s`.
fn figure(text: &str, test: Test) -> Result<f64, String> {
    let speed = match last_row(text) {
        Some(row) => {
            let lengths =
                [("n_prompt", test.prompt), ("n_gen", test.generate), ("n_depth", test.depth)];
            for (key, ours) in lengths {
                match row.get(key).and_then(Value::as_u64) {
                    Some(theirs) if theirs != ours as u64 => {
                        return Err(format!("its {key} is {theirs}, the test's {ours}"));
                    }
                    _ => {}
                }
            }
            row["avg_ts"].as_f64()
        }
        None => {
            let words: Vec<&str> = text.split_whitespace().collect();
            let unit = words.iter().rposition(|word| word.trim_end_matches([',', ')']) == "tok/s");
            unit.and_then(|i| words[..i].last()?.parse().ok())
        }
    };
    speed
        .filter(|speed| speed.is_finite() && *speed > 0.0)
        .ok_or_else(|| "it printed neither a JSON row with avg_ts nor a number of tok/s".to_owned())
}

/// The last JSON object with `avg_ts`: of an array, or of lines of which each is one.
fn last_row(text: &str) -> Option<Value> {
    let has = |row: &Value| row.get("avg_ts").is_some();
    if let Ok(Value::Array(rows)) = serde_json::from_str(text) {
        return rows.into_iter().rfind(has);
    }
    text.lines().rev().filter_map(|line| serde_json::from_str(line).ok()).find(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Test = Test { depth: 4, prompt: 0, generate: 8, sequences: 1, sampling: None };

    #[test]
    fn figures_are_those_of_the_last_row() {
        let row =
            |n: u32, ts: f64| format!(r#"{{"n_prompt":0,"n_gen":{n},"n_depth":4,"avg_ts":{ts}}}"#);
        assert_eq!(figure(&format!("[{},\n{}]", row(8, 1.5), row(8, 2.5)), TEST), Ok(2.5));
        assert_eq!(figure(&format!("loading\n{}\n{}\n", row(8, 2.5), row(8, 3.5)), TEST), Ok(3.5));
        assert_eq!(figure("{\"avg_ts\": 4.0}", TEST), Ok(4.0));
        let other = figure(&row(128, 2.5), TEST);
        assert_eq!(other, Err("its n_gen is 128, the test's 8".into()));
    }

    #[test]
    fn figures_are_read_from_text() {
        let text = "RESULT a.gguf pp4 90.5 tok/s  tg8 median 12.25 tok/s (min 11.0 max 13.0)\n";
        assert_eq!(figure(text, TEST), Ok(12.25));
        for nothing in
            ["", "tok/s", "done in 3 s", "nan tok/s", "-4 tok/s", "[]", r#"{"avg_ts":null}"#]
        {
            let error = figure(nothing, TEST).unwrap_err();
            assert!(error.contains("neither a JSON row"), "{nothing}: {error}");
        }
    }

    #[test]
    fn a_command_names_a_program() {
        for (line, why) in [
            ("", "names no program"),
            ("\"a b", "a quote is not closed"),
            ("./nowhere -m x", "there is no program ./nowhere"),
            ("no-such-program-anywhere", "there is no program no-such-program-anywhere"),
        ] {
            let error = Beside::of(line, TEST).err().unwrap().to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
