//! Another program beside a test: a process after each repetition of ours.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lathe_harness::data::record::BesideRuns;
use lathe_harness::data::stats::mean_sd;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::file_hash;
use serde_json::Value;

use super::Test;
use crate::out;

/// Bytes of what a run printed that are kept, the last ones.
const KEPT: u64 = 16 << 10;
/// Bytes that a run may print.
const MOST: u64 = 64 << 20;
/// Lines of stderr that are shown of one that failed, the last ones.
const SAID: usize = 8;
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(1800);

/// A program, its arguments, and what its runs said.
pub(super) struct Beside {
    command: Vec<String>,
    program: PathBuf,
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
        let Some(name) = command.first() else { return Err(bad("names no program".into())) };
        let program = found(name).ok_or_else(|| bad(format!("there is no program {name}")))?;
        let hash = file_hash(&program).map_err(|e| bad(format!("{}: {e}", program.display())))?;
        Ok(Self { command, program, hash, test, outputs: Vec::new(), speeds: Vec::new() })
    }

    /// The program's name.
    pub(super) fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        out::escaped(&name.display().to_string()).into_owned()
    }

    /// Runs the program once.
    ///
    /// # Errors
    /// It does not start, fails, does not end, prints no figure, or says that it ran another test.
    pub(super) fn run(&mut self) -> Result<()> {
        let bad = |why: String| Error::Usage(format!("--beside {}: {why}", self.command.join(" ")));
        let failed = |e: std::io::Error| bad(e.to_string());
        // Files, because a pipe may be kept open by what the program leaves behind.
        let (stdout, stderr) =
            (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
        let mut process = Command::new(&self.program)
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().map_err(failed)?)
            .stderr(stderr.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = process.try_wait().map_err(failed)? {
                break status;
            }
            let printed = |file: &File| file.metadata().map(|data| data.len());
            let printed =
                printed(&stdout).and_then(|n| Ok(n + printed(&stderr)?)).map_err(failed)?;
            let fault = match (began.elapsed() > LIMIT, printed > MOST) {
                (true, _) => format!("it did not end within {} minutes", LIMIT.as_secs() / 60),
                (_, true) => format!("it printed more than {} MiB", MOST >> 20),
                _ => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
            };
            process.kill().map_err(failed)?;
            process.wait().map_err(failed)?;
            return Err(bad(fault));
        };
        if !status.success() {
            let said = end_of(&stderr, KEPT).map_err(failed)?;
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let end = lines[lines.len().saturating_sub(SAID)..].join("\n  ");
            return Err(bad(format!("{status}, it said\n  {end}")));
        }
        let text = end_of(&stdout, MOST).map_err(failed)?;
        self.speeds.push(figure(&text, self.test).map_err(bad)?);
        self.outputs.push(end_of(&stdout, KEPT).map_err(failed)?);
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
    let named = |path: PathBuf| {
        let extension = std::env::consts::EXE_SUFFIX;
        let mut whole = path.clone().into_os_string();
        whole.push(extension);
        [PathBuf::from(whole), path].into_iter().find(|path| runs(path))
    };
    if Path::new(program).components().count() > 1 {
        return named(PathBuf::from(program));
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).find_map(|folder| named(folder.join(program)))
}

#[cfg(unix)]
fn runs(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn runs(path: &Path) -> bool {
    path.is_file()
}

/// The last bytes of what a file holds, without what moves a terminal's cursor.
fn end_of(mut file: &File, most: u64) -> std::io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let shown = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c };
    Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").chars().map(shown).collect())
}

/// Tokens a second in what a program printed: `avg_ts` of its only row in JSON (llama-bench's `-o
/// json` and `-o jsonl`), or the number before its last `tok/s`.
fn figure(text: &str, test: Test) -> Result<f64, String> {
    let rows = rows(text);
    let speed = match &rows[..] {
        [row] => {
            for (key, ours) in [
                ("n_prompt", test.prompt),
                ("n_gen", test.generate),
                ("n_depth", test.depth),
                ("sequences", test.sequences),
            ] {
                match row.get(key) {
                    Some(theirs) if theirs.as_u64() != Some(ours as u64) => {
                        return Err(format!("its {key} is {theirs}, the test's {ours}"));
                    }
                    _ => {}
                }
            }
            row["avg_ts"].as_f64()
        }
        [] => {
            let words: Vec<&str> = text.split_whitespace().collect();
            let unit = words.iter().rposition(|word| word.contains("tok/s"));
            // A unit with something at it is no number's.
            let unit = unit.filter(|i| words[*i].trim_end_matches([',', ')', '.', ';']) == "tok/s");
            unit.and_then(|i| words[..i].last()?.parse().ok())
        }
        several => return Err(format!("it printed {} rows with avg_ts, not one", several.len())),
    };
    speed
        .filter(|speed| speed.is_finite() && *speed > 0.0)
        .ok_or_else(|| "it printed neither a JSON row with avg_ts nor a number of tok/s".to_owned())
}

/// JSON objects with `avg_ts`: of an array, or of lines of which each is one.
fn rows(text: &str) -> Vec<Value> {
    let all = match serde_json::from_str(text) {
        Ok(Value::Array(rows)) => rows,
        _ => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
    };
    all.into_iter().filter(|row| row.get("avg_ts").is_some()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TEST: Test = Test { depth: 4, prompt: 0, generate: 8, sequences: 1, sampling: None };

    #[test]
    fn figures_are_those_of_the_only_row() {
        let row = |n: &str| format!(r#"{{"n_prompt":0,"n_gen":{n},"n_depth":4,"avg_ts":2.5}}"#);
        assert_eq!(figure(&format!("[\n{}]", row("8")), TEST), Ok(2.5));
        assert_eq!(figure(&format!("loading\n{}\n1.5 tok/s\n", row("8")), TEST), Ok(2.5));
        assert_eq!(figure("{\"avg_ts\": 4.0}", TEST), Ok(4.0));
        for n in ["128", "8.0", "null"] {
            assert_eq!(figure(&row(n), TEST), Err(format!("its n_gen is {n}, the test's 8")));
        }
        let together = figure(r#"{"sequences":8,"avg_ts":4.0}"#, TEST);
        assert_eq!(together, Err("its sequences is 8, the test's 1".into()));
        let two = format!("{}\n{}", row("8"), row("8"));
        assert_eq!(figure(&two, TEST), Err("it printed 2 rows with avg_ts, not one".into()));
    }

    #[test]
    fn figures_are_read_from_text() {
        let text = "RESULT a.gguf pp4 90.5 tok/s  tg8 median 12.25 tok/s (min 11.0 max 13.0)\n";
        assert_eq!(figure(text, TEST), Ok(12.25));
        assert_eq!(figure("pp512: 9000 tok/s tg128: 300 tok/s.", TEST), Ok(300.0));
        for nothing in [
            "",
            "tok/s",
            "done in 3 s",
            "nan tok/s",
            "-4 tok/s",
            "9000 tok/s and 300 tok/s/user",
            "[]",
            r#"{"avg_ts":null}"#,
        ] {
            let error = figure(nothing, TEST).unwrap_err();
            assert!(error.contains("neither a JSON row"), "{nothing}: {error}");
        }
    }

    #[test]
    fn what_is_kept_is_the_end_without_controls() {
        let mut file = tempfile::tempfile().unwrap();
        let long = "x".repeat(2 * KEPT as usize);
        file.write_all(format!("{long}a\x1b[2J\u{9b}b\tc\r\nd\n").as_bytes()).unwrap();
        let kept = end_of(&file, KEPT).unwrap();
        assert!(kept.ends_with("xa\u{fffd}[2J\u{fffd}b\tc\nd\n"), "{kept:?}");
        assert!(kept.len() <= KEPT as usize + 8);
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
