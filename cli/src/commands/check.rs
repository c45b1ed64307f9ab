//! `lathe check`: the correctness sweep.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::{Checks, Gpu};
use lathe_harness::judge::check::{CaseResult, Report, Request, Verdict, sweep};
use serde::Serialize;

use super::sanitize;
use crate::global::Global;
use crate::wgsl::{WgslOpts, watch};
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// KERNEL or KERNEL/VARIANT; all without
    target: Option<String>,
    /// Random shapes a variant, besides the kernel's fixed cases
    #[arg(long, default_value_t = 16)]
    cases: usize,
    /// Seed of the shapes and inputs; with --shape, of that case's inputs
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Stop at the first case that fails
    #[arg(long)]
    fail_fast: bool,
    /// Run the fixed cases, or those of --shape, in the interpreter of `sanitize` too
    #[arg(long)]
    sanitize: bool,
    #[command(flatten)]
    wgsl: WgslOpts,
}

/// The report with that of the interpreter.
#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    sanitized: Option<&'a lathe_harness::judge::sanitize::Report>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let watched = opts.wgsl.watched(global)?;
    let gpu = Arc::new(global.open()?);
    watch(watched, || once(global, opts, &gpu))
}

fn once(global: &Global, opts: &Opts, gpu: &Arc<Gpu>) -> Result<()> {
    let targets = opts.wgsl.targets(opts.target.as_slice())?;
    let request = Request {
        targets: &targets,
        shape: opts.wgsl.shape(&targets)?,
        random: opts.cases,
        seed: opts.seed,
        fail_fast: opts.fail_fast,
    };
    let bar = global.progress(0, "checking", false);
    let report = sweep(gpu, &request, &|| global.open(), &|_, total| {
        bar.set_length(total as u64);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let sanitized = match opts.sanitize {
        true => Some(sanitize::sanitized(global, &targets, request.shape, opts.seed)?),
        false => None,
    };
    global.print(&Both { report: &report, sanitized: sanitized.as_ref() }, || {
        print(&report, gpu.checks);
        sanitized.iter().for_each(sanitize::print);
    });
    let faulty = sanitized.map_or(0, |sanitized| sanitized.failed);
    match report.failed {
        0 if faulty > 0 => {
            Err(Error::CheckFailed(format!("{faulty} cases have faults in the interpreter")))
        }
        0 if report.passed == 0 => {
            let reason = report.cases.iter().find_map(|case| match &case.verdict {
                Verdict::Unavailable { reason } => Some(format!(", the first because {reason}")),
                _ => None,
            });
            Err(Error::Unavailable {
                what: opts.target.clone().unwrap_or_else(|| "every variant".into()),
                adapter: report.adapter.name.clone(),
                reason: format!("no case could run{}", reason.unwrap_or_default()),
            })
        }
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{n} of {} cases failed", report.cases.len()))),
    }
}

/// The name of the file that was checked, or of the variant.
fn name(case: &CaseResult) -> &str {
    Path::new(case.shown()).file_name().and_then(|name| name.to_str()).unwrap_or(&case.variant)
}

/// Failures of a variant that are shown one by one.
const SHOWN: usize = 8;

fn print(report: &Report, checks: Checks) {
    let mut t = table::table(
        &["kernel, variant", "passed", "failed", "n/a", "NMSE", "of bound"],
        &[1, 2, 3, 4, 5],
    );
    let mut kernel = "";
    let same = |a: &CaseResult, b: &CaseResult| (&a.kernel, &a.variant) == (&b.kernel, &b.variant);
    for group in report.cases.chunk_by(same) {
        let first = &group[0];
        let (mut counts, mut nmse, mut ratio) = ([0; 3], 0f64, 0f64);
        for case in group {
            match &case.verdict {
                Verdict::Passed { nmse: n, worst } => {
                    counts[0] += 1;
                    nmse = nmse.max(*n);
                    ratio = worst.as_ref().map_or(ratio, |worst| ratio.max(worst.ratio()));
                }
                Verdict::Failed { .. } => counts[1] += 1,
                Verdict::Unavailable { .. } => counts[2] += 1,
            }
        }
        if first.kernel != kernel {
            kernel = &first.kernel;
            t.add_row(vec![kernel, "", "", "", "", ""]);
        }
        let if_passed = |text: String| if counts[0] > 0 { text } else { "-".into() };
        t.add_row(vec![
            format!("  {}", name(first)),
            counts[0].to_string(),
            counts[1].to_string(),
            counts[2].to_string(),
            if_passed(format!("{nmse:.1e}")),
            if_passed(format!("{:.0} %", 100.0 * ratio)),
        ]);
    }
    out::table(t);
    if report.own_tolerance {
        outln!("held to the tolerance of its mapping, not to the variant's");
    }
    let mut reasons: Vec<String> = Vec::new();
    let mut failures: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for case in &report.cases {
        match &case.verdict {
            Verdict::Failed { reason, .. } => {
                let failed = failures.entry((&case.kernel, &case.variant)).or_default();
                *failed += 1;
                if *failed <= SHOWN {
                    out::verdict(out::Tone::Bad, &format!("FAILED {reason}"));
                    outln!("  repeat: {}", case.reproducer(checks));
                }
            }
            Verdict::Unavailable { reason } => {
                let line = format!("unavailable {}/{}: {reason}", case.kernel, case.variant);
                if !reasons.contains(&line) {
                    reasons.push(line);
                }
            }
            Verdict::Passed { .. } => {}
        }
    }
    for ((kernel, variant), failed) in failures.into_iter().filter(|(_, failed)| *failed > SHOWN) {
        outln!("{kernel}/{variant}: {} more failed; --json has them all", failed - SHOWN);
    }
    if report.adapter.name.contains("llvmpipe") && report.failed > 0 {
        outln!(
            "llvmpipe ends the loops of an invocation after 65535 rounds without an error \
             (docs/findings/llvmpipe-ends-long-loops.md): a kernel that goes round more often may \
             be right and fail here; another adapter tells"
        );
    }
    for line in reasons {
        outln!("{line}");
    }
    let tone = match (report.failed, report.passed) {
        (0, 0) => out::Tone::Unclear,
        (0, _) => out::Tone::Good,
        _ => out::Tone::Bad,
    };
    let not_run = match report.not_run {
        0 => String::new(),
        n => format!(", {n} not run"),
    };
    let summary = format!(
        "{}: {} passed, {} failed, {} unavailable{not_run} (seed {})",
        report.adapter.name, report.passed, report.failed, report.unavailable, report.seed
    );
    out::verdict(tone, &summary);
}
