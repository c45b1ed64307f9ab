//! What `bench decode` and `suite` share: models on a device, what is verified, what is recorded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::record::{MeasuredModel, Verified};
use lathe_harness::decode::prompts::Source;
use lathe_harness::decode::{DecodeGraph, Model, Sampling, SessionOptions, Trial};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::{CpuExecutor, GpuExecutor};
use lathe_harness::gpu::{Gpu, Pipelines, Policy};
use lathe_harness::model::describe;
use lathe_harness::plan::memory::Memory;

use super::Global;
use super::decode::{StepOpts, on_device};
use super::memory::Predicted;

/// How models are run, and what is checked.
#[derive(Debug, Args)]
pub(super) struct RunOpts {
    #[command(flatten)]
    pub(super) step: StepOpts,
    /// Positions of each run that are held against the CPU reference before it is timed
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = super::count)]
    verify_positions: usize,
    /// Take figures of outputs that nobody checked; tables and records say so
    #[arg(long, conflicts_with = "verify_positions")]
    no_verify: bool,
    /// Seed of prompts and draws
    #[arg(long, value_name = "SEED", default_value_t = 42)]
    pub(super) seed: u32,
    /// Prompts from the text of a file, in the place of random tokens
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_ids")]
    prompt_file: Option<PathBuf>,
    /// Prompts from a file of token ids
    #[arg(long, value_name = "FILE")]
    prompt_ids: Option<PathBuf>,
    /// Let a software adapter save a record
    #[arg(long)]
    pub(super) allow_software: bool,
}

impl RunOpts {
    pub(super) fn source(&self) -> Source<'_> {
        match (&self.prompt_file, &self.prompt_ids) {
            (Some(path), _) => Source::Text(path),
            (_, Some(path)) => Source::Ids(path),
            _ => Source::Seed(u64::from(self.seed)),
        }
    }

    /// Refuses what cannot be saved or verified, before anything is run.
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

    /// Verifies a trial, unless told not to.
    pub(super) fn verify(
        &self,
        graph: &DecodeGraph,
        trial: &mut Trial<'_>,
    ) -> Result<Option<Verified>> {
        let Some(positions) = self.verified() else { return Ok(None) };
        let mut reference = CpuExecutor::new(Arc::clone(&graph.recording));
        trial.verify(&mut reference, positions).map(Some)
    }
}

/// A model whose graphs come one after another to one device: the weights are uploaded once.
pub(super) struct OnDevice<'a> {
    model: &'a Model,
    gpu: Arc<Gpu>,
    options: SessionOptions,
    pipelines: Pipelines,
    executor: Option<GpuExecutor>,
}

impl<'a> OnDevice<'a> {
    /// For graphs of these contexts. Refuses the longest if it does not fit, before anything is
    /// loaded.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        model: &'a Model,
        opts: &RunOpts,
        contexts: impl Iterator<Item = (usize, Option<Sampling>)>,
    ) -> Result<Self> {
        let options = opts.step.options()?;
        if let Some((context, sampling)) = contexts.max_by_key(|(context, _)| *context) {
            let longest = SessionOptions { context, sampling, ..options.clone() };
            Predicted::of(gpu, &model.graph(Some(gpu), &longest)?)?;
        }
        let (gpu, pipelines) = (Arc::clone(gpu), Pipelines::default());
        Ok(Self { model, gpu, options, pipelines, executor: None })
    }

    /// The step for exactly this context, and an executor that holds it.
    pub(super) fn graph(
        &mut self,
        global: &Global,
        context: usize,
        sequences: usize,
        sampling: Option<Sampling>,
    ) -> Result<(DecodeGraph, &mut GpuExecutor)> {
        let options = SessionOptions { context, sequences, sampling, ..self.options.clone() };
        let graph = self.model.graph(Some(&self.gpu), &options)?;
        let recording = Arc::clone(&graph.recording);
        // One whose tensors lie otherwise is gone before their memory is taken again.
        let before = self.executor.take().filter(|before| before.lays_out(&recording));
        let executor = match &before {
            Some(before) => before.sharing(&self.pipelines, recording, Policy::Plain)?,
            None => on_device(global, &self.gpu, &self.pipelines, &graph)?,
        };
        let shares = before.is_some();
        let executor = self.executor.insert(executor);
        if shares {
            // The tensors of the graph before are gone, and belong to its peak.
            self.gpu.forget_peak();
        }
        Ok((graph, executor))
    }
}

/// Device memory of a run: the peak that was measured, or where the back end has no count the bytes
/// of the executor's buffers; and what was predicted.
pub(super) fn run_memory(gpu: &Gpu, graph: &DecodeGraph, held: u64) -> (u64, u64) {
    (gpu.peak_memory().allocated.unwrap_or(held), Memory::of(&graph.recording).total())
}

/// How a record calls a checkpoint: by its file or folder, and `model.safetensors`, as most are
/// called, by both.
pub(super) fn recorded_name(path: &Path) -> String {
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    let path = &path.canonicalize().unwrap_or_else(|_| path.into());
    let file = name(path).unwrap_or_default();
    let is_safetensors = path.extension().is_some_and(|e| e == "safetensors");
    match path.parent().and_then(name).filter(|_| is_safetensors) {
        Some(folder) => format!("{folder}/{file}"),
        None => file,
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

/// The model in llama-bench's names.
pub(super) fn measured(model: &Model) -> MeasuredModel {
    let summary = describe(&model.file);
    let arch = summary.architecture.unwrap_or_default();
    let ty = summary.types.first().map_or("", |t| t.ty.name());
    MeasuredModel {
        model_filename: recorded_name(&model.file.path),
        model_type: format!(
            "{arch} {} {ty}",
            lathe_harness::report::generation::params(summary.parameters)
        ),
        model_size: summary.tensor_bytes,
        model_n_params: summary.parameters,
    }
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
        assert_eq!(recorded_name(&model), "a model.gguf");
        let shard = folder.path().join("model.safetensors");
        std::fs::write(&shard, []).unwrap();
        let parent = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(recorded_name(&shard), format!("{parent}/model.safetensors"));
    }

    #[test]
    fn two_models_of_one_name_are_refused() {
        let paths = ["x/a.gguf", "y/a.gguf", "x/b.gguf"].map(Path::new);
        assert!(told_apart(paths[1..].iter().copied()).is_ok());
        let said = told_apart(paths.into_iter()).unwrap_err().to_string();
        assert!(said.starts_with("y/a.gguf: another model"), "{said}");
    }
}
