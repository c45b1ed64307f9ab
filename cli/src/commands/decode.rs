//! `lathe decode`: run a checkpoint, measure it, verify it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lathe_harness::data::record::Verified;
use lathe_harness::data::stats;
use lathe_harness::decode::graph::Selected;
use lathe_harness::decode::memory::{self, Taken};
use lathe_harness::decode::{GaveUp, Looks, Prompts, Run, Script, Session, VERIFIED};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::interpreter::Found;
use lathe_harness::gpu::Pipelines;
use lathe_harness::judge::sanitize::capabilities;
use lathe_harness::measure::copy_bandwidth;
use lathe_harness::plan::persistent::Persistent;
use serde::Serialize;

use crate::global::Global;
use crate::model::{ExecutorName, Loaded, ModelOpts, Ran, Reported, Shown};
use crate::profile::{ProfileOpts, Profiled};
use crate::{args, out, table};

/// Invocations of a subgroup in the interpreter.
const INTERPRETED_SUBGROUP: u32 = 32;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    #[command(flatten)]
    model: ModelOpts,
    /// Tokens to generate
    #[arg(short = 'n', long = "tokens", value_name = "N", value_parser = args::count)]
    generate: Option<usize>,
    /// Executor of the step
    #[arg(long, default_value = "gpu")]
    executor: ExecutorName,
    /// Compare the logits of the first N positions (all without N) with the CPU reference; the
    /// first 8 where this is not given, none on the CPU itself
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = args::count)]
    verify: Option<Option<usize>>,
    /// Compare nothing; every figure then says so
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,
    /// Feed these tokens after the prompt instead of the generated ones
    #[arg(long, value_delimiter = ',', value_name = "9,8,…")]
    force_tokens: Vec<u32>,
    /// Write raw little-endian f32 logits, one row of the vocabulary a position; the prompt then
    /// runs token by token. With --prompt-chunk N it runs in chunks, and the first row is that of
    /// its last token
    #[arg(long, value_name = "FILE")]
    logits_out: Option<PathBuf>,
    /// Decode steps in one submission; without it as many as take 16 ms, 32 at most, with
    /// --profile and --profile-stages 8
    #[arg(long, value_name = "N", value_parser = args::within::<1, 4096>)]
    steps_per_submit: Option<usize>,
    #[command(flatten)]
    profile: ProfileOpts,
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

#[derive(Serialize)]
struct StepMs {
    p50: f64,
    p95: f64,
}

/// The comparison with the reference.
#[derive(Serialize)]
#[serde(untagged)]
enum Verdict {
    Held(Verified),
    /// Always false.
    Failed(bool),
}

/// A run whose outputs are wrong.
#[derive(Serialize)]
struct Failed {
    #[serde(rename = "failed")]
    why: String,
    /// Figures up to the position that failed; null where nothing was compared.
    compared: Option<Verified>,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    ran: Ran,
    /// Absent when greedy.
    sampling: Option<Reported>,
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
    /// Null where nothing was compared.
    verified: Option<Verdict>,
    /// Faults of kernels that the interpreter saw.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Found>,
    #[serde(flatten)]
    failed: Option<Failed>,
    /// Absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent_gave_up: Option<GaveUp>,
    selected: Vec<Selected>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
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
    let script = Script {
        prompt,
        forced: opts.force_tokens.clone(),
        // Chunks leave the logits of a prompt's last token only.
        prompts: match opts.logits_out.is_some() && !opts.model.asks_for_chunks() {
            true => Prompts::TokenByToken,
            false => Prompts::Chunks,
        },
        generate,
        steps_per_submit: opts.steps_per_submit.or(opts.profile.of_steps().then_some(8)),
        stop_at: if opts.ignore_eos { Vec::new() } else { model.config.end_tokens.clone() },
        seed: options.seed,
        ..Script::default()
    };
    options.context = script.positions();
    let interprets = opts.executor == ExecutorName::Interpret;
    let gpu = if interprets { None } else { opts.executor.open(global)? };
    let verify = opts.verified(&script);
    if let Some(option) = opts.profile.asked() {
        let Some(gpu) = &gpu else {
            let error = format!("{option} times a GPU; it goes with --executor gpu");
            return Err(Error::Usage(error));
        };
        let profiled = Profiled { gpu, model: &model, options, script: &script, verify };
        return opts.profile.run(global, profiled);
    }
    if interprets {
        if !matches!(options.persistent, Persistent::Auto | Persistent::Off) {
            let why = "--executor interpret gives every stage a dispatch: --persistent off";
            return Err(Error::Usage(why.into()));
        }
        options.persistent = Persistent::Off;
    }
    let graph = match interprets {
        true => model.graph_for(&capabilities(INTERPRETED_SUBGROUP), &options)?,
        false => model.graph(gpu.as_deref(), &options)?,
    };
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
    let every_step = opts.logits_out.is_some()
        || !script.forced.is_empty()
        || verify == Some(script.positions());
    let mut session = match interprets {
        true => Session::interpreted(&model, graph, options, INTERPRETED_SUBGROUP),
        false => Session::new(&model, graph, executor, options),
    };
    let mut run = Run::default();
    let decoded = session.decode(&script, Looks { verify, every_step }, &mut run, &mut shown);
    // What was handed out has its figures, whatever was found wrong after it; so has a document.
    let failed = match decoded {
        Ok(()) => None,
        Err(Error::CheckFailed(why)) if global.json || !run.generated.is_empty() => {
            Some(Failed { why, compared: run.verified })
        }
        Err(error) => {
            for found in session.found() {
                eprintln!("{}", out::escaped(&found.to_string()));
            }
            return Err(error);
        }
    };
    let failed = failed.or_else(|| {
        let first = session.found().first()?;
        let why = format!("{} faults in kernels, the first: {first}", session.found().len());
        Some(Failed { why, compared: run.verified })
    });
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
    let mut ran = Ran::of(&model.file.path, gpu.as_deref(), options);
    if interprets {
        ran.executor = "interpret";
        ran.adapter.name = "interpreter".into();
    }
    let report = Report {
        ran,
        findings: session.found().to_vec(),
        sampling: options.sampling.map(|s| Reported::of(s, options.seed)),
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
        verified: match failed {
            None => run.verified.map(Verdict::Held),
            Some(_) => Some(Verdict::Failed(false)),
        },
        failed,
        selected: graph.selected.clone(),
        prompt_tokens: script.prompt,
        generated: run.generated,
        persistent_gave_up: run.persistent_gave_up,
    };
    global.print(&report, || print(&report));
    report.failed.map_or(Ok(()), |failed| Err(Error::CheckFailed(failed.why)))
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// The figures of a run, on stderr: stdout has the text alone.
fn print(r: &Report) {
    let ids: Vec<_> = r.generated.iter().map(ToString::to_string).collect();
    eprintln!("tokens {}", ids.join(","));
    for found in &r.findings {
        eprintln!("{}", out::escaped(&found.to_string()));
    }
    let figure = |text: String| match (&r.verified, &r.failed) {
        (_, Some(_)) => format!("{text} (wrong)"),
        (Some(_), None) => text,
        (None, None) => format!("{text} (not verified)"),
    };
    let adapter = &r.ran.adapter;
    let checks = adapter.runtime_checks;
    let steps = r.decode_tok_s.zip(r.step_ms.as_ref());
    let compared = match (&r.verified, &r.failed) {
        (_, Some(failed)) => failed.compared.as_ref(),
        (Some(Verdict::Held(verified)), None) => Some(verified),
        _ => None,
    };
    let verified = compared.map(|v| {
        // The last token is chosen and not looked at.
        let all = (r.prompt_tokens.len() + r.generated.len()).saturating_sub(1).max(v.positions);
        let which = match v.positions < all {
            true => format!("the first {} of {all}", v.positions),
            false => format!("all {all}"),
        };
        let Verified { positions, worst_nmse, worst_kl, same_top1, .. } = v;
        // The positions before the fault may all be right.
        let wrong = if r.failed.is_some() { "WRONG, see below; until then " } else { "" };
        format!(
            "{wrong}{which} positions, NMSE ≤ {worst_nmse:.1e}, KL ≤ {worst_kl:.1e}, same top-1 at \
             {same_top1} of {positions}"
        )
    });
    let end = compared.and_then(|v| v.end_nmse);
    let rows = [
        (
            "adapter",
            Some(format!("{} ({}, run-time checks {checks})", adapter.name, adapter.backend)),
        ),
        ("sampling", r.sampling.as_ref().map(ToString::to_string)),
        ("time to first token", Some(figure(format!("{:.1} ms", r.ttft_ms)))),
        (
            "prompt",
            Some(figure(format!("{} tokens, {:.1} tok/s", r.prompt_tokens.len(), r.prefill_tok_s))),
        ),
        ("decode", steps.map(|(rate, _)| figure(format!("{rate:.1} tok/s")))),
        (
            "step p50 / p95",
            steps.map(|(_, step)| figure(format!("{:.3} / {:.3} ms", step.p50, step.p95))),
        ),
        ("GPU time a token", r.gpu_ms_per_token.map(|ms| figure(format!("{ms:.3} ms")))),
        ("submissions a token", r.submits_per_token.map(|submits| format!("{submits:.3}"))),
        ("dispatches a token", Some(r.dispatches_per_token.to_string())),
        (
            "persistent",
            r.persistent_gave_up
                .as_ref()
                .map(|g| format!("gave up after {} tokens, then off", g.tokens)),
        ),
        ("bytes a token", Some(table::bytes(r.bytes_per_token))),
        (
            "% of copy bandwidth",
            r.bandwidth_fraction.map(|fraction| figure(format!("{:.1} %", 100.0 * fraction))),
        ),
        ("KV cache", Some(format!("{} ({})", table::bytes(r.kv_cache_bytes), r.ran.kv))),
        ("device memory", r.memory.as_ref().map(ToString::to_string)),
        ("verified", verified),
        ("the end", end.map(|end| format!("as of a prompt, NMSE {end:.1e}"))),
    ];
    let rows = rows.into_iter().filter_map(|(name, value)| Some((name, value?)));
    eprintln!("{}", table::facts(rows));
}
