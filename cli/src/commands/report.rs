//! `lathe report`: one offline HTML page from saved runs.

use std::path::PathBuf;

use clap::Args;
use lathe_harness::data::record::Record;
use lathe_harness::data::row::{self, Run};
use lathe_harness::error::Result;
use lathe_harness::report::html;

use crate::global::Global;
use crate::saved::write_page;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// Records, and CSV files of results, whole or as FILE.csv#RUN
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// HTML file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let (mut records, mut runs) = (Vec::new(), Vec::new());
    for path in &opts.records {
        if row::is_table(path) {
            runs.extend(Run::read(path)?);
        } else {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            records.push((name.into_owned(), Record::read(path)?));
        }
    }
    let page = html::page(&records, &runs);
    write_page(&opts.output, &page)?;
    global.print(&serde_json::json!({ "output": opts.output, "bytes": page.len() }), || {
        outln!("{}: {} bytes", opts.output.display(), page.len());
    });
    Ok(())
}
