//! A model on a device: generation, verified and watched as far as it is asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decoder::{Decoder, GaveUp, Run};
use super::graph::DecodeGraph;
use super::model::Model;
use super::options::{DecodeOptions, Prompts, Script};
use super::verify::{Checked, Verifier};
use super::{Observer, Stage};
use lathe_device::error::{Error, Result};
use lathe_device::execute::{CpuExecutor, Execute, GpuExecutor};
use lathe_device::gpu::{Pipelines, Policy};
use lathe_device::plan::run::Runs;
use lathe_record::AdapterSummary;
use lathe_record::record::Verified;
use lathe_record::steady::steady;

/// Start of a generation.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// Text, through the file's tokenizer.
    Text(&'a str),
    /// Tokens.
    Tokens(&'a [u32]),
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Prompt::Text(text)
    }
}

impl<'a> From<&'a [u32]> for Prompt<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Prompt::Tokens(tokens)
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Prompt<'a> {
    fn from(tokens: &'a [u32; N]) -> Self {
        Prompt::Tokens(tokens)
    }
}

/// A model on a device, or without one by the reference.
#[derive(Debug)]
pub struct Session<'a> {
    model: &'a Model,
    /// The decode step, with the variant that serves each operation and why.
    pub graph: DecodeGraph,
    executor: Executor,
    /// Options it was built with.
    pub options: DecodeOptions,
}

#[derive(Debug)]
enum Executor {
    Gpu(GpuExecutor),
    Cpu(CpuExecutor),
}

/// Steps that a decode looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// First positions that are compared with the reference.
    pub verify: Option<usize>,
    /// Step by step, where the observer sees the logits of each; else at full speed.
    pub every_step: bool,
}

/// A decode that came to its end.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The run.
    pub run: Run,
    /// The comparison with the reference, where one was asked for.
    pub verified: Option<Verified>,
}

/// Tokens that a run handed out before it failed.
#[derive(Default)]
struct Known {
    tokens: Vec<u32>,
    /// Time to the first of them.
    ttft: Duration,
}

impl<'a> Session<'a> {
    /// A session of a graph that was built with these options; without an executor on a device the
    /// reference runs it.
    pub fn new(
        model: &'a Model,
        graph: DecodeGraph,
        executor: Option<GpuExecutor>,
        options: DecodeOptions,
    ) -> Self {
        let cpu = || Executor::Cpu(CpuExecutor::new(Arc::clone(&graph.recording)));
        let executor = executor.map_or_else(cpu, Executor::Gpu);
        Self { model, graph, executor, options }
    }

    /// Bytes of the executor's buffers on a device.
    pub fn device_bytes(&self) -> u64 {
        match &self.executor {
            Executor::Gpu(executor) => executor.device_bytes(),
            Executor::Cpu(_) => 0,
        }
    }

    /// Generates up to `n` tokens of a new sequence, fewer where the model ends it; `on_token`
    /// hears of each as soon as its submission ends.
    ///
    /// # Errors
    /// The prompt is empty, has tokens that the model lacks, or does not fit the context together
    /// with `n`; the file has no tokenizer for a text; or the device is lost.
    pub fn generate<'p>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        n: usize,
        on_token: impl FnMut(u32),
    ) -> Result<Run> {
        struct Tokens<F>(F);
        impl<F: FnMut(u32)> Observer for Tokens<F> {
            fn token(&mut self, token: u32) {
                self.0(token);
            }
        }
        let prompt = match prompt.into() {
            Prompt::Text(text) => self.model.encode(text)?,
            Prompt::Tokens(tokens) => tokens.to_vec(),
        };
        let script = Script {
            prompt,
            generate: n,
            steps_per_submit: self.options.steps_per_submit,
            stop_at: self.model.config.end_tokens.clone(),
            seed: self.options.seed,
            ..Script::default()
        };
        Ok(self.take_over(&script, None, &mut Tokens(on_token))?.run)
    }

    /// Verifies, warms a GPU up, runs a script and verifies its end; or runs it step by step.
    ///
    /// # Errors
    /// The script does not fit, an output is wrong, `on` fails, or the device is lost.
    pub fn decode(
        &mut self,
        script: &Script,
        looks: Looks,
        on: &mut dyn Observer,
    ) -> Result<Decoded> {
        self.take_over(script, Some(looks), on)
    }

    /// Runs a script. If a grid barrier of [`Runs::Auto`] times out, the session goes on with a
    /// dispatch per stage, after the tokens that were handed out.
    fn take_over(
        &mut self,
        script: &Script,
        looks: Option<Looks>,
        on: &mut dyn Observer,
    ) -> Result<Decoded> {
        let mut known = Known::default();
        match self.attempt(script, looks, &mut known, on) {
            Ok(decoded) => Ok(decoded),
            Err(error) => {
                let gave_up = self.without_runs(error, known.tokens.len())?;
                let mut decoded = self.attempt(script, looks, &mut known, on)?;
                decoded.run.runs_gave_up = Some(gave_up);
                Ok(decoded)
            }
        }
    }

    /// Runs a script after the known tokens, and adds those that it hands out.
    fn attempt(
        &mut self,
        script: &Script,
        looks: Option<Looks>,
        known: &mut Known,
        on: &mut dyn Observer,
    ) -> Result<Decoded> {
        let before = known.tokens.clone();
        let own = script.behind(&before);
        let adapter = match &self.executor {
            Executor::Gpu(executor) => Some(Arc::clone(&executor.gpu)),
            Executor::Cpu(_) => None,
        };
        let mut decoder = self.decoder();
        let (mut count, mut begun) = (0, Instant::now());
        let mut hand_out = |token: u32, begun: Instant, on: &mut dyn Observer| {
            count += 1;
            if count > before.len() {
                if known.tokens.is_empty() {
                    known.ttft = begun.elapsed();
                }
                known.tokens.push(token);
                on.token(token);
            }
        };
        let Looks { verify, every_step } = looks.unwrap_or_default();
        let (run, verified) = if every_step {
            on.stage(Stage::Running);
            let generated = own.generate.max(own.forced.len());
            let chosen = own.prompt.len()..own.prompt.len() + generated;
            let (run, verified) = step_by_step(&mut decoder, &own, verify, &mut |seen| {
                on.look(seen)?;
                if chosen.contains(&(seen.position + 1)) {
                    hand_out(seen.choice, begun, on);
                }
                Ok(())
            })?;
            on.looked()?;
            (run.behind(&before, known.ttft), verified)
        } else {
            if verify.is_some() {
                on.stage(Stage::Verifying);
            }
            let mut checked = Checked::begin(&mut decoder, script.clone(), verify)?;
            let adapter = adapter.as_ref().map(|gpu| &gpu.adapter).filter(|a| !a.software);
            if let Some(adapter) = adapter.filter(|_| looks.is_some()) {
                on.stage(Stage::WarmingUp);
                if !settle(adapter, &mut decoder, script)? {
                    tracing::warn!("step times had not settled when the measured run began");
                }
            }
            on.stage(Stage::Running);
            begun = Instant::now();
            let run = decoder.run(&own, &mut |token| hand_out(token, begun, on))?;
            let run = run.behind(&before, known.ttft);
            checked.check(&run.generated)?;
            if verify.is_some() {
                on.stage(Stage::VerifyingEnd);
            }
            checked.check_end(&mut decoder, own.prompt.len())?;
            (run, checked.verified())
        };
        Ok(Decoded { run, verified })
    }

    /// Goes on with a dispatch per stage and a warning if `error` is a grid barrier's time-out and
    /// the user did not choose the persistent kernel. `tokens` were handed out until then.
    /// [`Runs::Auto`] is off on this device from now on.
    ///
    /// # Errors
    /// `error` itself where it is another or the runs were an explicit choice; those of
    /// [`Model::graph`].
    fn without_runs(&mut self, error: Error, tokens: usize) -> Result<GaveUp> {
        let Executor::Gpu(executor) = &self.executor else { return Err(error) };
        let Some(run) = executor.recording.runs.first() else { return Err(error) };
        let waits = match error {
            Error::Waits { waits, .. } if self.options.runs.is_auto() => waits,
            other => return Err(other),
        };
        let (gpu, grid) = (&executor.gpu, Runs::Of(run.grid).to_string());
        tracing::warn!(
            "{}: workgroups of a run of operations waited in vain for others ({waits} of them); going \
             on with a dispatch a stage, as with --runs off, after {tokens} tokens that stand",
            gpu.adapter.name
        );
        gpu.distrust_runs("workgroups of a run waited in vain for others".into());
        self.options.runs = Runs::Off;
        let graph = self.model.graph(Some(gpu), &self.options)?;
        let recording = Arc::clone(&graph.recording);
        let executor = executor.sharing(&Pipelines::default(), recording, Policy::Plain)?;
        (self.graph, self.executor) = (graph, Executor::Gpu(executor));
        Ok(GaveUp { grid, waits, tokens })
    }

    /// The decoder of its graph.
    pub fn decoder(&mut self) -> Decoder<'_> {
        let executor: &mut dyn Execute = match &mut self.executor {
            Executor::Gpu(executor) => executor,
            Executor::Cpu(executor) => executor,
        };
        Decoder::new(&self.graph, executor)
    }
}

/// Repeats the first steps of a script until their times no longer move: a GPU that has idled while
/// weights were read runs its first seconds at a fraction of its clocks. Returns whether they
/// settled.
pub(super) fn settle(
    adapter: &AdapterSummary,
    decoder: &mut Decoder<'_>,
    script: &Script,
) -> Result<bool> {
    let generate = script.generate.clamp(2, 33);
    let short = Script { generate, stop_at: Vec::new(), ..script.clone() };
    let fits = short.positions() <= decoder.graph.context;
    let short = if fits { &short } else { script };
    steady::<Error>(adapter, &mut || Ok(decoder.run(short, &mut |_| {})?.step_seconds()))
}

/// Runs step by step, the first `verify` positions compared with the reference and the prompt in
/// chunks compared with decode steps. `look` sees each step that agrees: those of the prompt too
/// where it runs token by token, as the script says and verifying asks.
fn step_by_step(
    decoder: &mut Decoder<'_>,
    script: &Script,
    verify: Option<usize>,
    look: &mut dyn FnMut(super::Seen<'_>) -> Result<()>,
) -> Result<(Run, Option<Verified>)> {
    let Some(n) = verify else { return Ok((decoder.observe(script, look)?, None)) };
    let script = Script { prompts: Prompts::TokenByToken, ..script.clone() };
    let mut reference = CpuExecutor::new(Arc::clone(&decoder.graph.recording));
    let mut verifier = Verifier::new(decoder.graph, &mut reference, script.seed, n)?;
    let run = decoder.observe(&script, &mut |seen| {
        verifier.compare(seen)?;
        look(seen)
    })?;
    let mut verified = verifier.verified();
    verified.worst_nmse = verified.worst_nmse.max(decoder.chunks_agree(&script)?);
    Ok((run, Some(verified)))
}
