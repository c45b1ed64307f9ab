//! A model on a device: generation, verified and watched as far as it is asked for.

use std::sync::Arc;

use super::decoder::{Decoder, GaveUp, Pace, Run, Seen, Tokens};
use super::graph::DecodeGraph;
use super::memory;
use super::model::Model;
use super::options::{DecodeOptions, Prompts, Script};
use super::verify::{Checked, Verifier};
use super::{Observer, Phase};
use lathe_device::error::{Error, Result};
use lathe_device::execute::interpreter::{self, Found, Interpreter};
use lathe_device::execute::{CpuExecutor, Execute, GpuExecutor};
use lathe_device::gpu::{Gpu, Pipelines, Policy};
use lathe_device::plan::persistent::Persistent;
use lathe_record::AdapterSummary;
use lathe_record::steady::steady;

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
    Interpreter(Interpreter),
}

impl Model {
    /// The model on a device, ready to generate: weights uploaded, pipelines compiled. A context
    /// longer than the model was made for is cut to that.
    ///
    /// # Errors
    /// Errors of [`Model::graph`]; or the device has too little memory or refuses a pipeline.
    pub fn session(&self, gpu: &Arc<Gpu>, mut options: DecodeOptions) -> Result<Session<'_>> {
        options.context = options.context.min(self.config.context_length);
        let graph = self.graph(Some(gpu), &options)?;
        let executor = memory::load(gpu, &Pipelines::default(), &graph, &mut ())?;
        Ok(Session::new(self, graph, Some(executor), options))
    }
}

/// Steps that a decode looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// First positions that are compared with the reference.
    pub verify: Option<usize>,
    /// Step by step, where the observer sees the logits of each; else at full speed.
    pub every_step: bool,
}

/// Observer behind tokens that were handed out before, each look at a step verified first.
struct Behind<'a> {
    on: &'a mut dyn Observer,
    /// Tokens that the other has heard of.
    known: usize,
    verifier: Option<Verifier<'a>>,
}

impl Observer for Behind<'_> {
    fn token(&mut self, token: u32) {
        match self.known.checked_sub(1) {
            Some(left) => self.known = left,
            None => self.on.token(token),
        }
    }

    fn look(&mut self, seen: Seen<'_>) -> Result<()> {
        self.verifier.as_mut().map_or(Ok(()), |verifier| verifier.compare(seen))?;
        self.on.look(seen)
    }
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

    /// A session whose kernels run in the interpreter, with subgroups of `width` invocations.
    pub fn interpreted(
        model: &'a Model,
        graph: DecodeGraph,
        options: DecodeOptions,
        width: u32,
    ) -> Self {
        let settings =
            interpreter::Options { width, seed: u64::from(options.seed), ..Default::default() };
        let executor = Interpreter::new(Arc::clone(&graph.recording), settings);
        Self { model, graph, executor: Executor::Interpreter(executor), options }
    }

    /// Faults of kernels that the interpreter has seen.
    pub fn found(&self) -> &[Found] {
        match &self.executor {
            Executor::Interpreter(executor) => &executor.found,
            Executor::Gpu(_) | Executor::Cpu(_) => &[],
        }
    }

    /// Bytes of the executor's buffers on a device.
    pub fn device_bytes(&self) -> u64 {
        match &self.executor {
            Executor::Gpu(executor) => executor.device_bytes(),
            Executor::Cpu(_) | Executor::Interpreter(_) => 0,
        }
    }

    /// Generates up to `n` tokens of a new sequence, fewer where the model ends it; `on_token`
    /// hears of each as soon as its submission ends.
    ///
    /// # Errors
    /// The prompt is empty, has tokens that the model lacks, or does not fit the context together
    /// with `n`; or the device is lost.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        n: usize,
        mut on_token: impl FnMut(u32),
    ) -> Result<Run> {
        let script = self.script(prompt, n);
        let mut run = Run::default();
        self.take_over(&script, None, &mut run, &mut Tokens(&mut on_token))?;
        Ok(run)
    }

    /// Generates like [`Self::generate`], but behind the tokens with which both the last sequence
    /// and this prompt begin: they are in the caches already, and only the others run
    /// ([`Run::kept`]). A turn of a conversation takes the time of its own tokens.
    ///
    /// # Errors
    /// Errors of [`Self::generate`].
    pub fn go_on(&mut self, prompt: &[u32], n: usize, on: &mut dyn Observer) -> Result<Run> {
        let script = Script { keep: true, ..self.script(prompt, n) };
        let mut run = Run::default();
        self.take_over(&script, None, &mut run, on)?;
        Ok(run)
    }

    fn script(&self, prompt: &[u32], n: usize) -> Script {
        Script {
            prompt: prompt.to_vec(),
            generate: n,
            steps_per_submit: self.options.steps_per_submit,
            stop_at: self.model.config.end_tokens.clone(),
            seed: self.options.seed,
            ..Script::default()
        }
    }

    /// Verifies, warms a GPU up, runs a script and verifies its end; or runs it step by step. One
    /// that fails leaves in `run` what ran, and how far it was verified.
    ///
    /// # Errors
    /// The script does not fit, an output is wrong, `on` fails, or the device is lost.
    pub fn decode(
        &mut self,
        script: &Script,
        looks: Looks,
        run: &mut Run,
        on: &mut dyn Observer,
    ) -> Result<()> {
        self.take_over(script, Some(looks), run, on)
    }

    /// Runs a script. If a grid barrier of [`Persistent::Auto`] times out, the session goes on with a
    /// dispatch per stage, after the tokens that were handed out.
    fn take_over(
        &mut self,
        script: &Script,
        looks: Option<Looks>,
        run: &mut Run,
        on: &mut dyn Observer,
    ) -> Result<()> {
        let Err(error) = self.attempt(script, 0, looks, run, on) else { return Ok(()) };
        let gave_up = self.without_persistent(error, run.generated.len())?;
        let Run { generated: known, ttft, .. } = std::mem::take(run);
        let again = self.attempt(&script.behind(&known), known.len(), looks, run, on);
        let (verified, own) = (run.verified, std::mem::take(run));
        *run = Run { persistent_gave_up: Some(gave_up), verified, ..own.behind(&known, ttft) };
        again
    }

    /// Runs a script whose first `known` tokens were handed out before.
    fn attempt(
        &mut self,
        script: &Script,
        known: usize,
        looks: Option<Looks>,
        run: &mut Run,
        on: &mut dyn Observer,
    ) -> Result<()> {
        let Looks { verify, every_step } = looks.unwrap_or_default();
        let gpu = match &self.executor {
            Executor::Gpu(executor) => Some(Arc::clone(&executor.gpu)),
            Executor::Cpu(_) | Executor::Interpreter(_) => None,
        };
        let mut decoder = self.decoder();
        if every_step {
            on.phase(Phase::Running);
            let mut script = script.clone();
            let mut reference =
                verify.map(|_| CpuExecutor::new(Arc::clone(&decoder.graph.recording)));
            let verifier = match reference.as_mut().zip(verify) {
                None => None,
                Some((reference, n)) => {
                    script.prompts = Prompts::TokenByToken;
                    Some(Verifier::new(decoder.graph, reference, script.seed, n)?)
                }
            };
            let mut behind = Behind { on, known, verifier };
            let played = decoder.play(&script, Pace::Steps, run, &mut behind);
            run.verified = behind.verifier.as_ref().map(Verifier::verified);
            played?;
            if let Some((verified, verifier)) = run.verified.as_mut().zip(behind.verifier.as_mut())
            {
                verified.end_nmse = decoder.end_agrees(0, Some(verifier))?;
            }
            return on.looked();
        }
        if verify.is_some() {
            on.phase(Phase::Verifying);
        }
        let mut checked = Checked::unverified(script.clone());
        let begun = checked.verify(&mut decoder, verify);
        run.verified = checked.verified();
        begun?;
        if let Some(gpu) = gpu.filter(|_| looks.is_some()) {
            on.phase(Phase::WarmingUp);
            settle(&gpu.adapter, &mut decoder, script)?;
        }
        on.phase(Phase::Running);
        checked.play(&mut decoder, Pace::Timed, run, &mut Behind { on, known, verifier: None })?;
        if verify.is_some() {
            on.phase(Phase::VerifyingEnd);
        }
        checked.check_end(&mut decoder)?;
        run.verified = checked.verified();
        Ok(())
    }

    /// Goes on with a dispatch per stage and a warning if `error` is a grid barrier's time-out and
    /// the user did not choose the persistent kernel. `tokens` were handed out until then.
    /// [`Persistent::Auto`] is off on this device from now on.
    ///
    /// # Errors
    /// `error` itself where it is another or the runs were an explicit choice; those of
    /// [`Model::graph`].
    fn without_persistent(&mut self, error: Error, tokens: usize) -> Result<GaveUp> {
        let Executor::Gpu(executor) = &self.executor else { return Err(error) };
        let Some(kernel) = executor.recording.persistent.first() else { return Err(error) };
        let waits = match error {
            Error::GridBarrier { waits, .. } if self.options.persistent.is_auto() => waits,
            other => return Err(other),
        };
        let (gpu, grid) = (&executor.gpu, Persistent::Of(kernel.grid).to_string());
        tracing::warn!(
            "{}: workgroups of a persistent kernel of operations waited in vain for others ({waits} of them); going \
             on with a dispatch a stage, as with --persistent off, after {tokens} tokens that stand",
            gpu.adapter.name
        );
        gpu.distrust_persistent(
            "workgroups of a persistent kernel waited in vain for others".into(),
        );
        self.options.persistent = Persistent::Off;
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
            Executor::Interpreter(executor) => executor,
        };
        Decoder::new(&self.graph, executor)
    }
}

/// Repeats the first steps of a script until their times no longer move: a GPU that has idled while
/// weights were read runs its first seconds at a fraction of its clocks. Returns whether they
/// settled; on a software adapter, which is no subject for speed, at once.
pub(super) fn settle(
    adapter: &AdapterSummary,
    decoder: &mut Decoder<'_>,
    script: &Script,
) -> Result<bool> {
    if adapter.software {
        return Ok(true);
    }
    let generate = script.generate.clamp(2, 33);
    let short = Script { generate, stop_at: Vec::new(), ..script.clone() };
    let fits = short.positions() <= decoder.graph.context;
    let short = if fits { &short } else { script };
    let mut time = || Ok(decoder.run(short, &mut |_| {})?.step_seconds());
    let settled = steady::<Error>(adapter, &mut time)?;
    if !settled {
        tracing::warn!("step times had not settled when the measured runs began");
    }
    Ok(settled)
}
