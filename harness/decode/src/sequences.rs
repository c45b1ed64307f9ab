//! Several sequences decoded together: a step takes each a token further, and the matrices are read
//! once for all of them.
//!
//! ```text
//! reset → given tokens (all sequences at one position) → choices → …
//! ```
//!
//! A sequence whose prompt is shorter begins to choose while others still take their prompts.

use std::ops::ControlFlow;
use std::time::Duration;

use lathe_device::error::{Error, Result};
use lathe_device::execute::{Execute, Stream, Submission};
use lathe_device::plan::recording::Part;
use lathe_kernels::{STATE_WORDS, StateWord};
use lathe_record::AdapterSummary;
use lathe_record::steady::steady;

use super::graph::DecodeGraph;
use super::session::{self, PROMPT_STEPS, RunOptions, pieces};

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct SequencesRun {
    /// Tokens that each sequence chose, the one after its prompt first.
    pub generated: Vec<Vec<u32>>,
    /// Until the longest prompt had its choice.
    pub prompt: Duration,
    /// Wall time of each step after that; steps of one submission share its time.
    pub steps: Vec<Duration>,
}

/// Forgets everything and gives each sequence its prompt.
///
/// # Errors
/// Other prompts than the graph has sequences, an empty one, a token that the model lacks, more
/// than the context has room for, or the device is lost.
pub fn begin(graph: &DecodeGraph, executor: &mut dyn Execute, prompts: &[Vec<u32>]) -> Result<()> {
    let n = graph.sequences;
    if prompts.len() != n {
        return Err(Error::Usage(format!(
            "{} prompts for a graph of {n} sequences",
            prompts.len()
        )));
    }
    for (i, prompt) in prompts.iter().enumerate() {
        if prompt.is_empty() {
            return Err(Error::Usage(format!("the prompt of sequence {i} is empty")));
        }
        graph.knows(prompt, &format!(" of sequence {i}"))?;
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    graph.fits(longest)?;
    session::reset(graph, executor, 0)?;
    let mut state = vec![0; n * STATE_WORDS];
    let mut tokens = vec![0; n * longest];
    for (i, prompt) in prompts.iter().enumerate() {
        state[i * STATE_WORDS + StateWord::PromptLen as usize] = prompt.len() as u32;
        for (position, token) in prompt.iter().enumerate() {
            tokens[position * n + i] = *token;
        }
    }
    executor.write_words(graph.state, 0, &state)?;
    executor.write_words(graph.tokens, 0, &tokens)
}

/// Runs the prompts and then `steps` steps that are timed: each sequence chooses at least
/// `steps + 1` tokens, of which as many are returned.
///
/// # Errors
/// As [`begin`], or the context has no room for that many steps.
pub fn run(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    prompts: &[Vec<u32>],
    steps: usize,
    steps_per_submit: usize,
) -> Result<SequencesRun> {
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    graph.fits(longest + steps)?;
    begin(graph, executor, prompts)?;
    // A word of the last step's choices: a submission has ended when it is read.
    let mut position = 0;
    let mut submission = |count: usize| {
        position += count;
        let word = position * graph.sequences;
        Submission { parts: vec![Part::Steps(count)], words: word..word + 1 }
    };
    let prompt = pieces(longest, PROMPT_STEPS);
    let untimed = prompt.len();
    let timed = pieces(steps, steps_per_submit.max(1));
    let submissions = prompt.into_iter().chain(timed).map(&mut submission).collect();
    let mut run = SequencesRun::default();
    let (mut seen, mut last) = (0, Duration::ZERO);
    let stream = Stream { submissions, words: graph.tokens, joined_up_to: None, timed: false };
    executor.stream(&stream, &mut |batch| {
        let took = batch.at - last;
        last = batch.at;
        seen += 1;
        match seen <= untimed {
            true => run.prompt = batch.at,
            false => run.steps.extend(vec![took / batch.steps.max(1) as u32; batch.steps]),
        }
        ControlFlow::Continue(())
    })?;
    let tokens = executor.read_words(graph.tokens)?;
    let chosen = |(i, prompt): (usize, &Vec<u32>)| {
        let positions = prompt.len()..prompt.len() + steps + 1;
        positions.map(|position| tokens[position * graph.sequences + i]).collect()
    };
    run.generated = prompts.iter().enumerate().map(chosen).collect();
    Ok(run)
}

/// Repeats a run until its times no longer move. Says whether they settled.
///
/// # Errors
/// As [`run`].
pub fn settle(
    adapter: &AdapterSummary,
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    prompts: &[Vec<u32>],
    steps: usize,
) -> Result<bool> {
    if adapter.software {
        return Ok(true);
    }
    steady(adapter, &mut || {
        let run = run(graph, executor, prompts, steps, 8)?;
        Ok(run.steps.iter().sum::<Duration>().as_secs_f64())
    })
}

/// Holds what a sequence chose beside others against what it chooses alone, after the same tokens:
/// step by step on a graph of one sequence. Returns its choices that differ, each between two
/// logits that are closer than rounding leaves them.
///
/// # Errors
/// A choice that differs where no rounding explains it; or the device is lost.
pub fn ties(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    prompt: &[u32],
    chosen: &[u32],
    limit: f64,
) -> Result<usize> {
    let Some((_, fed)) = chosen.split_last() else { return Ok(0) };
    let options = RunOptions {
        prompt: prompt.to_vec(),
        forced: fed.to_vec(),
        generate: chosen.len(),
        steps_per_submit: Some(1),
        ..RunOptions::default()
    };
    let mut ties = 0;
    session::run_observed(graph, executor, &options, &mut |seen| {
        let Some(at) = (seen.position + 1).checked_sub(prompt.len()) else { return Ok(()) };
        let together = chosen[at];
        if seen.choice == together {
            return Ok(());
        }
        // Both logits may be off by the error that the limit allows all of them on average.
        let squares: f64 = seen.logits.iter().map(|v| f64::from(*v).powi(2)).sum();
        let rms = (squares / seen.logits.len() as f64).sqrt();
        let [own, other] = [seen.choice, together].map(|t| f64::from(seen.logits[t as usize]));
        let rounding = 2.0 * limit.sqrt() * rms;
        if own - other > rounding {
            return Err(Error::CheckFailed(format!(
                "choice {at} is {together} beside others and {} alone, whose logit is larger by \
                 {:.3e}; rounding explains {rounding:.3e}",
                seen.choice,
                own - other
            )));
        }
        ties += 1;
        Ok(())
    })?;
    Ok(ties)
}
