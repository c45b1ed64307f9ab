//! `lathe decode`: run a checkpoint, measure it, verify it.

mod output;
mod profile;
mod prompt;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lathe_harness::data::record::Verified;
use lathe_harness::data::stats;
use lathe_harness::decode::graph::Selected;
use lathe_harness::decode::memory::{self, Taken};
use lathe_harness::decode::{
    Chunks, DecodeOptions, GaveUp, Looks, Model, Prompts, Script, Session, VERIFIED,
};
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::gpu::{Gpu, Pipelines};
use lathe_harness::measure::copy_bandwidth;
use lathe_harness::model::synth::weight_type;
use lathe_harness::plan::run::Runs;
use lathe_harness::plan::select::{Hints, parse_hints};
use lathe_harness::plan::tuned::Store;
use lathe_kernels::{FloatFormat, Format, KvFormat};
use serde::Serialize;

use super::Global;
use super::sampling::{self, SamplingOpts};
use prompt::{PromptOpts, TextOpts};

pub(super) use output::Shown;
pub(super) use profile::bench_arch;
pub(super) use prompt::read_text;

/// The seed of draws where none is given: the same command gives the same tokens.
const SEED: u32 = 42;

/// A model, as the first word of a command or with --model.
#[derive(Debug, Args)]
pub(super) struct ModelPath {
    /// GGUF file, folder with config.json and safetensors, or a .safetensors file beside a
    /// config.json
    #[arg(value_name = "MODEL", required_unless_present = "model")]
    first: Option<PathBuf>,
    /// MODEL as an option
    #[arg(short, long, value_name = "MODEL", conflicts_with = "first")]
    model: Option<PathBuf>,
}

impl ModelPath {
    pub(super) fn get(&self) -> Result<&Path> {
        let path = self.first.as_deref().or(self.model.as_deref());
        path.ok_or_else(|| Error::Usage("give a MODEL".into()))
    }
}

/// Models, as words of a command or with --model.
#[derive(Debug, Args)]
pub(super) struct ModelPaths {
    /// GGUF files
    #[arg(value_name = "MODEL", required_unless_present_any = ["model", "arch"], conflicts_with_all = ["model", "arch"])]
    files: Vec<PathBuf>,
    /// MODEL as an option
    #[arg(short, long, value_name = "MODEL", num_args = 1..)]
    model: Vec<PathBuf>,
}

impl ModelPaths {
    pub(super) fn get(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().chain(&self.model).map(PathBuf::as_path)
    }
}

/// Options for the model and the tokens; shared with `lathe diff`.
#[derive(Debug, Args)]
pub(super) struct ModelOpts {
    #[command(flatten)]
    pub(super) path: ModelPath,
    /// Convert the matrices while loading, as `lathe quantize --type` does
    #[arg(long, value_name = "TYPE", value_parser = weight_type)]
    quantize: Option<Format>,
    #[command(flatten)]
    prompt: PromptOpts,
    #[command(flatten)]
    text: TextOpts,
    #[command(flatten)]
    step: StepOpts,
    /// Tokens of a prompt that run together, at most; 0 runs it token by token, a decode step each
    #[arg(long, value_name = "N", value_parser = super::chunk)]
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
pub(super) struct StepOpts {
    /// Storage of the KV cache
    #[arg(long, default_value = "f16", value_parser = kv_format())]
    pub(super) kv: KvFormat,
    /// Storage of the inputs of matrices; f16 halves that traffic and costs accuracy
    #[arg(long, default_value = "f32", value_name = "FORMAT", value_parser = float_format())]
    pub(super) activations: FloatFormat,
    /// Leave tuned choices out; only hints and the kernels' own preferences count
    #[arg(long)]
    untuned: bool,
    /// One dispatch for layers that follow each other (WORKGROUPSxINVOCATIONS, +N with N sectors
    /// of the next weights prefetched by an invocation at a wait, /N of N layers at most), a
    /// dispatch a stage (off), or what the adapter was tested to be able to (auto)
    #[arg(long, default_value_t = Runs::Auto, value_name = "auto|off|GRID")]
    runs: Runs,
    /// Use this variant or fail: KERNEL=VARIANT, or KERNEL=FILE.wgsl for a file of your own, with a
    /// TOML beside it that maps what differs; KERNEL/VARIANT=FILE.wgsl says in whose place it
    /// stands, else the first's. May be repeated
    #[arg(long, value_name = "KERNEL=VARIANT|FILE.wgsl")]
    hint: Vec<String>,
}

impl StepOpts {
    /// Options of a decode; the rest is as usual.
    pub(super) fn options(&self) -> Result<DecodeOptions> {
        Ok(DecodeOptions {
            kv: self.kv,
            acts: self.activations,
            hints: parse_hints(&self.hint)?,
            store: (!self.untuned).then(Store::default_path),
            runs: self.runs,
            ..DecodeOptions::default()
        })
    }
}

/// Parses a storage of the inputs of matrices; for clap.
pub(super) fn float_format() -> impl TypedValueParser<Value = FloatFormat> {
    let known = || FloatFormat::STORED.iter().copied();
    PossibleValuesParser::new(known().map(FloatFormat::name))
        .try_map(move |text| known().find(|format| format.name() == text).ok_or("no format"))
}

/// Parses a storage of a KV cache; for clap.
pub(super) fn kv_format() -> impl TypedValueParser<Value = KvFormat> {
    let known = || KvFormat::ALL.iter().copied();
    let value = |format: KvFormat| {
        PossibleValue::new(format.name()).help(match format {
            KvFormat::F32 => "32-bit floats",
            KvFormat::F16 => "16-bit floats",
            KvFormat::Q8_0 => "Integers of 8 bits, a scale for every 32",
        })
    };
    PossibleValuesParser::new(known().map(value))
        .try_map(move |text| known().find(|format| format.name() == text).ok_or("no format"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ExecutorName {
    Gpu,
    Cpu,
}

#[derive(Debug, Args)]
pub(super) struct Opts {
    #[command(flatten)]
    model: ModelOpts,
    /// Tokens to generate
    #[arg(short = 'n', long = "tokens", value_name = "N", value_parser = super::count)]
    generate: Option<usize>,
    /// Executor of the step
    #[arg(long, default_value = "gpu")]
    executor: ExecutorName,
    /// Compare the logits of the first N positions (all without N) with the CPU reference; the
    /// first 8 where this is not given, none on the CPU itself
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = super::count)]
    verify: Option<Option<usize>>,
    /// Compare nothing; every figure then says so
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,
    /// Feed these tokens after the prompt instead of the generated ones
    #[arg(long, value_delimiter = ',', value_name = "9,8,…")]
    force_tokens: Vec<u32>,
    /// Write raw little-endian f32 logits, one row of the vocabulary a position
    #[arg(long, value_name = "FILE")]
    logits_out: Option<PathBuf>,
    /// Decode steps in one submission; without it as many as take 16 ms, 32 at most, with
    /// --profile and --profile-phases 8
    #[arg(long, value_name = "N", value_parser = super::within::<1, 4096>)]
    steps_per_submit: Option<usize>,
    /// Time every operation and write the record (JSON); an existing file is not overwritten
    #[arg(long, value_name = "FILE", conflicts_with_all = ["force_tokens", "logits_out"])]
    profile: Option<PathBuf>,
    /// Time every operation of the prompt, and the first token, and print both
    #[arg(long, conflicts_with_all = ["profile", "logits_out"])]
    profile_prompt: bool,
    /// Print the time that each phase of the layers' dispatch adds to a step
    #[arg(long, conflicts_with_all = ["profile", "profile_prompt", "force_tokens", "logits_out"])]
    profile_phases: bool,
    /// Also write the profile as a Chrome trace
    #[arg(long, value_name = "FILE", requires = "profile")]
    trace: Option<PathBuf>,
    /// With --profile, log every Nth step
    #[arg(long, value_name = "N", default_value_t = 0, requires = "profile")]
    log_every: usize,
    /// Let a software adapter save a profile
    #[arg(long, requires = "profile")]
    allow_software: bool,
    /// Generate on after a token that ends a text or a turn
    #[arg(long)]
    ignore_eos: bool,
}

impl Opts {
    /// Number of a run's positions that are compared with the reference before it is timed.
    fn verified(&self, script: &Script) -> Option<usize> {
        let all = script.positions();
        match self.verify {
            Some(n) => Some(n.unwrap_or(all).min(all)),
            None if self.no_verify || self.executor == ExecutorName::Cpu => None,
            None => Some(VERIFIED.min(all)),
        }
    }
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
struct Loaded {
    model: Model,
    prompt: Vec<u32>,
    /// Text of the prompt's tokens, with a chat template's text around it.
    prompt_text: Option<String>,
    /// The context is that of each graph.
    options: DecodeOptions,
}

impl ModelOpts {
    fn load(&self) -> Result<Loaded> {
        let (sampling, seed) = (self.sampling.settings(self.seed)?, self.seed.unwrap_or(SEED));
        // Errors in the prompt are said before a large file is read.
        let source = self.prompt.read()?;
        self.text.check(&source)?;
        let mut model = Model::open_as(self.path.get()?, self.quantize)?;
        let (prompt, prompt_text) = self.text.prompt(&mut model, source)?;
        let mut options = DecodeOptions { sampling, seed, ..self.step.options()? };
        if let Some(path) = &self.manifest {
            for (kernel, hint) in read_manifest(path)? {
                if let Some(own) = options.hints.get(&kernel) {
                    tracing::info!(
                        kernel,
                        own = own.name(),
                        hint = hint.name(),
                        "--hint goes before the manifest"
                    );
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
        Ok(Loaded { model, prompt, prompt_text, options })
    }

    /// The model with a script of its prompt and `generate` tokens, for steps that are examined
    /// operation by operation.
    pub(super) fn apart(&self, generate: usize) -> Result<(Model, DecodeOptions, Script)> {
        let Loaded { model, prompt, options, .. } = self.load()?;
        let context = prompt.len() + generate;
        let script = Script { prompt, generate, seed: options.seed, ..Script::default() };
        Ok((model, DecodeOptions { context, runs: Runs::Off, ..options }, script))
    }
}

/// The adapter of a run.
#[derive(Serialize)]
pub(super) struct AdapterName {
    pub(super) name: String,
    driver: String,
    backend: String,
    runtime_checks: &'static str,
}

impl AdapterName {
    /// The name of a device, or of the CPU executor without one.
    pub(super) fn of(gpu: Option<&Gpu>) -> Self {
        match gpu {
            None => Self {
                name: "CPU reference".into(),
                driver: String::new(),
                backend: "cpu".into(),
                runtime_checks: "none",
            },
            Some(gpu) => Self {
                name: gpu.adapter.name.clone(),
                driver: gpu.adapter.driver.clone(),
                backend: gpu.adapter.backend.clone(),
                runtime_checks: gpu.checks.name(),
            },
        }
    }
}

impl ExecutorName {
    /// The device, unless the CPU is asked for.
    pub(super) fn open(self, global: &Global) -> Result<Option<Arc<Gpu>>> {
        match self {
            ExecutorName::Gpu => Ok(Some(Arc::new(global.open()?))),
            ExecutorName::Cpu => Ok(None),
        }
    }
}

#[derive(Serialize)]
struct StepMs {
    p50: f64,
    p95: f64,
}

#[derive(Serialize)]
struct Report {
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    model: PathBuf,
    executor: &'static str,
    adapter: AdapterName,
    wgpu: &'static str,
    kv: &'static str,
    activations: &'static str,
    /// Absent when greedy.
    sampling: Option<sampling::Reported>,
    /// Absent where tokens were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_text: Option<String>,
    prompt_tokens: Vec<u32>,
    generated: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    ttft_ms: f64,
    prefill_tok_s: f64,
    decode_tok_s: Option<f64>,
    step_ms: Option<StepMs>,
    /// Absent where time decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_per_submit: Option<usize>,
    submits_per_token: Option<f64>,
    dispatches_per_token: usize,
    gpu_ms_per_token: Option<f64>,
    kv_cache_bytes: u64,
    gpu_memory_bytes: u64,
    /// Absent for the CPU executor.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Taken>,
    bytes_per_token: u64,
    copy_gb_s: Option<f64>,
    bandwidth_fraction: Option<f64>,
    verified: Option<Verified>,
    /// Absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_gave_up: Option<GaveUp>,
    selected: Vec<Selected>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let Loaded { model, prompt, prompt_text, mut options } = opts.model.load()?;
    let generate = opts.generate.unwrap_or(match opts.force_tokens.len() {
        0 => 32,
        forced => forced,
    });
    if generate == 0 && opts.force_tokens.is_empty() && opts.logits_out.is_none() {
        return Err(Error::Usage("-n 0 leaves nothing to do".into()));
    }
    if opts.verify == Some(Some(0)) {
        return Err(Error::Usage("--verify 0 verifies nothing".into()));
    }
    let of_steps = opts.profile.is_some() || opts.profile_phases;
    let script = Script {
        prompt,
        forced: opts.force_tokens.clone(),
        // Chunks leave the logits of a prompt's last token only.
        prompts: if opts.logits_out.is_some() { Prompts::TokenByToken } else { Prompts::Chunks },
        generate,
        steps_per_submit: opts.steps_per_submit.or(of_steps.then_some(8)),
        stop_at: if opts.ignore_eos { Vec::new() } else { model.config.end_tokens.clone() },
        seed: options.seed,
        ..Script::default()
    };
    options.context = script.positions();
    if of_steps || opts.profile_prompt {
        return profile::run(global, opts, &model, options, &script);
    }
    let gpu = opts.executor.open(global)?;
    let graph = model.graph(gpu.as_deref(), &options)?;
    let mut shown = Shown::decoding(global, &model, &script, opts.logits_out.as_deref());
    // Before the weights take the memory; a device too full to copy has no figure.
    let copy = match gpu.as_deref().map(copy_bandwidth) {
        Some(Err(lost @ Error::DeviceLost { .. })) => return Err(lost),
        Some(Err(e)) => {
            tracing::warn!("no copy bandwidth: {e}");
            None
        }
        measured => measured.and_then(Result::ok),
    };
    let load = |gpu| memory::load(gpu, &Pipelines::default(), &graph, &mut shown);
    let executor = gpu.as_ref().map(load).transpose()?;
    let verify = opts.verified(&script);
    let every_step = opts.logits_out.is_some()
        || !script.forced.is_empty()
        || verify == Some(script.positions());
    let mut session = Session::new(&model, graph, executor, options);
    let run = session.decode(&script, Looks { verify, every_step }, &mut shown)?;
    let predicted = shown.finish();
    let memory = predicted.zip(gpu.as_deref());
    let memory = memory.map(|(predicted, gpu)| predicted.measured(gpu, session.device_bytes()));

    let (graph, options) = (&session.graph, &session.options);
    let mut ms: Vec<f64> = run.steps.iter().map(|d| d.as_secs_f64() * 1e3).collect();
    let wall: f64 = ms.iter().sum();
    ms.sort_by(f64::total_cmp);
    let (prompt, decoded) = (script.prompt.len(), run.steps.len());
    let gpu_ms = run.gpu.map(|t| t.as_secs_f64() * 1e3 / run.decode_steps.max(1) as f64);
    let bytes_per_token = graph.bytes(prompt + decoded / 2 + 1) as u64;
    let report = Report {
        model: model.file.path.clone(),
        executor: if gpu.is_some() { "gpu" } else { "cpu" },
        adapter: AdapterName::of(gpu.as_deref()),
        wgpu: lathe_harness::gpu::WGPU_VERSION,
        kv: options.kv.name(),
        activations: options.acts.name(),
        sampling: options.sampling.map(|s| sampling::Reported::of(s, options.seed)),
        prompt_text,
        text: model.text(&run.generated),
        ttft_ms: run.ttft.as_secs_f64() * 1e3,
        prefill_tok_s: rate(prompt, run.ttft),
        decode_tok_s: (wall > 0.0).then(|| decoded as f64 * 1e3 / wall),
        step_ms: (!ms.is_empty())
            .then(|| StepMs { p50: stats::quantile(&ms, 0.5), p95: stats::quantile(&ms, 0.95) }),
        steps_per_submit: if every_step { Some(1) } else { script.steps_per_submit },
        submits_per_token: (run.decode_steps > 0)
            .then(|| run.submits as f64 / run.decode_steps as f64),
        dispatches_per_token: graph.recording.dispatches(),
        gpu_ms_per_token: gpu_ms,
        kv_cache_bytes: graph.kv_bytes(),
        gpu_memory_bytes: memory.map_or(0, |memory| memory.bytes()),
        memory,
        bytes_per_token,
        copy_gb_s: copy,
        bandwidth_fraction: gpu_ms
            .zip(copy)
            .map(|(ms, copy)| bytes_per_token as f64 / (ms * 1e-3) / (copy * 1e9)),
        verified: run.verified,
        selected: graph.selected.clone(),
        prompt_tokens: script.prompt,
        generated: run.generated,
        runs_gave_up: run.runs_gave_up,
    };
    global.print(&report, || output::print(&report));
    Ok(())
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
