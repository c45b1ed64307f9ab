//! The error that narrow storage leaves at one position, measured by the CPU reference.
//!
//! Most positions of a text lose little to an f16 cache, and a few lose a hundred times as much:
//! rows of control tokens, or a token that no text has there. Their error is the storage's as
//! well, so it is measured where it is needed: the reference runs the same tokens in f32 and with
//! the storage, and a device may be off by a few times as much as the reference is.

use std::sync::Arc;

use lathe_kernels::StateWord;

use super::measure::{Distance, Storage};
use crate::decoder::Decoder;
use crate::graph::DecodeGraph;
use crate::options::Prompts;
use lathe_device::error::Result;
use lathe_device::execute::CpuExecutor;

/// Errors of the storage that are drawn at most. On ordinary text they lie within a factor of 2 of
/// each other. Where all comes from one sensitive place, one may be a thousandth of the next.
const DRAWS: usize = 8;

/// Largest accepted NMSE against f32, over the largest of the reference's own.
const MARGIN: f64 = 4.0;

/// Runs of the reference that tell how much the storage of a graph costs.
pub(super) struct Rounding<'a> {
    graph: &'a DecodeGraph,
    exact: CpuExecutor,
    narrow: Vec<CpuExecutor>,
}

/// A device's logits, and the tokens they follow.
pub(super) struct Reached<'t> {
    pub(super) tokens: &'t [u32],
    /// Tokens that ran in chunks; the others ran one by one.
    pub(super) in_chunks: usize,
    pub(super) logits: &'t [f32],
}

impl<'a> Rounding<'a> {
    pub(super) fn new(graph: &'a DecodeGraph) -> Self {
        let exact = CpuExecutor::new(Arc::new(graph.recording.in_f32()));
        Self { graph, exact, narrow: Vec::new() }
    }

    /// Distance of the logits from those in f32, and the limit of its NMSE that the storage
    /// warrants. Draws errors of the storage until one warrants the distance.
    pub(super) fn of(
        &mut self,
        storage: Storage,
        reached: &Reached<'_>,
    ) -> Result<(Distance, f64)> {
        let exact = self.graph.logits_after(&mut self.exact, reached, Prompts::TokenByToken)?;
        let distance = storage.distance(&exact, reached.logits);
        let mut limit = storage.usual(reached.tokens.len() - 1);
        for draw in 0..DRAWS {
            if distance.over(limit).is_none() {
                break;
            }
            if self.narrow.len() == draw {
                let recording = Arc::clone(&self.graph.recording);
                let most = if draw == 0 { 0.0 } else { storage.step() / 4.0 };
                self.narrow.push(CpuExecutor::nudged(recording, most, draw as u64));
            }
            let narrow =
                self.graph.logits_after(&mut self.narrow[draw], reached, Prompts::Chunks)?;
            limit = limit.max(MARGIN * storage.distance(&exact, &narrow).nmse);
        }
        Ok((distance, limit))
    }
}

impl DecodeGraph {
    /// Logits of an executor after these tokens; it goes on where it stands if it can.
    fn logits_after(
        &self,
        executor: &mut CpuExecutor,
        reached: &Reached<'_>,
        prompts: Prompts,
    ) -> Result<Vec<f32>> {
        let mut decoder = Decoder::new(self, executor);
        let mut done = decoder.state(StateWord::Position)? as usize;
        if done > reached.tokens.len() {
            decoder.reset(0)?;
            done = 0;
        }
        if done < reached.in_chunks {
            decoder.reset(0)?;
            decoder.feed(&reached.tokens[..reached.in_chunks], prompts)?;
            done = reached.in_chunks;
        }
        if done < reached.tokens.len() {
            decoder.feed(&reached.tokens[done..], Prompts::TokenByToken)?;
        }
        decoder.logits()
    }
}
