//! Outputs compared before and after a run is timed: its first positions with the CPU reference,
//! its prompt in chunks with decode steps, its end with the same tokens run as a prompt.

use std::sync::Arc;

use lathe_kernels::{FloatFormat, KvFormat, StateWord};
use lathe_reference::nmse;

use super::Observer;
use super::decoder::{Decoder, Pace, Run, Seen, prompt_parts, runs_in_chunks};
use super::graph::DecodeGraph;
use super::options::{Prompts, Script};
use super::sampling::sample_token;
use lathe_device::error::{Error, Result};
use lathe_device::execute::{CpuExecutor, Execute, GpuExecutor};
use lathe_device::judge::{self, diff::Divergence};
use lathe_device::plan::recording::{Part, Tensor, TensorInit};
use lathe_record::record::Verified;

/// Positions that are verified before anything is timed, where nothing else is asked.
pub const VERIFIED: usize = 8;

/// Largest NMSE of a step's logits against the reference: rounding where everything is stored in
/// f32, and the error of caches or activations in 16 bits. In q8_0 a value half way between two
/// quants becomes either, and the more of them do the less exact their inputs were: 1.3e-4 was
/// measured between a prompt in chunks, whose activations are f16, and token by token.
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

/// Largest distance below the largest logit of one that may be chosen in its place, as a share of
/// the largest magnitude: rounding of logits with an NMSE of `limit`, and of those of a cache in
/// q8_0 the measured error and no more.
fn tie_margin(limit: f64) -> f32 {
    limit.min(2e-4).sqrt() as f32
}

/// NMSE of logits; an error with `fault`'s words where it exceeds the limit or is no number.
fn compared(
    expected: &[f32],
    got: &[f32],
    limit: f64,
    fault: impl FnOnce(String) -> String,
) -> Result<f64> {
    let [a, b] = [expected, got].map(|logits| logits.iter().map(|v| f64::from(*v)));
    let error = nmse(a, b);
    match error.is_nan() || error > limit {
        true => Err(Error::CheckFailed(fault(format!("NMSE {error:.3e} > {limit:.0e}")))),
        false => Ok(error),
    }
}

/// A second executor that repeats each observed step, and compares.
pub struct Verifier<'a> {
    reference: Decoder<'a>,
    /// Largest accepted NMSE of a step's logits.
    pub limit: f64,
    /// Largest seen.
    pub worst: f64,
    /// Steps compared.
    pub compared: usize,
    /// Most positions to compare.
    steps: usize,
}

impl<'a> Verifier<'a> {
    /// A verifier of the first `steps` looks at a run.
    ///
    /// # Errors
    /// The device is lost.
    pub fn new(
        graph: &'a DecodeGraph,
        executor: &'a mut dyn Execute,
        seed: u32,
        steps: usize,
    ) -> Result<Self> {
        let (mut reference, limit) = (Decoder::new(graph, executor), logits_limit(graph));
        reference.reset(seed)?;
        Ok(Self { reference, limit, worst: 0.0, compared: 0, steps })
    }

    /// Compares one step. Another path to logits that were compared before is compared with the
    /// same ones.
    ///
    /// # Errors
    /// Logits or the choice differ; the error names the position and both choices.
    pub fn compare(&mut self, seen: Seen<'_>) -> Result<()> {
        let done = self.reference.state(StateWord::Position)? as usize;
        let Some(ahead) = (seen.position + 1).checked_sub(done) else { return Ok(()) };
        let new = &seen.tokens[seen.tokens.len().saturating_sub(ahead)..];
        if !new.is_empty() {
            if self.compared >= self.steps {
                return Ok(());
            }
            // Token by token, whatever the other does: another way to the same logits.
            self.reference.feed(new, Prompts::TokenByToken)?;
            self.compared += 1;
        }
        let logits = self.reference.logits()?;
        let choice = self.reference.state(StateWord::Choice)?;
        let error = compared(&logits, seen.logits, self.limit, |nmse| {
            format!(
                "position {}: logits differ from the CPU reference, {nmse} (choices {} and \
                 {choice}); `lathe diff` names the first operation that differs",
                seen.position, seen.choice
            )
        })?;
        self.worst = self.worst.max(error);
        // A draw is exact: from the device's own logits the reference draws the same token. Rounding
        // may swap near ties; the run then follows the device.
        let judged = if self.reference.graph.sampling.is_some() { seen.logits } else { &logits };
        let margin = tie_margin(self.limit);
        match self.reference.mischoice(judged, seen.position, seen.choice, margin)? {
            None => Ok(()),
            Some(fault) => Err(Error::CheckFailed(format!("position {}: {fault}", seen.position))),
        }
    }

    /// The comparison so far.
    pub fn verified(&self) -> Verified {
        let (positions, worst_nmse, limit) = (self.compared, self.worst, self.limit);
        Verified { positions, worst_nmse, limit, ..Verified::default() }
    }
}

impl Decoder<'_> {
    /// Fault of a choice after `position`, if it has one: not the draw of the CPU reference from
    /// the same logits, or a logit further below the largest than a share of the largest magnitude.
    fn mischoice(
        &mut self,
        logits: &[f32],
        position: usize,
        choice: u32,
        margin: f32,
    ) -> Result<Option<String>> {
        if let Some(sampling) = &self.graph.sampling {
            let tokens = self.executor.read_words(self.graph.tokens)?;
            let seed = self.state(StateWord::Seed)?;
            let drawn = sample_token(sampling, logits, &tokens, position, seed);
            return Ok((drawn != choice).then(|| {
                format!(
                    "the device drew {choice}, the CPU reference draws {drawn} from the same logits"
                )
            }));
        }
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let below = largest - logits.get(choice as usize).copied().unwrap_or(f32::NAN);
        let most = logits.iter().fold(0f32, |most, v| most.max(v.abs())) * margin;
        Ok((below.is_nan() || below > most).then(|| {
            format!("the device chose {choice}, whose logit is {below} below the largest")
        }))
    }

    /// Compares the end of a sequence of decode steps with another path: its tokens run as a prompt
    /// in chunks, by other kernels, must leave the same logits, and its last token must be the
    /// choice of these logits. A fault of any step lies in the caches that the last one read.
    /// Returns the NMSE; none where no step followed the `given` tokens, or the graph has no
    /// chunks. Afterwards the sequence is as the prompt left it.
    pub(super) fn end_agrees(&mut self, given: usize) -> Result<Option<f64>> {
        let limit = logits_limit(self.graph);
        let state = self.executor.read_words(self.graph.state)?;
        let [position, choice, seed] = [StateWord::Position, StateWord::Choice, StateWord::Seed]
            .map(|word| state[word as usize]);
        let processed = position as usize;
        if processed <= given {
            return Ok(None);
        }
        let tokens = self.executor.read_words(self.graph.tokens)?;
        let logits = self.logits()?;
        let fault = |what: String| {
            let last = processed - 1;
            let hint = "`lathe decode --verify` looks at every step";
            format!("at the end of the run, position {last}: {what}; {hint}")
        };
        // Both are of one step of one device, whatever the cache is stored in.
        let margin = limit.min(1e-5).sqrt() as f32;
        if let Some(wrong) = self.mischoice(&logits, processed - 1, choice, margin)? {
            return Err(Error::CheckFailed(fault(wrong)));
        }
        if !runs_in_chunks(self.graph, Prompts::Chunks, processed) {
            return Ok(None);
        }
        self.reset(seed)?;
        self.feed(&tokens[..processed], Prompts::Chunks)?;
        let in_chunks = self.logits()?;
        let error = compared(&logits, &in_chunks, limit, |nmse| {
            fault(format!(
                "logits differ from those of the same {processed} tokens run as a prompt, {nmse}, \
                 so the steps are wrong or the kernels of prompts are"
            ))
        })?;
        Ok(Some(error))
    }

    /// Compares a sequence's choices together with others and alone after the same tokens, step by
    /// step on a graph of one sequence. Returns the number of choices that differ, each between two
    /// logits that are closer than rounding leaves them.
    ///
    /// # Errors
    /// A choice that differs where no rounding explains it; or the device is lost.
    pub fn ties(&mut self, prompt: &[u32], chosen: &[u32]) -> Result<usize> {
        let Some((_, fed)) = chosen.split_last() else { return Ok(0) };
        let script = Script {
            prompt: prompt.to_vec(),
            forced: fed.to_vec(),
            generate: chosen.len(),
            ..Script::default()
        };
        let (limit, mut ties) = (logits_limit(self.graph), 0);
        self.observe(&script, &mut |seen| {
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
                    "choice {at} is {together} together with others and {} alone, whose logit is \
                     larger by {:.3e}; rounding explains {rounding:.3e}",
                    seen.choice,
                    own - other
                )));
            }
            ties += 1;
            Ok(())
        })?;
        Ok(ties)
    }
}

/// A script and its verification: its beginning before it is timed, its tokens in every run, its
/// end. With verification off, runs are compared with each other alone.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The script.
    pub script: Script,
    verified: Option<Verified>,
    /// Tokens that a run must choose: those of the verified steps, then all of the first run.
    tokens: Vec<u32>,
    /// Number of tokens of the verified steps.
    stepped: usize,
    /// Bits of the last logits, which every run must repeat; none before the first.
    logits: Option<Vec<u32>>,
}

impl Checked {
    /// Compares the first `verify` positions of a script with the CPU reference: the prompt token
    /// by token, then the prompt and the choices after it as runs have them. A prompt in chunks
    /// that is longer is compared with decode steps.
    ///
    /// # Errors
    /// No positions, which would verify nothing; logits differ by more than [`logits_limit`], or
    /// the device is lost.
    pub fn begin(decoder: &mut Decoder<'_>, script: Script, verify: Option<usize>) -> Result<Self> {
        let checked = Self { script, verified: None, tokens: Vec::new(), stepped: 0, logits: None };
        let (script, Some(positions)) = (&checked.script, verify) else { return Ok(checked) };
        if positions == 0 {
            return Err(Error::Usage("0 positions verify nothing".into()));
        }
        let (positions, len) = (positions.min(script.positions()), script.prompt.len());
        let in_chunks = runs_in_chunks(decoder.graph, script.prompts, len);
        let mut reference = CpuExecutor::new(Arc::clone(&decoder.graph.recording));
        let mut verifier = Verifier::new(decoder.graph, &mut reference, script.seed, positions)?;
        let mut tokens = Vec::new();
        if in_chunks || positions < len {
            let prompt = script.prompt[..len.min(positions)].to_vec();
            let prompts = Prompts::TokenByToken;
            let steps = Script { prompt, prompts, seed: script.seed, ..Script::default() };
            decoder.observe(&steps, &mut |seen| verifier.compare(seen))?;
        }
        if positions >= len {
            let generate = positions + 1 - len;
            let forced = script.forced[..script.forced.len().min(generate - 1)].to_vec();
            let steps = Script { generate, forced, ..script.clone() };
            tokens = decoder.observe(&steps, &mut |seen| verifier.compare(seen))?.generated;
        }
        let mut verified = verifier.verified();
        if in_chunks && positions < len {
            decoder.reset(script.seed)?;
            decoder.feed(&script.prompt, Prompts::TokenByToken)?;
            let prompt = decoder.end_agrees(0)?.unwrap_or(0.0);
            verified.worst_nmse = verified.worst_nmse.max(prompt);
        }
        Ok(Self { verified: Some(verified), stepped: tokens.len(), tokens, ..checked })
    }

    /// Runs the script, with GPU times, and compares what it chose.
    ///
    /// # Errors
    /// Errors of [`Decoder::run`] and of [`Self::check`].
    pub fn run(&mut self, decoder: &mut Decoder<'_>) -> Result<Run> {
        let mut run = Run::default();
        self.play(decoder, Pace::Timed, &mut run, &mut ())?;
        Ok(run)
    }

    /// Runs the script. Its tokens must be those that the device holds at its end, and what it
    /// chose and its last logits must be those of the first run.
    pub(super) fn play(
        &mut self,
        decoder: &mut Decoder<'_>,
        pace: Pace,
        run: &mut Run,
        on: &mut dyn Observer,
    ) -> Result<()> {
        decoder.play(&self.script, pace, run, on)?;
        let Script { prompt, forced, .. } = &self.script;
        let chosen = run.generated.get(forced.len()..).unwrap_or_default();
        let sequence = [&prompt[..], forced, chosen].concat();
        let held = decoder.executor.read_words(decoder.graph.tokens)?;
        if let Some(i) = sequence.iter().zip(&held).position(|(own, held)| own != held) {
            let by = if i < prompt.len() { "was given" } else { "was read while it ran" };
            let fault = format!("token {i}: {} {by}, the device holds {}", sequence[i], held[i]);
            return Err(Error::CheckFailed(fault));
        }
        self.check(&run.generated)?;
        let logits: Vec<u32> = decoder.logits()?.into_iter().map(f32::to_bits).collect();
        if *self.logits.get_or_insert_with(|| logits.clone()) != logits {
            return Err(Error::CheckFailed(
                "the last logits are not those of the first run: the reset left something, or an \
                 operation does not always give the same"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Returns true once the script has run to its end.
    pub(super) fn has_run(&self) -> bool {
        self.logits.is_some()
    }

    /// Compares the choices of a run with the verified steps and with the first run. All are of the
    /// same kernels on the same device, which always round alike: a near-tie excuses nothing.
    ///
    /// # Errors
    /// The run chose different tokens.
    pub fn check(&mut self, chosen: &[u32]) -> Result<()> {
        // Tokens that were fed are nobody's choice.
        let choices = self.tokens.iter().zip(chosen).enumerate().skip(self.script.forced.len());
        if let Some((i, (own, other))) = choices.into_iter().find(|(_, (own, other))| own != other)
        {
            let by = match i < self.stepped {
                true => "was verified step by step",
                false => "was chosen by the first run",
            };
            let fault = format!("generated token {i}: {own} {by}, a timed run chose {other}");
            return Err(Error::CheckFailed(fault));
        }
        if self.tokens.len() < chosen.len() {
            self.tokens = chosen.to_vec();
        }
        Ok(())
    }

    /// Compares the end of a run, and keeps the larger error of several: see
    /// [`Decoder::end_agrees`].
    pub(super) fn check_end(&mut self, decoder: &mut Decoder<'_>) -> Result<()> {
        let Some(verified) = &mut self.verified else { return Ok(()) };
        let end = decoder.end_agrees(self.script.prompt.len())?;
        verified.end_nmse = verified.end_nmse.into_iter().chain(end).reduce(f64::max);
        Ok(())
    }

    /// The comparisons so far, where any was asked for.
    pub fn verified(&self) -> Option<Verified> {
        self.verified
    }
}

/// Walks a prompt and `steps` steps after it operation by operation. Each is compared with the
/// reference, which gets the device's inputs. Returns the number of operations compared and the
/// first that disagrees. `on_part` hears of each chunk or step.
///
/// # Errors
/// The script does not fit, some layers are one dispatch, or the device is lost.
pub fn diff(
    graph: &DecodeGraph,
    executor: &mut GpuExecutor,
    script: &Script,
    on_part: &mut dyn FnMut(),
) -> Result<(usize, Option<Divergence>)> {
    let mut decoder = Decoder::new(graph, executor);
    decoder.reset(script.seed)?;
    decoder.give(0, &script.prompt)?;
    let prompt = prompt_parts(graph, Prompts::Chunks, script.prompt.len()).into_iter();
    let mut operations = 0;
    for part in prompt.chain([Part::Steps(script.generate)]) {
        // One step after the other.
        for part in vec![part.one(); part.times()] {
            let position = Decoder::new(graph, executor).state(StateWord::Position)? as usize;
            let divergence = judge::diff::part(executor, part, position)?;
            operations += graph.recording.part(part).len();
            on_part();
            if divergence.is_some() {
                return Ok((operations, divergence));
            }
        }
    }
    Ok((operations, None))
}
