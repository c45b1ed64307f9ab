//! Timing of whole generations, as `bench decode` and `suite` do it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::record::{Body, Record};
use lathe_harness::decode::bench::{Bench, Measured, Settings, Test};
use lathe_harness::decode::model::recorded_name;
use lathe_harness::decode::prompts::drawn;
use lathe_harness::decode::{DecodeOptions, Model};
use lathe_harness::error::{Error, Result};
use lathe_harness::measure::RunWatch;

use super::{ModelPaths, Shown, StepOpts};
use crate::args;
use crate::global::Global;
use crate::saved::Saved;

/// Options for running models and verifying them.
#[derive(Debug, Args)]
pub(crate) struct RunOpts {
    #[command(flatten)]
    models: ModelPaths,
    #[command(flatten)]
    pub(crate) step: StepOpts,
    /// Positions of each run that are compared with the CPU reference before it is timed
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = args::count)]
    verify_positions: usize,
    /// Take figures of unverified outputs; tables and records say so
    #[arg(long, conflicts_with = "verify_positions")]
    no_verify: bool,
    /// Seed of prompts and draws
    #[arg(long, value_name = "SEED", default_value_t = 42)]
    pub(crate) seed: u32,
    /// Let a software adapter save a record
    #[arg(long)]
    pub(crate) allow_software: bool,
}

impl RunOpts {
    /// Options of a decode.
    fn options(&self) -> Result<DecodeOptions> {
        Ok(DecodeOptions { seed: self.seed, ..self.step.options()? })
    }

    /// Prompts of a record.
    pub(crate) fn prompts(&self) -> String {
        format!("seed {}", self.seed)
    }

    /// Positions to verify, unless told not to.
    pub(crate) fn verified(&self) -> Option<usize> {
        (!self.no_verify).then_some(self.verify_positions)
    }

    /// Times `tests` of all models. `on_test` adds each measured test, by its number, to the body
    /// of the record.
    pub(crate) fn measure<'a, T: Clone>(
        &self,
        global: &Global,
        path: Option<&'a Path>,
        (settings, tests): (&Settings, &[Test]),
        (mut body, into): (T, fn(T) -> Body),
        mut on_test: impl FnMut(&mut T, &Bench<'_>, usize, Measured),
    ) -> Result<(Saved<'a>, Record)> {
        if self.verify_positions == 0 {
            return Err(Error::Usage(
                "--verify-positions 0 verifies nothing; --no-verify says so in the table".into(),
            ));
        }
        let gpu = Arc::new(global.open()?);
        let mut saved = Saved::of_speed(path, &gpu, self.allow_software)?;
        // Files that cannot be decoded are better known before an hour of timing.
        let models = self.models.get().map(Model::open).collect::<Result<Vec<_>>>()?;
        told_apart(models.iter().map(|m| m.file.path.as_path()))?;
        let mut watch = RunWatch::begin(&gpu)?;
        let most = tests.iter().map(Test::given).max().unwrap_or(0);
        let (options, mut shown) = (self.options()?, Shown::new(global));
        for model in &models {
            let tokens = drawn(model, self.seed, most)?;
            let mut bench = Bench::new(&gpu, model, &options, settings, tests)?;
            for (nth, test) in tests.iter().enumerate() {
                let measured = bench.measure(*test, &tokens, &mut shown)?;
                on_test(&mut body, &bench, nth, measured);
                saved.keep(|| Record::new(watch.environment.clone(), into(body.clone())))?;
            }
        }
        watch.end()?;
        Ok((saved, Record::new(watch.environment, into(body))))
    }
}

/// Refuses models that a table could not tell apart.
fn told_apart<'a>(models: impl Iterator<Item = &'a Path>) -> Result<()> {
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
