//! A run that is repeated and timed: verified against a reference first, and the same every time.
//!
//! ```text
//! reset → fill (depth, untimed) → prompt (timed) → generate (timed) → tokens and logits compared
//! ```

use std::time::Duration;

use lathe_device::error::{Error, Result};
use lathe_device::execute::Execute;
use lathe_kernels::StateWord;
use lathe_record::AdapterSummary;
use lathe_record::record::Verified;
use lathe_record::steady::steady;
use lathe_reference::nmse;

use super::graph::DecodeGraph;
use super::prefix::beginning;
use super::session::{self, Observed, Prompts, RunOptions};
use super::timed;

/// What a run does after a reset.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Tokens that are fed: those of the depth, then the prompt's. With neither, the one token that
    /// generation starts from.
    pub tokens: Vec<u32>,
    /// Tokens in the cache before anything is timed.
    pub depth: usize,
    /// Prompt tokens, timed.
    pub prompt: usize,
    /// Decode steps, timed. The prompt's last step chooses a token too: `generate` steps after a
    /// prompt make one token more.
    pub generate: usize,
    /// Seed of the draws; nothing to a greedy graph.
    pub seed: u32,
}

impl Script {
    /// Tokens that it must be given.
    pub fn given(depth: usize, prompt: usize) -> usize {
        (depth + prompt).max(1)
    }

    /// Positions that it processes, which is the context it needs.
    pub fn positions(&self) -> usize {
        self.depth + self.prompt + self.generate
    }

    fn fed(&self) -> bool {
        self.depth + self.prompt > 0
    }
}

/// One timed run.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// Until the token after the prompt was chosen and read back.
    pub prompt: Duration,
    /// Of each decode step; steps of one submission share its time.
    pub steps: Vec<Duration>,
    /// All chosen tokens.
    pub tokens: Vec<u32>,
}

impl Timed {
    /// Prompt and steps together.
    pub fn total(&self) -> Duration {
        self.prompt + self.steps.iter().sum::<Duration>()
    }
}

/// Runs of one script on one executor.
pub struct Trial<'a> {
    graph: &'a DecodeGraph,
    executor: &'a mut dyn Execute,
    script: Script,
    /// Tokens that the verified run chose.
    verified: Vec<u32>,
    first: Option<Seen>,
    /// The largest NMSE that is accepted, once something was verified.
    limit: Option<f64>,
    end_nmse: Option<f64>,
}

/// What every run must repeat.
struct Seen {
    tokens: Vec<u32>,
    /// Logits after the prompt.
    logits: Vec<f32>,
}

impl<'a> Trial<'a> {
    /// Checks that the script fits the graph.
    ///
    /// # Errors
    /// It has more or fewer tokens than it says, one that the model lacks, nothing to time, or
    /// more positions than the context.
    pub fn new(
        graph: &'a DecodeGraph,
        executor: &'a mut dyn Execute,
        script: Script,
    ) -> Result<Self> {
        if graph.sequences != 1 {
            return Err(Error::Usage(format!(
                "a trial has one sequence, the graph has {}",
                graph.sequences
            )));
        }
        let given = Script::given(script.depth, script.prompt);
        if script.tokens.len() != given {
            return Err(Error::Usage(format!(
                "{} tokens for a run that is given {given}",
                script.tokens.len()
            )));
        }
        if script.prompt + script.generate == 0 {
            return Err(Error::Usage("a run without prompt and generation times nothing".into()));
        }
        graph.knows(&script.tokens, "")?;
        graph.fits(script.positions())?;
        Ok(Self {
            graph,
            executor,
            script,
            verified: Vec::new(),
            first: None,
            limit: None,
            end_nmse: None,
        })
    }

    /// Holds the first `positions` of the run against another executor: step by step, and where
    /// tokens are fed, the same tokens fed at once. The runs that follow must choose the tokens
    /// that were verified.
    ///
    /// # Errors
    /// No positions, which would verify nothing; logits differ, or the device is lost.
    pub fn verify(&mut self, reference: &mut dyn Execute, positions: usize) -> Result<Verified> {
        if positions == 0 {
            return Err(Error::Usage("0 positions verify nothing".into()));
        }
        let (graph, script) = (self.graph, &self.script);
        let steps = positions.min(script.positions());
        let prompt = script.tokens.len().min(steps);
        let whole = RunOptions {
            prompt: script.tokens.clone(),
            generate: script.generate + usize::from(script.fed()),
            seed: script.seed,
            ..RunOptions::default()
        };
        let mut expected = Vec::new();
        let mut observe = |seen: Observed<'_>| {
            if seen.position + 1 == prompt {
                expected = seen.logits.to_vec();
            }
        };
        let (mut verified, chosen) =
            beginning(graph, self.executor, reference, &whole, steps, &mut observe)?;
        let limit = verified.limit;
        if script.fed() {
            // Where the prompt ends with what is verified, the reference stands behind it.
            if prompt == steps {
                expected = reference.read_f32(graph.logits)?;
            }
            timed::reset(graph, self.executor, script.seed)?;
            timed::feed(graph, self.executor, &script.tokens[..prompt], Prompts::Chunks)?;
            let logits = self.executor.read_f32(graph.logits)?;
            let error =
                nmse(expected.iter().copied().map(f64::from), logits.iter().map(|v| f64::from(*v)));
            if error.is_nan() || error > limit {
                return Err(Error::CheckFailed(format!(
                    "the first {prompt} tokens fed as a prompt: logits differ from the CPU \
                     reference, NMSE {error:.3e} > {limit:.0e}"
                )));
            }
            // And all of them, whose chunks are others, against decode steps.
            let agree = session::chunks_agree(graph, self.executor, &whole, limit)?;
            let error = error.max(agree.unwrap_or(0.0));
            verified.worst_nmse = verified.worst_nmse.max(error);
        }
        self.verified = chosen;
        self.limit = Some(limit);
        Ok(verified)
    }

    /// Runs until times no longer move, generating, or the prompt where nothing is generated: a GPU
    /// that has idled while weights were read or a graph was built runs at a fraction of its
    /// clocks. Says whether they settled.
    ///
    /// # Errors
    /// As of [`Self::run`].
    pub fn settle(&mut self, adapter: &AdapterSummary) -> Result<bool> {
        if adapter.software {
            return Ok(true);
        }
        let token = self.script.tokens[0];
        let n = self.graph.context.min(32);
        let settled = steady(adapter, &mut || -> Result<f64> {
            if self.script.generate == 0 {
                return Ok(self.run(1)?.total().as_secs_f64());
            }
            timed::reset(self.graph, self.executor, self.script.seed)?;
            timed::start(self.graph, self.executor, token)?;
            let steps = timed::generate(self.graph, self.executor, n, 8, &mut |_| {})?;
            Ok(steps.iter().sum::<Duration>().as_secs_f64())
        })?;
        if !settled {
            tracing::warn!("times had not settled when the measured runs began");
        }
        Ok(settled)
    }

    /// Resets the sequence and runs it, timed. An error if it is not the run it was the first
    /// time: a cache that remembers, or an operation that does not always give the same. Of a trial
    /// that was verified the end of the first run is held against another way there.
    pub fn run(&mut self, steps_per_submit: usize) -> Result<Timed> {
        let (graph, script) = (self.graph, &self.script);
        let executor = &mut *self.executor;
        timed::reset(graph, executor, script.seed)?;
        let state = executor.read_words(graph.state)?;
        for word in [StateWord::Position, StateWord::PromptLen, StateWord::Choice] {
            if state[word as usize] != 0 {
                return Err(Error::CheckFailed(format!(
                    "{word:?} of the step state is {} after a reset",
                    state[word as usize]
                )));
            }
        }
        let mut run = Timed::default();
        let (filling, prompt) = script.tokens.split_at(script.depth);
        let mut logits = Vec::new();
        if script.fed() {
            if !filling.is_empty() {
                timed::feed(graph, executor, filling, Prompts::Chunks)?;
            }
            if script.prompt > 0 {
                run.prompt = timed::feed(graph, executor, prompt, Prompts::Chunks)?;
            }
            logits = executor.read_f32(graph.logits)?;
            let state = executor.read_words(graph.state)?;
            run.tokens.push(state[StateWord::Choice as usize]);
        } else {
            timed::start(graph, executor, script.tokens[0])?;
        }
        if script.generate > 0 {
            let tokens = &mut run.tokens;
            run.steps =
                timed::generate(graph, executor, script.generate, steps_per_submit, &mut |t| {
                    tokens.push(t);
                })?;
        }
        let is_first = self.first.is_none();
        self.check(&run, logits)?;
        if let Some(limit) = self.limit.filter(|_| is_first && self.script.generate > 0) {
            let given = self.script.depth + self.script.prompt;
            let end = timed::end_agrees(self.graph, self.executor, given, limit);
            if end.is_err() {
                self.first = None;
            }
            self.end_nmse = end?;
        }
        Ok(run)
    }

    /// NMSE at the end of the first run, if that was verified: see [`timed::end_agrees`].
    pub fn end_nmse(&self) -> Option<f64> {
        self.end_nmse
    }

    /// The tokens of a run as the device holds them, as they were read while it ran, as they were
    /// verified, and as they were the first time: all the same.
    fn check(&mut self, run: &Timed, logits: Vec<f32>) -> Result<()> {
        let held = self.executor.read_words(self.graph.tokens)?;
        let given = self.script.tokens.len();
        same("was given", &self.script.tokens, "held", &held[..given], 0)?;
        let held = &held[given..given + run.tokens.len()];
        same("read while it ran", &run.tokens, "held at its end", held, given)?;
        let verified = &self.verified[..self.verified.len().min(run.tokens.len())];
        let begins = &run.tokens[..verified.len()];
        same("verified", verified, "chosen by a timed run", begins, given)?;
        let Some(first) = &self.first else {
            self.first = Some(Seen { tokens: run.tokens.clone(), logits });
            return Ok(());
        };
        let bits = |logits: &[f32]| logits.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        if bits(&first.logits) != bits(&logits) {
            return Err(Error::CheckFailed(
                "the logits after the prompt are not those of the first run: the reset left \
                 something, or an operation does not always give the same"
                    .into(),
            ));
        }
        same("chosen by the first run", &first.tokens, "by a later one", &run.tokens, given)
    }
}

/// An error that names the first token in which two runs differ.
fn same(what: &str, a: &[u32], other: &str, b: &[u32], from: usize) -> Result<()> {
    match a.iter().zip(b).position(|(a, b)| a != b) {
        None if a.len() == b.len() => Ok(()),
        None => Err(Error::CheckFailed(format!("{} tokens {what}, {} {other}", a.len(), b.len()))),
        Some(i) => Err(Error::CheckFailed(format!(
            "token {}: {} {what}, {} {other}",
            from + i,
            a[i],
            b[i]
        ))),
    }
}
