//! `lathe sanitize`: kernels in an interpreter that watches every access. Needs no device.

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::judge::check::Verdict;
use lathe_harness::judge::sanitize::{CaseResult, Report, Request, SIZES, sanitize};
use lathe_harness::plan::target::Target;

use crate::global::Global;
use crate::wgsl::{WgslOpts, watch};
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// KERNEL or KERNEL/VARIANT; all without
    target: Option<String>,
    /// Subgroup sizes, each a power of two from 1 to 128
    #[arg(
        long, value_name = "N,…", value_delimiter = ',', default_values_t = SIZES,
        value_parser = size
    )]
    subgroup_size: Vec<u32>,
    /// Seed of the inputs and of the order of invocations and workgroups
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Random shapes a kernel, besides its fixed cases
    #[arg(long, value_name = "N", default_value_t = 0)]
    cases: usize,
    /// The smallest case alone that a variant can run
    #[arg(long, conflicts_with = "shape")]
    smallest: bool,
    #[command(flatten)]
    wgsl: WgslOpts,
}

fn size(text: &str) -> Result<u32, String> {
    let size = text.parse::<u32>().ok().filter(|n| n.is_power_of_two() && *n <= 128);
    size.ok_or_else(|| "no power of two from 1 to 128".to_owned())
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let watched = opts.wgsl.watched(global)?;
    watch(watched, || once(global, opts))
}

fn once(global: &Global, opts: &Opts) -> Result<()> {
    let targets = opts.wgsl.targets(opts.target.as_slice())?;
    let request = Request {
        targets: &targets,
        shape: opts.wgsl.shape(&targets)?,
        random: opts.cases,
        smallest: opts.smallest,
        widths: &opts.subgroup_size,
        seed: opts.seed,
    };
    let report = interpreted(global, &request)?;
    global.print(&report, || print(&report));
    match report.failed {
        0 if report.passed == 0 => {
            let reason = report.cases.iter().find_map(|case| match &case.verdict {
                Verdict::Unavailable { reason } => Some(reason.clone()),
                _ => None,
            });
            Err(Error::Unavailable {
                what: opts.target.clone().unwrap_or_else(|| "every variant".into()),
                adapter: "the interpreter".into(),
                reason: reason.unwrap_or_else(|| "there is no case".into()),
            })
        }
        0 => Ok(()),
        n => Err(Error::CheckFailed(format!("{n} of {} cases have faults", report.cases.len()))),
    }
}

fn interpreted(global: &Global, request: &Request<'_>) -> Result<Report> {
    let bar = global.progress(0, "sanitizing", false);
    let report = sanitize(request, &|_, total| {
        bar.set_length(total as u64);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    Ok(report)
}

/// Findings beside a `check`, at every subgroup size.
pub(super) fn sanitized(
    global: &Global,
    targets: &[Target],
    shape: Option<&str>,
    seed: u64,
) -> Result<Report> {
    let (random, smallest) = (0, false);
    interpreted(global, &Request { targets, shape, random, smallest, widths: &SIZES, seed })
}

pub(super) fn print(report: &Report) {
    let mut t = table::table(&["kernel, variant", "passed", "failed", "n/a"], &[1, 2, 3]);
    let mut kernel = "";
    let same = |a: &CaseResult, b: &CaseResult| (&a.kernel, &a.variant) == (&b.kernel, &b.variant);
    for group in report.cases.chunk_by(same) {
        let first = &group[0];
        if first.kernel != kernel {
            kernel = &first.kernel;
            t.add_row(vec![kernel, "", "", ""]);
        }
        let is_unavailable = |c: &&CaseResult| matches!(c.verdict, Verdict::Unavailable { .. });
        let unavailable = group.iter().filter(is_unavailable).count();
        let passed = group.iter().filter(|case| case.is_clean()).count();
        let failed = group.len() - passed - unavailable;
        let counts = [passed, failed, unavailable].map(|n| n.to_string());
        let mut row = vec![format!("  {}", first.shown())];
        row.extend(counts);
        t.add_row(row);
    }
    out::table(t);
    let mut told: Vec<String> = Vec::new();
    for case in &report.cases {
        let mut lines: Vec<String> = case.findings.iter().map(ToString::to_string).collect();
        if let Verdict::Failed { reason, .. } = &case.verdict {
            let size = case.subgroup_size.map(|n| format!(" with subgroups of {n}"));
            lines.push(format!("{}: {reason}{}", case.shown(), size.unwrap_or_default()));
        }
        // One line for each place: other shapes and sizes repeat it with other numbers.
        let place = |line: &String| line.split(": ").take(2).collect::<Vec<_>>().join(": ");
        lines.retain(|line| !told.contains(&place(line)));
        for line in &lines {
            told.push(place(line));
            out::verdict(out::Tone::Bad, line);
        }
        if !lines.is_empty() {
            outln!("  repeat: {}", case.reproducer());
        }
    }
    let mut reasons: Vec<String> = Vec::new();
    for case in &report.cases {
        if let Verdict::Unavailable { reason } = &case.verdict {
            let line = format!("unavailable {}/{}: {reason}", case.kernel, case.shown());
            if !reasons.contains(&line) {
                outln!("{line}");
                reasons.push(line);
            }
        }
    }
    let tone = match (report.failed, report.passed) {
        (0, 0) => out::Tone::Unclear,
        (0, _) => out::Tone::Good,
        _ => out::Tone::Bad,
    };
    let Report { passed, failed, unavailable, seed, .. } = report;
    let summary =
        format!("{passed} passed, {failed} failed, {unavailable} unavailable (seed {seed})");
    out::verdict(tone, &summary);
}
