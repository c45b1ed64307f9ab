//! `lathe report`: one offline HTML page from saved runs.

use std::path::PathBuf;

use clap::Args;
use lathe_harness::data::record::Record;
use lathe_harness::error::Result;
use lathe_harness::report::html;

use super::Global;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// Records
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// HTML file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let records = opts
        .records
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            Ok((name.into_owned(), Record::read(path)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let page = html::render(&records);
    super::write_page(&opts.output, &page)?;
    global.print(&serde_json::json!({ "output": opts.output, "bytes": page.len() }), || {
        outln!("{}: {} bytes", opts.output.display(), page.len());
    });
    Ok(())
}
