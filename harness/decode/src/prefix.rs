//! The beginning of a run, held against the reference before the whole of it is timed.

use std::sync::Arc;

use lathe_device::error::{Error, Result};
use lathe_device::execute::{CpuExecutor, Execute};
use lathe_record::record::Verified;

use super::graph::DecodeGraph;
use super::session::{
    Known, Observed, Prompts, RunOptions, Verifier, chunks_agree, logits_limit, run_observed,
    tie_margin,
};
use super::timed;

/// Positions that are verified before anything is timed, where nothing else is asked.
pub const VERIFIED: usize = 8;

/// The beginning of a run, held against the reference.
#[derive(Clone, Debug)]
pub struct Prefix {
    /// What was compared.
    pub verified: Verified,
    /// Tokens it chose.
    tokens: Vec<u32>,
    /// In the place of each the tokens whose logits are as large, but for what is accepted.
    ties: Vec<Vec<u32>>,
}

/// Runs the first positions of a run step by step beside a reference; `observe` sees each that
/// agrees. Returns what was compared, and the tokens that were chosen.
///
/// # Errors
/// Logits differ by more than [`logits_limit`], or the device is lost.
pub(super) fn beginning(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    reference: &mut dyn Execute,
    options: &RunOptions,
    positions: usize,
    observe: &mut dyn FnMut(Observed<'_>),
) -> Result<(Verified, Vec<u32>)> {
    let positions = positions.min(options.positions());
    let given = options.prompt.len().min(positions.max(1));
    let first = RunOptions {
        prompt: options.prompt[..given].to_vec(),
        generate: if given < options.prompt.len() { 0 } else { positions + 1 - given },
        prompts: Prompts::TokenByToken,
        forced: Vec::new(),
        // What was handed out before follows the whole prompt, of which this may be a part.
        known: Known::default(),
        ..options.clone()
    };
    let limit = logits_limit(graph);
    let mut verifier = Verifier::new(graph, reference, &first, limit, positions)?;
    let run = run_observed(graph, executor, &first, &mut |seen| {
        verifier.compare(seen)?;
        observe(seen);
        Ok(())
    })?;
    let (positions, worst_nmse) = (verifier.compared, verifier.worst);
    let verified = Verified { positions, worst_nmse, limit, ..Verified::default() };
    Ok((verified, run.generated))
}

impl Prefix {
    /// Runs the first positions of a run step by step beside the CPU reference, and its prompt in
    /// chunks beside decode steps.
    ///
    /// # Errors
    /// Logits differ by more than [`logits_limit`], or the device is lost.
    pub fn verify(
        graph: &DecodeGraph,
        executor: &mut dyn Execute,
        options: &RunOptions,
        positions: usize,
    ) -> Result<Self> {
        let mut reference = CpuExecutor::new(Arc::clone(&graph.recording));
        let margin = tie_margin(logits_limit(graph));
        let mut ties = Vec::new();
        let mut observe = |seen: Observed<'_>| {
            if seen.position + 1 >= options.prompt.len() {
                let scale = seen.logits.iter().fold(0f32, |most, v| most.max(v.abs()));
                let least = seen.logits[seen.choice as usize] - scale * margin;
                let near = (0..).zip(seen.logits).filter(|(_, v)| **v >= least);
                ties.push(near.map(|(token, _)| token).collect());
            }
        };
        let (mut verified, tokens) =
            beginning(graph, executor, &mut reference, options, positions, &mut observe)?;
        let in_chunks = chunks_agree(graph, executor, options, verified.limit)?.unwrap_or(0.0);
        verified.worst_nmse = verified.worst_nmse.max(in_chunks);
        Ok(Self { verified, tokens, ties })
    }

    /// An error where a run that was timed chose other tokens. Behind a choice between logits that
    /// are as large, texts go their own ways.
    ///
    /// # Errors
    /// As said.
    pub fn check(&self, chosen: &[u32]) -> Result<()> {
        for (i, (own, other)) in self.tokens.iter().zip(chosen).enumerate() {
            if own == other {
                continue;
            }
            return match self.ties[i].contains(other) {
                true => Ok(()),
                false => Err(Error::CheckFailed(format!(
                    "generated token {i}: {own} was verified step by step, the timed run chose \
                     {other}"
                ))),
            };
        }
        Ok(())
    }

    /// Holds the end of a run behind `given` tokens against another way there, and keeps the larger
    /// error of several: see [`timed::end_agrees`].
    ///
    /// # Errors
    /// As said there.
    pub fn check_end(
        &mut self,
        graph: &DecodeGraph,
        executor: &mut dyn Execute,
        given: usize,
    ) -> Result<()> {
        let end = timed::end_agrees(graph, executor, given, self.verified.limit)?;
        self.verified.end_nmse = self.verified.end_nmse.into_iter().chain(end).reduce(f64::max);
        Ok(())
    }
}
