//! `lathe perplexity`: how well a checkpoint predicts a text, alone and beside a reference.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::stats::Mean;
use lathe_harness::decode::perplexity::{self, Quality, Runner, Text};
use lathe_harness::decode::{Chunks, DecodeGraph, Model, SessionOptions};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::{CpuExecutor, Execute};
use lathe_harness::gpu::{Gpu, Pipelines};
use lathe_harness::model::tokenizer::Tokenizer;
use lathe_harness::plan::tuned::Store;
use lathe_kernels::{FloatFormat, KvFormat};
use serde::Serialize;

use super::Global;
use super::decode::{
    AdapterName, ExecutorName, ModelPath, float_format, kv_format, on_device, parse_hints,
    read_text,
};
use super::out;
use crate::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    #[command(flatten)]
    model: ModelPath,
    /// Text to predict, in UTF-8; - is stdin
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window. Each is predicted from those before it in its window; what does not fill
    /// the last window is left out
    #[arg(long, default_value_t = 512, value_name = "TOKENS", value_parser = super::count)]
    window: usize,
    /// Score only the text's first tokens; the last window may then be shorter
    #[arg(long, value_name = "TOKENS", value_parser = super::count)]
    limit: Option<usize>,
    /// Storage of the KV cache
    #[arg(long, default_value = "f16", value_parser = kv_format())]
    kv: KvFormat,
    /// Storage of what goes into matrices
    #[arg(long, default_value = "f32", value_name = "FORMAT", value_parser = float_format())]
    activations: FloatFormat,
    /// Compare the distributions with those of this checkpoint, such as the unquantised model
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Storage of the reference's KV cache; that of --kv without
    #[arg(long, value_name = "FORMAT", requires = "reference", value_parser = kv_format())]
    reference_kv: Option<KvFormat>,
    /// Storage of what goes into the reference's matrices; that of --activations without
    #[arg(long, value_name = "FORMAT", requires = "reference", value_parser = float_format())]
    reference_activations: Option<FloatFormat>,
    /// Where the steps run
    #[arg(long, default_value = "gpu")]
    executor: ExecutorName,
    /// This tokenizer.json instead of the model's own tokenizer
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// The model (not the reference) uses this variant, KERNEL=VARIANT or KERNEL=FILE.wgsl, or the
    /// command fails. May be repeated
    #[arg(long, value_name = "KERNEL=VARIANT|FILE.wgsl")]
    hint: Vec<String>,
    /// Leave tuned choices out; only hints and the kernels' own preferences count
    #[arg(long)]
    untuned: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    model: PathBuf,
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    text: PathBuf,
    executor: &'static str,
    adapter: AdapterName,
    wgpu: &'static str,
    kv: &'static str,
    activations: &'static str,
    window: usize,
    windows: usize,
    start_token: u32,
    /// Scored ones.
    tokens: usize,
    /// Of the text, not scored.
    tokens_left_out: usize,
    mean_nll: f64,
    /// Null for a single token.
    std_error: Option<f64>,
    perplexity: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<Reference>,
    /// Model less reference, a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    nll_difference: Option<Mean>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kl_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kl_std_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top1_agreement: Option<f64>,
}

#[derive(Serialize)]
struct Reference {
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    model: PathBuf,
    kv: &'static str,
    activations: &'static str,
    mean_nll: f64,
    std_error: Option<f64>,
    perplexity: f64,
}

/// A model as it is asked for.
struct Side {
    model: Model,
    options: SessionOptions,
}

impl Side {
    fn open(path: &Path, kv: KvFormat, acts: FloatFormat, opts: &Opts) -> Result<Self> {
        let options = SessionOptions {
            // A window's last token is predicted, not fed; the start token is.
            context: opts.window.min(opts.limit.unwrap_or(usize::MAX)),
            kv,
            acts,
            chunks: Some(Chunks::NONE),
            store: (!opts.untuned).then(Store::default_path),
            ..SessionOptions::default()
        };
        Ok(Self { model: Model::open(path)?, options })
    }

    fn ready(
        &self,
        global: &Global,
        gpu: Option<&Arc<Gpu>>,
    ) -> Result<(DecodeGraph, Box<dyn Execute>)> {
        let graph = self.model.graph(gpu.map(AsRef::as_ref), &self.options)?;
        let executor: Box<dyn Execute> = match gpu {
            Some(gpu) => Box::new(on_device(global, gpu, &Pipelines::default(), &graph)?),
            None => Box::new(CpuExecutor::new(Arc::clone(&graph.recording))),
        };
        Ok((graph, executor))
    }
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let hints = parse_hints(&opts.hint)?;
    // What is wrong with the text is said before a large file is read.
    let source = read_text(&opts.text, "the text")?;
    let (kv, acts) = (opts.kv, opts.activations);
    let mut side = Side::open(opts.model.get()?, kv, acts, opts)?;
    side.options.hints = hints;
    let reference = opts.reference.as_ref().map(|path| {
        let acts = opts.reference_activations.unwrap_or(acts);
        Side::open(path, opts.reference_kv.unwrap_or(kv), acts, opts)
    });
    let reference = reference.transpose()?;
    if let Some(reference) = &reference {
        perplexity::same_vocabulary(&side.model, &reference.model)?;
    }
    if let Some(path) = &opts.tokenizer {
        side.model.set_tokenizer(Tokenizer::open(path)?);
    }
    let in_text = |e: &dyn std::fmt::Display| Error::Usage(format!("{}: {e}", opts.text.display()));
    let tokens = side.model.tokenizer()?.encode(&source, false).map_err(|e| in_text(&e))?;
    let start_token = perplexity::start_token(&side.model)?;
    let text = Text::new(start_token, &tokens, opts.window, opts.limit).map_err(|e| in_text(&e))?;

    let gpu = match opts.executor {
        ExecutorName::Gpu => Some(Arc::new(global.open()?)),
        ExecutorName::Cpu => None,
    };
    let (graph, mut executor) = side.ready(global, gpu.as_ref())?;
    let mut model = Runner { graph: &graph, executor: &mut *executor };
    let mut beside = reference.as_ref().map(|r| r.ready(global, gpu.as_ref())).transpose()?;
    let mut other =
        beside.as_mut().map(|(graph, executor)| Runner { graph, executor: &mut **executor });
    let bar = global.progress(text.tokens() as u64, "tokens", false);
    let mut on_tokens = |done: usize| bar.inc(done as u64);
    let quality = perplexity::measure(&mut model, other.as_mut(), &text, &mut on_tokens)?;
    bar.finish_and_clear();
    let report = Report {
        model: opts.model.get()?.to_owned(),
        text: opts.text.clone(),
        executor: if gpu.is_some() { "gpu" } else { "cpu" },
        adapter: AdapterName::of(gpu.as_deref()),
        wgpu: lathe_harness::gpu::WGPU_VERSION,
        kv: kv.name(),
        activations: acts.name(),
        window: opts.window,
        windows: text.windows().len(),
        start_token,
        tokens: text.tokens(),
        tokens_left_out: tokens.len() - text.tokens(),
        mean_nll: quality.nll.mean,
        std_error: quality.nll.std_error,
        perplexity: quality.perplexity(),
        reference: quality.against.zip(reference.as_ref()).map(|(against, side)| Reference {
            model: side.model.file.path.clone(),
            kv: side.options.kv.name(),
            activations: side.options.acts.name(),
            mean_nll: against.nll.mean,
            std_error: against.nll.std_error,
            perplexity: against.nll.mean.exp(),
        }),
        nll_difference: quality.against.map(|a| a.more),
        kl_mean: quality.against.map(|a| a.kl.mean),
        kl_std_error: quality.against.and_then(|a| a.kl.std_error),
        top1_agreement: quality.against.map(|a| a.top1),
    };
    global.print(&report, || print(&report, &quality));
    Ok(())
}

fn print(r: &Report, quality: &Quality) {
    let shown = |mean: Mean, digits: usize| match mean.std_error {
        Some(error) => format!("{:.digits$} ± {error:.digits$}", mean.mean),
        None => format!("{:.digits$}", mean.mean),
    };
    // What a format costs may be anything from a thousandth of a millionth to a whole.
    let small = |mean: Mean| match mean.std_error {
        Some(error) if mean.mean.abs() < 1e-3 => format!("{:.2e} ± {error:.2e}", mean.mean),
        _ => shown(mean, 6),
    };
    // The error of an exponential, while it is small: the value times the exponent's error.
    let exponential = |mean: Mean| {
        let value = mean.mean.exp();
        Mean { mean: value, std_error: mean.std_error.map(|e| value * e) }
    };
    let mut t = table::table(&["", ""], &[1]);
    let mut row = |name: &str, value: String| {
        t.add_row(vec![name.to_owned(), value]);
    };
    row("model", format!("{} ({} KV, {} activations)", r.model.display(), r.kv, r.activations));
    row("adapter", format!("{} ({})", r.adapter.name, r.executor));
    row(
        "windows",
        format!("{} of up to {} tokens behind token {}", r.windows, r.window, r.start_token),
    );
    row("tokens", format!("{} scored, {} left out", r.tokens, r.tokens_left_out));
    row("mean NLL", shown(quality.nll, 5));
    row("perplexity", shown(exponential(quality.nll), 4));
    if let (Some(reference), Some(against)) = (&r.reference, &quality.against) {
        let Reference { model, kv, activations, .. } = reference;
        row("reference", format!("{} ({kv} KV, {activations} activations)", model.display()));
        row("its mean NLL", shown(against.nll, 5));
        row("its perplexity", shown(exponential(against.nll), 4));
        row("NLL above it", small(against.more));
        row("mean KL divergence", small(against.kl));
        row("same likeliest token", format!("{:.2} %", against.top1 * 100.0));
    }
    out::table(t);
}
