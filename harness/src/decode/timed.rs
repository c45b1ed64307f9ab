//! A sequence in pieces that are timed one by one: forget everything, feed tokens, generate.
//!
//! [`super::session::run`] begins a sequence and runs it to its end. A measurement at depth needs
//! more: tokens that fill the cache and are not timed, then a prompt or generated tokens that are.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use lathe_kernels::StateWord;

use super::graph::DecodeGraph;
use super::kv_cache;
use crate::error::{Error, Result};
use crate::execute::{Batch, Execute, Stream};

/// Positions of a prompt in one submission.
const PROMPT_STEPS: usize = 16;

/// Begins a new sequence: cleared caches, position 0, no token given. `seed` is that of the draws.
pub fn reset(graph: &DecodeGraph, executor: &mut dyn Execute, seed: u32) -> Result<()> {
    kv_cache::reset(executor, &graph.caches, graph.state, 0)?;
    executor.write_words(graph.state, StateWord::Seed as usize, &[seed])
}

/// Gives the token that the next step processes, in the place of the one that was chosen: what an
/// empty sequence needs before it can [`generate`].
pub fn start(graph: &DecodeGraph, executor: &mut dyn Execute, token: u32) -> Result<()> {
    let position = room(graph, executor, 1)?;
    give(graph, executor, position, &[token])
}

/// Runs given tokens from the current position on. Returns the time until the token that follows
/// them was chosen and read back.
pub fn feed(graph: &DecodeGraph, executor: &mut dyn Execute, tokens: &[u32]) -> Result<Duration> {
    let position = room(graph, executor, tokens.len())?;
    let begun = Instant::now();
    give(graph, executor, position, tokens)?;
    let batches = pieces(tokens.len(), PROMPT_STEPS);
    let stream = Stream { batches, words: graph.tokens, from: position + 1 };
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
    let given = executor.read_words(graph.state)?[StateWord::Given as usize];
    if position == 0 && given == 0 {
        return Err(Error::Usage("the sequence is empty; generation goes on from a token".into()));
    }
    let batches = pieces(n, steps_per_submit.max(1));
    let stream = Stream { batches, words: graph.tokens, from: position + 1 };
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

/// The current position, if `n` more fit behind it.
fn room(graph: &DecodeGraph, executor: &mut dyn Execute, n: usize) -> Result<usize> {
    let position = executor.read_words(graph.state)?[StateWord::Position as usize] as usize;
    if position + n > graph.context {
        return Err(Error::Usage(format!(
            "{n} positions after the first {position} do not fit the context of {}",
            graph.context
        )));
    }
    Ok(position)
}

fn give(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    position: usize,
    tokens: &[u32],
) -> Result<()> {
    if let Some(token) = tokens.iter().find(|t| **t as usize >= graph.vocab) {
        return Err(Error::Usage(format!(
            "token {token} lies beyond the vocabulary of {}",
            graph.vocab
        )));
    }
    executor.write_words(graph.tokens, position, tokens)?;
    let given = (position + tokens.len()) as u32;
    executor.write_words(graph.state, StateWord::Given as usize, &[given])
}

/// `all` in pieces of `each`, the last one smaller.
fn pieces(all: usize, each: usize) -> Vec<usize> {
    (0..all).step_by(each).map(|from| each.min(all - from)).collect()
}
