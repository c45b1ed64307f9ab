//! Whole generations, timed: verified against the reference first, and the same every time.
//!
//! ```text
//! reset → fill (depth, untimed) → prompt (timed) → generate (timed) → tokens and logits compared
//! ```

mod suite;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lathe_kernels::StateWord;

use super::Observer;
use super::decoder::Decoder;
use super::graph::DecodeGraph;
use super::memory::{self, Predicted};
use super::model::Model;
use super::options::{DecodeOptions, Prompts, Script};
use super::sampling::Sampling;
use super::verify::Prefix;
use lathe_device::error::{Error, Result};
use lathe_device::execute::GpuExecutor;
use lathe_device::gpu::{Gpu, Pipelines, Policy};
use lathe_device::measure::Repetitions;
use lathe_record::AdapterSummary;
use lathe_record::record::{GenerationTest, MeasuredModel, TokS, Verified};
use lathe_record::stats::mean_sd;
use lathe_record::steady::steady;

pub use suite::{Config, Settings, Tier, model as suite};

/// Tokens of a timed run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Tokens in the cache before anything is timed.
    pub depth: usize,
    /// Prompt tokens, timed.
    pub prompt: usize,
    /// Decode steps, timed. The prompt's last step chooses a token too: `generate` steps after a
    /// prompt make one token more.
    pub generate: usize,
}

impl Lengths {
    /// Tokens that a run is given: with neither depth nor prompt the one that generation starts
    /// from.
    pub fn given(self) -> usize {
        (self.depth + self.prompt).max(1)
    }

    /// Positions that a run processes, which is the context it needs.
    pub fn positions(self) -> usize {
        self.depth + self.prompt + self.generate
    }

    fn fed(self) -> bool {
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

/// Runs of the same tokens on one executor.
pub struct Trial<'a> {
    decoder: Decoder<'a>,
    script: Script,
    lengths: Lengths,
    /// The verified beginning, with the end of the first run.
    prefix: Option<Prefix>,
    first: Option<Seen>,
}

/// Tokens and logits after the prompt, which every run must repeat.
struct Seen {
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

impl<'a> Trial<'a> {
    /// Checks that the tokens and lengths fit the decoder's graph.
    ///
    /// # Errors
    /// More or fewer tokens than the lengths say, one that the model lacks, nothing to time, or
    /// more positions than the context.
    pub fn new(decoder: Decoder<'a>, tokens: &[u32], lengths: Lengths, seed: u32) -> Result<Self> {
        if decoder.graph.sequences != 1 {
            let n = decoder.graph.sequences;
            return Err(Error::Usage(format!("a trial has one sequence, the graph has {n}")));
        }
        if tokens.len() != lengths.given() {
            let (tokens, given) = (tokens.len(), lengths.given());
            return Err(Error::Usage(format!("{tokens} tokens for a run that is given {given}")));
        }
        if lengths.prompt + lengths.generate == 0 {
            return Err(Error::Usage("a run without prompt and generation times nothing".into()));
        }
        decoder.graph.knows(tokens, "")?;
        decoder.graph.fits(lengths.positions())?;
        let script = Script {
            prompt: tokens.to_vec(),
            generate: lengths.generate + usize::from(lengths.fed()),
            seed,
            ..Script::default()
        };
        Ok(Self { decoder, script, lengths, prefix: None, first: None })
    }

    /// Compares the first `positions` of the run with the CPU reference, and the prompt in chunks
    /// with decode steps. The runs that follow must choose the tokens that were verified, and the
    /// end of the first is compared with another way there.
    ///
    /// # Errors
    /// Those of [`Prefix::verify`].
    pub fn verify(&mut self, positions: usize) -> Result<()> {
        self.prefix = Some(Prefix::verify(&mut self.decoder, &self.script, positions)?);
        Ok(())
    }

    /// The comparisons so far, where any was asked for.
    pub fn verified(&self) -> Option<Verified> {
        self.prefix.as_ref().map(|prefix| prefix.verified)
    }

    /// Runs until times no longer move, generating, or the prompt where nothing is generated: a GPU
    /// that has idled while weights were read or a graph was built runs at a fraction of its
    /// clocks. Returns whether they settled.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub fn settle(&mut self, adapter: &AdapterSummary) -> Result<bool> {
        if adapter.software {
            return Ok(true);
        }
        let first = self.script.prompt[..1].to_vec();
        let n = self.decoder.graph.context.min(32);
        let settled = steady::<Error>(adapter, &mut || {
            if self.lengths.generate == 0 {
                return Ok(self.run(1)?.total().as_secs_f64());
            }
            self.decoder.reset(self.script.seed)?;
            self.decoder.give(0, &first)?;
            let steps = self.decoder.generate(n, 8, &mut |_| {})?;
            Ok(steps.iter().sum::<Duration>().as_secs_f64())
        })?;
        if !settled {
            tracing::warn!("times had not settled when the measured runs began");
        }
        Ok(settled)
    }

    /// Resets the sequence and runs it, timed.
    ///
    /// # Errors
    /// It is not the run it was the first time: a cache that remembers, or an operation that does
    /// not always give the same. The end of a verified trial's first run is wrong.
    pub fn run(&mut self, steps_per_submit: usize) -> Result<Timed> {
        let (decoder, lengths) = (&mut self.decoder, self.lengths);
        decoder.reset(self.script.seed)?;
        let state = decoder.executor.read_words(decoder.graph.state)?;
        for word in [StateWord::Position, StateWord::PromptLen, StateWord::Choice] {
            let left = state[word as usize];
            if left != 0 {
                let fault = format!("{word:?} of the step state is {left} after a reset");
                return Err(Error::CheckFailed(fault));
            }
        }
        let mut run = Timed::default();
        let (filling, prompt) = self.script.prompt.split_at(lengths.depth);
        let mut logits = Vec::new();
        if lengths.fed() {
            if !filling.is_empty() {
                decoder.feed(filling, Prompts::Chunks)?;
            }
            if !prompt.is_empty() {
                run.prompt = decoder.feed(prompt, Prompts::Chunks)?;
            }
            logits = decoder.logits()?;
            run.tokens.push(decoder.state(StateWord::Choice)?);
        } else {
            decoder.give(0, prompt)?;
        }
        if lengths.generate > 0 {
            let tokens = &mut run.tokens;
            let on_token = &mut |token| tokens.push(token);
            run.steps = decoder.generate(lengths.generate, steps_per_submit, on_token)?;
        }
        let is_first = self.first.is_none();
        self.check(&run, logits)?;
        if let Some(prefix) = self.prefix.as_mut().filter(|_| is_first && lengths.generate > 0) {
            let end = prefix.check_end(&mut self.decoder, lengths.depth + lengths.prompt);
            if end.is_err() {
                self.first = None;
            }
            end?;
        }
        Ok(run)
    }

    /// Compares the tokens of a run as the device holds them, as they were read while it ran, as
    /// they were verified, and as they were the first time.
    fn check(&mut self, run: &Timed, logits: Vec<f32>) -> Result<()> {
        let held = self.decoder.executor.read_words(self.decoder.graph.tokens)?;
        let given = self.script.prompt.len();
        same("was given", &self.script.prompt, "held", &held[..given], 0)?;
        let held = &held[given..given + run.tokens.len()];
        same("read while it ran", &run.tokens, "held at its end", held, given)?;
        self.prefix.iter().try_for_each(|prefix| prefix.check(&run.tokens))?;
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
    let fault = match a.iter().zip(b).position(|(a, b)| a != b) {
        None if a.len() == b.len() => return Ok(()),
        None => format!("{} tokens {what}, {} {other}", a.len(), b.len()),
        Some(i) => format!("token {}: {} {what}, {} {other}", from + i, a[i], b[i]),
    };
    Err(Error::CheckFailed(fault))
}

/// One test of `lathe bench decode`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// Tokens of a sequence.
    pub lengths: Lengths,
    /// Sequences decoded together.
    pub sequences: usize,
    /// How tokens are drawn; none for the greedy choice.
    pub sampling: Option<Sampling>,
}

impl Test {
    /// llama-bench's name of it.
    pub fn name(&self) -> String {
        let Lengths { depth, prompt, generate } = self.lengths;
        GenerationTest::name((prompt, generate, depth), self.sequences, self.sampling.as_ref())
    }

    /// Tokens that all of its sequences are given.
    pub fn given(&self) -> usize {
        self.sequences * self.lengths.given()
    }
}

/// A model whose graphs come one after another to one device: the weights are uploaded once.
pub struct Bench<'a> {
    model: &'a Model,
    gpu: Arc<Gpu>,
    options: DecodeOptions,
    /// Positions of each run that are compared with the reference before it is timed.
    verify: Option<usize>,
    /// The model in llama-bench's names.
    pub facts: MeasuredModel,
    pipelines: Pipelines,
    executor: Option<GpuExecutor>,
}

impl<'a> Bench<'a> {
    /// A bench for graphs of these contexts.
    ///
    /// # Errors
    /// The longest does not fit the device: nothing is loaded.
    pub fn new(
        gpu: &Arc<Gpu>,
        model: &'a Model,
        options: DecodeOptions,
        verify: Option<usize>,
        contexts: impl Iterator<Item = (usize, Option<Sampling>)>,
    ) -> Result<Self> {
        if let Some((context, sampling)) = contexts.max_by_key(|(context, _)| *context) {
            let longest = DecodeOptions { context, sampling, ..options.clone() };
            Predicted::of(gpu, &model.graph(Some(gpu), &longest)?).1?;
        }
        let (gpu, pipelines, facts) = (Arc::clone(gpu), Pipelines::default(), model.measured());
        Ok(Self { model, gpu, options, verify, facts, pipelines, executor: None })
    }

    /// The step for exactly this context, and an executor that holds it.
    fn graph(
        &mut self,
        context: usize,
        sequences: usize,
        sampling: Option<Sampling>,
        on: &mut dyn Observer,
    ) -> Result<(DecodeGraph, &mut GpuExecutor)> {
        let options = DecodeOptions { context, sequences, sampling, ..self.options.clone() };
        let graph = self.model.graph(Some(&self.gpu), &options)?;
        let recording = Arc::clone(&graph.recording);
        // One whose tensors lie otherwise is gone before their memory is taken again.
        let before = self.executor.take().filter(|before| before.lays_out(&recording));
        let executor = match &before {
            Some(before) => before.sharing(&self.pipelines, recording, Policy::Plain)?,
            None => memory::load(&self.gpu, &self.pipelines, &graph, on)?,
        };
        let shares = before.is_some();
        let executor = self.executor.insert(executor);
        if shares {
            // The tensors of the graph before are gone, and belong to its peak.
            self.gpu.forget_peak();
        }
        Ok((graph, executor))
    }

    /// Times a test at each of these numbers of steps per submission; `on_result` hears of each
    /// figure with its name.
    ///
    /// # Errors
    /// Outputs are wrong or not repeated, or the device is lost.
    pub fn test(
        &mut self,
        test: Test,
        tokens: &[u32],
        settings: &[usize],
        repetitions: usize,
        on: &mut dyn Observer,
        on_result: &mut dyn FnMut(&str, GenerationTest) -> Result<()>,
    ) -> Result<()> {
        if test.sequences > 1 {
            let measured = self.together(test, tokens, settings, repetitions, on)?;
            return measured.into_iter().try_for_each(|(named, test)| on_result(&named, test));
        }
        let (gpu, facts) = (Arc::clone(&self.gpu), self.facts.clone());
        let (verify, options) = (self.verify, self.options.clone());
        let (graph, executor) = self.graph(test.lengths.positions(), 1, test.sampling, on)?;
        let held = executor.device_bytes();
        let tokens = &tokens[..test.given()];
        let decoder = Decoder::new(&graph, executor);
        let mut trial = Trial::new(decoder, tokens, test.lengths, options.seed)?;
        verify.map_or(Ok(()), |positions| trial.verify(positions))?;
        // A prompt has no decode steps whose submission could matter.
        let settings: Vec<Option<usize>> = match test.lengths.generate {
            0 => vec![None],
            _ => settings.iter().copied().map(Some).collect(),
        };
        for steps in settings {
            let (began, named) = (SystemTime::now(), named(&facts, test, steps));
            on.begins(&named, 1 + repetitions);
            let mut run = |trial: &mut Trial<'_>| {
                let run = trial.run(steps.unwrap_or(1));
                on.ran();
                run
            };
            // All others must choose what the first chose. Its end is compared with a prompt, whose
            // pipelines the driver makes then, while the device idles.
            run(&mut trial)?;
            let settled = trial.settle(&gpu.adapter)?;
            let mut repetitions = Repetitions::new(repetitions);
            while repetitions.wanted().is_some() {
                let took = run(&mut trial)?.total();
                repetitions.push(took, gpu.is_throttled());
            }
            let (samples, watched) = repetitions.end(settled);
            on.ended();
            let mut result = result((&facts, &options, &graph), test, steps, &samples, began);
            (result.watched, result.verified) = (watched, trial.verified());
            let (predicted, _) = Predicted::of(&gpu, &graph);
            result.gpu_memory_bytes = predicted.measured(&gpu, held).bytes();
            on_result(&named, result)?;
        }
        Ok(())
    }

    /// Times a test of several sequences. No figure is returned before the tokens are known to be
    /// right.
    fn together(
        &mut self,
        test: Test,
        tokens: &[u32],
        settings: &[usize],
        repetitions: usize,
        on: &mut dyn Observer,
    ) -> Result<Vec<(String, GenerationTest)>> {
        let (n, each, generate) = (test.sequences, test.lengths.given(), test.lengths.generate);
        let prompts: Vec<Vec<u32>> = tokens.chunks(each).take(n).map(<[u32]>::to_vec).collect();
        let (gpu, facts, options) =
            (Arc::clone(&self.gpu), self.facts.clone(), self.options.clone());
        let (graph, executor) = self.graph(each + generate, n, None, on)?;
        let held = executor.device_bytes();
        let mut decoder = Decoder::new(&graph, executor);
        // A GPU that has idled while weights were read runs its first seconds at a fraction of its
        // clocks, and this may be the first test.
        let settled = gpu.adapter.software
            || steady::<Error>(&gpu.adapter, &mut || {
                let run = decoder.run_together(&prompts, generate, 8)?;
                Ok(run.steps.iter().sum::<Duration>().as_secs_f64())
            })?;
        if !settled {
            tracing::warn!("step times had not settled when the measured runs began");
        }
        let mut chosen: Vec<Vec<u32>> = Vec::new();
        let mut measured = Vec::new();
        for steps in settings.iter().copied() {
            let (began, named) = (SystemTime::now(), named(&facts, test, Some(steps)));
            on.begins(&named, 1 + repetitions);
            let mut time = || -> Result<Duration> {
                let run = decoder.run_together(&prompts, generate, steps)?;
                if chosen.is_empty() {
                    chosen = run.generated;
                } else if chosen != run.generated {
                    return Err(Error::CheckFailed(format!(
                        "{named}: two runs of the same {n} sequences chose different tokens"
                    )));
                }
                on.ran();
                Ok(run.steps.iter().sum())
            };
            time()?;
            let mut repetitions = Repetitions::new(repetitions);
            while repetitions.wanted().is_some() {
                repetitions.push(time()?, gpu.is_throttled());
            }
            let (samples, watched) = repetitions.end(settled);
            on.ended();
            let about = (&facts, &options, &graph);
            let result = result(about, test, Some(steps), &samples, began);
            measured.push((named, GenerationTest { watched, ..result }));
        }
        let (predicted, _) = Predicted::of(&gpu, &graph);
        let memory = predicted.measured(&gpu, held).bytes();
        let verified = self.alone(&prompts, &chosen, on)?;
        for (_, result) in &mut measured {
            (result.verified, result.gpu_memory_bytes) = (verified, memory);
        }
        Ok(measured)
    }

    /// Verifies one sequence against the CPU reference, and the choices of all against those that
    /// each makes alone after the same tokens. None where nothing is to be verified.
    fn alone(
        &mut self,
        prompts: &[Vec<u32>],
        chosen: &[Vec<u32>],
        on: &mut dyn Observer,
    ) -> Result<Option<Verified>> {
        let Some(positions) = self.verify else { return Ok(None) };
        let (depth, generate) = (prompts[0].len(), chosen[0].len() - 1);
        let seed = self.options.seed;
        let (graph, executor) = self.graph(depth + generate, 1, None, on)?;
        let mut decoder = Decoder::new(&graph, executor);
        let (prompt, generate) = (prompts[0].clone(), generate + 1);
        let script = Script { prompt, generate, seed, ..Script::default() };
        let mut verified = Prefix::verify(&mut decoder, &script, positions)?.verified;
        for (i, (prompt, chosen)) in prompts.iter().zip(chosen).enumerate() {
            verified.ties += decoder.ties(prompt, chosen).map_err(|e| match e {
                Error::CheckFailed(why) => Error::CheckFailed(format!("sequence {i}: {why}")),
                other => other,
            })?;
        }
        Ok(Some(verified))
    }
}

/// A test with its setting, for progress and messages.
fn named(facts: &MeasuredModel, test: Test, steps: Option<usize>) -> String {
    let setting = match steps {
        None => String::new(),
        Some(1) => ", 1 step a submission".into(),
        Some(n) => format!(", {n} steps a submission"),
    };
    format!("{} {}{setting}", facts.file(), test.name())
}

/// The figures of a test.
fn result(
    (model, options, graph): (&MeasuredModel, &DecodeOptions, &DecodeGraph),
    test: Test,
    steps_per_submit: Option<usize>,
    samples: &[Duration],
    began: SystemTime,
) -> GenerationTest {
    let Lengths { depth, prompt, generate } = test.lengths;
    let samples_ns: Vec<u64> = samples.iter().map(|d| d.as_nanos() as u64).collect();
    let tokens = (test.sequences * (prompt + generate)) as f64;
    let samples_ts: Vec<f64> = samples.iter().map(|d| tokens / d.as_secs_f64()).collect();
    let ns: Vec<f64> = samples_ns.iter().map(|ns| *ns as f64).collect();
    let ((avg_ns, stddev_ns), (mean, sd)) = (mean_sd(&ns), mean_sd(&samples_ts));
    GenerationTest {
        test: test.name(),
        model: model.clone(),
        type_k: options.kv.name().into(),
        type_v: options.kv.name().into(),
        activations: options.acts.name().into(),
        n_prompt: prompt,
        n_gen: generate,
        n_depth: depth,
        sequences: test.sequences,
        sampling: test.sampling,
        steps_per_submit,
        test_time: humantime::format_rfc3339_seconds(began).to_string(),
        avg_ns: avg_ns.round() as u64,
        stddev_ns: stddev_ns.round() as u64,
        avg_ts: mean,
        stddev_ts: sd,
        samples_ns,
        samples_ts,
        tok_s: TokS { mean, sd },
        gpu_memory_predicted_bytes: lathe_device::plan::memory::Memory::of(&graph.recording)
            .total(),
        tuned: graph.tuned(),
        run_grid: graph.run_grid(),
        kv_cache_bytes: graph.kv_bytes(),
        ..GenerationTest::default()
    }
}
