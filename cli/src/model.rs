//! Options of commands that run models: the model, its prompt, its steps.

mod prompt;
mod run;
mod sampling;
mod shown;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use lathe_harness::decode::{Chunks, DecodeOptions, Model, Script};
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::gpu::Gpu;
use lathe_harness::model::synth::weight_type;
use lathe_harness::model::tokenizer::Tokenizer;
use lathe_harness::plan::persistent::Persistent;
use lathe_harness::plan::select::{Hints, parse_hints};
use lathe_harness::plan::tuned::Store;
use lathe_kernels::{FloatFormat, Format, KvFormat};
use serde::Serialize;

use crate::args::{self, float_format, kv_format};
use crate::global::Global;
use prompt::PromptOpts;
pub(crate) use prompt::{ChatOpts, Renderer, read_any, read_text};
pub(crate) use run::RunOpts;
pub(crate) use sampling::{Reported, SamplingOpts};
pub(crate) use shown::Shown;

/// The seed of draws where none is given: the same command gives the same tokens.
const SEED: u32 = 42;

/// A model, as the first word of a command or with --model.
#[derive(Debug, Args)]
pub(crate) struct ModelPath {
    /// GGUF file, folder with config.json and safetensors, or a .safetensors file beside a
    /// config.json
    #[arg(value_name = "MODEL", required_unless_present = "model")]
    first: Option<PathBuf>,
    /// MODEL as an option
    #[arg(short, long, value_name = "MODEL", conflicts_with = "first")]
    model: Option<PathBuf>,
}

impl ModelPath {
    pub(crate) fn get(&self) -> Result<&Path> {
        let path = self.first.as_deref().or(self.model.as_deref());
        path.ok_or_else(|| Error::Usage("give a MODEL".into()))
    }
}

/// Models, as words of a command or with --model.
#[derive(Debug, Args)]
struct ModelPaths {
    /// GGUF files
    #[arg(value_name = "MODEL", required_unless_present_any = ["model", "arch"], conflicts_with_all = ["model", "arch"])]
    files: Vec<PathBuf>,
    /// MODEL as an option
    #[arg(short, long, value_name = "MODEL", num_args = 1..)]
    model: Vec<PathBuf>,
}

impl ModelPaths {
    fn get(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().chain(&self.model).map(PathBuf::as_path)
    }
}

/// Options for the model and the tokens; shared with `lathe diff`.
#[derive(Debug, Args)]
pub(crate) struct ModelOpts {
    #[command(flatten)]
    setup: SetupOpts,
    #[command(flatten)]
    prompt: PromptOpts,
}

/// Options for a model, its text and its steps; shared by `decode`, `diff` and `chat`.
#[derive(Debug, Args)]
pub(crate) struct SetupOpts {
    #[command(flatten)]
    path: ModelPath,
    /// Convert the matrices while loading, as `lathe quantize --type` does
    #[arg(long, value_name = "TYPE", value_parser = weight_type)]
    quantize: Option<Format>,
    /// This tokenizer.json instead of the model's own tokenizer
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    #[command(flatten)]
    step: StepOpts,
    /// Tokens of a prompt that run together, at most; 0 runs it token by token, a decode step each
    #[arg(long, value_name = "N", value_parser = args::chunk)]
    prompt_chunk: Option<usize>,
    /// Storage of the inputs of matrices while a prompt runs in chunks; without, f32 with a KV
    /// cache in f32 and else f16
    #[arg(long, value_name = "FORMAT", value_parser = float_format())]
    prompt_activations: Option<FloatFormat>,
    /// JSON file of hints, {"hints": {"KERNEL": "VARIANT or FILE.wgsl"}}; --hint goes before it
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingOpts,
    /// Random numbers of the draws [default: 42]
    #[arg(long, value_name = "SEED", help_heading = "Sampling")]
    seed: Option<u32>,
}

/// Options for building a model's steps; shared by `decode`, `diff`, `bench decode` and `suite`.
#[derive(Debug, Args)]
pub(crate) struct StepOpts {
    /// Storage of the KV cache
    #[arg(long, default_value = "f16", value_parser = kv_format())]
    pub(crate) kv: KvFormat,
    /// Storage of the inputs of matrices; f16 halves that traffic and costs accuracy
    #[arg(long, default_value = "f32", value_name = "FORMAT", value_parser = float_format())]
    pub(crate) activations: FloatFormat,
    /// Leave tuned choices out; only hints and the kernels' own preferences count
    #[arg(long)]
    untuned: bool,
    /// One dispatch for layers that follow each other (WORKGROUPSxINVOCATIONS, +N with N sectors
    /// of the next weights prefetched by an invocation at a wait, /N of N layers at most), a
    /// dispatch a stage (off), or what the adapter was tested to be able to (auto)
    #[arg(long, default_value_t = Persistent::Auto, value_name = "auto|off|GRID")]
    persistent: Persistent,
    /// Use this variant or fail: KERNEL=VARIANT, or KERNEL=FILE.wgsl for a file of your own, with a
    /// TOML beside it that maps what differs; KERNEL/VARIANT=FILE.wgsl says in whose place it
    /// stands, else the first's. May be repeated
    #[arg(long, value_name = "KERNEL=VARIANT|FILE.wgsl")]
    hint: Vec<String>,
}

impl StepOpts {
    /// Options of a decode; the rest is as usual.
    pub(crate) fn options(&self) -> Result<DecodeOptions> {
        Ok(DecodeOptions {
            kv: self.kv,
            acts: self.activations,
            hints: parse_hints(&self.hint)?,
            store: (!self.untuned).then(Store::default_path),
            persistent: self.persistent,
            ..DecodeOptions::default()
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecutorName {
    Gpu,
    Cpu,
    /// Kernels in the interpreter of `sanitize`; `decode` and `diff` alone
    Interpret,
}

fn read_manifest(path: &Path) -> Result<Hints> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Manifest {
        hints: BTreeMap<String, String>,
    }
    let text = files::read_text(path, files::TEXT).map_err(Error::io(path))?;
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
    let hints: Vec<_> = manifest.hints.iter().map(|(k, hint)| format!("{k}={hint}")).collect();
    parse_hints(&hints)
}

/// A model and the tokens to decode.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) prompt: Vec<u32>,
    /// Text of the prompt's tokens, with a chat template's text around it.
    pub(crate) prompt_text: Option<String>,
    /// The context is that of each graph.
    pub(crate) options: DecodeOptions,
}

impl SetupOpts {
    /// The options; the context is that of each graph.
    pub(crate) fn options(&self) -> Result<DecodeOptions> {
        let (sampling, seed) = (self.sampling.settings(self.seed)?, self.seed.unwrap_or(SEED));
        let mut options = DecodeOptions { sampling, seed, ..self.step.options()? };
        if let Some(path) = &self.manifest {
            for (kernel, hint) in read_manifest(path)? {
                if let Some(own) = options.hints.get(&kernel) {
                    let (own, hint) = (own.name(), hint.name());
                    tracing::info!(kernel, own, hint, "--hint goes before the manifest");
                } else {
                    options.hints.insert(kernel, hint);
                }
            }
        }
        let usual = Chunks::with_cache(options.kv);
        options.chunks = Some(Chunks {
            most: self.prompt_chunk.unwrap_or(usual.most),
            acts: self.prompt_activations.unwrap_or(usual.acts),
        });
        Ok(options)
    }

    /// The model, with the tokenizer that was asked for.
    pub(crate) fn open(&self) -> Result<Model> {
        let mut model = Model::open_as(self.path.get()?, self.quantize)?;
        if let Some(path) = &self.tokenizer {
            model.set_tokenizer(Tokenizer::open(path)?);
        }
        Ok(model)
    }
}

impl ModelOpts {
    /// True where prompts run in chunks because --prompt-chunk says so.
    pub(crate) fn asks_for_chunks(&self) -> bool {
        self.setup.prompt_chunk.is_some_and(|most| most > 0)
    }

    pub(crate) fn load(&self) -> Result<Loaded> {
        // Errors in options and prompt are said before a large file is read.
        let (options, source) = (self.setup.options()?, self.prompt.read()?);
        let model = self.setup.open()?;
        let (prompt, prompt_text) = self.prompt.tokens(&model, source)?;
        Ok(Loaded { model, prompt, prompt_text, options })
    }

    /// The model with a script of its prompt and `generate` tokens, for steps that are examined
    /// operation by operation.
    pub(crate) fn apart(&self, generate: usize) -> Result<(Model, DecodeOptions, Script)> {
        let Loaded { model, prompt, options, .. } = self.load()?;
        let context = prompt.len() + generate;
        let script = Script { prompt, generate, seed: options.seed, ..Script::default() };
        Ok((model, DecodeOptions { context, persistent: Persistent::Off, ..options }, script))
    }
}

/// A run's model, executor and formats, as reported.
#[derive(Serialize)]
pub(crate) struct Ran {
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    pub(crate) model: PathBuf,
    pub(crate) executor: &'static str,
    pub(crate) adapter: AdapterName,
    wgpu: &'static str,
    pub(crate) kv: &'static str,
    pub(crate) activations: &'static str,
}

/// The adapter of a run.
#[derive(Serialize)]
pub(crate) struct AdapterName {
    pub(crate) name: String,
    driver: String,
    pub(crate) backend: String,
    pub(crate) runtime_checks: &'static str,
}

impl Ran {
    /// A run on a device, or with the CPU executor without one.
    pub(crate) fn of(model: &Path, gpu: Option<&Gpu>, options: &DecodeOptions) -> Self {
        let adapter = match gpu {
            None => AdapterName {
                name: "CPU reference".into(),
                driver: String::new(),
                backend: "cpu".into(),
                runtime_checks: "none",
            },
            Some(gpu) => AdapterName {
                name: gpu.adapter.name.clone(),
                driver: gpu.adapter.driver.clone(),
                backend: gpu.adapter.backend.clone(),
                runtime_checks: gpu.checks.name(),
            },
        };
        Self {
            model: model.to_owned(),
            executor: if gpu.is_some() { "gpu" } else { "cpu" },
            adapter,
            wgpu: lathe_harness::gpu::WGPU_VERSION,
            kv: options.kv.name(),
            activations: options.acts.name(),
        }
    }
}

impl ExecutorName {
    /// The device, unless the CPU is asked for.
    pub(crate) fn open(self, global: &Global) -> Result<Option<Arc<Gpu>>> {
        match self {
            ExecutorName::Gpu => Ok(Some(Arc::new(global.open()?))),
            ExecutorName::Cpu => Ok(None),
            ExecutorName::Interpret => {
                Err(Error::Usage("--executor interpret goes with `decode` and `diff` alone".into()))
            }
        }
    }
}
