//! Outputs compared before and after a run is timed: its first positions with the CPU reference,
//! its prompt in chunks with decode steps, its end with the same tokens run as a prompt.

use std::sync::Arc;

use lathe_kernels::{FloatFormat, KvFormat, StateWord};
use lathe_reference::nmse;

use super::decoder::{Decoder, Run, Seen, prompt_parts};
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

fn largest_magnitude(logits: &[f32]) -> f32 {
    logits.iter().fold(0f32, |most, v| most.max(v.abs()))
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

    /// Compares one step.
    ///
    /// # Errors
    /// Logits or the choice differ; the error names the position and both choices.
    pub fn compare(&mut self, seen: Seen<'_>) -> Result<()> {
        if self.compared >= self.steps {
            return Ok(());
        }
        // Token by token, whatever the other does: another way to the same logits.
        self.reference.feed(seen.tokens, Prompts::TokenByToken)?;
        let logits = self.reference.logits()?;
        let choice = self.reference.state(StateWord::Choice)?;
        self.compared += 1;
        let error = compared(&logits, seen.logits, self.limit, |nmse| {
            format!(
                "position {}: logits differ from the CPU reference, {nmse} (choices {} and \
                 {choice}); `lathe diff` names the first operation that differs",
                seen.position, seen.choice
            )
        })?;
        self.worst = self.worst.max(error);
        let graph = self.reference.graph;
        let expected = match &graph.sampling {
            // A draw is exact: from the device's own logits the reference draws the same token.
            Some(sampling) => {
                let tokens = self.reference.executor.read_words(graph.tokens)?;
                let seed = self.reference.state(StateWord::Seed)?;
                let drawn = sample_token(sampling, seen.logits, &tokens, seen.position, seed);
                (drawn != seen.choice).then(|| format!("draws {drawn} from the same logits"))
            }
            // Rounding may swap near ties; the run then follows the device.
            None => {
                let [a, b] = [choice, seen.choice].map(|token| logits[token as usize]);
                let margin = largest_magnitude(&logits) * tie_margin(self.limit);
                ((a - b).abs() > margin).then(|| format!("chooses {choice}"))
            }
        };
        match expected {
            None => Ok(()),
            Some(expected) => Err(Error::CheckFailed(format!(
                "position {}: the device chose {} where the CPU reference {expected}",
                seen.position, seen.choice
            ))),
        }
    }

    /// The comparison so far.
    pub fn verified(&self) -> Verified {
        let (positions, worst_nmse, limit) = (self.compared, self.worst, self.limit);
        Verified { positions, worst_nmse, limit, ..Verified::default() }
    }
}

impl Decoder<'_> {
    /// Runs a script's prompt in chunks and token by token, and returns the NMSE between the logits
    /// of its last token; 0 where the graph has no chunks or the prompt is a single token.
    ///
    /// # Errors
    /// The NMSE exceeds the limit, the prompt does not fit, or the device is lost.
    pub fn chunks_agree(&mut self, script: &Script) -> Result<f64> {
        let Script { prompt, seed, .. } = script;
        if !prompt_parts(self.graph, Prompts::Chunks, prompt.len()).contains(&Part::Tail) {
            return Ok(0.0);
        }
        let mut last = |prompts| -> Result<Vec<f32>> {
            self.reset(*seed)?;
            self.feed(prompt, prompts)?;
            self.logits()
        };
        let (chunks, tokens) = (last(Prompts::Chunks)?, last(Prompts::TokenByToken)?);
        compared(&tokens, &chunks, logits_limit(self.graph), |nmse| {
            let n = prompt.len();
            format!(
                "a prompt of {n} tokens: logits in chunks differ from those token by token, {nmse}"
            )
        })
    }

    /// Compares the end of a sequence of decode steps with another path: its tokens run as a prompt
    /// in chunks, by other kernels, must leave the same logits, and its last token must be the
    /// choice of these logits. A fault of any step lies in the caches that the last one read.
    /// Returns the NMSE; none where no step followed the `given` tokens, or the graph has no
    /// chunks. Afterwards the sequence is as the prompt left it.
    ///
    /// # Errors
    /// The NMSE exceeds the limit, another token was chosen, or the device is lost.
    pub fn end_agrees(&mut self, given: usize) -> Result<Option<f64>> {
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
        let wrong = match &self.graph.sampling {
            Some(sampling) => {
                let drawn = sample_token(sampling, &logits, &tokens, processed - 1, seed);
                (drawn != choice).then(|| {
                    format!("the device drew {choice}, the CPU reference draws {drawn} from the same logits")
                })
            }
            None => {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let below = largest - logits.get(choice as usize).copied().unwrap_or(f32::NAN);
                // Both are of one step of one device, whatever the cache is stored in.
                let most = largest_magnitude(&logits) * limit.min(1e-5).sqrt() as f32;
                (below.is_nan() || below > most).then(|| {
                    format!("the device chose {choice}, whose logit is {below} below the largest")
                })
            }
        };
        if let Some(wrong) = wrong {
            return Err(Error::CheckFailed(fault(wrong)));
        }
        if !prompt_parts(self.graph, Prompts::Chunks, processed).contains(&Part::Tail) {
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
/// end. Nothing is compared if verification is off.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The script.
    pub script: Script,
    beginning: Option<Beginning>,
}

#[derive(Clone, Debug)]
struct Beginning {
    verified: Verified,
    /// Tokens it chose.
    tokens: Vec<u32>,
    /// In the place of each the tokens whose logits are as large, but for the accepted error.
    ties: Vec<Vec<u32>>,
}

impl Checked {
    /// Runs the first `verify` positions of a script step by step and compares them with the CPU
    /// reference, and its prompt in chunks with decode steps.
    ///
    /// # Errors
    /// No positions, which would verify nothing; logits differ by more than [`logits_limit`], or
    /// the device is lost.
    pub fn begin(decoder: &mut Decoder<'_>, script: Script, verify: Option<usize>) -> Result<Self> {
        let Some(positions) = verify else { return Ok(Self { script, beginning: None }) };
        if positions == 0 {
            return Err(Error::Usage("0 positions verify nothing".into()));
        }
        let positions = positions.min(script.positions());
        let given = script.prompt.len().min(positions);
        let first = Script {
            prompt: script.prompt[..given].to_vec(),
            generate: if given < script.prompt.len() { 0 } else { positions + 1 - given },
            prompts: Prompts::TokenByToken,
            forced: Vec::new(),
            ..script.clone()
        };
        let mut reference = CpuExecutor::new(Arc::clone(&decoder.graph.recording));
        let mut verifier = Verifier::new(decoder.graph, &mut reference, script.seed, positions)?;
        let margin = tie_margin(verifier.limit);
        let mut ties = Vec::new();
        let run = decoder.observe(&first, &mut |seen| {
            verifier.compare(seen)?;
            if seen.position + 1 >= script.prompt.len() {
                let below = largest_magnitude(seen.logits) * margin;
                let least = seen.logits[seen.choice as usize] - below;
                let near = (0..).zip(seen.logits).filter(|(_, v)| **v >= least);
                ties.push(near.map(|(token, _)| token).collect());
            }
            Ok(())
        })?;
        let mut verified = verifier.verified();
        verified.worst_nmse = verified.worst_nmse.max(decoder.chunks_agree(&script)?);
        let beginning = Some(Beginning { verified, tokens: run.generated, ties });
        Ok(Self { script, beginning })
    }

    /// Runs the script and compares its choices.
    ///
    /// # Errors
    /// Errors of [`Decoder::run`] and of [`Self::check`].
    pub fn run(&self, decoder: &mut Decoder<'_>) -> Result<Run> {
        let run = decoder.run(&self.script, &mut |_| {})?;
        self.check(&run.generated)?;
        Ok(run)
    }

    /// Compares the choices of a timed run. After a near-tie the two may legitimately diverge, so
    /// the comparison stops there.
    ///
    /// # Errors
    /// The timed run chose different tokens.
    pub fn check(&self, chosen: &[u32]) -> Result<()> {
        let Some(Beginning { tokens, ties, .. }) = &self.beginning else { return Ok(()) };
        let differ = |(_, (own, other)): &(usize, (&u32, &u32))| own != other;
        match tokens.iter().zip(chosen).enumerate().find(differ) {
            Some((i, (own, other))) if !ties[i].contains(other) => {
                Err(Error::CheckFailed(format!(
                    "generated token {i}: {own} was verified step by step, the timed run chose {other}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Compares the end of a run after `given` tokens, and keeps the larger error of several: see
    /// [`Decoder::end_agrees`].
    ///
    /// # Errors
    /// Errors of [`Decoder::end_agrees`].
    pub fn check_end(&mut self, decoder: &mut Decoder<'_>, given: usize) -> Result<()> {
        let Some(Beginning { verified, .. }) = &mut self.beginning else { return Ok(()) };
        let end = decoder.end_agrees(given)?;
        verified.end_nmse = verified.end_nmse.into_iter().chain(end).reduce(f64::max);
        Ok(())
    }

    /// The comparisons so far, where any was asked for.
    pub fn verified(&self) -> Option<Verified> {
        self.beginning.as_ref().map(|beginning| beginning.verified)
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
