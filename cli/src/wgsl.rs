//! Options for shapes and a file of the user's, as `check` and `bench` take them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::files_of;

use crate::global::Global;
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct WgslOpts {
    /// Shapes of one kernel instead of its own, such as ROWS=1152,K=6912,WEIGHT=bf16, with lists
    /// (ROWS=[64,128]) and ranges (K=64..=1024*2, K=64..=256+64); what is not named keeps the
    /// kernel's default, or is what a file takes
    #[arg(long)]
    shape: Option<String>,
    /// A WGSL file with the bindings of KERNEL/VARIANT (or a TOML beside it that maps its own), in
    /// that variant's place; KERNEL alone stands for its first variant
    #[arg(long, visible_alias = "mapping", value_name = "FILE")]
    wgsl: Option<PathBuf>,
    /// Run again whenever your file is saved, its TOML, or a file that the TOML names
    #[arg(long)]
    pub(crate) watch: bool,
}

impl WgslOpts {
    /// The shapes, of one kernel.
    pub(crate) fn shape(&self, targets: &[Target]) -> Result<Option<&str>> {
        match targets.iter().any(|target| target.kernel.name != targets[0].kernel.name) {
            true if self.shape.is_some() => {
                Err(Error::Usage("--shape needs a KERNEL, or variants of one".into()))
            }
            _ => Ok(self.shape.as_deref()),
        }
    }

    /// Kernels and variants that are named, or all, with the file in the place of the only one's
    /// first variant.
    pub(crate) fn targets(&self, names: &[String]) -> Result<Vec<Target>> {
        let mut targets = match names {
            [] => Target::parse(None)?,
            names => names.iter().map(|name| Target::one(name)).collect::<Result<_>>()?,
        };
        match (&self.wgsl, targets.len()) {
            (None, _) => Ok(targets),
            (Some(file), 1) => Ok(vec![targets.swap_remove(0).with_file(file)?]),
            _ => Err(Error::Usage("--wgsl needs a KERNEL".into())),
        }
    }

    /// The file to watch; none where that is not asked for.
    pub(crate) fn watched(&self, global: &Global) -> Result<Option<&Path>> {
        let refuse = |why: &str| Err(Error::Usage(why.into()));
        match &self.wgsl {
            _ if !self.watch => Ok(None),
            _ if global.json => refuse("--watch prints again and again, --json one document"),
            None => refuse("--watch needs a file of yours: --wgsl FILE"),
            Some(file) => Ok(Some(file)),
        }
    }
}

/// Runs `work`, and where there is a file to watch again whenever it is saved, or one that it is
/// made of, until interrupted. An error is then shown and waits for the next save.
pub(crate) fn watch(watched: Option<&Path>, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let Some(watched) = watched else { return work() };
    let shown = watched.display().to_string();
    let stamp = |path: &PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    loop {
        // What a mapping names may be another file after each save.
        let files = files_of(watched);
        let stamps = || files.iter().map(stamp).collect::<Vec<_>>();
        let seen = stamps();
        if let Err(e) = work() {
            if matches!(e, Error::DeviceLost { .. }) {
                return Err(e);
            }
            eprintln!("lathe: {}", out::escaped(&e.to_string()));
        }
        eprintln!("watching {}", out::escaped(&shown));
        // A file that is being replaced is not there for a moment.
        while stamps() == seen || !watched.exists() {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
