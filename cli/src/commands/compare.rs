//! `lathe compare`: the regression gate.

use std::path::PathBuf;

use clap::Args;
use lathe_harness::data::Ratio;
use lathe_harness::data::gate::{GateReport, compare};
use lathe_harness::data::paired::Verdict;
use lathe_harness::data::row::Run;
use lathe_harness::error::{Error, Result};

use crate::global::Global;
use crate::out::{self, Tone};
use crate::table;
use lathe_harness::plan::shapes::brief;

const EXAMPLES: &str = "\
Exit codes:
  0  no changed case is slower or inconclusive; an unchanged one may have moved with the machine
  1  a confirmed slowdown, or a case that had a time is wrong now
  2  the runs cannot be compared
  6  a changed case is inconclusive: measure again, several records a side

Examples:
  lathe compare base.json new.json
  lathe compare benches/records/nvidia-h200.csv#2026-11-22-ladder-gemv new.json
  lathe compare --base a1.json a2.json a3.json --new b1.json b2.json b3.json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Opts {
    /// Record to compare with, or FILE.csv#RUN
    #[arg(
        value_name = "BASE",
        requires = "one_new",
        required_unless_present = "base",
        conflicts_with_all = ["base", "new"]
    )]
    one_base: Option<PathBuf>,
    /// Record to judge, or FILE.csv#RUN
    #[arg(value_name = "NEW")]
    one_new: Option<PathBuf>,
    /// Records to compare with: several runs of one build
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "new")]
    base: Vec<PathBuf>,
    /// Records to judge: several runs of one build
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "base")]
    new: Vec<PathBuf>,
    /// Compare records of different or software adapters
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let read = |one: &Option<PathBuf>, several: &[PathBuf]| -> Result<Vec<Run>> {
        let runs = one.iter().chain(several).map(|path| Ok(Run::read(path)?));
        Ok(runs.collect::<Result<Vec<_>>>()?.concat())
    };
    let (base, new) = (read(&opts.one_base, &opts.base)?, read(&opts.one_new, &opts.new)?);
    let report = compare(&base, &new, opts.force)?;
    for warning in &report.warnings {
        eprintln!("lathe: {warning}");
    }
    global.print(&report, || print(&report));
    match report.exit_code() {
        0 => Ok(()),
        1 => Err(Error::CheckFailed(counts(&report))),
        _ => Err(Error::Inconclusive(counts(&report))),
    }
}

/// Counts of the verdicts that decide.
fn counts(report: &GateReport) -> String {
    format!(
        "{} confirmed slowdown(s), {} wrong, {} inconclusive",
        report.count(Verdict::Slower),
        report.wrong.len(),
        report.count(Verdict::Inconclusive)
    )
}

fn print(report: &GateReport) {
    // Cases of one shape are one table; the shape stands above it.
    for group in report.cases.chunk_by(|a, b| heading(&a.key) == heading(&b.key)) {
        if let Some((kernel, shape)) = heading(&group[0].key) {
            outln!("{kernel} {}", brief(kernel, shape));
        }
        let header = ["case", "base", "new", "new / base, 95 %", "verdict"];
        let mut t = table::table(&header, &[1, 2, 3]);
        for case in group {
            let ratio = |r: Ratio| format!("{:.3} {:.3}–{:.3}", r.median, r.low, r.high);
            t.add_row(vec![
                name(&case.key).to_owned(),
                table::micros(case.base_us),
                table::micros(case.new_us),
                case.ratio.map_or_else(|| "-".into(), ratio),
                format!("{} ±{:.1} %", case.verdict, 100.0 * case.threshold),
            ]);
        }
        out::fitted(t);
    }
    if let Some(control) = report.control {
        outln!(
            "new / base is less the shift of {} unchanged case(s), {:+.2} %; 95 % of them lie \
             within {:.2} % of it",
            control.cases,
            100.0 * (control.shift - 1.0),
            100.0 * control.spread
        );
    }
    for (what, keys) in [("missing", &report.missing), ("new", &report.new)] {
        keys.iter().for_each(|key| outln!("{what}: {key}"));
    }
    for case in report.cases.iter().filter(|case| !case.reason.is_empty()) {
        outln!("{}: {}: {}", case.verdict, case.key, case.reason);
    }
    for text in &report.wrong {
        out::verdict(Tone::Bad, &format!("wrong: {text}"));
    }
    for (verdict, next) in [
        (Verdict::Slower, "`lathe ab` of the old text and the new one says by how much in one run"),
        (
            Verdict::Inconclusive,
            "measure both builds again on a quiet machine, in turns; three records a side decide \
             3 %: lathe compare --base A B C --new D E F",
        ),
    ] {
        if report.count(verdict) > 0 {
            outln!("{verdict}: next: {next}");
        }
    }
    let overall = match report.exit_code() {
        0 => Tone::Good,
        1 => Tone::Bad,
        _ => Tone::Unclear,
    };
    out::verdict(overall, &counts(report));
}

/// Kernel and shape of a case of `bench`, whose key is `kernel/variant shape`.
fn heading(key: &str) -> Option<(&str, &str)> {
    let (name, shape) = key.split_once(' ')?;
    Some((name.split_once('/')?.0, shape))
}

/// The rest of a key without its kernel and shape.
fn name(key: &str) -> &str {
    let variant = || key.split_once(' ')?.0.split_once('/');
    variant().map_or(key, |(_, variant)| variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_of_a_kernel_has_its_shape_above_it() {
        let key = "gemv/vec2 ROWS=8,K=4,WEIGHT=bf16";
        assert_eq!(heading(key), Some(("gemv", "ROWS=8,K=4,WEIGHT=bf16")));
        assert_eq!(name(key), "vec2");
        for whole in ["unprofiled step", "attention", "llama 1B, KV f16/f32: tg8"] {
            assert_eq!((heading(whole), name(whole)), (None, whole));
        }
    }
}
