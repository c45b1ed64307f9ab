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

use crate::args::{self, float_format, kv_format};
use crate::global::Global;
use crate::model::{ExecutorName, ModelPath, Ran, Shown, StepOpts, read_text};
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    #[command(flatten)]
    model: ModelPath,
    /// Text to predict, in UTF-8; - is stdin
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window. Each is predicted from those before it in its window; what does not fill
    /// the last window is left out
    #[arg(long, default_value_t = 512, value_name = "TOKENS", value_parser = args::count)]
    window: usize,
    /// Score only the text's first tokens; the last window may then be shorter
    #[arg(long, value_name = "TOKENS", value_parser = args::count)]
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

/// A model's predictions.
#[derive(Serialize)]
struct Side {
    #[serde(flatten)]
    ran: Ran,
    mean_nll: f64,
    /// Null for a single token.
    std_error: Option<f64>,
    perplexity: f64,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    own: Side,
    #[serde(serialize_with = "lathe_harness::files::lossy")]
    text: PathBuf,
    window: usize,
    windows: usize,
    start_token: u32,
    /// Scored ones.
    tokens: usize,
    /// Tokens of the text that are not scored.
    tokens_left_out: usize,
    #[serde(flatten)]
    compared: Option<Compared>,
}

#[derive(Serialize)]
struct Compared {
    reference: Side,
    /// Model less reference, per token.
    nll_difference: Mean,
    kl_mean: f64,
    kl_std_error: Option<f64>,
    top1_agreement: f64,
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

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
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
    let side = |(model, options): &(Model, DecodeOptions), nll: Mean| Side {
        ran: Ran::of(&model.file.path, gpu.as_deref(), options),
        mean_nll: nll.mean,
        std_error: nll.std_error,
        perplexity: nll.mean.exp(),
    };
    let compared = quality.against.zip(other.as_ref()).map(|(against, other)| Compared {
        reference: side(other, against.nll),
        nll_difference: against.more,
        kl_mean: against.kl.mean,
        kl_std_error: against.kl.std_error,
        top1_agreement: against.top1,
    });
    let report = Report {
        own: side(&own, quality.nll),
        text: opts.text.clone(),
        window: opts.window,
        windows: text.windows().len(),
        start_token,
        tokens: text.tokens(),
        tokens_left_out: tokens.len() - text.tokens(),
        compared,
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
    let named = |Ran { model, kv, activations, .. }: &Ran| {
        format!("{} ({kv} KV, {activations} activations)", model.display())
    };
    let ran = &r.own.ran;
    let windows =
        format!("{} of up to {} tokens behind token {}", r.windows, r.window, r.start_token);
    let mut rows = vec![
        ("model", named(ran)),
        ("adapter", format!("{} ({})", ran.adapter.name, ran.executor)),
        ("windows", windows),
        ("tokens", format!("{} scored, {} left out", r.tokens, r.tokens_left_out)),
        ("mean NLL", shown(quality.nll, 5)),
        ("perplexity", shown(exponential(quality.nll), 4)),
    ];
    if let (Some(compared), Some(against)) = (&r.compared, &quality.against) {
        rows.extend([
            ("reference", named(&compared.reference.ran)),
            ("its mean NLL", shown(against.nll, 5)),
            ("its perplexity", shown(exponential(against.nll), 4)),
            ("NLL above it", small(against.more)),
            ("mean KL divergence", small(against.kl)),
            ("same likeliest token", format!("{:.2} %", against.top1 * 100.0)),
        ]);
    }
    out::table(table::facts(rows));
}
