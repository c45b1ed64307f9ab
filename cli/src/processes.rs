//! `--processes N`: the same command line in fresh processes, whose records become one. A process
//! cannot see where its own code and weights lie; the next one has them elsewhere.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use lathe_harness::data::processes::merged;
use lathe_harness::data::record::Record;
use lathe_harness::error::{Error, Result};
use lathe_harness::measure::command_line;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Processes {
    /// Measure in N fresh processes: ± is then over them, and a verdict takes all of them to agree
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100))]
    processes: Option<u32>,
}

/// Options of the parent that a child must not have, and whether a value follows.
const PARENTS: &[(&str, bool)] = &[("--processes", true), ("--save", true), ("--json", false)];

/// The command for work in a process of its own: this one, unless another is named.
pub(crate) fn program() -> Result<PathBuf> {
    match std::env::var_os("LATHE_COMMAND") {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().map_err(Error::io("a child process")),
    }
}

/// The words of the command line without some options. Each says whether a value follows it.
pub(crate) fn words_without(options: &[(&str, bool)]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut skip = false;
    for word in std::env::args_os().skip(1) {
        if std::mem::take(&mut skip) {
            continue;
        }
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        match options.iter().find(|(option, _)| *option == name) {
            Some((_, value)) => skip = *value && !text.contains('='),
            None => kept.push(word),
        }
    }
    kept
}

impl Processes {
    /// Returns true if several processes are asked for.
    pub(crate) fn is_asked(self) -> bool {
        self.processes.is_some()
    }

    /// The record of all processes; none where one is enough.
    pub(crate) fn record(self) -> Result<Option<Record>> {
        let Some(count) = self.processes else { return Ok(None) };
        let child_words = words_without(PARENTS);
        let io = || Error::io("a child process");
        let mut records = Vec::new();
        for nth in 1..=count {
            eprintln!("lathe: process {nth} of {count}");
            let output = Command::new(std::env::current_exe().map_err(io())?)
                .args(&child_words)
                .arg("--json")
                .stderr(Stdio::inherit())
                .output()
                .map_err(io())?;
            match output.status.code() {
                // No verdict is an answer here.
                Some(0 | 6) => {}
                Some(3) => {
                    return Err(Error::Unavailable {
                        what: "a run in several processes".into(),
                        adapter: "this machine".into(),
                        reason: "the process above says why".into(),
                    });
                }
                code => {
                    let code = code.map_or("a signal".into(), |code| format!("code {code}"));
                    return Err(Error::CheckFailed(format!(
                        "process {nth} of {count} ended with {code}; it says why above"
                    )));
                }
            }
            let text = String::from_utf8_lossy(&output.stdout);
            records.push(Record::parse(&text, Path::new("a child process"))?);
        }
        let mut record = merged(records).map_err(Error::CheckFailed)?;
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        record.environment.command = Some(command_line(words));
        Ok(Some(record))
    }
}
