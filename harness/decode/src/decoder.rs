//! The decode loop.
//!
//! ```text
//! reset → given tokens → step: chunks of the prompt, then decode steps → batches of chosen tokens
//! ```
//!
//! [`Decoder::step`] is the only loop. Whole runs, prompts that are timed, steps whose logits are
//! looked at and several sequences together are calls of it with another observer.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use lathe_kernels::{STATE_WORDS, StateWord};
use serde::Serialize;

use super::graph::DecodeGraph;
use super::options::{Prompts, Script};
use lathe_device::error::{Error, Result};
use lathe_device::execute::{Batch, Execute, Stream, Submission};
use lathe_device::plan::recording::Part;

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
}

/// Work of one call of the loop, from the current position on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Tokens that were given and not yet run.
    pub given: usize,
    /// Execution of the given tokens: in chunks or token by token.
    pub prompts: Prompts,
    /// Decode steps after them.
    pub steps: usize,
    /// Decode steps per submission; none for as many as fit [`FRAME`].
    pub steps_per_submit: Option<usize>,
    /// Submissions are timed on the GPU.
    pub timed: bool,
}

/// Result of a run.
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
    /// Set if the persistent kernel timed out and steps went on with a dispatch per stage. After
    /// tokens were handed out, only the first has a time: times of both paths together are no
    /// figure.
    pub runs_gave_up: Option<GaveUp>,
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
    pub fn step_seconds(&self) -> f64 {
        self.steps.iter().sum::<Duration>().as_secs_f64() / self.steps.len().max(1) as f64
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

impl<'a> Decoder<'a> {
    /// A decoder where the executor stands.
    pub fn new(graph: &'a DecodeGraph, executor: &'a mut dyn Execute) -> Self {
        Self { graph, executor }
    }

    /// Forgets every sequence: cleared caches, a step state that has seen no token, and the seed of
    /// the draws.
    ///
    /// The number of tokens in a cache is not kept per cache, where one of them could be forgotten
    /// (a sliding-window cache that kept its count once made every timed run start at the warm-up's
    /// context length); it is the one position counter in the step state.
    ///
    /// # Errors
    /// The device is lost.
    pub fn reset(&mut self, seed: u32) -> Result<()> {
        for cache in &self.graph.caches {
            self.executor.clear(cache.k)?;
            self.executor.clear(cache.v)?;
        }
        self.executor.clear(self.graph.state)?;
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
    /// recorded while one runs. `on` hears of each submission with the tokens chosen in it, of
    /// several sequences with one word that says it has ended, and may end the stream.
    ///
    /// # Errors
    /// The context has no room for that many, or the device is lost.
    pub fn step(&mut self, work: Work, on: &mut dyn FnMut(Batch) -> ControlFlow<()>) -> Result<()> {
        let n = self.graph.sequences;
        let mut at = self.state(StateWord::Position)? as usize;
        self.graph.fits(at + work.given + work.steps)?;
        let mut submissions: Vec<Submission> = Vec::new();
        for part in prompt_parts(self.graph, work.prompts, work.given) {
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
        let words = self.graph.tokens;
        let stream = Stream { submissions, words, joined_up_to, timed: work.timed };
        self.executor.stream(&stream, on)
    }

    /// Runs given tokens from the current position on. Returns the time until the token that
    /// follows them was chosen and read back.
    ///
    /// # Errors
    /// No tokens, one beyond the vocabulary, more than the context has room for, or the device is
    /// lost.
    pub fn feed(&mut self, tokens: &[u32], prompts: Prompts) -> Result<Duration> {
        if tokens.is_empty() {
            return Err(Error::Usage("no tokens to run".into()));
        }
        let position = self.state(StateWord::Position)? as usize;
        self.executor.prepare(&prompt_parts(self.graph, prompts, tokens.len()))?;
        let begun = Instant::now();
        self.give(position, tokens)?;
        let work = Work { given: tokens.len(), prompts, ..Work::default() };
        self.step(Work { steps_per_submit: Some(1), ..work }, &mut |_| ControlFlow::Continue(()))?;
        Ok(begun.elapsed())
    }

    /// Runs `n` steps, each of which processes the last token and chooses the next, which
    /// `on_token` hears of. Returns the wall time of each; steps of one submission share its time
    /// equally. At one step per submission these are the times between one token read back and the
    /// next.
    ///
    /// # Errors
    /// The sequence is empty, so there is no token to go on from; the context is full; or the
    /// device is lost.
    pub fn generate(
        &mut self,
        n: usize,
        steps_per_submit: usize,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<Vec<Duration>> {
        if self.state(StateWord::Position)? == 0 && self.state(StateWord::PromptLen)? == 0 {
            let empty = "the sequence is empty; generation goes on from a token";
            return Err(Error::Usage(empty.into()));
        }
        let work = Work { steps: n, steps_per_submit: Some(steps_per_submit), ..Work::default() };
        let (mut steps, mut last) = (Vec::with_capacity(n), Duration::ZERO);
        self.step(work, &mut |batch| {
            let took = (batch.at - last) / batch.words.len().max(1) as u32;
            last = batch.at;
            for token in batch.words {
                steps.push(took);
                on_token(token);
            }
            ControlFlow::Continue(())
        })?;
        Ok(steps)
    }

    /// Checks that a script fits, and forgets all earlier tokens.
    fn begin(&mut self, script: &Script) -> Result<()> {
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
        self.reset(script.seed)
    }

    /// Runs a script at full speed: no step is observed, tokens stay on the device between steps.
    ///
    /// # Errors
    /// An empty prompt, a token beyond the vocabulary, more positions than the context has, or the
    /// device is lost.
    pub fn run(&mut self, script: &Script, on_token: &mut dyn FnMut(u32)) -> Result<Run> {
        self.begin(script)?;
        let prompt = script.prompt.len();
        self.give(0, &script.prompt)?;
        let work = Work {
            given: prompt,
            prompts: script.prompts,
            steps: script.positions() - prompt,
            steps_per_submit: script.steps_per_submit,
            timed: true,
        };
        let mut meter = Meter { script, run: Run::default(), last: Duration::ZERO, gpu: None };
        // In one stream the first decode steps are recorded while the prompt runs; forced tokens
        // are given only after it, where its own choice would take their place.
        if script.forced.is_empty() {
            self.step(work, &mut |batch| meter.take(batch, on_token))?;
        } else {
            let alone = Work { steps: 0, ..work };
            self.step(alone, &mut |batch| meter.take(batch, on_token))?;
            self.give(prompt, &script.forced)?;
            meter.last = Duration::ZERO;
            self.step(Work { given: 0, ..work }, &mut |batch| meter.take(batch, on_token))?;
        }
        Ok(meter.end())
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
        self.begin(script)?;
        let (prompt, mut run) = (&script.prompt, Run::default());
        let in_chunks =
            prompt_parts(self.graph, script.prompts, prompt.len()).contains(&Part::Tail);
        let each = if in_chunks { prompt.len() } else { 1 };
        let mut given = prompt.chunks(each).chain(script.forced.chunks(1));
        let (mut position, mut choice) = (0, 0);
        while position < script.positions() {
            let own = [choice];
            let (tokens, fed) = match given.next() {
                Some(tokens) => (tokens, tokens.len()),
                None => (&own[..], 0),
            };
            if fed > 0 {
                self.give(position, tokens)?;
            }
            let (prompts, steps) = (script.prompts, tokens.len() - fed);
            let work = Work { given: fed, prompts, steps, steps_per_submit: Some(1), timed: false };
            let mut took = Duration::ZERO;
            self.step(work, &mut |batch| {
                took = batch.at;
                choice = batch.words.last().copied().unwrap_or(choice);
                ControlFlow::Continue(())
            })?;
            position += tokens.len();
            if run.generated.is_empty() {
                run.ttft += took;
            }
            let logits = self.logits()?;
            look(Seen { tokens, position: position - 1, logits: &logits, choice })?;
            let wanted = script.generate.max(script.forced.len());
            if position >= prompt.len() && run.generated.len() < wanted {
                if !run.generated.is_empty() {
                    run.steps.push(took);
                    run.decode_steps += 1;
                    run.submits += 1;
                }
                run.generated.push(choice);
                if script.is_ended_by(&run.generated) {
                    break;
                }
            }
        }
        Ok(run)
    }
}

/// Times of a run while its submissions end.
struct Meter<'a> {
    script: &'a Script,
    run: Run,
    /// End of the submission before, since the stream began.
    last: Duration,
    gpu: Option<Duration>,
}

impl Meter<'_> {
    fn take(&mut self, batch: Batch, on_token: &mut dyn FnMut(u32)) -> ControlFlow<()> {
        let run = &mut self.run;
        let took = batch.at - self.last;
        self.last = batch.at;
        let first = run.generated.is_empty();
        if first {
            run.ttft = batch.at;
        } else {
            let before = if run.submits == 0 { Some(Duration::ZERO) } else { self.gpu };
            self.gpu = before.zip(batch.gpu).map(|(before, own)| before + own);
            run.decode_steps += batch.steps;
            run.submits += 1;
        }
        for token in batch.words {
            if run.generated.len() == self.script.generate {
                break;
            }
            if !first {
                run.steps.push(took / batch.steps.max(1) as u32);
            }
            run.generated.push(token);
            on_token(token);
            if self.script.is_ended_by(&run.generated) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn end(self) -> Run {
        let gpu = self.gpu.filter(|_| !self.run.steps.is_empty());
        Run { gpu, ..self.run }
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

/// Result of several sequences decoded together: a step takes each a token further, and the
/// matrices are read once for all of them. A sequence whose prompt is shorter begins to choose
/// while others still take their prompts.
#[derive(Clone, Debug, Default)]
pub struct Together {
    /// Tokens that each sequence chose, the one after its prompt first.
    pub generated: Vec<Vec<u32>>,
    /// Time until the longest prompt had its choice.
    pub prompt: Duration,
    /// Wall time of each step after that; steps of one submission share its time.
    pub steps: Vec<Duration>,
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

    /// Runs the prompts of several sequences and then `steps` steps that are timed: each sequence
    /// chooses at least `steps + 1` tokens, of which as many are returned.
    ///
    /// # Errors
    /// Other prompts than the graph has sequences, an empty one, a token that the model lacks, more
    /// than the context has room for, or the device is lost.
    pub fn run_together(
        &mut self,
        prompts: &[Vec<u32>],
        steps: usize,
        steps_per_submit: usize,
    ) -> Result<Together> {
        let longest = self.give_each(prompts)?;
        let untimed = pieces(longest, PROMPT_STEPS).len();
        let (mut run, mut seen, mut last) = (Together::default(), 0, Duration::ZERO);
        let work = Work { given: longest, steps, ..Work::default() };
        let work = Work { steps_per_submit: Some(steps_per_submit), ..work };
        self.step(work, &mut |batch| {
            let took = batch.at - last;
            last = batch.at;
            seen += 1;
            match seen <= untimed {
                true => run.prompt = batch.at,
                false => run.steps.extend(vec![took / batch.steps.max(1) as u32; batch.steps]),
            }
            ControlFlow::Continue(())
        })?;
        let tokens = self.executor.read_words(self.graph.tokens)?;
        let chosen = |(i, prompt): (usize, &Vec<u32>)| {
            let positions = prompt.len()..prompt.len() + steps + 1;
            positions.map(|position| tokens[position * self.graph.sequences + i]).collect()
        };
        run.generated = prompts.iter().enumerate().map(chosen).collect();
        Ok(run)
    }
}
