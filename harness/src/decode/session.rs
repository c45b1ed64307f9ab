//! Running a decode graph: prompt, generation, per-step observation and verification.

use std::ops::ControlFlow;
use std::slice;
use std::time::{Duration, Instant};

use lathe_kernels::{FloatFormat, StateWord};
use lathe_reference::nmse;

use super::graph::DecodeGraph;
use super::kv_cache;
use crate::error::{Error, Result};
use crate::execute::{Batch, Execute, Stream};
use crate::plan::recording::{Content, Tensor};

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Prompt tokens; at least one.
    pub prompt: Vec<u32>,
    /// Tokens fed in place of generated ones, after the prompt.
    pub forced: Vec<u32>,
    /// Tokens to generate.
    pub generate: usize,
    /// Decode steps a submission.
    pub steps_per_submit: usize,
    /// Stop after this token.
    pub stop_at: Option<u32>,
    /// Seed of the draws; nothing to a greedy graph.
    pub seed: u32,
}

impl RunOptions {
    /// Positions processed: the prompt, all forced tokens, and what generation needs.
    pub fn positions(&self) -> usize {
        self.prompt.len() + self.generate.saturating_sub(1).max(self.forced.len())
    }

    fn given(&self) -> Vec<u32> {
        [&self.prompt[..], &self.forced].concat()
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The model's choices, starting with the one after the prompt.
    pub generated: Vec<u32>,
    /// Time to the first generated token.
    pub ttft: Duration,
    /// Wall time of every decode step after the first token; steps of one submission end together
    /// and share their mean.
    pub steps: Vec<Duration>,
    /// GPU time of all decode steps after the first token, where measured.
    pub gpu: Option<Duration>,
    /// Submissions of the decode phase.
    pub submits: usize,
    /// Steps run in the decode phase.
    pub decode_steps: usize,
}

/// One observed step.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Position processed.
    pub position: usize,
    /// Its logits.
    pub logits: &'a [f32],
    /// The token chosen after it.
    pub choice: u32,
}

fn begin(graph: &DecodeGraph, executor: &mut dyn Execute, options: &RunOptions) -> Result<()> {
    let given = options.given();
    if options.prompt.is_empty() {
        return Err(Error::Usage("the prompt is empty; decoding starts from a token".into()));
    }
    if let Some(token) = given.iter().find(|t| **t as usize >= graph.vocab) {
        return Err(Error::Usage(format!(
            "token {token} lies beyond the vocabulary of {}",
            graph.vocab
        )));
    }
    if options.positions() > graph.context {
        return Err(Error::Usage(format!(
            "{} positions do not fit the context of {}",
            options.positions(),
            graph.context
        )));
    }
    kv_cache::reset(executor, &graph.caches, graph.state, given.len() as u32)?;
    executor.write_words(graph.state, StateWord::Seed as usize, &[options.seed])?;
    executor.write_words(graph.tokens, 0, &given)
}

/// Runs at full speed: no step is looked at, tokens stay on the device between steps.
pub fn run(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
    on_token: &mut dyn FnMut(u32),
) -> Result<Run> {
    begin(graph, executor, options)?;
    let prompt = options.prompt.len();
    let decode = options.generate.saturating_sub(1);
    // One stream, so that the first decode steps are recorded while the prompt runs.
    let mut batches = pieces(prompt, PROMPT_STEPS);
    batches.extend(pieces(decode, options.steps_per_submit.max(1)));
    let stream = Stream { batches, words: graph.tokens, from: 1 };
    let mut run = Run::default();
    let (mut done, mut last) = (0, Duration::ZERO);
    let (mut gpu, mut timed) = (Duration::ZERO, true);
    let mut on = |batch: Batch| {
        let took = batch.at - last;
        last = batch.at;
        done += batch.words.len();
        // Tokens of the prompt are known; the last step of it makes the first that is not.
        let decodes = done > prompt;
        let new = match &batch.words[..] {
            words if decodes => words,
            [.., first] if done == prompt && options.generate > 0 => {
                run.ttft = batch.at;
                slice::from_ref(first)
            }
            _ => &[],
        };
        if decodes {
            match batch.gpu {
                Some(time) => gpu += time,
                None => timed = false,
            }
            run.decode_steps += new.len();
            run.submits += 1;
        }
        for token in new {
            if decodes {
                run.steps.push(took / new.len() as u32);
            }
            run.generated.push(*token);
            on_token(*token);
            if options.stop_at == Some(*token) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    executor.stream(&stream, &mut on)?;
    run.gpu = (timed && !run.steps.is_empty()).then_some(gpu);
    Ok(run)
}

/// `all` in pieces of `each`, the last one smaller.
fn pieces(all: usize, each: usize) -> Vec<usize> {
    (0..all).step_by(each).map(|from| each.min(all - from)).collect()
}

/// Steps a submission while the prompt is processed.
const PROMPT_STEPS: usize = 16;

/// Runs step by step and shows each step's logits to `observe`.
pub fn run_observed(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
    observe: &mut dyn FnMut(Observed<'_>) -> Result<()>,
) -> Result<Run> {
    begin(graph, executor, options)?;
    let mut run = Run::default();
    for position in 0..options.positions() {
        let step = Instant::now();
        executor.run(1)?;
        let choice = executor.read_words(graph.state)?[StateWord::Choice as usize];
        // Neither reading the logits nor looking at them counts.
        let took = step.elapsed();
        if run.generated.is_empty() {
            run.ttft += took;
        }
        let logits = executor.read_f32(graph.logits)?;
        observe(Observed { position, logits: &logits, choice })?;
        let generated = position + 1 >= options.prompt.len();
        if generated && run.generated.len() < options.generate.max(options.forced.len()) {
            if !run.generated.is_empty() {
                run.steps.push(took);
                run.decode_steps += 1;
                run.submits += 1;
            }
            run.generated.push(choice);
            if options.stop_at == Some(choice) && options.forced.is_empty() {
                break;
            }
        }
    }
    Ok(run)
}

/// Largest NMSE of a step's logits against the reference: what rounding leaves where everything is
/// stored in f32, and what storing caches or activations in 16 bits adds.
pub fn logits_limit(graph: &DecodeGraph) -> f64 {
    let is_f32 = |tensor: &Tensor| match tensor.content {
        Content::Kv { format, .. } | Content::Activation { format, .. } => {
            format == FloatFormat::F32
        }
        _ => true,
    };
    if graph.recording.tensors.iter().all(is_f32) { 1e-8 } else { 1e-5 }
}

/// A second executor that repeats each observed step and compares.
pub struct Verifier<'a> {
    graph: &'a DecodeGraph,
    executor: &'a mut dyn Execute,
    /// Largest accepted NMSE of a step's logits.
    pub limit: f64,
    /// Largest seen.
    pub worst: f64,
    /// Steps compared.
    pub compared: usize,
    /// Steps to compare.
    pub steps: usize,
}

impl<'a> Verifier<'a> {
    /// A verifier for the first `steps` positions of a run.
    pub fn new(
        graph: &'a DecodeGraph,
        executor: &'a mut dyn Execute,
        options: &RunOptions,
        limit: f64,
        steps: usize,
    ) -> Result<Self> {
        begin(graph, executor, options)?;
        Ok(Self { graph, executor, limit, worst: 0.0, compared: 0, steps })
    }

    /// Compares one step; an error names the position and both choices.
    pub fn compare(&mut self, seen: Observed<'_>) -> Result<()> {
        if seen.position >= self.steps {
            return Ok(());
        }
        self.executor.run(1)?;
        let logits = self.executor.read_f32(self.graph.logits)?;
        let choice = self.executor.read_words(self.graph.state)?[StateWord::Choice as usize];
        let error =
            nmse(logits.iter().map(|v| f64::from(*v)), seen.logits.iter().map(|v| f64::from(*v)));
        self.worst = self.worst.max(error);
        self.compared += 1;
        if error.is_nan() || error > self.limit {
            return Err(Error::CheckFailed(format!(
                "position {}: logits differ from the CPU reference, NMSE {error:.3e} > {:.0e} \
                 (choices {} and {choice}); `lathe diff` names the first operation that differs",
                seen.position, self.limit, seen.choice
            )));
        }
        let state = self.executor.read_words(self.graph.state)?;
        let drawn = match &self.graph.sampling {
            None => None,
            // A draw is exact: from the device's own logits the reference draws the same token.
            Some(sampling) => {
                let tokens = self.executor.read_words(self.graph.tokens)?;
                let seed = state[StateWord::Seed as usize];
                Some(sampling.draw(seen.logits, &tokens, seen.position, seed))
            }
        };
        if let Some(drawn) = drawn.filter(|drawn| *drawn != seen.choice) {
            return Err(Error::CheckFailed(format!(
                "position {}: the device drew {} where the CPU reference draws {drawn} from the same \
                 logits",
                seen.position, seen.choice
            )));
        }
        if choice != seen.choice {
            let (a, b) = (logits[choice as usize], logits[seen.choice as usize]);
            // Rounding may swap near ties; the run then follows the device.
            let scale = logits.iter().fold(0f32, |m, v| m.max(v.abs()));
            if drawn.is_none() && (a - b).abs() > scale * (self.limit.sqrt() as f32) {
                return Err(Error::CheckFailed(format!(
                    "position {}: the device chose {} where the CPU reference chose {choice}",
                    seen.position, seen.choice
                )));
            }
            // Tokens the host gave stay; only a generated one is replaced.
            let next = seen.position + 1;
            if next >= state[StateWord::Given as usize] as usize {
                self.executor.write_words(self.graph.tokens, next, &[seen.choice])?;
            }
        }
        Ok(())
    }
}
