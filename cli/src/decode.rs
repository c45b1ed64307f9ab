//! `lathe decode`: run a checkpoint, measure it, verify it.

mod logits;
mod output;
mod phase_profile;
mod profile;
mod prompt;
mod prompt_profile;
mod sides;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lathe_kernels::{Capabilities, FloatFormat, Format, Kernel, KvFormat, Problem};
use serde::Serialize;

use super::Global;
use super::memory::{Predicted, Reported};
use super::out;
use super::sampling::{self, SamplingOpts};
use crate::table;

use lathe_harness::data::record::{Body, Profile, Record, Verified};
use lathe_harness::data::stats;
use lathe_harness::decode::graph::{self, Chunks, Selected};
use lathe_harness::decode::once::{self, Stage};
use lathe_harness::decode::session::Prompts;
use lathe_harness::decode::{
    Apart, DecodeGraph, GaveUp, GraphOptions, Known, LoadOptions, Model, Prefix, Run, RunOptions,
    SessionOptions, VERIFIED,
};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::{CpuExecutor, Execute, GpuExecutor};
use lathe_harness::files;
use lathe_harness::gpu::{Gpu, Pipelines, Policy};
use lathe_harness::measure::ab::{self, AbOptions};
use lathe_harness::measure::copy_bandwidth;
use lathe_harness::model::synth::{SynthSpec, weight_type};
use lathe_harness::plan::run::Runs;
use lathe_harness::plan::select::{Hint, Hints};
use lathe_harness::plan::tuned::Store;
use lathe_harness::report::trace::trace;
use logits::LogitsFile;
use output::Said;
use prompt::{PromptOpts, TextOpts};

pub(super) use profile::bench_arch;
pub(super) use prompt::read_text;
pub(super) use sides::{ab, problems};

/// The seed of draws where none is given: the same command gives the same tokens.
const SEED: u32 = 42;

/// A model, as the first word of a command or with --model.
#[derive(Debug, Args)]
pub(super) struct ModelPath {
    /// GGUF file, folder with config.json and safetensors, or a .safetensors file beside a
    /// config.json
    #[arg(value_name = "MODEL", required_unless_present = "model")]
    first: Option<PathBuf>,
    /// The same as MODEL
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
    /// The same as MODEL
    #[arg(short, long, value_name = "MODEL", num_args = 1..)]
    model: Vec<PathBuf>,
}

impl ModelPaths {
    pub(super) fn get(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().chain(&self.model).map(PathBuf::as_path)
    }
}

/// What says which model and which tokens; shared with `lathe diff`.
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
    /// Storage of what goes into matrices while a prompt runs in chunks; without, f32 beside a KV
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

/// How the steps of a model are built; shared by `decode`, `diff`, `bench decode` and `suite`.
#[derive(Debug, Args)]
pub(super) struct StepOpts {
    /// Storage of the KV cache
    #[arg(long, default_value = "f16", value_parser = kv_format())]
    pub(super) kv: KvFormat,
    /// Storage of what goes into matrices; f16 halves that traffic and costs accuracy
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
    /// What they say; the rest is as usual.
    pub(super) fn options(&self) -> Result<SessionOptions> {
        Ok(SessionOptions {
            kv: self.kv,
            acts: self.activations,
            hints: parse_hints(&self.hint)?,
            store: (!self.untuned).then(Store::default_path),
            runs: self.runs,
            ..SessionOptions::default()
        })
    }
}

/// Parses a storage of what goes into matrices; for clap.
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
    /// Where the step runs
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
    /// Time what each phase of the layers' dispatch adds to a step, and print it
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
    /// How many positions of a run are held against the reference before it is timed.
    fn verified(&self, options: &RunOptions) -> Option<usize> {
        let all = options.positions();
        match self.verify {
            Some(n) => Some(n.unwrap_or(all).min(all)),
            None if self.no_verify || self.executor == ExecutorName::Cpu => None,
            None => Some(VERIFIED.min(all)),
        }
    }
}

/// Hints as on the command line, one a kernel.
pub(super) fn parse_hints(texts: &[String]) -> Result<Hints> {
    let mut hints = Hints::new();
    for text in texts {
        let (kernel, hint) = Hint::parse(text)?;
        if let Some(other) = hints.get(&kernel) {
            return Err(Error::Usage(format!("hints name {kernel} twice: {other} and {hint}")));
        }
        hints.insert(kernel, hint);
    }
    Ok(hints)
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

/// A model ready for a graph.
pub(super) struct Loaded {
    pub(super) model: Model,
    pub(super) prompt: Vec<u32>,
    /// What the prompt's tokens were made of, with a chat template's text around it.
    prompt_text: Option<String>,
    /// The context is that of each graph.
    pub(super) options: SessionOptions,
}

impl ModelOpts {
    pub(super) fn load(&self) -> Result<Loaded> {
        let (sampling, seed) = (self.sampling.settings(self.seed)?, self.seed.unwrap_or(SEED));
        // What is wrong with the prompt is said before a large file is read.
        let source = self.prompt.read()?;
        self.text.check(&source)?;
        let load = LoadOptions { quantise: self.quantize };
        let mut model = Model::open_with(self.path.get()?, &load)?;
        let (prompt, prompt_text) = self.text.prompt(&mut model, source)?;
        let mut options = SessionOptions { sampling, seed, ..self.step.options()? };
        if let Some(path) = &self.manifest {
            for (kernel, hint) in read_manifest(path)? {
                if let Some(own) = options.hints.get(&kernel) {
                    tracing::info!(kernel, %own, %hint, "--hint goes before the manifest");
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
}

impl Loaded {
    /// The decode step for a device, or without one for the CPU executor.
    pub(super) fn graph(&self, gpu: Option<&Gpu>, context: usize) -> Result<DecodeGraph> {
        let options = SessionOptions { context, ..self.options.clone() };
        self.model.graph(gpu, &options)
    }
}

/// What ran it.
#[derive(Serialize)]
pub(super) struct AdapterName {
    pub(super) name: String,
    driver: String,
    backend: String,
    runtime_checks: &'static str,
}

impl AdapterName {
    /// The name of a device, or without one that of the CPU executor.
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
    memory: Option<Reported>,
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
    let mut loaded = opts.model.load()?;
    if opts.profile.is_some() || opts.profile_prompt {
        // Operations are timed one by one.
        loaded.options.runs = Runs::Off;
    }
    let generate = opts.generate.unwrap_or(match opts.force_tokens.len() {
        0 => 32,
        forced => forced,
    });
    if generate == 0 && opts.force_tokens.is_empty() && opts.logits_out.is_none() {
        return Err(Error::Usage("-n 0 leaves nothing to do".into()));
    }
    let of_steps = opts.profile.is_some() || opts.profile_phases;
    let option = match (opts.profile_prompt, opts.profile_phases) {
        (true, _) => "--profile-prompt",
        (_, true) => "--profile-phases",
        _ => "--profile",
    };
    if (of_steps || opts.profile_prompt) && opts.executor == ExecutorName::Cpu {
        let error = format!("{option} times a GPU; it goes without --executor cpu");
        return Err(Error::Usage(error));
    }
    if of_steps && generate < 2 {
        return Err(Error::Usage(format!("{option} needs at least 2 tokens (-n)")));
    }
    if opts.verify == Some(Some(0)) {
        return Err(Error::Usage("--verify 0 verifies nothing".into()));
    }
    let run_options = RunOptions {
        prompt: loaded.prompt.clone(),
        forced: opts.force_tokens.clone(),
        prompts: Prompts::Chunks,
        generate,
        steps_per_submit: match of_steps {
            true => Some(opts.steps_per_submit.unwrap_or(8)),
            false => opts.steps_per_submit,
        },
        stop_at: if opts.ignore_eos { Vec::new() } else { loaded.model.config.end_tokens.clone() },
        seed: loaded.options.seed,
        known: Known::default(),
    };
    if opts.profile_prompt {
        return prompt_profile::profile(global, opts, &loaded, &run_options);
    }
    if opts.profile_phases {
        return phase_profile::profile(global, opts, &loaded, &run_options);
    }
    if opts.profile.is_some() {
        return profile::profile(global, opts, &loaded, &run_options);
    }
    let context = run_options.positions();
    let gpu = match opts.executor {
        ExecutorName::Gpu => Some(Arc::new(global.open()?)),
        ExecutorName::Cpu => None,
    };
    let graph = loaded.graph(gpu.as_deref(), context)?;
    let bar = global.progress(context as u64, "decoding", false);
    let mut said = Said::of(global, &loaded, &bar);
    let (graph, options, side, outcome) = if let Some(gpu) = &gpu {
        let predicted = Predicted::of(gpu, &graph)?;
        // Before the weights take the memory; a device too full to copy has no figure.
        let copy = match copy_bandwidth(gpu) {
            Ok(copy) => Some(copy),
            Err(lost @ Error::DeviceLost { .. }) => return Err(lost),
            Err(e) => {
                tracing::warn!("no copy bandwidth: {e}");
                None
            }
        };
        let mut executor = on_device(global, gpu, &Pipelines::default(), &graph)?;
        let memory = |executor: &GpuExecutor| Some((predicted, executor.device_bytes()));
        let side = Side { gpu: Some(gpu), memory: memory(&executor), copy };
        bar.reset();
        match decode(opts, &graph, &mut executor, &run_options, &side, &mut said) {
            Ok(outcome) => (graph, run_options, side, outcome),
            Err(error) => {
                let options = SessionOptions { context, ..loaded.options.clone() };
                let known = said.known.clone();
                let chosen = known.tokens.len();
                let apart = loaded.model.without_runs(&executor, &options, error, chosen)?;
                let Apart { graph, mut executor, gave_up } = apart;
                let options = RunOptions { known, ..run_options };
                let side = Side { memory: memory(&executor), ..side };
                let mut outcome = decode(opts, &graph, &mut executor, &options, &side, &mut said)?;
                outcome.run.runs_gave_up = Some(gave_up);
                (graph, options, side, outcome)
            }
        }
    } else {
        let mut executor = CpuExecutor::new(Arc::clone(&graph.recording));
        let side = Side { gpu: None, memory: None, copy: None };
        let outcome = decode(opts, &graph, &mut executor, &run_options, &side, &mut said)?;
        (graph, run_options, side, outcome)
    };
    said.finish();
    let report = report(&loaded, &graph, &options, &side, outcome);
    global.print(&report, || output::print(&report));
    Ok(())
}

/// Writes a model's graph onto a device; before that it is said how much memory it will take.
pub(super) fn on_device(
    global: &Global,
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    graph: &DecodeGraph,
) -> Result<GpuExecutor> {
    eprintln!("device memory: {}", Predicted::of(gpu, graph)?);
    // What is measured from now on counts.
    gpu.forget_peak();
    let recording = Arc::clone(&graph.recording);
    global.by_bytes("loading", |on| {
        GpuExecutor::new(Arc::clone(gpu), pipelines, recording, Policy::Plain, on)
    })
}

/// A run with how it was run.
struct Outcome {
    run: Run,
    /// Step by step, with every step's logits read back.
    observed: bool,
    verified: Option<Verified>,
}

struct Side<'a> {
    gpu: Option<&'a Gpu>,
    /// What was predicted, and bytes of the executor's buffers.
    memory: Option<(Predicted, u64)>,
    copy: Option<f64>,
}

/// Verifies a run as far as it is asked for, and runs it.
fn decode(
    opts: &Opts,
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
    side: &Side<'_>,
    said: &mut Said<'_>,
) -> Result<Outcome> {
    let positions = options.positions();
    let verify = opts.verified(options);
    let observe_all = opts.logits_out.is_some()
        || !options.forced.is_empty()
        || verify.is_some_and(|n| n == positions);
    let bar = said.bar;
    let mut begun = Instant::now();
    let (run, verified) = if observe_all {
        let mut logits = opts.logits_out.as_deref().map(LogitsFile::create).transpose()?;
        let from = options.prompt.len() - 1;
        let generated = options.generate.max(options.forced.len());
        let shown = from + options.known.tokens.len()..from + generated;
        let every_token = logits.is_some();
        once::step_by_step(graph, executor, options, verify, every_token, &mut |step| {
            let Some(step) = step else {
                return logits.take().map_or(Ok(()), LogitsFile::finish);
            };
            if let Some(file) = &mut logits {
                file.write(step.logits)?;
            }
            bar.inc(1);
            if shown.contains(&step.position) {
                said.push(step.choice, begun);
            }
            Ok(())
        })?
    } else {
        let adapter = side.gpu.map(|gpu| &gpu.adapter);
        let on = &mut |stage| match stage {
            Stage::Verifying => bar.set_message("verifying"),
            Stage::WarmingUp => bar.set_message("warming up"),
            Stage::Running => {
                bar.set_message("decoding");
                bar.set_position(options.prompt.len() as u64);
                begun = Instant::now();
            }
            Stage::Token(token) => {
                bar.inc(1);
                said.push(token, begun);
            }
            Stage::VerifyingEnd => bar.set_message("verifying the end"),
        };
        once::at_full_speed(graph, executor, options, verify, adapter, on)?
    };
    Ok(Outcome { run, observed: observe_all, verified })
}

fn report(
    loaded: &Loaded,
    graph: &DecodeGraph,
    options: &RunOptions,
    side: &Side<'_>,
    outcome: Outcome,
) -> Report {
    let Outcome { run, observed, verified } = outcome;
    let mut ms: Vec<f64> = run.steps.iter().map(|d| d.as_secs_f64() * 1e3).collect();
    let wall: f64 = ms.iter().sum();
    ms.sort_by(f64::total_cmp);
    let decoded = run.steps.len();
    let gpu_ms = run.gpu.map(|t| t.as_secs_f64() * 1e3 / run.decode_steps.max(1) as f64);
    let middle = options.prompt.len() + decoded / 2;
    let bytes_per_token = graph.bytes(middle + 1) as u64;
    let memory = side.memory.as_ref().zip(side.gpu);
    let memory = memory.map(|((predicted, held), gpu)| (predicted.measured(gpu), *held));
    Report {
        model: loaded.model.file.path.clone(),
        executor: if side.gpu.is_some() { "gpu" } else { "cpu" },
        adapter: AdapterName::of(side.gpu),
        wgpu: lathe_harness::gpu::WGPU_VERSION,
        kv: loaded.options.kv.name(),
        activations: loaded.options.acts.name(),
        sampling: loaded.options.sampling.map(|s| sampling::Reported::of(s, loaded.options.seed)),
        prompt_text: loaded.prompt_text.clone(),
        prompt_tokens: options.prompt.clone(),
        generated: run.generated.clone(),
        text: loaded.model.text(&run.generated),
        ttft_ms: run.ttft.as_secs_f64() * 1e3,
        prefill_tok_s: rate(options.prompt.len(), run.ttft),
        decode_tok_s: (wall > 0.0).then(|| decoded as f64 * 1e3 / wall),
        step_ms: (!ms.is_empty())
            .then(|| StepMs { p50: stats::quantile(&ms, 0.5), p95: stats::quantile(&ms, 0.95) }),
        steps_per_submit: if observed { Some(1) } else { options.steps_per_submit },
        submits_per_token: (run.decode_steps > 0)
            .then(|| run.submits as f64 / run.decode_steps as f64),
        dispatches_per_token: graph.recording.dispatches(),
        gpu_ms_per_token: gpu_ms,
        kv_cache_bytes: graph.kv_bytes(),
        gpu_memory_bytes: memory
            .map_or(0, |(measured, held)| measured.allocated_peak_bytes.unwrap_or(held)),
        memory: memory.map(|(measured, _)| measured),
        bytes_per_token,
        copy_gb_s: side.copy,
        bandwidth_fraction: gpu_ms
            .zip(side.copy)
            .map(|(ms, copy)| bytes_per_token as f64 / (ms * 1e-3) / (copy * 1e9)),
        verified,
        runs_gave_up: run.runs_gave_up,
        selected: graph.selected.clone(),
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
