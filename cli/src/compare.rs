//! `lathe compare`: the regression gate.

use std::path::PathBuf;

use clap::Args;
use lathe_harness::data::Ratio;
use lathe_harness::data::gate::{GateReport, GateVerdict, compare};
use lathe_harness::data::record::Record;
use lathe_harness::error::{Error, Result};

use super::Global;
use super::out::{self, Tone};
use crate::table;
use lathe_harness::plan::shapes::brief;

const EXAMPLES: &str = "\
Exit codes:
  0  no changed case is slower or unclear; an unchanged one may have moved with the machine
  1  a confirmed slowdown, or a case that had a time is wrong now
  2  the records cannot be compared
  6  a changed case is unclear, or probably slower: measure again, several records a side

Examples:
  lathe compare base.json new.json
  lathe compare base.json new.json --json
  lathe compare --base a1.json a2.json a3.json --new b1.json b2.json b3.json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Opts {
    /// Record to compare with
    #[arg(
        value_name = "BASE",
        requires = "one_new",
        required_unless_present = "base",
        conflicts_with_all = ["base", "new"]
    )]
    one_base: Option<PathBuf>,
    /// Record to judge
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

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let read = |one: &Option<PathBuf>, several: &[PathBuf]| -> Result<Vec<Record>> {
        one.iter().chain(several).map(|path| Ok(Record::read(path)?)).collect()
    };
    let (base, new) = (read(&opts.one_base, &opts.base)?, read(&opts.one_new, &opts.new)?);
    let report = compare(&base, &new, opts.force)?;
    for warning in &report.warnings {
        eprintln!("lathe: {warning}");
    }
    global.print(&report, || print(&report));
    let of = |n: usize, [one, several]: [&str; 2]| {
        (n > 0).then(|| format!("{n} {}", if n == 1 { one } else { several }))
    };
    let told: Vec<String> = [
        of(report.wrong, ["case became wrong", "cases became wrong"]),
        of(report.slowdowns, ["confirmed slowdown", "confirmed slowdowns"]),
        of(report.unclear, ["case is unclear", "cases are unclear"]),
    ]
    .into_iter()
    .flatten()
    .collect();
    match report.exit_code() {
        0 => Ok(()),
        1 => Err(Error::CheckFailed(told.join(", "))),
        _ => Err(Error::Inconclusive(told.join(", "))),
    }
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
            let time = |us: Option<f64>| us.map_or_else(|| "-".into(), table::micros);
            let ratio = |r: Ratio| format!("{:.3} {:.3}–{:.3}", r.median, r.low, r.high);
            let within = case.threshold.map(|t| format!(" ±{:.1} %", 100.0 * t));
            t.add_row(vec![
                name(&case.key).to_owned(),
                time(case.base_us),
                time(case.new_us),
                case.ratio.map_or_else(|| "-".into(), ratio),
                format!("{}{}", case.verdict, within.unwrap_or_default()),
            ]);
        }
        out::table(t);
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
    // What there is to do, once a verdict, under the cases it is for.
    let mut verdicts: Vec<GateVerdict> = report.cases.iter().map(|case| case.verdict).collect();
    verdicts.sort_unstable();
    verdicts.dedup();
    for verdict in verdicts {
        let Some(next) = verdict.next() else { continue };
        outln!();
        for case in report.cases.iter().filter(|case| case.verdict == verdict) {
            let separator = if case.note.is_empty() { "" } else { ": " };
            let line = format!("{verdict}: {}{separator}{}", case.key, case.note);
            out::verdict(tone(verdict), &line);
        }
        outln!("  next: {next}");
    }
    let overall = match report.exit_code() {
        0 => Tone::Good,
        1 => Tone::Bad,
        _ => Tone::Unclear,
    };
    let slowdowns = match report.slowdowns {
        1 => "1 confirmed slowdown".to_owned(),
        n => format!("{n} confirmed slowdowns"),
    };
    out::verdict(
        overall,
        &format!("{slowdowns}, {} wrong, {} unclear", report.wrong, report.unclear),
    );
}

/// The colour of a verdict.
fn tone(verdict: GateVerdict) -> Tone {
    match verdict {
        GateVerdict::Wrong | GateVerdict::Slowdown => Tone::Bad,
        GateVerdict::Same | GateVerdict::Faster => Tone::Good,
        _ => Tone::Unclear,
    }
}

/// Kernel and shape of a case of `bench`, whose key is `kernel/variant shape`.
fn heading(key: &str) -> Option<(&str, &str)> {
    let (name, shape) = key.split_once(' ')?;
    Some((name.split_once('/')?.0, shape))
}

/// What is left of a key beside these.
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
