//! Whole generations, timed: verified against the reference first, and the same every time.
//!
//! ```text
//! reset → fill (depth, untimed) → prompt (timed) → generate (timed) → tokens and logits compared
//! ```

mod suite;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lathe_device::error::{Error, Result};
use lathe_device::execute::GpuExecutor;
use lathe_device::gpu::{Gpu, Pipelines, Policy};
use lathe_device::measure::Repetitions;
use lathe_record::AdapterSummary;
use lathe_record::record::{Decoded, GenerationTest, MeasuredModel, Verified};
use lathe_record::steady::steady;

use super::Observer;
use super::decoder::{Decoder, Pace, Run};
use super::graph::DecodeGraph;
use super::memory::{self, Predicted};
use super::model::Model;
use super::options::{DecodeOptions, Script};
use super::sampling::Sampling;
use super::session::settle;
use super::verify::{Checked, logits_limit};

pub use suite::{Config, Tier};

/// One test: tokens of a timed run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// Tokens in the cache before anything is timed.
    pub depth: usize,
    /// Prompt tokens, timed.
    pub prompt: usize,
    /// Decode steps, timed. The prompt's last step chooses a token too: `generate` steps after a
    /// prompt make one token more.
    pub generate: usize,
    /// Sequences decoded together, each with its own prompt; figures are of all together.
    pub sequences: usize,
    /// Settings of sampling; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Positions of the context beyond those that a run processes.
    pub spare: usize,
}

impl Test {
    /// llama-bench's name of it.
    pub fn name(&self) -> String {
        let lengths = (self.prompt, self.generate, self.depth);
        GenerationTest::name(lengths, self.sequences, self.sampling.as_ref())
    }

    /// Tokens that each sequence is given: with neither depth nor prompt the one that generation
    /// starts from.
    fn each(&self) -> usize {
        (self.depth + self.prompt).max(1)
    }

    /// Tokens that all sequences are given.
    pub fn given(&self) -> usize {
        self.sequences * self.each()
    }

    /// Positions of the context: those that a sequence processes, and spare ones.
    pub fn positions(&self) -> usize {
        let first = usize::from(self.sequences > 1 && !self.is_fed());
        self.depth + self.prompt + self.generate + first + self.spare
    }

    fn is_fed(&self) -> bool {
        self.depth + self.prompt > 0
    }
}

/// Settings of the timing.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Numbers of decode steps per submission, in turns, so that drift affects all alike.
    pub steps_per_submit: Vec<usize>,
    /// Untimed runs before those that count; at least one.
    pub warm_ups: usize,
    /// Timed runs at each number of steps per submission.
    pub repetitions: usize,
    /// First positions that are verified; none to leave that out.
    pub verify: Option<usize>,
}

/// Runs of the same tokens on one executor.
pub struct Trial<'a> {
    decoder: Decoder<'a>,
    test: Test,
    /// Prompt of each sequence.
    prompts: Vec<Vec<u32>>,
    /// The first sequence and its verification.
    checked: Checked,
}

impl<'a> Trial<'a> {
    /// Checks that the tokens fit the test and the decoder's graph, and verifies the first
    /// positions of a single sequence, if told so.
    ///
    /// # Errors
    /// More or fewer tokens than the test needs, one that the model lacks, nothing to time, or more
    /// positions than the context; and those of [`Checked::begin`].
    pub fn new(
        mut decoder: Decoder<'a>,
        test: Test,
        tokens: &[u32],
        seed: u32,
        verify: Option<usize>,
    ) -> Result<Self> {
        let usage = |what: String| Err(Error::Usage(what));
        if decoder.graph.sequences != test.sequences {
            let (n, of) = (test.sequences, decoder.graph.sequences);
            return usage(format!("a test of {n} sequences on a graph of {of}"));
        }
        if tokens.len() != test.given() {
            let (tokens, given) = (tokens.len(), test.given());
            return usage(format!("{tokens} tokens for a run that is given {given}"));
        }
        if test.prompt + test.generate == 0 {
            return usage("a run without prompt and generation times nothing".into());
        }
        decoder.graph.knows(tokens, "")?;
        decoder.graph.fits(test.positions())?;
        let prompts: Vec<Vec<u32>> = tokens.chunks(test.each()).map(<[u32]>::to_vec).collect();
        let script = Script {
            prompt: prompts[0].clone(),
            depth: test.depth,
            generate: test.generate + usize::from(test.is_fed()),
            seed,
            ..Script::default()
        };
        let verify = verify.filter(|_| test.sequences == 1);
        let checked = Checked::begin(&mut decoder, script, verify)?;
        Ok(Self { decoder, test, prompts, checked })
    }

    /// The comparisons so far, where any was asked for.
    pub fn verified(&self) -> Option<Verified> {
        self.checked.verified()
    }

    /// Runs until times no longer move, generating, or the whole test where nothing is generated:
    /// a GPU that has idled while weights were read or a graph was built runs at a fraction of its
    /// clocks. Returns whether they settled.
    fn settle(&mut self, adapter: &AdapterSummary) -> Result<bool> {
        if adapter.software {
            return Ok(true);
        }
        if self.test.generate == 0 || self.test.sequences > 1 {
            return steady(adapter, &mut || Ok(total(&self.run(8)?).as_secs_f64()));
        }
        let short = Script {
            prompt: self.prompts[0][..1].to_vec(),
            generate: self.decoder.graph.context.min(32),
            steps_per_submit: Some(8),
            depth: 0,
            ..self.checked.script.clone()
        };
        settle(adapter, &mut self.decoder, &short)
    }

    /// Runs the sequences, timed: `ttft` is the time of the prompt, `steps` those of `generate`
    /// steps.
    ///
    /// # Errors
    /// It is not the run it was the first time: a cache that remembers, or an operation that does
    /// not always give the same. The end of a verified trial's first run is wrong.
    pub fn run(&mut self, steps_per_submit: usize) -> Result<Run> {
        let Self { decoder, test, prompts, checked } = self;
        if test.sequences > 1 {
            let mut run = decoder.run_together(prompts, test.generate, steps_per_submit)?;
            // Prompts are what the caches held before: `generate` steps follow them.
            run.ttft = Duration::ZERO;
            checked.check(&run.generated)?;
            return Ok(run);
        }
        let (mut run, is_first) = (Run::default(), !checked.has_run());
        checked.script.steps_per_submit = Some(steps_per_submit);
        checked.play(decoder, Pace::Full, &mut run, &mut ())?;
        if test.prompt == 0 {
            let first = std::mem::take(&mut run.ttft);
            // Tokens in the cache are not timed; without any the first token takes a step.
            if test.depth == 0 {
                run.steps.insert(0, first);
            }
        }
        if is_first && test.generate > 0 {
            checked.check_end(decoder)?;
        }
        Ok(run)
    }
}

/// Time of the prompt and the steps together.
fn total(run: &Run) -> Duration {
    run.ttft + run.step_time()
}

/// Runs of a test that count, and all that is known of them.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Runs with their decode steps per submission, in the order in which they ran.
    runs: Vec<(usize, Run)>,
    /// All that the runs have in common.
    figures: GenerationTest,
}

/// A model whose graphs come one after another to one device: the weights are uploaded once.
pub struct Bench<'a> {
    model: &'a Model,
    gpu: Arc<Gpu>,
    options: DecodeOptions,
    settings: Settings,
    /// The model in llama-bench's names.
    pub facts: MeasuredModel,
    pipelines: Pipelines,
    executor: Option<GpuExecutor>,
}

impl<'a> Bench<'a> {
    /// A bench for these tests.
    ///
    /// # Errors
    /// The longest does not fit the device: nothing is loaded.
    pub fn new(
        gpu: &Arc<Gpu>,
        model: &'a Model,
        options: &DecodeOptions,
        settings: &Settings,
        tests: &[Test],
    ) -> Result<Self> {
        if let Some(longest) = tests.iter().max_by_key(|test| test.positions()) {
            let (context, sampling) = (longest.positions(), longest.sampling);
            let longest = DecodeOptions { context, sampling, ..options.clone() };
            Predicted::of(gpu, &model.graph(Some(gpu), &longest)?).1?;
        }
        Ok(Self {
            model,
            gpu: Arc::clone(gpu),
            options: options.clone(),
            settings: settings.clone(),
            facts: model.measured(),
            pipelines: Pipelines::default(),
            executor: None,
        })
    }

    /// The step for exactly this context, and an executor that holds it.
    fn graph(&mut self, test: &Test, on: &mut dyn Observer) -> Result<DecodeGraph> {
        let (context, sequences, sampling) = (test.positions(), test.sequences, test.sampling);
        let options = DecodeOptions { context, sequences, sampling, ..self.options.clone() };
        let graph = self.model.graph(Some(&self.gpu), &options)?;
        let recording = Arc::clone(&graph.recording);
        // One whose tensors lie otherwise is gone before their memory is taken again.
        let before = self.executor.take().filter(|before| before.lays_out(&recording));
        self.executor = Some(match &before {
            Some(before) => before.sharing(&self.pipelines, recording, Policy::Plain)?,
            None => memory::load(&self.gpu, &self.pipelines, &graph, on)?,
        });
        if before.is_some() {
            drop(before);
            // The tensors of the graph before are gone, and belong to its peak.
            self.gpu.forget_peak();
        }
        Ok(graph)
    }

    /// Times a test. No figure is returned before outputs are known to be right.
    ///
    /// # Errors
    /// Outputs are wrong or not repeated, or the device is lost.
    pub fn measure(
        &mut self,
        test: Test,
        tokens: &[u32],
        on: &mut dyn Observer,
    ) -> Result<Measured> {
        let test_time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let tokens = &tokens[..test.given()];
        let graph = self.graph(&test, on)?;
        let Some(executor) = &mut self.executor else { unreachable!("made with the graph") };
        let held = executor.device_bytes();
        let Settings { steps_per_submit, warm_ups, repetitions, verify } = &self.settings;
        // A prompt has no decode steps whose submission could matter.
        let settings = if test.generate == 0 { &[1][..] } else { steps_per_submit };
        let decoder = Decoder::new(&graph, executor);
        let mut trial = Trial::new(decoder, test, tokens, self.options.seed, *verify)?;
        let warm_ups = (*warm_ups).max(1);
        let named = format!("{} {}", self.facts.file(), test.name());
        on.begins(&named, warm_ups + repetitions * settings.len());
        // All others must choose what the first chose. Its end is compared with a prompt, whose
        // pipelines the driver makes then, while the device idles.
        for _ in 0..warm_ups {
            trial.run(settings[0])?;
            on.ran();
        }
        let settled = trial.settle(&self.gpu.adapter)?;
        let mut repetitions = Repetitions::new(*repetitions);
        while repetitions.wanted().is_some() {
            let (mut runs, mut held_down) = (Vec::new(), false);
            for steps in settings {
                runs.push((*steps, trial.run(*steps)?));
                held_down |= self.gpu.is_throttled();
                on.ran();
            }
            repetitions.push(runs, held_down);
        }
        on.ended();
        let (runs, watched) = repetitions.end(settled);
        let runs: Vec<_> = runs.into_iter().flatten().collect();
        let (predicted, _) = Predicted::of(&self.gpu, &graph);
        let peak = predicted.measured(&self.gpu, held).bytes();
        let prompts = std::mem::take(&mut trial.prompts);
        let verified = match (test.sequences, trial.verified()) {
            (1, verified) => verified,
            _ => self.alone(test, &prompts, &runs[0].1.generated, logits_limit(&graph), on)?,
        };
        let figures = GenerationTest {
            test: test.name(),
            model: self.facts.clone(),
            type_k: self.options.kv.name().into(),
            type_v: self.options.kv.name().into(),
            activations: graph.acts.name().into(),
            n_prompt: test.prompt,
            n_gen: test.generate,
            n_depth: test.depth,
            sequences: test.sequences,
            test_time,
            of: Decoded {
                sampling: test.sampling,
                kv_cache_bytes: graph.kv_bytes(),
                gpu_memory_bytes: peak,
                gpu_memory_predicted_bytes: predicted.predicted_bytes,
                verified,
                persistent_grid: graph.persistent_grid(),
                selected: graph.selected,
                watched,
            },
            ..GenerationTest::default()
        };
        Ok(Measured { runs, figures })
    }

    /// Verifies one sequence against the CPU reference, and the choices of all against those that
    /// each makes alone after the same tokens, whose logits are off by an NMSE of up to `limit`. None
    /// where nothing is to be verified.
    fn alone(
        &mut self,
        test: Test,
        prompts: &[Vec<u32>],
        chosen: &[u32],
        limit: f64,
        on: &mut dyn Observer,
    ) -> Result<Option<Verified>> {
        let Some(positions) = self.settings.verify else { return Ok(None) };
        let one = Test { sequences: 1, depth: prompts[0].len(), prompt: 0, ..test };
        let graph = self.graph(&one, on)?;
        let Some(executor) = &mut self.executor else { unreachable!("made with the graph") };
        let mut decoder = Decoder::new(&graph, executor);
        let (prompt, generate, seed) = (prompts[0].clone(), test.generate + 1, self.options.seed);
        let script = Script { prompt, generate, seed, ..Script::default() };
        let checked = Checked::begin(&mut decoder, script, Some(positions))?;
        let mut verified = checked.verified().unwrap_or_default();
        for (i, (prompt, chosen)) in prompts.iter().zip(chosen.chunks(generate)).enumerate() {
            verified.ties += decoder.ties(prompt, chosen, limit).map_err(|e| match e {
                Error::CheckFailed(why) => Error::CheckFailed(format!("sequence {i}: {why}")),
                other => other,
            })?;
        }
        Ok(Some(verified))
    }
}

impl Measured {
    /// Figures of the test at each number of steps per submission; none where nothing is generated.
    pub fn figures(&self) -> Vec<GenerationTest> {
        let mut settings: Vec<usize> = Vec::new();
        for (steps, _) in &self.runs {
            if !settings.contains(steps) {
                settings.push(*steps);
            }
        }
        let of = |steps: usize| {
            let runs = self.runs.iter().filter(|(own, _)| *own == steps);
            let figures = GenerationTest {
                steps_per_submit: (self.figures.n_gen > 0).then_some(steps),
                samples_ns: runs.map(|(_, run)| total(run).as_nanos() as u64).collect(),
                ..self.figures.clone()
            };
            figures.settled()
        };
        settings.into_iter().map(of).collect()
    }
}
