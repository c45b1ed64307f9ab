//! Options that `bench decode` and `suite` share: running and verifying models.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::decode::DecodeOptions;
use lathe_harness::decode::model::recorded_name;
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::Gpu;

use super::decode::StepOpts;

/// Options for running models and verifying them.
#[derive(Debug, Args)]
pub(super) struct RunOpts {
    #[command(flatten)]
    pub(super) step: StepOpts,
    /// Positions of each run that are compared with the CPU reference before it is timed
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = super::count)]
    verify_positions: usize,
    /// Take figures of unverified outputs; tables and records say so
    #[arg(long, conflicts_with = "verify_positions")]
    no_verify: bool,
    /// Seed of prompts and draws
    #[arg(long, value_name = "SEED", default_value_t = 42)]
    pub(super) seed: u32,
    /// Let a software adapter save a record
    #[arg(long)]
    pub(super) allow_software: bool,
}

impl RunOpts {
    /// Options of a decode.
    pub(super) fn options(&self) -> Result<DecodeOptions> {
        Ok(DecodeOptions { seed: self.seed, ..self.step.options()? })
    }

    /// Prompts of a record.
    pub(super) fn prompts(&self) -> String {
        format!("seed {}", self.seed)
    }

    /// Refuses a run that cannot be saved or verified, before it begins.
    pub(super) fn refuse(&self, gpu: &Gpu, record: Option<&PathBuf>) -> Result<()> {
        if self.verify_positions == 0 {
            return Err(Error::Usage(
                "--verify-positions 0 verifies nothing; --no-verify says so in the table".into(),
            ));
        }
        super::refuse_overwriting(record)?;
        let allowed = record.is_none() || self.allow_software;
        super::refuse_software(gpu, allowed, "a speed record", "saves")
    }

    /// Positions to verify, unless told not to.
    pub(super) fn verified(&self) -> Option<usize> {
        (!self.no_verify).then_some(self.verify_positions)
    }
}

/// Refuses models that a table could not tell apart.
pub(super) fn told_apart<'a>(models: impl Iterator<Item = &'a Path>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for path in models {
        let name = recorded_name(path);
        if !seen.insert(name.clone()) {
            return Err(Error::Usage(format!(
                "{}: another model of this run is called {name} too, and tables and records name \
                 models by their files; rename one or measure them in runs of their own",
                path.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_harness::measure::command_line;

    #[test]
    fn records_name_files_without_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("a model.gguf");
        std::fs::write(&model, []).unwrap();
        let new = folder.path().join("new.json").display().to_string();
        let words = ["bench", "gemv/naive", "--model", &model.display().to_string()];
        let words = words.map(str::to_owned).into_iter().chain([format!("--save={new}")]);
        assert_eq!(
            command_line(words),
            "lathe bench gemv/naive --model 'a model.gguf' --save=new.json"
        );
    }

    #[test]
    fn two_models_of_one_name_are_refused() {
        let paths = ["x/a.gguf", "y/a.gguf", "x/b.gguf"].map(Path::new);
        assert!(told_apart(paths[1..].iter().copied()).is_ok());
        let said = told_apart(paths.into_iter()).unwrap_err().to_string();
        assert!(said.starts_with("y/a.gguf: another model"), "{said}");
    }
}
