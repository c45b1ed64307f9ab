//! Running a decode graph: prompt, generation, per-step observation and verification.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use lathe_device::error::{Error, Result};
use lathe_device::execute::{Batch, Execute, Stream, Submission};
use lathe_device::plan::recording::{Part, Tensor, TensorInit};
use lathe_kernels::{FloatFormat, KvFormat, StateWord};
use lathe_reference::nmse;
use serde::Serialize;

use super::graph::DecodeGraph;
use super::kv_cache;
use crate::sampling::sample_token;

/// How long a submission takes at most where nobody says how many steps it has: more steps are less
/// waiting between submissions, and a reader sees tokens come one by one.
pub const FRAME: Duration = Duration::from_millis(16);

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Prompt tokens; at least one.
    pub prompt: Vec<u32>,
    /// Tokens fed in place of generated ones, after the prompt.
    pub forced: Vec<u32>,
    /// How the prompt runs.
    pub prompts: Prompts,
    /// Tokens to generate.
    pub generate: usize,
    /// Decode steps a submission; none for as many as [`FRAME`] has time for.
    pub steps_per_submit: Option<usize>,
    /// Stop after any of these tokens.
    pub stop_at: Vec<u32>,
    /// Seed of the draws; nothing to a greedy graph.
    pub seed: u32,
    /// What another run of these options handed out before it failed.
    pub known: Known,
}

/// Tokens that a run handed out before it failed. The run that goes on in its place feeds them as
/// its own first choices, and nobody hears of them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// In order, starting with the one after the prompt.
    pub tokens: Vec<u32>,
    /// When the first was there, since the run began.
    pub ttft: Duration,
}

impl Known {
    /// Adds a token of a run that began then.
    pub fn push(&mut self, token: u32, begun: Instant) {
        if self.tokens.is_empty() {
            self.ttft = begun.elapsed();
        }
        self.tokens.push(token);
    }
}

/// A run whose path was replaced on the way: workgroups of its runs of operations waited in vain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GaveUp {
    /// The grid of the runs.
    pub grid: String,
    /// Waits that gave up.
    pub waits: u32,
    /// Tokens that were handed out before, and stand.
    pub tokens: usize,
}

impl RunOptions {
    /// Tokens that are given after the prompt.
    fn fed(&self) -> &[u32] {
        let known = &self.known.tokens;
        match self.forced.is_empty() {
            true => &known[..known.len().min(self.generate.saturating_sub(1))],
            false => &self.forced,
        }
    }

    /// Positions processed: the prompt, all forced tokens, and what generation needs.
    pub fn positions(&self) -> usize {
        self.prompt.len() + self.generate.saturating_sub(1).max(self.forced.len())
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
    /// Where its steps went on without runs of operations. After tokens were handed out, it has no
    /// times but that of the first: those of two ways are no figure.
    pub runs_gave_up: Option<GaveUp>,
}

impl Run {
    /// Takes away times of steps that another run had run before.
    fn of(self, known: &Known) -> Self {
        if known.tokens.is_empty() {
            return self;
        }
        Self { generated: self.generated, ttft: known.ttft, ..Self::default() }
    }
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

/// How the tokens of a prompt run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompts {
    /// In chunks of many tokens, where the graph has them.
    #[default]
    Chunks,
    /// A decode step each, so that every position has logits.
    TokenByToken,
}

/// Forgets every sequence: cleared caches, a position of 0, and the seed of the draws.
///
/// # Errors
/// The device is lost.
pub fn reset(graph: &DecodeGraph, executor: &mut dyn Execute, seed: u32) -> Result<()> {
    kv_cache::reset(executor, &graph.caches, graph.state, 0)?;
    executor.write_words(graph.state, StateWord::Seed as usize, &[seed])
}

/// Gives the tokens that follow the first `position` ones.
pub(super) fn give(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    position: usize,
    tokens: &[u32],
) -> Result<()> {
    graph.knows(tokens, "")?;
    let given = position + tokens.len();
    graph.fits(given)?;
    executor.write_words(graph.tokens, position, tokens)?;
    executor.write_words(graph.state, StateWord::PromptLen as usize, &[given as u32])
}

fn begin(graph: &DecodeGraph, executor: &mut dyn Execute, options: &RunOptions) -> Result<()> {
    if graph.sequences != 1 {
        return Err(Error::Usage(format!(
            "a run has one sequence, the graph has {}",
            graph.sequences
        )));
    }
    if options.prompt.is_empty() {
        return Err(Error::Usage("the prompt is empty; decoding starts from a token".into()));
    }
    graph.fits(options.positions())?;
    reset(graph, executor, options.seed)?;
    give(graph, executor, 0, &options.prompt)
}

/// The parts that take `count` tokens of a prompt through the model, the last token's choice
/// included.
pub fn prompt_parts(graph: &DecodeGraph, prompts: Prompts, count: usize) -> Vec<Part> {
    let sizes: Vec<usize> = match prompts {
        Prompts::Chunks if count > 1 => graph.recording.chunks.iter().map(|c| c.tokens).collect(),
        _ => Vec::new(),
    };
    if sizes.is_empty() {
        return pieces(count, PROMPT_STEPS).into_iter().map(Part::Steps).collect();
    }
    let mut parts: Vec<Part> = cover(&sizes, count).into_iter().map(Part::Chunk).collect();
    parts.push(Part::Tail);
    parts
}

/// Chunks, by their index in `sizes`, that hold `count` tokens in the shortest time: a chunk takes
/// as long as a fixed number of tokens and its own.
fn cover(sizes: &[usize], count: usize) -> Vec<usize> {
    const FIXED: usize = 128;
    let largest = sizes[0];
    let mut chunks = vec![0; count.saturating_sub(1) / largest];
    let mut left = count - chunks.len() * largest;
    while left > 0 {
        // The smallest that holds all, or the largest that is full and then others.
        let holds = sizes.iter().rposition(|size| *size >= left).unwrap_or(0);
        let full = holds + 1;
        let split = sizes.get(full).is_some_and(|size| {
            let rest = sizes.iter().rev().find(|s| **s >= left - size).unwrap_or(&sizes[0]);
            2 * FIXED + size + rest < FIXED + sizes[holds]
        });
        let chosen = if split { full } else { holds };
        chunks.push(chosen);
        left = left.saturating_sub(sizes[chosen]);
    }
    chunks
}

/// A submission each, of which the last alone reads a word back, that of position `next`. The last
/// part of a prompt goes with the chunk before it.
pub(super) fn one_by_one(parts: Vec<Part>, next: usize) -> Vec<Submission> {
    let mut submissions: Vec<Submission> = Vec::new();
    for part in parts {
        match submissions.last_mut() {
            Some(submission) if part == Part::Tail => submission.parts.push(part),
            _ => submissions.push(Submission { parts: vec![part], words: 0..0 }),
        }
    }
    if let Some(last) = submissions.last_mut() {
        last.words = next..next + 1;
    }
    submissions
}

/// Decode steps from a position on, some a submission, each of which makes the token after it.
pub(super) fn step_submissions(position: usize, steps: usize, each: usize) -> Vec<Submission> {
    let mut from = position + 1;
    let submission = |count: usize| {
        let words = from..from + count;
        from += count;
        Submission { parts: vec![Part::Steps(count)], words }
    };
    pieces(steps, each.max(1)).into_iter().map(submission).collect()
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
    let mut run = Run::default();
    let submissions = one_by_one(prompt_parts(graph, options.prompts, prompt), prompt);
    let steps = options.positions() - prompt;
    let decode = step_submissions(prompt, steps, options.steps_per_submit.unwrap_or(1));
    let joined_up_to = options.steps_per_submit.is_none().then_some(FRAME);
    // In one stream the first decode steps are recorded while the prompt runs; forced tokens are
    // given only after it, where its own choice would take their place.
    let streams = match options.fed().is_empty() {
        true => vec![submissions.into_iter().chain(decode).collect()],
        false => vec![submissions, decode],
    };
    let (mut gpu, mut timed) = (Duration::ZERO, true);
    let ended = |run: &Run| run.generated.last().is_some_and(|t| options.stop_at.contains(t));
    for (i, submissions) in streams.into_iter().enumerate() {
        if ended(&run) {
            break;
        }
        if i > 0 {
            give(graph, executor, prompt, options.fed())?;
        }
        let mut last = Duration::ZERO;
        let mut on = |batch: Batch| {
            let took = batch.at - last;
            last = batch.at;
            let first = run.generated.is_empty();
            if first {
                run.ttft = batch.at;
            } else {
                match batch.gpu {
                    Some(time) => gpu += time,
                    None => timed = false,
                }
                run.decode_steps += batch.steps;
                run.submits += 1;
            }
            for token in &batch.words {
                if run.generated.len() == options.generate {
                    break;
                }
                if !first {
                    run.steps.push(took / batch.steps.max(1) as u32);
                }
                let known = options.known.tokens.get(run.generated.len());
                let token = known.unwrap_or(token);
                run.generated.push(*token);
                if known.is_none() {
                    on_token(*token);
                }
                if options.stop_at.contains(token) {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        let stream = Stream { submissions, words: graph.tokens, joined_up_to, timed: true };
        executor.stream(&stream, &mut on)?;
    }
    run.gpu = (timed && !run.steps.is_empty()).then_some(gpu);
    Ok(run.of(&options.known))
}

/// `all` in pieces of `each`, the last one smaller.
pub(super) fn pieces(all: usize, each: usize) -> Vec<usize> {
    (0..all).step_by(each).map(|from| each.min(all - from)).collect()
}

/// Steps a submission while a prompt runs token by token.
pub(super) const PROMPT_STEPS: usize = 16;

/// Runs step by step and shows the logits of each to `observe`: those of the prompt's last token
/// and of every one after it, and where the prompt runs token by token those of each token of it.
pub fn run_observed(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
    observe: &mut dyn FnMut(Observed<'_>) -> Result<()>,
) -> Result<Run> {
    begin(graph, executor, options)?;
    let prompt = options.prompt.len();
    let parts = prompt_parts(graph, options.prompts, prompt);
    executor.prepare(&parts)?;
    let chunked = parts.contains(&Part::Tail);
    let mut run = Run::default();
    let first = if chunked { prompt - 1 } else { 0 };
    for position in first..options.positions() {
        let step = Instant::now();
        match chunked && position == first {
            true => executor.run(&parts)?,
            false => executor.run(&[Part::Steps(1)])?,
        }
        let choice = executor.read_words(graph.state)?[StateWord::Choice as usize];
        let known = (position + 1).checked_sub(prompt).and_then(|i| options.known.tokens.get(i));
        let choice = known.copied().unwrap_or(choice);
        // Neither reading the logits nor looking at them counts.
        let took = step.elapsed();
        if run.generated.is_empty() {
            run.ttft += took;
        }
        let logits = executor.read_f32(graph.logits)?;
        observe(Observed { position, logits: &logits, choice })?;
        if position + 1 == prompt && !options.fed().is_empty() {
            give(graph, executor, prompt, options.fed())?;
        }
        let generated = position + 1 >= prompt;
        if generated && run.generated.len() < options.generate.max(options.forced.len()) {
            if !run.generated.is_empty() {
                run.steps.push(took);
                run.decode_steps += 1;
                run.submits += 1;
            }
            run.generated.push(choice);
            if options.stop_at.contains(&choice) && options.forced.is_empty() {
                break;
            }
        }
    }
    Ok(run.of(&options.known))
}

/// Runs the prompt in chunks and token by token, and returns the NMSE between the logits of its
/// last token. None where the graph has no chunks or the prompt is a single token.
///
/// # Errors
/// The NMSE exceeds `limit`, the prompt does not fit, or the device is lost.
pub fn chunks_agree(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    options: &RunOptions,
    limit: f64,
) -> Result<Option<f64>> {
    let mut last = |prompts| -> Result<Vec<f32>> {
        let generate = 1;
        let alone = RunOptions { prompts, generate, forced: Vec::new(), ..options.clone() };
        let mut logits = Vec::new();
        run_observed(graph, executor, &alone, &mut |seen| {
            logits = seen.logits.to_vec();
            Ok(())
        })?;
        Ok(logits)
    };
    if !prompt_parts(graph, options.prompts, options.prompt.len()).contains(&Part::Tail) {
        return Ok(None);
    }
    let (chunks, tokens) = (last(Prompts::Chunks)?, last(Prompts::TokenByToken)?);
    let [a, b] = [&tokens, &chunks].map(|logits| logits.iter().map(|v| f64::from(*v)));
    let error = nmse(a, b);
    if error.is_nan() || error > limit {
        return Err(Error::CheckFailed(format!(
            "a prompt of {} tokens: logits in chunks differ from those token by token, NMSE \
             {error:.3e} > {limit:.0e}",
            options.prompt.len()
        )));
    }
    Ok(Some(error))
}

/// Largest NMSE of a step's logits against the reference: what rounding leaves where everything is
/// stored in f32, and what storing caches or activations in 16 bits adds. In q8_0 a value half way
/// between two quants becomes either, and the more of them do the less exact what made them was:
/// seen were 1.3e-4 between a prompt in chunks, whose activations are f16, and token by token.
pub fn logits_limit(graph: &DecodeGraph) -> f64 {
    let limit = |tensor: &Tensor| match tensor.content {
        TensorInit::Kv { vectors, .. } => match vectors.format {
            KvFormat::F32 => 1e-8,
            KvFormat::F16 => 1e-5,
            KvFormat::Q8_0 => 1e-3,
        },
        TensorInit::Activation { format, .. } if format != FloatFormat::F32 => 1e-5,
        _ => 1e-8,
    };
    graph.recording.tensors.iter().map(limit).fold(1e-8, f64::max)
}

/// How far below the largest logit one may be and be chosen in its place, as a share of the largest
/// magnitude: what rounding leaves of logits that are held to an NMSE of `limit`, and of those that
/// a cache in q8_0 moves as much as was seen and no more.
pub fn tie_margin(limit: f64) -> f32 {
    limit.min(2e-4).sqrt() as f32
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
    /// Positions to compare: up to this many.
    pub steps: usize,
    /// Positions it has run.
    position: usize,
    forced: Vec<u32>,
    prompt: usize,
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
        Ok(Self {
            graph,
            executor,
            limit,
            worst: 0.0,
            compared: 0,
            steps,
            position: 0,
            forced: options.forced.clone(),
            prompt: options.prompt.len(),
        })
    }

    /// Compares one step; an error names the position and both choices.
    pub fn compare(&mut self, seen: Observed<'_>) -> Result<()> {
        if self.compared >= self.steps {
            return Ok(());
        }
        // Token by token, whatever the other does: another way to the same logits.
        for position in self.position..=seen.position {
            if position == self.prompt && !self.forced.is_empty() {
                give(self.graph, self.executor, position, &self.forced)?;
            }
            self.executor.run(&[Part::Steps(1)])?;
        }
        self.position = seen.position + 1;
        let logits = self.executor.read_f32(self.graph.logits)?;
        let state = self.executor.read_words(self.graph.state)?;
        let choice = state[StateWord::Choice as usize];
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
        let drawn = match &self.graph.sampling {
            None => None,
            // A draw is exact: from the device's own logits the reference draws the same token.
            Some(sampling) => {
                let tokens = self.executor.read_words(self.graph.tokens)?;
                let seed = state[StateWord::Seed as usize];
                Some(sample_token(sampling, seen.logits, &tokens, seen.position, seed))
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
            if drawn.is_none() && (a - b).abs() > scale * tie_margin(self.limit) {
                return Err(Error::CheckFailed(format!(
                    "position {}: the device chose {} where the CPU reference chose {choice}",
                    seen.position, seen.choice
                )));
            }
            // Tokens the host gave stay; only a generated one is replaced.
            let next = seen.position + 1;
            if next >= state[StateWord::PromptLen as usize] as usize {
                self.executor.write_words(self.graph.tokens, next, &[seen.choice])?;
            }
        }
        Ok(())
    }
}
