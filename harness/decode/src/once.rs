//! One run, verified as far as is asked: at full speed, or step by step with the logits of each.

use std::sync::Arc;
use std::time::Duration;

use lathe_device::error::Result;
use lathe_device::execute::{CpuExecutor, Execute};
use lathe_record::AdapterSummary;
use lathe_record::record::Verified;
use lathe_record::steady::steady;

use super::graph::DecodeGraph;
use super::prefix::Prefix;
use super::session::{self, Known, Observed, Prompts, Run, RunOptions, Verifier};

/// What a run at full speed is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its first positions are held against the reference.
    Verifying,
    /// It is repeated until clocks are up.
    WarmingUp,
    /// It begins.
    Running,
    /// It chose a token.
    Token(u32),
    /// Its end is held against another way there.
    VerifyingEnd,
}

/// Verifies the first `verify` positions of a run, warms a GPU up (`adapter`, unless there is none
/// or it is software), runs at full speed, and holds what it chose and its end against what was
/// verified.
///
/// # Errors
/// As [`Prefix`] and [`session::run`].
pub fn at_full_speed(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
    verify: Option<usize>,
    adapter: Option<&AdapterSummary>,
    on: &mut dyn FnMut(Stage),
) -> Result<(Run, Option<Verified>)> {
    let mut prefix = None;
    if let Some(n) = verify {
        on(Stage::Verifying);
        prefix = Some(Prefix::verify(graph, executor, options, n)?);
    }
    if let Some(adapter) = adapter.filter(|adapter| !adapter.software) {
        on(Stage::WarmingUp);
        if !settle(adapter, graph, executor, options)? {
            tracing::warn!("step times had not settled when the measured run began");
        }
    }
    on(Stage::Running);
    let run = session::run(graph, executor, options, &mut |token| on(Stage::Token(token)))?;
    if let Some(prefix) = &mut prefix {
        prefix.check(&run.generated)?;
        on(Stage::VerifyingEnd);
        prefix.check_end(graph, executor, options.prompt.len())?;
    }
    Ok((run, prefix.map(|prefix| prefix.verified)))
}

/// Repeats the first steps of a run until their times no longer move: a GPU that has idled while
/// weights were read runs its first seconds at a fraction of its clocks. Says whether they settled.
pub(super) fn settle(
    adapter: &AdapterSummary,
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
) -> Result<bool> {
    let whole = RunOptions { known: Known::default(), ..options.clone() };
    let generate = whole.generate.clamp(2, 33);
    let short = RunOptions { generate, stop_at: Vec::new(), ..whole.clone() };
    let short = if short.positions() <= graph.context { short } else { whole };
    steady(adapter, &mut || {
        let run = session::run(graph, executor, &short, &mut |_| {})?;
        let wall: Duration = run.steps.iter().sum();
        Ok(wall.as_secs_f64() / run.steps.len().max(1) as f64)
    })
}

/// Runs step by step, the first `verify` positions beside the CPU reference and the prompt in
/// chunks beside decode steps. `on_step` sees each step that agrees, and nothing once all have run:
/// those of the prompt too where it runs token by token, as `every_token` says and verifying asks.
///
/// # Errors
/// Logits differ by more than [`session::logits_limit`], the device is lost, or `on_step` fails.
pub fn step_by_step(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
    verify: Option<usize>,
    every_token: bool,
    on_step: &mut dyn FnMut(Option<Observed<'_>>) -> Result<()>,
) -> Result<(Run, Option<Verified>)> {
    let mut seen = options.clone();
    // Chunks leave the logits of a prompt's last token only.
    if every_token || verify.is_some() {
        seen.prompts = Prompts::TokenByToken;
    }
    let limit = session::logits_limit(graph);
    let mut reference = verify.map(|_| CpuExecutor::new(Arc::clone(&graph.recording)));
    let mut verifier = match (&mut reference, verify) {
        (Some(reference), Some(n)) => Some(Verifier::new(graph, reference, &seen, limit, n)?),
        _ => None,
    };
    let run = session::run_observed(graph, executor, &seen, &mut |step| {
        if let Some(verifier) = &mut verifier {
            verifier.compare(step)?;
        }
        on_step(Some(step))
    })?;
    on_step(None)?;
    let Some(Verifier { compared: positions, worst, .. }) = verifier else {
        return Ok((run, None));
    };
    let in_chunks = session::chunks_agree(graph, executor, options, limit)?.unwrap_or(0.0);
    let worst_nmse = worst.max(in_chunks);
    Ok((run, Some(Verified { positions, worst_nmse, limit, ..Verified::default() })))
}
