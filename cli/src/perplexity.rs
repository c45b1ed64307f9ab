//! `lathe perplexity`: quality of a checkpoint's predictions of a text, alone and compared with a
//! reference.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::stats::Mean;
use lathe_harness::decode::perplexity::{self, Quality, Text};
use lathe_harness::decode::{Chunks, DecodeOptions, Model, Session, memory};
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::{Gpu, Pipelines};
use lathe_harness::model::tokenizer::Tokenizer;
use lathe_harness::plan::select::Hints;
use lathe_kernels::{FloatFormat, KvFormat};
use serde::Serialize;

use super::Global;
use super::decode::{
    AdapterName, ExecutorName, ModelPath, Shown, StepOpts, float_format, kv_format, read_text,
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
    #[command(flatten)]
    step: StepOpts,
    /// Compare the distributions with those of this checkpoint, such as the unquantised model
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Storage of the reference's KV cache; that of --kv without
    #[arg(long, value_name = "FORMAT", requires = "reference", value_parser = kv_format())]
    reference_kv: Option<KvFormat>,
    /// Storage of the inputs of the reference's matrices; that of --activations without
    #[arg(long, value_name = "FORMAT", requires = "reference", value_parser = float_format())]
    reference_activations: Option<FloatFormat>,
    /// Executor of the steps
    #[arg(long, default_value = "gpu")]
    executor: ExecutorName,
    /// This tokenizer.json instead of the model's own tokenizer
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
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
    /// Tokens of the text that are not scored.
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

/// A model, as it is asked for, on a device or on the CPU.
fn session<'a>(
    global: &Global,
    gpu: Option<&Arc<Gpu>>,
    (model, options): &'a (Model, DecodeOptions),
) -> Result<Session<'a>> {
    let graph = model.graph(gpu.map(AsRef::as_ref), options)?;
    let mut shown = Shown::new(global);
    let load = |gpu| memory::load(gpu, &Pipelines::default(), &graph, &mut shown);
    let executor = gpu.map(load).transpose()?;
    Ok(Session::new(model, graph, executor, options.clone()))
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let options = DecodeOptions {
        // A window's last token is predicted, not fed; the start token is.
        context: opts.window.min(opts.limit.unwrap_or(usize::MAX)),
        chunks: Some(Chunks::NONE),
        ..opts.step.options()?
    };
    // Errors in the text are said before a large file is read.
    let source = read_text(&opts.text, "the text")?;
    let mut own = (Model::open(opts.model.get()?)?, options);
    let other = opts.reference.as_ref().map(|path| -> Result<_> {
        let kv = opts.reference_kv.unwrap_or(opts.step.kv);
        let acts = opts.reference_activations.unwrap_or(opts.step.activations);
        let options = DecodeOptions { kv, acts, hints: Hints::new(), ..own.1.clone() };
        Ok((Model::open(path)?, options))
    });
    let other = other.transpose()?;
    if let Some((reference, _)) = &other {
        perplexity::same_vocabulary(&own.0, reference)?;
    }
    if let Some(path) = &opts.tokenizer {
        own.0.set_tokenizer(Tokenizer::open(path)?);
    }
    let in_text = |e: &dyn std::fmt::Display| Error::Usage(format!("{}: {e}", opts.text.display()));
    let tokens = own.0.tokenizer()?.encode(&source, false).map_err(|e| in_text(&e))?;
    let start_token = perplexity::start_token(&own.0)?;
    let text = Text::new(start_token, &tokens, opts.window, opts.limit).map_err(|e| in_text(&e))?;

    let gpu = opts.executor.open(global)?;
    let mut session_of_own = session(global, gpu.as_ref(), &own)?;
    let reference = other.as_ref().map(|side| session(global, gpu.as_ref(), side));
    let mut reference = reference.transpose()?;
    let mut against = reference.as_mut().map(Session::decoder);
    let bar = global.progress(text.tokens() as u64, "tokens", false);
    let mut on_tokens = |done: usize| bar.inc(done as u64);
    let mut model = session_of_own.decoder();
    let scores = perplexity::scores(&mut model, against.as_mut(), &text, &mut on_tokens)?;
    let quality = scores.quality();
    bar.finish_and_clear();
    let report = Report {
        model: opts.model.get()?.to_owned(),
        text: opts.text.clone(),
        executor: if gpu.is_some() { "gpu" } else { "cpu" },
        adapter: AdapterName::of(gpu.as_deref()),
        wgpu: lathe_harness::gpu::WGPU_VERSION,
        kv: own.1.kv.name(),
        activations: own.1.acts.name(),
        window: opts.window,
        windows: text.windows().len(),
        start_token,
        tokens: text.tokens(),
        tokens_left_out: tokens.len() - text.tokens(),
        mean_nll: quality.nll.mean,
        std_error: quality.nll.std_error,
        perplexity: quality.perplexity(),
        reference: quality.against.zip(other.as_ref()).map(|(against, (model, options))| {
            Reference {
                model: model.file.path.clone(),
                kv: options.kv.name(),
                activations: options.acts.name(),
                mean_nll: against.nll.mean,
                std_error: against.nll.std_error,
                perplexity: against.nll.mean.exp(),
            }
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
