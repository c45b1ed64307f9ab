//! `lathe compare`: the regression gate.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use crate::data::gate::compare;
use crate::data::record::Record;
use crate::error::{Error, Result};
use crate::report::{json, table};

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// Record to compare with
    base: PathBuf,
    /// Record to judge
    new: PathBuf,
    /// Compare records of different or software adapters
    #[arg(long)]
    force: bool,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let (base, new) = (Record::read(&opts.base)?, Record::read(&opts.new)?);
    let report = compare(&base, &new, opts.force)?;
    for warning in &report.warnings {
        eprintln!("lathe: {warning}");
    }
    if global.json {
        json::print(&report);
    } else {
        let header = ["case", "base", "new", "new / base", "95 % interval", "threshold", "verdict"];
        let mut t = table::table(&header, &[1, 2, 3, 4, 5]);
        for case in &report.cases {
            let time = |us: Option<f64>| us.map_or_else(|| "-".into(), table::micros);
            let ratio = case.ratio;
            t.add_row(vec![
                case.key.clone(),
                time(case.base_us),
                time(case.new_us),
                ratio.map_or_else(|| "-".into(), |r| format!("{:.4}", r.median)),
                ratio.map_or_else(|| "-".into(), |r| format!("[{:.4}, {:.4}]", r.low, r.high)),
                case.threshold.map_or_else(|| "-".into(), |t| format!("{:.1} %", 100.0 * t)),
                case.verdict.to_string(),
            ]);
        }
        println!("{t}");
        println!("{} confirmed slowdowns, {} unclear", report.slowdowns, report.unclear);
    }
    match report.exit_code() {
        0 => Ok(()),
        1 => Err(Error::CheckFailed(format!("{} confirmed slowdown(s)", report.slowdowns))),
        _ => Err(Error::Inconclusive(format!("{} case(s) are unclear", report.unclear))),
    }
}
