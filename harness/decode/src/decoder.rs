//! The decode loop.
//!
//! ```text
//! reset → given tokens → step: chunks of the prompt, then decode steps → batches of chosen tokens
//! ```
//!
//! `Decoder::step` is the only loop. Whole runs, prompts that are timed, steps whose logits are
//! looked at and several sequences together are calls of it with another observer.

use std::ops::ControlFlow;
use std::time::Duration;

use lathe_kernels::{STATE_WORDS, StateWord};
use serde::Serialize;

use super::Observer;
use super::graph::{DecodeGraph, KvCache};
use super::options::{Prompts, Script};
use lathe_device::error::{Error, Result};
use lathe_device::execute::{Batch, Execute, Stream, Submission};
use lathe_device::plan::recording::Part;
use lathe_record::record::Verified;
use lathe_reference::argmax::NO_TOKEN;

/// Longest time of a submission whose number of steps is not given. More steps mean less waiting
/// between submissions; with fewer a reader sees tokens come one by one.
pub const FRAME: Duration = Duration::from_millis(16);

/// Steps per submission while a prompt runs token by token.
const PROMPT_STEPS: usize = 16;

/// Sequences of a graph on an executor.
pub struct Decoder<'a> {
    /// The step.
    pub graph: &'a DecodeGraph,
    /// Executor of the graph's recording.
    pub executor: &'a mut dyn Execute,
    /// Parts that ran since the last reset.
    pub(super) ran: Vec<Part>,
}

/// Work of one call of the loop, from the current position on.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Tokens that were given and not yet run.
    given: usize,
    prompts: Prompts,
    /// Decode steps after them.
    steps: usize,
    /// Decode steps per submission; none for as many as fit [`FRAME`].
    steps_per_submit: Option<usize>,
    /// Submissions are timed on the GPU.
    timed: bool,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The model's choices, starting with the one after the prompt; of several sequences one after
    /// the other.
    pub generated: Vec<u32>,
    /// Tokens of the prompt that were in the caches already.
    pub kept: usize,
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
    /// The comparison with the reference, where a session was asked for one.
    pub verified: Option<Verified>,
    /// Set if the persistent kernel timed out and steps went on with a dispatch per stage. After
    /// tokens were handed out, only the first has a time: times of both paths together are no
    /// figure.
    pub persistent_gave_up: Option<GaveUp>,
}

/// A persistent kernel whose grid barrier timed out, after which steps went on with a dispatch per
/// stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GaveUp {
    /// Grid of the layers that were one dispatch.
    pub grid: String,
    /// Waits that gave up.
    pub waits: u32,
    /// Tokens that were handed out before, and stand.
    pub tokens: usize,
}

impl Run {
    /// The run with the tokens that another one handed out before it failed, the first of them
    /// after `ttft`.
    #[must_use]
    pub fn behind(mut self, known: &[u32], ttft: Duration) -> Self {
        if known.is_empty() {
            return self;
        }
        let both = known.len().min(self.generated.len());
        self.generated[..both].copy_from_slice(&known[..both]);
        Self { generated: self.generated, ttft, ..Self::default() }
    }

    /// Mean wall time of a decode step, seconds.
    pub(super) fn step_seconds(&self) -> f64 {
        self.step_time().as_secs_f64() / self.steps.len().max(1) as f64
    }

    /// Wall time of all decode steps.
    pub(super) fn step_time(&self) -> Duration {
        self.steps.iter().sum()
    }

    /// Adds a submission that took so long, with the tokens chosen in it, up to the script's end.
    fn take(
        &mut self,
        script: &Script,
        took: Duration,
        batch: &Batch,
        on: &mut dyn Observer,
    ) -> ControlFlow<()> {
        let first = self.generated.is_empty();
        if first {
            self.ttft += took;
        } else {
            let before = if self.submits == 0 { Some(Duration::ZERO) } else { self.gpu };
            self.gpu = before.zip(batch.gpu).map(|(before, own)| before + own);
            self.decode_steps += batch.steps;
            self.submits += 1;
        }
        for token in &batch.words {
            if self.generated.len() == script.generate.max(script.forced.len()) {
                break;
            }
            if !first {
                self.steps.push(took / batch.steps.max(1) as u32);
            }
            self.generated.push(*token);
            on.token(*token);
            if script.is_ended_by(&self.generated) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// A step whose logits are observed.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Tokens processed since the last look; the last of them has the logits.
    pub tokens: &'a [u32],
    /// Its position.
    pub position: usize,
    /// Its logits.
    pub logits: &'a [f32],
    /// The token chosen after it.
    pub choice: u32,
}

/// Pace of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Step by step, with the logits of each.
    Steps,
    /// Full speed.
    Full,
    /// Full speed, with timestamps around each submission, which take time themselves.
    Timed,
}

/// Observer of tokens alone.
pub(super) struct Tokens<'f>(pub(super) &'f mut dyn FnMut(u32));

impl Observer for Tokens<'_> {
    fn token(&mut self, token: u32) {
        self.0(token);
    }
}

/// Observer of steps alone.
struct Steps<'f>(&'f mut dyn FnMut(Seen<'_>) -> Result<()>);

impl Observer for Steps<'_> {
    fn look(&mut self, seen: Seen<'_>) -> Result<()> {
        self.0(seen)
    }
}

impl<'a> Decoder<'a> {
    /// A decoder where the executor stands.
    pub fn new(graph: &'a DecodeGraph, executor: &'a mut dyn Execute) -> Self {
        Self { graph, executor, ran: Vec::new() }
    }

    /// Forgets every sequence: cleared caches, a step state that has seen no token, and the seed of
    /// the draws.
    ///
    /// The number of tokens in a cache is not kept per cache, where one of them could be forgotten
    /// (a sliding-window cache that kept its count once made every timed run start at the warm-up's
    /// context length); it is the one position counter in the step state.
    ///
    /// # Errors
    /// Something is left in the step state, or the device is lost.
    pub fn reset(&mut self, seed: u32) -> Result<()> {
        for cache in &self.graph.caches {
            self.executor.clear(cache.k)?;
            self.executor.clear(cache.v)?;
        }
        self.executor.clear(self.graph.state)?;
        self.ran.clear();
        let state = self.executor.read_words(self.graph.state)?;
        for word in [StateWord::Position, StateWord::PromptLen, StateWord::Choice] {
            let left = state[word as usize];
            if left != 0 {
                let fault = format!("{word:?} of the step state is {left} after a reset");
                return Err(Error::CheckFailed(fault));
            }
        }
        self.executor.write_words(self.graph.state, StateWord::Seed as usize, &[seed])
    }

    /// A word of the step state.
    ///
    /// # Errors
    /// The device is lost.
    pub fn state(&mut self, word: StateWord) -> Result<u32> {
        Ok(self.executor.read_words(self.graph.state)?[word as usize])
    }

    /// Logits of the last step, a row per sequence.
    ///
    /// # Errors
    /// The device is lost.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        self.executor.read_f32(self.graph.logits)
    }

    /// Gives the tokens that follow the first `position` ones.
    ///
    /// # Errors
    /// One lies beyond the vocabulary, they do not fit, or the device is lost.
    pub fn give(&mut self, position: usize, tokens: &[u32]) -> Result<()> {
        self.graph.knows(tokens, "")?;
        let given = position + tokens.len();
        self.graph.fits(given)?;
        self.executor.write_words(self.graph.tokens, position, tokens)?;
        let word = StateWord::PromptLen as usize;
        self.executor.write_words(self.graph.state, word, &[given as u32])
    }

    /// Runs the given tokens, and decode steps after them, in one stream: the next submission is
    /// recorded while one runs. `on` hears of each submission and its time, with the tokens chosen
    /// in it, of several sequences with one word that says it has ended, and may end the stream.
    ///
    /// # Errors
    /// The context has no room for that many, a step's logits are not finite, or the device is
    /// lost.
    fn step(
        &mut self,
        work: Work,
        on: &mut dyn FnMut(Duration, Batch) -> ControlFlow<()>,
    ) -> Result<()> {
        let n = self.graph.sequences;
        let mut at = self.state(StateWord::Position)? as usize;
        self.graph.fits(at + work.given + work.steps)?;
        let mut submissions: Vec<Submission> = Vec::new();
        let parts = prompt_parts(self.graph, work.prompts, work.given);
        self.executor.prepare(&parts)?;
        for part in parts {
            match submissions.last_mut() {
                // The last part of a prompt goes with the chunk before it.
                Some(submission) if part == Part::Tail => submission.parts.push(part),
                _ => submissions.push(Submission { parts: vec![part], words: 0..0 }),
            }
        }
        at += work.given;
        if let Some(last) = submissions.last_mut() {
            last.words = at * n..at * n + 1;
        }
        for count in pieces(work.steps, work.steps_per_submit.unwrap_or(1).max(1)) {
            let first = if n == 1 { at + 1 } else { (at + count) * n };
            let words = first..first + if n == 1 { count } else { 1 };
            submissions.push(Submission { parts: vec![Part::Steps(count)], words });
            at += count;
        }
        let joined_up_to = work.steps_per_submit.is_none().then_some(FRAME);
        let parts = submissions.iter().flat_map(|submission| &submission.parts);
        self.ran.extend(parts.clone().copied());
        let words = self.graph.tokens;
        let stream = Stream { submissions, words, joined_up_to, timed: work.timed };
        let (mut last, mut is_finite) = (Duration::ZERO, true);
        self.executor.stream(&stream, &mut |mut batch| {
            let took = batch.at - last;
            last = batch.at;
            if let Some(end) = batch.words.iter().position(|word| *word == NO_TOKEN) {
                // What was chosen before it stands.
                is_finite = false;
                batch.words.truncate(end);
                batch.steps = batch.steps.min(end);
                if end > 0 {
                    let _ = on(took, batch);
                }
                return ControlFlow::Break(());
            }
            on(took, batch)
        })?;
        if is_finite { Ok(()) } else { Err(self.not_finite()?) }
    }

    /// Runs given tokens from the current position on.
    ///
    /// # Errors
    /// No tokens, one beyond the vocabulary, more than the context has room for, or the device is
    /// lost.
    pub fn feed(&mut self, tokens: &[u32], prompts: Prompts) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::Usage("no tokens to run".into()));
        }
        let position = self.state(StateWord::Position)? as usize;
        self.give(position, tokens)?;
        let steps_per_submit = Some(1);
        let work = Work { given: tokens.len(), prompts, steps_per_submit, ..Work::default() };
        self.step(work, &mut |_, _| ControlFlow::Continue(()))
    }

    /// Checks that a script fits, and forgets all earlier tokens but those it keeps, whose number
    /// it returns.
    fn begin(&mut self, script: &Script) -> Result<usize> {
        if self.graph.sequences != 1 {
            let n = self.graph.sequences;
            return Err(Error::Usage(format!("a run has one sequence, the graph has {n}")));
        }
        if script.prompt.is_empty() {
            return Err(Error::Usage("the prompt is empty; decoding starts from a token".into()));
        }
        self.graph.fits(script.positions())?;
        self.graph.knows(&script.prompt, "")?;
        self.graph.knows(&script.forced, "")?;
        let kept = if script.keep { self.rewind(&script.prompt, script.seed)? } else { 0 };
        if kept == 0 {
            self.reset(script.seed)?;
        }
        Ok(kept)
    }

    /// Goes back to the end of the tokens with which both the sequence so far and a prompt begin,
    /// and returns their number. The prompt's last token is none of them: it has to run, for the
    /// logits. Slots beyond are not read before they are written, but a ring that has gone round
    /// has lost what stood there: then there is nothing to go back to.
    fn rewind(&mut self, prompt: &[u32], seed: u32) -> Result<usize> {
        let processed = self.state(StateWord::Position)? as usize;
        let tokens = self.executor.read_words(self.graph.tokens)?;
        let (_, before) = prompt.split_last().unwrap_or((&0, &[]));
        let same = tokens[..processed].iter().zip(before).take_while(|(a, b)| a == b).count();
        let is_lost = |cache: &KvCache| cache.sliding && processed > cache.capacity;
        if same < processed && self.graph.caches.iter().any(is_lost) {
            return Ok(0);
        }
        for (word, value) in [(StateWord::Position, same as u32), (StateWord::Seed, seed)] {
            self.executor.write_words(self.graph.state, word as usize, &[value])?;
        }
        Ok(same)
    }

    /// Runs a script at full speed: no step is observed, tokens stay on the device between steps.
    ///
    /// # Errors
    /// An empty prompt, a token beyond the vocabulary, more positions than the context has, or the
    /// device is lost.
    pub fn run(&mut self, script: &Script, on_token: &mut dyn FnMut(u32)) -> Result<Run> {
        let mut run = Run::default();
        self.play(script, Pace::Timed, &mut run, &mut Tokens(on_token))?;
        Ok(run)
    }

    /// Runs a script step by step and shows the logits of each to `look`: those of the prompt's
    /// last token and of every one after it, and where the prompt runs token by token those of
    /// each token of it. Reading and looking at them does not count as time.
    ///
    /// # Errors
    /// Errors of [`Self::run`] and of `look`.
    pub fn observe(
        &mut self,
        script: &Script,
        look: &mut dyn FnMut(Seen<'_>) -> Result<()>,
    ) -> Result<Run> {
        let mut run = Run::default();
        self.play(script, Pace::Steps, &mut run, &mut Steps(look))?;
        Ok(run)
    }

    /// Runs a script. A run that fails leaves in `run` the tokens
    /// that `on` has heard of.
    ///
    /// # Errors
    /// Errors of [`Self::run`] and of `on`.
    pub(super) fn play(
        &mut self,
        script: &Script,
        pace: Pace,
        run: &mut Run,
        on: &mut dyn Observer,
    ) -> Result<()> {
        run.kept = self.begin(script)?;
        let every_step = pace == Pace::Steps;
        let steps_per_submit = if every_step { Some(1) } else { script.steps_per_submit };
        let (mut position, mut choice) = (run.kept, 0);
        while position < script.positions() {
            let (tokens, given, steps) = next_stream(self.graph, script, position, every_step);
            if !tokens.is_empty() {
                self.give(position, tokens)?;
            }
            let (prompts, timed) = (script.prompts, pace == Pace::Timed);
            let work = Work { given, prompts, steps, steps_per_submit, timed };
            let mut seen = None;
            self.step(work, &mut |took, batch| {
                if every_step {
                    seen = Some(batch);
                } else if position + given >= script.prompt.len() {
                    return run.take(script, took, &batch, on);
                }
                ControlFlow::Continue(())
            })?;
            position += given + steps;
            let Some(batch) = seen else { continue };
            let own = [choice];
            choice = batch.words.last().copied().unwrap_or(choice);
            let tokens = if tokens.is_empty() { &own[..] } else { tokens };
            let logits = self.logits()?;
            on.look(Seen { tokens, position: position - 1, logits: &logits, choice })?;
            // A choice amid the prompt is none of the run's tokens.
            if position < script.prompt.len() {
                run.ttft += batch.at;
            } else if run.take(script, batch.at, &batch, on).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The next stream of a script from this position on: tokens to be given, how many of them run
/// before decode steps, and these steps. In one stream the first decode steps are recorded while
/// the prompt runs; forced tokens are given only after it, where its own choice would take their
/// place. A stream whose logits are observed has one token, or a prompt in chunks.
fn next_stream<'s>(
    graph: &DecodeGraph,
    script: &'s Script,
    at: usize,
    every_step: bool,
) -> (&'s [u32], usize, usize) {
    let Script { prompt, forced, depth, .. } = script;
    let Some(behind) = at.checked_sub(prompt.len()) else {
        let end = if at < *depth { *depth } else { prompt.len() };
        let in_chunks = runs_in_chunks(graph, script.prompts, end - at);
        let end = if every_step && !in_chunks { at + 1 } else { end };
        let alone = every_step || !forced.is_empty() || end < prompt.len();
        let steps = if alone { 0 } else { script.positions() - end };
        return (&prompt[at..end], end - at, steps);
    };
    match forced.get(behind) {
        Some(token) if every_step => (std::slice::from_ref(token), 1, 0),
        _ if every_step => (&[], 0, 1),
        _ => (forced, 0, script.positions() - at),
    }
}

/// `all` in pieces of `each`, the last one smaller.
fn pieces(all: usize, each: usize) -> Vec<usize> {
    (0..all).step_by(each).map(|from| each.min(all - from)).collect()
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

/// Returns true if so many tokens of a prompt run in chunks.
pub(super) fn runs_in_chunks(graph: &DecodeGraph, prompts: Prompts, count: usize) -> bool {
    prompt_parts(graph, prompts, count).contains(&Part::Tail)
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

impl Decoder<'_> {
    /// Forgets everything and gives each sequence its prompt. Returns the length of the longest.
    fn give_each(&mut self, prompts: &[Vec<u32>]) -> Result<usize> {
        let (graph, n) = (self.graph, self.graph.sequences);
        if prompts.len() != n {
            let given = prompts.len();
            return Err(Error::Usage(format!("{given} prompts for a graph of {n} sequences")));
        }
        for (i, prompt) in prompts.iter().enumerate() {
            if prompt.is_empty() {
                return Err(Error::Usage(format!("the prompt of sequence {i} is empty")));
            }
            graph.knows(prompt, &format!(" of sequence {i}"))?;
        }
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        graph.fits(longest)?;
        self.reset(0)?;
        let mut state = vec![0; n * STATE_WORDS];
        let mut tokens = vec![0; n * longest];
        for (i, prompt) in prompts.iter().enumerate() {
            state[i * STATE_WORDS + StateWord::PromptLen as usize] = prompt.len() as u32;
            for (position, token) in prompt.iter().enumerate() {
                tokens[position * n + i] = *token;
            }
        }
        self.executor.write_words(graph.state, 0, &state)?;
        self.executor.write_words(graph.tokens, 0, &tokens)?;
        Ok(longest)
    }

    /// Runs the prompts of several sequences and then `steps` steps that are timed: a step takes
    /// each a token further, and the matrices are read once for all of them. A sequence whose
    /// prompt is shorter begins to choose while others still take their prompts. Each chooses at
    /// least `steps + 1` tokens, of which as many are returned.
    ///
    /// # Errors
    /// Other prompts than the graph has sequences, an empty one, a token that the model lacks, more
    /// than the context has room for, or the device is lost.
    pub fn run_together(
        &mut self,
        prompts: &[Vec<u32>],
        steps: usize,
        steps_per_submit: usize,
    ) -> Result<Run> {
        let longest = self.give_each(prompts)?;
        let script = Script { generate: steps + 1, ..Script::default() };
        let work = Work { given: longest, steps, ..Work::default() };
        let work = Work { steps_per_submit: Some(steps_per_submit), ..work };
        let mut run = Run::default();
        self.step(work, &mut |took, batch| {
            // A word says that a submission ended; all choices are read at the end.
            let count = if run.generated.is_empty() { batch.words.len() } else { batch.steps };
            run.take(&script, took, &Batch { words: vec![0; count], ..batch }, &mut ())
        })?;
        let tokens = self.executor.read_words(self.graph.tokens)?;
        if tokens[..(longest + steps + 1) * self.graph.sequences].contains(&NO_TOKEN) {
            return Err(self.not_finite()?);
        }
        let chosen = |(i, prompt): (usize, &Vec<u32>)| {
            let positions = prompt.len()..prompt.len() + steps + 1;
            positions.map(|at| tokens[at * self.graph.sequences + i]).collect::<Vec<_>>()
        };
        run.generated = prompts.iter().enumerate().flat_map(chosen).collect();
        Ok(run)
    }
}
