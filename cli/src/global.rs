//! Options of every command: the device and the form of the output.

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lathe_harness::error::Result;
use lathe_harness::gpu::{Checks, Gpu};
use lathe_kernels::{Feature, Mask};
use serde::Serialize;

use crate::out::Stream;
use crate::{args, out};

#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Adapter by index or part of its name (also LATHE_ADAPTER)
    #[arg(long, global = true, value_name = "NAME|INDEX", help_heading = "Device")]
    pub(crate) adapter: Option<String>,
    /// Print exactly one JSON document on stdout
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// Say more on stderr; twice for debugging
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Output")]
    pub(crate) verbose: u8,
    /// Compile shaders with wgpu's run-time checks
    #[arg(long, global = true, help_heading = "Device")]
    pub(crate) runtime_checks: bool,
    /// Compile your own files without wgpu's run-time checks, as built-in kernels are: what they
    /// access out of bounds is then read, written, or ends the driver
    #[arg(long, global = true, conflicts_with = "runtime_checks", help_heading = "Device")]
    pub(crate) unchecked_files: bool,
    /// Hide features of the adapter, so that it stands for a poorer one
    #[arg(long, global = true, value_name = "FEATURE", value_delimiter = ',', value_parser = args::feature(), help_heading = "Device")]
    pub(crate) without: Vec<Feature>,
    /// Hide what wgpu does not count among WebGPU's features (subgroups too), and take WebGPU's
    /// default limits
    #[arg(long, global = true, help_heading = "Device")]
    pub(crate) strict_webgpu: bool,
    /// Refuse models that need more device memory than this, such as 512MiB or 7.5GB, before they
    /// are loaded; what the device has free is a limit always
    #[arg(long, global = true, value_name = "BYTES", value_parser = args::size, help_heading = "Device")]
    pub(crate) memory_limit: Option<u64>,
}

impl Global {
    pub(crate) fn open(&self) -> Result<Gpu> {
        let checks = match (self.runtime_checks, self.unchecked_files) {
            (true, _) => Checks::Everywhere,
            (_, true) => Checks::Nowhere,
            _ => Checks::Files,
        };
        let mut gpu = Gpu::masked(self.adapter.as_deref(), checks, &self.mask())?;
        gpu.memory_limit = self.memory_limit;
        Ok(gpu)
    }

    /// Mask of the adapter.
    fn mask(&self) -> Mask {
        Mask { without: self.without.clone(), strict_webgpu: self.strict_webgpu }
    }

    /// Arguments that hide the same of another process' adapter.
    pub(crate) fn mask_args(&self) -> Vec<String> {
        let without = self.without.iter().map(|feature| format!("--without={}", feature.name()));
        without.chain(self.strict_webgpu.then(|| "--strict-webgpu".into())).collect()
    }

    /// A bar on stderr while work of `total` goes on; nothing where stderr is no terminal.
    pub(crate) fn progress(&self, total: u64, what: &str, bytes: bool) -> ProgressBar {
        let target = if Stream::Stderr.is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let template = if bytes {
            "{msg} {wide_bar} {bytes}/{total_bytes} {eta}"
        } else {
            "{msg} {wide_bar} {pos}/{len} {eta}"
        };
        let style = ProgressStyle::with_template(template).expect("a valid template");
        ProgressBar::with_draw_target(Some(total), target)
            .with_style(style)
            .with_message(what.to_owned())
    }

    /// Prints a report: with `--json` as the only document, else as `print` does.
    pub(crate) fn print(&self, report: &impl Serialize, print: impl FnOnce()) {
        match self.json {
            true => out::json(report),
            false => print(),
        }
    }

    /// Does work that tells the bytes done and their total, with a progress bar.
    pub(crate) fn by_bytes<T, E>(
        &self,
        what: &str,
        work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T, E>,
    ) -> Result<T, E> {
        let bar = self.progress(0, what, true);
        let done = work(&mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        Ok(done)
    }
}
