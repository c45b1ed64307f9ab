//! A model file from its path to generated tokens.
//!
//! ```no_run
//! # fn main() -> lathe_device::Result<()> {
//! use lathe_decode::{Model, SessionOptions};
//! use lathe_device::gpu::{Checks, Gpu};
//!
//! let gpu = Gpu::open(None, Checks::default())?.into();
//! let model = Model::open("model.gguf")?;
//! let mut session = model.session(&gpu, SessionOptions::default())?;
//! let mut text = model.tokenizer()?.stream();
//! session.generate("Once upon a time", 32, |token| print!("{}", text.push(token)))?;
//! println!("{}", text.finish());
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use lathe_device::error::{Error, Result};
use lathe_device::execute::GpuExecutor;
use lathe_device::gpu::{Gpu, Pipelines, Policy};
use lathe_device::plan::run::Runs;
use lathe_device::plan::select::Hints;
use lathe_device::plan::tuned::Store;
use lathe_kernels::{Capabilities, FloatFormat, KvFormat};
use lathe_model::chat::ChatTemplate;
use lathe_model::tokenizer::Tokenizer;
use lathe_model::{Config, ModelFile};

use super::graph::{self, Chunks, DecodeGraph, GraphOptions};
use super::load::{LoadOptions, Weights};
use super::sampling::Sampling;
use super::session::{self, GaveUp, Known, Run, RunOptions};

/// A model file that can be decoded: mapped, its shapes checked, its weights found.
#[derive(Debug)]
pub struct Model {
    /// The file.
    pub file: Arc<ModelFile>,
    /// Its shapes.
    pub config: Config,
    /// Its weights, borrowed from the file.
    pub weights: Weights,
    /// Made when it is first asked for: indexing a large vocabulary takes a while.
    tokenizer: OnceLock<Tokenizer>,
}

/// How a session decodes. The default is greedy, with the storage and the tuned choices that
/// `lathe decode` has.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Positions that it holds: prompt and generated tokens together.
    pub context: usize,
    /// Storage of the KV cache.
    pub kv: KvFormat,
    /// Storage of what goes into matrices; see [`GraphOptions::acts`].
    pub acts: FloatFormat,
    /// How prompts run; none for what suits the cache ([`Chunks::with_cache`]).
    pub chunks: Option<Chunks>,
    /// How tokens are drawn; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Seed of the draws.
    pub seed: u32,
    /// Explicit variants and files.
    pub hints: Hints,
    /// Where tuned choices are looked up, if they are.
    pub store: Option<PathBuf>,
    /// Decode steps in one submission; none for as many as [`session::FRAME`] has time for.
    pub steps_per_submit: Option<usize>,
    /// Whether operations of layers are one dispatch.
    pub runs: Runs,
    /// Sequences of a graph; a [`Session`] has one, [`super::sequences`] runs several.
    pub sequences: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            context: 2048,
            kv: KvFormat::F16,
            acts: FloatFormat::F32,
            chunks: None,
            sampling: None,
            seed: 42,
            hints: Hints::new(),
            store: Some(Store::default_path()),
            steps_per_submit: None,
            runs: Runs::Auto,
            sequences: 1,
        }
    }
}

/// What generation starts from.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// Text, through the file's tokenizer.
    Text(&'a str),
    /// Tokens.
    Tokens(&'a [u32]),
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Prompt::Text(text)
    }
}

impl<'a> From<&'a [u32]> for Prompt<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Prompt::Tokens(tokens)
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Prompt<'a> {
    fn from(tokens: &'a [u32; N]) -> Self {
        Prompt::Tokens(tokens)
    }
}

impl Model {
    /// Opens a checkpoint: a GGUF file, a folder with `config.json` and safetensors, or a
    /// `.safetensors` file beside a `config.json`.
    ///
    /// # Errors
    /// A file cannot be read, is broken, or holds a model that cannot be decoded.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &LoadOptions::default())
    }

    /// As [`Model::open`], weights converted on the way where the options ask for it.
    ///
    /// # Errors
    /// As for [`Model::open`]; or a matrix to be converted has a value that is not finite.
    pub fn open_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Self> {
        let file = Arc::new(ModelFile::open(path)?);
        let config = file.config()?;
        let weights = Weights::load_with(&file, &config, options)?;
        Ok(Self { file, config, weights, tokenizer: OnceLock::new() })
    }

    /// The model's tokenizer: the one of its file, unless [`Model::set_tokenizer`] gave another.
    ///
    /// # Errors
    /// The file has no tokenizer, or one that is not understood.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer);
        }
        let tokenizer = match self.file.tokenizer_json() {
            Some(path) => Tokenizer::open(path)?,
            None => {
                let vocabulary = self.file.vocabulary()?.ok_or_else(|| {
                    self.undecodable("has no tokenizer; give token ids or a tokenizer.json")
                })?;
                Tokenizer::new(vocabulary).map_err(|e| self.undecodable(&e.to_string()))?
            }
        };
        Ok(self.tokenizer.get_or_init(|| tokenizer))
    }

    /// Encodes and decodes with `tokenizer` from now on, as for a file that has none.
    pub fn set_tokenizer(&mut self, tokenizer: Tokenizer) {
        self.tokenizer = OnceLock::from(tokenizer);
    }

    fn undecodable(&self, reason: &str) -> Error {
        Error::Undecodable { path: self.file.path.clone(), reason: reason.to_owned() }
    }

    /// Tokens of a prompt.
    ///
    /// # Errors
    /// There is no tokenizer, one that is not understood, or one that cannot encode this text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoded = self.tokenizer()?.encode(text, true);
        encoded.map_err(|e| Error::Usage(format!("prompt: {e}")))
    }

    /// The chat template that comes with the model.
    ///
    /// # Errors
    /// There is none, it is no template, or there is no tokenizer to spell its special tokens.
    pub fn chat_template(&self) -> Result<ChatTemplate> {
        let template = ChatTemplate::of(&self.file, self.tokenizer()?)?;
        template.ok_or_else(|| self.undecodable("has no chat template"))
    }

    /// Text of tokens, where there is a sound tokenizer. [`Tokenizer::stream`] gives it token by
    /// token.
    pub fn text(&self, tokens: &[u32]) -> Option<String> {
        Some(self.tokenizer().ok()?.decode(tokens))
    }

    /// The decode step for a device, or without one for the CPU executor.
    ///
    /// # Errors
    /// A hint that cannot hold, an operation that no variant can run, or a store of tuned choices
    /// that cannot be read.
    pub fn graph(&self, gpu: Option<&Gpu>, options: &SessionOptions) -> Result<DecodeGraph> {
        let &SessionOptions { context, kv, acts, sampling, sequences, .. } = options;
        if context > self.config.context_length {
            tracing::warn!(
                "{context} positions exceed the {} the model was made for",
                self.config.context_length
            );
        }
        let caps = gpu.map_or_else(Capabilities::minimal, |g| g.caps.clone());
        let tuned = match (gpu, &options.store) {
            (Some(gpu), Some(path)) => Some(Arc::new(Store::read(path)?.of(&gpu.place()))),
            _ => None,
        };
        let hints = options.hints.clone();
        let chunks = options.chunks.unwrap_or_else(|| Chunks::with_cache(kv));
        let runs = match options.runs {
            Runs::Off => None,
            Runs::Of(grid) | Runs::Assumed(grid) => Some(grid),
            Runs::Auto => match gpu.filter(|_| sequences == 1).map(Gpu::run_grid).transpose()? {
                Some(Ok(grid)) => Some(grid),
                Some(Err(reason)) => {
                    tracing::info!("no runs of operations: {reason}");
                    None
                }
                None => None,
            },
        };
        let options =
            GraphOptions { context, kv, acts, chunks, sequences, sampling, hints, tuned, runs };
        graph::build(&self.file.path, &self.config, &self.weights, &caps, &options)
    }

    /// What goes on where `error` says that workgroups of runs waited in vain for others, and
    /// nobody chose those runs: the step with a dispatch a stage, which a warning announces.
    /// `tokens` were handed out until then. [`Runs::Auto`] has no runs on this device from now on.
    ///
    /// # Errors
    /// `error` itself where it is another or the runs were an explicit choice; as for
    /// [`Model::session`].
    pub fn without_runs(
        &self,
        executor: &GpuExecutor,
        options: &SessionOptions,
        error: Error,
        tokens: usize,
    ) -> Result<Apart> {
        let Some(run) = executor.recording.runs.first() else { return Err(error) };
        let waits = match error {
            Error::Waits { waits, .. } if options.runs.is_auto() => waits,
            other => return Err(other),
        };
        let gpu = &executor.gpu;
        tracing::warn!(
            "{}: workgroups of a run of operations waited in vain for others ({waits} of them); going \
             on with a dispatch a stage, as with --runs off, after {tokens} tokens that stand",
            gpu.adapter.name
        );
        gpu.distrust_runs("workgroups of a run waited in vain for others".into());
        let gave_up = GaveUp { grid: Runs::Of(run.grid).to_string(), waits, tokens };
        let options = SessionOptions { runs: Runs::Off, ..options.clone() };
        let graph = self.graph(Some(gpu), &options)?;
        let recording = Arc::clone(&graph.recording);
        let executor = executor.sharing(&Pipelines::default(), recording, Policy::Plain)?;
        Ok(Apart { graph, executor, gave_up })
    }

    /// The model on a device, ready to generate: weights uploaded, pipelines compiled. A context
    /// longer than the model was made for is cut to that.
    ///
    /// # Errors
    /// As for [`Model::graph`]; or the device has too little memory or refuses a pipeline.
    pub fn session(&self, gpu: &Arc<Gpu>, mut options: SessionOptions) -> Result<Session<'_>> {
        options.context = options.context.min(self.config.context_length);
        let graph = self.graph(Some(gpu), &options)?;
        let executor = GpuExecutor::new(
            Arc::clone(gpu),
            &Pipelines::default(),
            Arc::clone(&graph.recording),
            Policy::Plain,
            &mut |_, _| {},
        )?;
        Ok(Session { model: self, graph, executor, options })
    }
}

/// A step with a dispatch a stage, in the place of one whose runs gave up.
#[derive(Debug)]
pub struct Apart {
    /// The step.
    pub graph: DecodeGraph,
    /// Over the memory of the one before.
    pub executor: GpuExecutor,
    /// What it is there for.
    pub gave_up: GaveUp,
}

/// A model on a device.
#[derive(Debug)]
pub struct Session<'a> {
    model: &'a Model,
    /// The decode step, with which variant serves what and why.
    pub graph: DecodeGraph,
    executor: GpuExecutor,
    options: SessionOptions,
}

impl Session<'_> {
    /// Generates up to `n` tokens of a new sequence, fewer where the model ends it; `on_token`
    /// hears of each as soon as its submission ends. Where workgroups of [`Runs::Auto`] wait in
    /// vain for others, the session goes on without runs, and [`Run::runs_gave_up`] says so.
    ///
    /// # Errors
    /// The prompt is empty, has tokens that the model lacks, or does not fit the context together
    /// with `n`; the file has no tokenizer for a text; or the device is lost.
    pub fn generate<'p>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        n: usize,
        mut on_token: impl FnMut(u32),
    ) -> Result<Run> {
        let prompt = match prompt.into() {
            Prompt::Text(text) => self.model.encode(text)?,
            Prompt::Tokens(tokens) => tokens.to_vec(),
        };
        let options = RunOptions {
            prompt,
            generate: n,
            steps_per_submit: self.options.steps_per_submit,
            stop_at: self.model.config.end_tokens.clone(),
            seed: self.options.seed,
            ..RunOptions::default()
        };
        let (mut known, begun) = (Known::default(), Instant::now());
        let run = session::run(&self.graph, &mut self.executor, &options, &mut |token| {
            known.push(token, begun);
            on_token(token);
        });
        let Err(error) = run else { return run };
        let handed_out = known.tokens.len();
        let Apart { graph, executor, gave_up } =
            self.model.without_runs(&self.executor, &self.options, error, handed_out)?;
        (self.graph, self.executor, self.options.runs) = (graph, executor, Runs::Off);
        let options = RunOptions { known, ..options };
        let run = session::run(&self.graph, &mut self.executor, &options, &mut on_token)?;
        Ok(Run { runs_gave_up: Some(gave_up), ..run })
    }
}
