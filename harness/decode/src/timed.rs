//! A sequence in pieces that are timed one by one: forget everything, feed tokens, generate.
//!
//! [`super::session::run`] begins a sequence and runs it to its end. A measurement at depth needs
//! more: tokens that fill the cache and are not timed, then a prompt or generated tokens that are.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use lathe_kernels::StateWord;
use lathe_reference::nmse;

use super::graph::DecodeGraph;
use crate::sampling::sample_token;

pub use super::session::reset;
use super::session::{Prompts, give, one_by_one, prompt_parts, step_submissions};
use lathe_device::error::{Error, Result};
use lathe_device::execute::{Batch, Execute, Stream};
use lathe_device::plan::recording::Part;

/// Gives the token that the next step processes, in the place of the one that was chosen: what an
/// empty sequence needs before it can [`generate`].
pub fn start(graph: &DecodeGraph, executor: &mut dyn Execute, token: u32) -> Result<()> {
    let position = room(graph, executor, 1)?;
    give(graph, executor, position, &[token])
}

/// Runs given tokens from the current position on. Returns the time until the token that follows
/// them was chosen and read back.
///
/// # Errors
/// No tokens, one beyond the vocabulary, more than the context has room for, or the device is lost.
pub fn feed(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    tokens: &[u32],
    prompts: Prompts,
) -> Result<Duration> {
    if tokens.is_empty() {
        return Err(Error::Usage("no tokens to run".into()));
    }
    let position = room(graph, executor, tokens.len())?;
    let parts = prompt_parts(graph, prompts, tokens.len());
    executor.prepare(&parts)?;
    let begun = Instant::now();
    give(graph, executor, position, tokens)?;
    let submissions = one_by_one(parts, position + tokens.len());
    let stream = Stream { submissions, words: graph.tokens, joined_up_to: None, timed: false };
    executor.stream(&stream, &mut |_| ControlFlow::Continue(()))?;
    Ok(begun.elapsed())
}

/// Runs `n` steps, each of which processes the last token and chooses the next, which `on_token`
/// hears of. Returns the wall time of each; steps of one submission share its time equally. The
/// next submission is recorded while one runs, so at one step a submission these are the times
/// between one token read back and the next.
///
/// # Errors
/// The sequence is empty, so there is no token to go on from; the context is full; or the device
/// is lost.
pub fn generate(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    n: usize,
    steps_per_submit: usize,
    on_token: &mut dyn FnMut(u32),
) -> Result<Vec<Duration>> {
    let position = room(graph, executor, n)?;
    let given = executor.read_words(graph.state)?[StateWord::PromptLen as usize];
    if position == 0 && given == 0 {
        return Err(Error::Usage("the sequence is empty; generation goes on from a token".into()));
    }
    let submissions = step_submissions(position, n, steps_per_submit);
    let stream = Stream { submissions, words: graph.tokens, joined_up_to: None, timed: false };
    let (mut steps, mut last) = (Vec::with_capacity(n), Duration::ZERO);
    let mut on = |batch: Batch| {
        let took = (batch.at - last) / batch.words.len().max(1) as u32;
        last = batch.at;
        for token in batch.words {
            steps.push(took);
            on_token(token);
        }
        ControlFlow::Continue(())
    };
    executor.stream(&stream, &mut on)?;
    Ok(steps)
}

/// Holds the end of a sequence that decode steps made against another way there: its tokens run as
/// a prompt in chunks, by other kernels, must leave the same logits, and its last token must be the
/// choice of the logits that are there. What went wrong in any step lies in the caches that the
/// last one read. Returns the NMSE; none where no step followed the `given` tokens, or the graph
/// has no chunks. Afterwards the sequence is as the prompt left it.
///
/// # Errors
/// The NMSE exceeds `limit`, another token was chosen, or the device is lost.
pub fn end_agrees(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    given: usize,
    limit: f64,
) -> Result<Option<f64>> {
    let state = executor.read_words(graph.state)?;
    let [position, choice, seed] =
        [StateWord::Position, StateWord::Choice, StateWord::Seed].map(|word| state[word as usize]);
    let processed = position as usize;
    if processed <= given {
        return Ok(None);
    }
    let tokens = executor.read_words(graph.tokens)?;
    let logits = executor.read_f32(graph.logits)?;
    let fault = |what: String| {
        Err(Error::CheckFailed(format!(
            "at the end of the run, position {}: {what}; `lathe decode --verify` looks at every step",
            processed - 1
        )))
    };
    match &graph.sampling {
        Some(sampling) => {
            let drawn = sample_token(sampling, &logits, &tokens, processed - 1, seed);
            if drawn != choice {
                return fault(format!(
                    "the device drew {choice}, the CPU reference draws {drawn} from the same logits"
                ));
            }
        }
        None => {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let scale = logits.iter().fold(0f32, |most, v| most.max(v.abs()));
            let below = largest - logits.get(choice as usize).copied().unwrap_or(f32::NAN);
            // Both are of one step of one device: what the cache is stored in does not matter.
            if below.is_nan() || below > scale * limit.min(1e-5).sqrt() as f32 {
                return fault(format!(
                    "the device chose {choice}, whose logit is {below} below the largest"
                ));
            }
        }
    }
    if !prompt_parts(graph, Prompts::Chunks, processed).contains(&Part::Tail) {
        return Ok(None);
    }
    reset(graph, executor, seed)?;
    feed(graph, executor, &tokens[..processed], Prompts::Chunks)?;
    let in_chunks = executor.read_f32(graph.logits)?;
    let [a, b] = [&logits, &in_chunks].map(|logits| logits.iter().map(|v| f64::from(*v)));
    let error = nmse(a, b);
    if error.is_nan() || error > limit {
        return fault(format!(
            "logits differ from those of the same {processed} tokens run as a prompt, NMSE \
             {error:.3e} > {limit:.0e}, so the steps are wrong or the kernels of prompts are"
        ));
    }
    Ok(Some(error))
}

/// The current position, if `n` more fit behind it.
fn room(graph: &DecodeGraph, executor: &mut dyn Execute, n: usize) -> Result<usize> {
    let position = executor.read_words(graph.state)?[StateWord::Position as usize] as usize;
    graph.fits(position + n)?;
    Ok(position)
}
