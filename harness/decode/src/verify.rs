//! Outputs compared before and after a run is timed: its first positions with the CPU reference,
//! its prompt in chunks with decode steps, its end with the same tokens run as a prompt.

use std::sync::Arc;

mod measure;
mod rounding;

use lathe_kernels::StateWord;
use lathe_reference::argmax::argmax;

use super::Observer;
use super::decoder::{Decoder, Pace, Run, Seen, prompt_parts, runs_in_chunks};
use super::graph::DecodeGraph;
use super::options::{Prompts, Script};
use super::sampling::sample_token;
use lathe_device::error::{Error, Result};
use lathe_device::execute::{CpuExecutor, Execute, GpuExecutor};
use lathe_device::judge;
use lathe_device::judge::diff::{Divergence, Source};
use lathe_device::plan::recording::Part;
use lathe_record::record::Verified;

use measure::Storage;
pub use measure::logits_limit;
use rounding::{Judged, Reached, Rounding};

/// Positions that are verified before anything is timed, where nothing else is asked.
pub const VERIFIED: usize = 8;

/// Longest sequence at whose end the reference measures what narrow storage costs: it takes several
/// of its runs.
const MEASURED: usize = 64;

/// A second executor that repeats each observed step, and compares.
pub struct Verifier<'a> {
    reference: Decoder<'a>,
    /// Tokens that ran in chunks, which may store more in few bits.
    in_chunks: usize,
    /// The cost of the storage, once a position needs it.
    rounding: Option<Rounding<'a>>,
    /// Result so far.
    seen: Verified,
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
        let mut reference = Decoder::new(graph, executor);
        reference.reset(seed)?;
        let seen = Verified::default();
        Ok(Self { reference, in_chunks: 0, rounding: None, seen, compared: 0, steps })
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
        let graph = self.reference.graph;
        if self.in_chunks == 0 && seen.tokens.len() > 1 {
            self.in_chunks = seen.position + 1;
        }
        let mut fed = self.reference.executor.read_words(graph.tokens)?;
        fed.truncate(seen.position + 1);
        let (tokens, in_chunks, logits) = (&fed[..], self.in_chunks, seen.logits);
        let judged = self.judged(&Reached { tokens, in_chunks, logits })?;
        let Judged { distance, limit, .. } = judged;
        self.seen.add(limit, distance.nmse, distance.kl);
        self.seen.same_top1 += usize::from(!new.is_empty() && distance.top[0] == distance.top[1]);
        if let Some(why) = judged.fault() {
            let prompts = match self.in_chunks {
                0 => Prompts::TokenByToken,
                _ => Prompts::Chunks,
            };
            let command = graph.diff_command(&fed, prompts);
            return Err(Error::CheckFailed(format!(
                "position {}: logits differ from the CPU reference, {why}; `{command}` names the \
                 first operation that differs",
                seen.position
            )));
        }
        // A choice is exact: from the device's own logits the reference takes the same token.
        match self.reference.mischoice(seen.logits, seen.position, seen.choice)? {
            None => Ok(()),
            Some(fault) => Err(Error::CheckFailed(format!("position {}: {fault}", seen.position))),
        }
    }

    /// Distance of logits from those of the reference, which has run the same tokens.
    fn judged(&mut self, reached: &Reached<'_>) -> Result<Judged> {
        let graph = self.reference.graph;
        let storage = Storage::of(graph, reached.in_chunks > 0);
        let distance = storage.distance(&self.reference.logits()?, reached.logits);
        let limit = storage.usual(reached.tokens.len() - 1);
        if storage.is_exact() || distance.over(limit).is_none() {
            return Ok(Judged { distance, limit, is_measured: false });
        }
        self.rounding.get_or_insert_with(|| Rounding::new(graph)).of(storage, reached)
    }

    /// The comparison so far.
    pub fn verified(&self) -> Verified {
        Verified { positions: self.compared, ..self.seen }
    }
}

impl Decoder<'_> {
    /// Fault of a choice after `position`, if it has one: not the one that the CPU reference makes
    /// from the same logits.
    fn mischoice(
        &mut self,
        logits: &[f32],
        position: usize,
        choice: u32,
    ) -> Result<Option<String>> {
        let (own, verb) = match &self.graph.sampling {
            None => (argmax(logits), ["chose", "chooses"]),
            Some(sampling) => {
                let tokens = self.executor.read_words(self.graph.tokens)?;
                let seed = self.state(StateWord::Seed)?;
                (sample_token(sampling, logits, &tokens, position, seed), ["drew", "draws"])
            }
        };
        Ok((own != choice).then(|| {
            format!(
                "the device {} {choice}, the CPU reference {} {own} from the same logits",
                verb[0], verb[1]
            )
        }))
    }

    /// Compares the end of a sequence of decode steps with another path: its tokens run as a prompt
    /// in chunks, by other kernels, must leave the same logits, and its last token must be the
    /// choice of these logits. A fault of any step lies in the caches that the last one read.
    /// Returns the NMSE; none where no step followed the `given` tokens, or the graph has no
    /// chunks. A `verifier` that compared all steps judges the chunks by the reference's logits.
    /// Afterwards the sequence is as the prompt left it.
    pub(super) fn end_agrees(
        &mut self,
        given: usize,
        verifier: Option<&mut Verifier<'_>>,
    ) -> Result<Option<f64>> {
        let storage = Storage::of(self.graph, true);
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
            format!("at the end of the run, position {last}: {what}")
        };
        if let Some(wrong) = self.mischoice(&logits, processed - 1, choice)? {
            return Err(Error::CheckFailed(fault(wrong)));
        }
        if !runs_in_chunks(self.graph, Prompts::Chunks, processed) {
            return Ok(None);
        }
        self.reset(seed)?;
        self.feed(&tokens[..processed], Prompts::Chunks)?;
        let in_chunks = self.logits()?;
        let (graph, fed) = (self.graph, &tokens[..processed]);
        let command = |prompts| graph.diff_command(fed, prompts);
        let distance = storage.distance(&logits, &in_chunks);
        if let Some(verifier) = verifier.filter(|verifier| verifier.compared == processed) {
            let logits = &in_chunks[..];
            let judged = verifier.judged(&Reached { tokens: fed, in_chunks: processed, logits })?;
            let Some(why) = judged.fault() else { return Ok(Some(distance.nmse)) };
            return Err(Error::CheckFailed(fault(format!(
                "logits of the same {processed} tokens run as a prompt differ from the CPU \
                 reference, {why}; `{}` names the first operation that differs",
                command(Prompts::Chunks)
            ))));
        }
        let Some(why) = distance.over(storage.most()) else { return Ok(Some(distance.nmse)) };
        if processed <= MEASURED && !storage.is_exact() {
            let mut rounding = Rounding::new(graph);
            let mut is_rounding = |in_chunks, logits: &[f32]| -> Result<bool> {
                let reached = Reached { tokens: fed, in_chunks, logits };
                Ok(rounding.of(storage, &reached)?.fault().is_none())
            };
            if is_rounding(given, &logits)? && is_rounding(processed, &in_chunks)? {
                return Ok(Some(distance.nmse));
            }
        }
        Err(Error::CheckFailed(fault(format!(
            "logits differ from those of the same {processed} tokens run as a prompt, {why}; if \
             the steps are wrong, `{}` names the operation, if the prompt is, `{}`",
            command(Prompts::TokenByToken),
            command(Prompts::Chunks)
        ))))
    }

    /// Compares a sequence's choices together with others and alone after the same tokens, step by
    /// step on a graph of one sequence. Returns the number of choices that differ, each between two
    /// logits that are closer than rounding leaves them: an NMSE of `limit`, or of this graph's limit.
    ///
    /// # Errors
    /// A choice that differs where no rounding explains it; or the device is lost.
    pub fn ties(&mut self, prompt: &[u32], chosen: &[u32], limit: f64) -> Result<usize> {
        let Some((_, fed)) = chosen.split_last() else { return Ok(0) };
        let script = Script {
            prompt: prompt.to_vec(),
            forced: fed.to_vec(),
            generate: chosen.len(),
            ..Script::default()
        };
        let (limit, mut ties) = (limit.max(logits_limit(self.graph)), 0);
        self.observe(&script, &mut |seen| {
            let Some(at) = (seen.position + 1).checked_sub(prompt.len()) else { return Ok(()) };
            let together = chosen[at];
            if seen.choice == together {
                return Ok(());
            }
            // Both logits may be off by the error that the limit allows all of them on average.
            let n = seen.logits.len() as f64;
            let mean = seen.logits.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
            let squares = seen.logits.iter().map(|v| (f64::from(*v) - mean).powi(2));
            let rms = (squares.sum::<f64>() / n).sqrt();
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
    /// A script of which nothing was compared yet.
    pub(super) fn unverified(script: Script) -> Self {
        Self { script, verified: None, tokens: Vec::new(), stepped: 0, logits: None }
    }

    /// Compares the first `verify` positions of a script with the CPU reference: the prompt token
    /// by token, then the prompt and the choices after it as runs have them. A prompt in chunks
    /// that is longer is compared with decode steps.
    ///
    /// # Errors
    /// No positions, which would verify nothing; logits differ by more than narrow storage
    /// explains, or the device is lost.
    pub fn begin(decoder: &mut Decoder<'_>, script: Script, verify: Option<usize>) -> Result<Self> {
        let mut checked = Self::unverified(script);
        checked.verify(decoder, verify)?;
        Ok(checked)
    }

    /// Same as [`Self::begin`]. A comparison that fails leaves its figures.
    pub(super) fn verify(
        &mut self,
        decoder: &mut Decoder<'_>,
        verify: Option<usize>,
    ) -> Result<()> {
        let Some(positions) = verify else { return Ok(()) };
        if positions == 0 {
            return Err(Error::Usage("0 positions verify nothing".into()));
        }
        let positions = positions.min(self.script.positions());
        let mut reference = CpuExecutor::new(Arc::clone(&decoder.graph.recording));
        let seed = self.script.seed;
        let mut verifier = Verifier::new(decoder.graph, &mut reference, seed, positions)?;
        let compared = self.compare(decoder, positions, &mut verifier);
        let verified = self.verified.insert(verifier.verified());
        compared?;
        let Script { prompt, seed, .. } = &self.script;
        if runs_in_chunks(decoder.graph, self.script.prompts, prompt.len())
            && positions < prompt.len()
        {
            decoder.reset(*seed)?;
            decoder.feed(prompt, Prompts::TokenByToken)?;
            let error = decoder.end_agrees(0, None)?.unwrap_or(0.0);
            verified.add(logits_limit(decoder.graph), error, 0.0);
        }
        Ok(())
    }

    fn compare(
        &mut self,
        decoder: &mut Decoder<'_>,
        positions: usize,
        verifier: &mut Verifier<'_>,
    ) -> Result<()> {
        let (script, len) = (&self.script, self.script.prompt.len());
        if positions < len || runs_in_chunks(decoder.graph, script.prompts, len) {
            let prompt = script.prompt[..len.min(positions)].to_vec();
            let prompts = Prompts::TokenByToken;
            let steps = Script { prompt, prompts, seed: script.seed, ..Script::default() };
            decoder.observe(&steps, &mut |seen| verifier.compare(seen))?;
        }
        if positions >= len {
            let generate = positions + 1 - len;
            let forced = script.forced[..script.forced.len().min(generate - 1)].to_vec();
            let steps = Script { generate, forced, ..script.clone() };
            let run = decoder.observe(&steps, &mut |seen| verifier.compare(seen))?;
            (self.stepped, self.tokens) = (run.generated.len(), run.generated);
        }
        Ok(())
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
        let end = decoder.end_agrees(self.script.prompt.len(), None)?;
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
            if let Some(mut found) = divergence {
                // No kernel is to blame for a weight that is not finite, or for narrow storage.
                let layer = graph.recording.part(part)[found.op_index].label.layer;
                let decoder = Decoder::new(graph, executor);
                let cause = match found.not_finite {
                    Some(Source::Input) => decoder.weight(layer),
                    Some(Source::Narrow(narrow)) => Some(decoder.cure(narrow)),
                    None => None,
                };
                if let Some(cause) = cause {
                    found.reason = format!("{}; {cause}", found.reason);
                }
                return Ok((operations, Some(found)));
            }
        }
    }
    Ok((operations, None))
}
