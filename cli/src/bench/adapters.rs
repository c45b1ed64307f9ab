//! `--all-adapters`: the same bench on each adapter, in a process each. One that loses its device
//! or is killed by its driver does not end the others.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use lathe_harness::data::AdapterSummary;
use lathe_harness::data::record::{Body, Record};
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu;
use serde::Serialize;

use super::{Format, KernelOpts, print};
use crate::merge::{file_name, free_name};
use crate::processes::{program, words_without};
use crate::table;
use crate::{Global, out};

/// Options of the parent that a child must not have, and whether a value follows.
const PARENTS: &[(&str, bool)] =
    &[("--all-adapters", false), ("--save", true), ("--format", true), ("--json", false)];

/// Exit code of a child that a signal ended: the driver took it down.
const LOST: u8 = 4;

/// What came of one adapter.
#[derive(Serialize)]
struct Outcome {
    index: usize,
    adapter: String,
    driver: String,
    backend: String,
    exit_code: u8,
    /// File of the record, in the folder of `--save`.
    file: Option<String>,
    /// What was measured before its process ended; none where that was nothing.
    record: Option<Record>,
}

#[derive(Serialize)]
struct Report {
    adapters: Vec<Outcome>,
}

pub(super) fn run(global: &Global, opts: &KernelOpts) -> Result<()> {
    if global.adapter.is_some() {
        return Err(Error::Usage("--adapter names one adapter, --all-adapters takes each".into()));
    }
    if opts.format == Format::Csv {
        return Err(Error::Usage("rows of csv name no adapter; --format jsonl has it".into()));
    }
    let mut adapters = gpu::adapters();
    if adapters.is_empty() {
        return Err(gpu::none_found());
    }
    if opts.save.is_some() && !opts.allow_software {
        let (software, rest): (Vec<_>, Vec<_>) = adapters.into_iter().partition(|a| a.software);
        for left_out in &software {
            eprintln!(
                "lathe: {} is left out: a software adapter says nothing about a GPU; \
                 --allow-software saves it anyway",
                out::escaped(&left_out.name)
            );
        }
        adapters = rest;
        if adapters.is_empty() {
            return Err(Error::Unavailable {
                what: "a speed record".into(),
                adapter: "this machine".into(),
                reason: "it has software adapters alone".into(),
            });
        }
    }
    if let Some(folder) = &opts.save {
        std::fs::create_dir(folder).map_err(Error::io(folder))?;
    }
    let mut names = BTreeSet::new();
    let mut outcomes = Vec::new();
    for (nth, adapter) in adapters.iter().enumerate() {
        let name = out::escaped(&adapter.name);
        eprintln!("lathe: adapter {} of {}: {name}", nth + 1, adapters.len());
        let file = opts.save.as_ref().map(|_| free_name(&file_name(&adapter.name), &mut names));
        let path = opts.save.as_ref().zip(file.as_ref()).map(|(folder, file)| folder.join(file));
        let (record, exit_code) = measured(adapter, path.as_deref()).unwrap_or_else(|e| {
            eprintln!("lathe: adapter {}: {}", adapter.index, out::escaped(&e.to_string()));
            (None, e.exit_code())
        });
        let file = file.filter(|_| path.as_ref().is_some_and(|path| path.exists()));
        outcomes.push(Outcome {
            index: adapter.index,
            adapter: adapter.name.clone(),
            driver: adapter.driver.clone(),
            backend: adapter.backend.clone(),
            exit_code,
            file,
            record,
        });
    }
    let report = Report { adapters: outcomes };
    if global.json || opts.format == Format::Json {
        out::json(&report);
    } else {
        for record in report.adapters.iter().filter_map(|outcome| outcome.record.as_ref()) {
            print(record, opts.format);
        }
        if opts.format != Format::Jsonl {
            summary(&report.adapters);
        }
    }
    let failed: Vec<&Outcome> = report.adapters.iter().filter(|o| o.exit_code != 0).collect();
    let Some(code) = failed.iter().map(|outcome| outcome.exit_code).max() else { return Ok(()) };
    let told =
        failed.iter().map(|o| format!("{} {} ended with {}", o.index, o.adapter, o.exit_code));
    let reason = format!("adapter {}; each says why above", told.collect::<Vec<_>>().join(", "));
    Err(Error::Child { code, reason })
}

/// What a process of its own measured on an adapter, and how that ended.
fn measured(adapter: &AdapterSummary, save: Option<&Path>) -> Result<(Option<Record>, u8)> {
    let mut child = Command::new(program()?);
    child.args(words_without(PARENTS)).arg("--json");
    child.args(["--adapter", &adapter.index.to_string()]);
    if let Some(path) = save {
        child.arg("--save").arg(path);
    }
    let output = child.stderr(Stdio::inherit()).output().map_err(Error::io("a child process"))?;
    let code = output.status.code().and_then(|code| u8::try_from(code).ok());
    if code.is_none() {
        eprintln!("lathe: adapter {}: its process ended with {}", adapter.index, output.status);
    }
    // What a signal ended may have been printing.
    let text = code.map(|_| String::from_utf8_lossy(&output.stdout));
    let text = text.filter(|text| !text.trim().is_empty());
    let record = match (text, save.filter(|path| path.exists())) {
        (Some(text), _) => Some(Record::parse(&text, Path::new("a child process"))?),
        // What it had before it was lost.
        (None, Some(path)) => Some(Record::read(path)?),
        (None, None) => None,
    };
    let code = code.unwrap_or(LOST);
    // Two processes might list adapters in two orders.
    if let Some(record) = record.as_ref().filter(|r| r.environment.adapter != adapter.name) {
        return Err(Error::Unavailable {
            what: format!("adapter {}", adapter.index),
            adapter: adapter.name.clone(),
            reason: format!("its process found {} in that place", record.environment.adapter),
        });
    }
    Ok((record, code))
}

fn summary(outcomes: &[Outcome]) {
    let header = ["index", "adapter", "driver", "cases", "failed", "exit code"];
    let mut t = table::table(&header, &[0, 3, 4, 5]);
    for outcome in outcomes {
        let (cases, failed) = match outcome.record.as_ref().map(|record| &record.body) {
            Some(Body::Bench(bench)) => (bench.cases.len(), bench.failed.len()),
            _ => (0, 0),
        };
        t.add_row(vec![
            outcome.index.to_string(),
            outcome.adapter.clone(),
            outcome.driver.clone(),
            cases.to_string(),
            failed.to_string(),
            outcome.exit_code.to_string(),
        ]);
    }
    out::fitted(t);
}
