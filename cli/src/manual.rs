//! `lathe completions` and `lathe man`: the command line as shells and `man` read it.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use lathe_harness::error::{Error, Result};

use super::{help, out};

#[derive(Debug, Args)]
pub(super) struct CompletionsOpts {
    /// Shell to complete in; bash reads them with `source <(lathe completions bash)`
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManOpts {
    /// Folder for the pages, such as ~/.local/share/man/man1; it must exist
    folder: PathBuf,
}

pub(super) fn completions(opts: &CompletionsOpts) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(opts.shell, &mut help::command(), "lathe", &mut text);
    out::text(&String::from_utf8_lossy(&text));
    Ok(())
}

pub(super) fn man(opts: &ManOpts) -> Result<()> {
    let folder = &opts.folder;
    let first = folder.join("lathe.1");
    if first.exists() {
        let first = first.display();
        return Err(Error::Usage(format!("{first} exists; remove the pages of before first")));
    }
    clap_mangen::generate_to(help::command(), folder).map_err(Error::io(folder))
}
