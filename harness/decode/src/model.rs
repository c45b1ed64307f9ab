//! A model file from its path to generated tokens.
//!
//! ```no_run
//! # fn main() -> lathe_device::Result<()> {
//! use lathe_decode::{DecodeOptions, Model};
//! use lathe_device::gpu::{Checks, Gpu};
//!
//! let gpu = Gpu::open(None, Checks::default())?.into();
//! let model = Model::open("model.gguf")?;
//! let mut session = model.session(&gpu, DecodeOptions::default())?;
//! let (prompt, mut text) = (model.encode("Once upon a time")?, model.tokenizer()?.stream());
//! session.generate(&prompt, 32, |token| print!("{}", text.push(token)))?;
//! println!("{}", text.finish());
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::{Arc, OnceLock};

use lathe_kernels::{Capabilities, Format, Kernel, Problem};

use super::graph::{self, DecodeGraph};
use super::load::Weights;
use super::options::DecodeOptions;
use lathe_device::error::{Error, Result};
use lathe_device::gpu::Gpu;
use lathe_device::plan::persistent::Persistent;
use lathe_device::plan::tuned::Store;
use lathe_model::chat::ChatTemplate;
use lathe_model::tokenizer::Tokenizer;
use lathe_model::{Config, ModelFile, describe};
use lathe_record::record::MeasuredModel;

/// A model file that can be decoded: mapped, its shapes checked, its weights found.
#[derive(Debug)]
pub struct Model {
    /// The file.
    pub file: Arc<ModelFile>,
    /// Its shapes.
    pub config: Config,
    /// Its weights, borrowed from the file.
    pub weights: Weights,
    /// Format that the matrices were converted to.
    quantise: Option<Format>,
    /// Tokenizer, made on first use: indexing a large vocabulary takes a while.
    tokenizer: OnceLock<Tokenizer>,
}

impl Model {
    /// Opens a checkpoint: a GGUF file, a folder with `config.json` and safetensors, or a
    /// `.safetensors` file beside a `config.json`.
    ///
    /// # Errors
    /// A file cannot be read, is broken, or holds a model that cannot be decoded.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_as(path, None)
    }

    /// Opens a checkpoint like [`Model::open`] and converts its matrices to a format, if one is
    /// given.
    ///
    /// # Errors
    /// Errors of [`Model::open`]; or a matrix to be converted has a value that is not finite.
    pub fn open_as(path: impl AsRef<Path>, quantise: Option<Format>) -> Result<Self> {
        let file = Arc::new(ModelFile::open(path)?);
        for note in file.notes() {
            tracing::warn!("{note}");
        }
        let config = file.config()?;
        let weights = Weights::load(&file, &config, quantise)?;
        Ok(Self { file, config, weights, quantise, tokenizer: OnceLock::new() })
    }

    /// The model's tokenizer: the one of its file, unless [`Model::set_tokenizer`] gave another.
    ///
    /// # Errors
    /// The file has no tokenizer, or one that is not understood.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer);
        }
        let tokenizer = tokenizer_of(&self.file)?;
        Ok(self.tokenizer.get_or_init(|| tokenizer))
    }

    /// Encodes and decodes with `tokenizer` from now on, as for a file that has none.
    pub fn set_tokenizer(&mut self, tokenizer: Tokenizer) {
        self.tokenizer = OnceLock::from(tokenizer);
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
        if let Some(note) = template.as_ref().and_then(ChatTemplate::note) {
            tracing::warn!("{note}");
        }
        template.ok_or_else(|| undecodable(&self.file, "has no chat template"))
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
    pub fn graph(&self, gpu: Option<&Gpu>, options: &DecodeOptions) -> Result<DecodeGraph> {
        let DecodeOptions { context, sequences, .. } = *options;
        if context > self.config.context_length {
            let made_for = self.config.context_length;
            tracing::warn!("{context} positions exceed the {made_for} the model was made for");
        }
        let caps = gpu.map_or_else(Capabilities::minimal, |g| g.caps.clone());
        let tuned = match (gpu, &options.store) {
            (Some(gpu), Some(path)) => Some(Store::read(path)?.of(&gpu.platform())),
            _ => None,
        };
        let grid = match options.persistent {
            Persistent::Off => None,
            Persistent::Of(grid) | Persistent::Assumed(grid) => Some(grid),
            Persistent::Auto => {
                match gpu.filter(|_| sequences == 1).map(Gpu::persistent_grid).transpose()? {
                    Some(Ok(grid)) => Some(grid),
                    Some(Err(reason)) => {
                        tracing::info!("no persistent kernels: {reason}");
                        None
                    }
                    None => None,
                }
            }
        };
        let options = DecodeOptions {
            persistent: grid.map_or(Persistent::Off, Persistent::Of),
            ..options.clone()
        };
        let (path, tuned) = (&self.file.path, tuned.as_ref());
        let built = graph::build(path, &self.config, &self.weights, &caps, &options, tuned);
        let converted = self.quantise.map(|ty| ["--quantize".to_owned(), ty.name().to_owned()]);
        built.map(|mut graph| {
            graph.flags.extend(converted.into_iter().flatten());
            graph
        })
    }

    /// The decode step for an adapter of these capabilities by the kernels' own preferences, with
    /// runs only where the options have a grid.
    ///
    /// # Errors
    /// Errors of [`Model::graph`].
    pub fn graph_for(&self, caps: &Capabilities, options: &DecodeOptions) -> Result<DecodeGraph> {
        graph::build(&self.file.path, &self.config, &self.weights, caps, options, None)
    }

    /// Kernels and compiled-in shapes of a decode step, each once, with the state of the kernel's
    /// first benchmark.
    ///
    /// # Errors
    /// An operation that no variant can run.
    pub fn problems(&self, caps: &Capabilities) -> Result<Vec<(&'static Kernel, Problem)>> {
        let graph = self.graph_for(caps, &DecodeOptions::of_step(512))?;
        let mut problems: Vec<(&'static Kernel, Problem)> = Vec::new();
        for op in &graph.recording.ops {
            let kernel = op.kernel();
            let known = problems.iter().any(|(k, problem)| {
                k.name == kernel.name && kernel.key(&problem.shape) == kernel.key(&op.shape)
            });
            if !known {
                let state = kernel.default_problem().state;
                problems.push((kernel, Problem { shape: op.shape.clone(), state }));
            }
        }
        Ok(problems)
    }

    /// The model in llama-bench's names.
    pub fn measured(&self) -> MeasuredModel {
        let summary = describe(&self.file);
        let arch = summary.architecture.unwrap_or_default();
        let ty = summary.types.first().map_or("", |t| t.ty.name());
        MeasuredModel {
            model_filename: recorded_name(&self.file.path),
            model_type: format!("{arch} {} {ty}", lathe_record::count(summary.parameters)),
            model_size: summary.tensor_bytes,
            model_n_params: summary.parameters,
        }
    }
}

fn undecodable(file: &ModelFile, reason: &str) -> Error {
    Error::Undecodable { path: file.path.clone(), reason: reason.to_owned() }
}

/// The tokenizer of a checkpoint, whose weights are not looked at.
///
/// # Errors
/// It has none, or one that is not understood.
pub fn tokenizer_of(file: &ModelFile) -> Result<Tokenizer> {
    let why = "has no tokenizer; give token ids or a tokenizer.json";
    let tokenizer = file.tokenizer()?.ok_or_else(|| undecodable(file, why))?;
    if let Some(note) = tokenizer.note() {
        tracing::warn!("{note}");
    }
    Ok(tokenizer)
}

/// Name of a checkpoint in records: its file or folder, and for `model.safetensors`, as most are
/// called, both.
pub fn recorded_name(path: &Path) -> String {
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    let path = &path.canonicalize().unwrap_or_else(|_| path.into());
    let file = name(path).unwrap_or_default();
    let is_safetensors = path.extension().is_some_and(|e| e == "safetensors");
    match path.parent().and_then(name).filter(|_| is_safetensors) {
        Some(folder) => format!("{folder}/{file}"),
        None => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_name_files_without_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a model.gguf", "model.safetensors"] {
            std::fs::write(folder.path().join(name), []).unwrap();
        }
        assert_eq!(recorded_name(&folder.path().join("a model.gguf")), "a model.gguf");
        let parent = folder.path().file_name().unwrap().to_str().unwrap();
        let shard = folder.path().join("model.safetensors");
        assert_eq!(recorded_name(&shard), format!("{parent}/model.safetensors"));
    }
}
