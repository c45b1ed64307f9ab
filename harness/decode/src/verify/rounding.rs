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
    /// Tokens that ran in chunks in all of `narrow`.
    in_chunks: usize,
}

/// A device's logits, and the tokens they follow.
pub(super) struct Reached<'t> {
    pub(super) tokens: &'t [u32],
    /// Tokens that ran in chunks; the others ran one by one.
    pub(super) in_chunks: usize,
    pub(super) logits: &'t [f32],
}

/// The distance of a position's logits from those expected, and its limit.
pub(super) struct Judged {
    pub(super) distance: Distance,
    pub(super) limit: f64,
    /// True if both are from logits in f32, and the limit from what the storage costs there.
    pub(super) is_measured: bool,
}

impl Judged {
    /// Reason for which the distance is over its limit, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        let why = self.distance.over(self.limit)?;
        Some(match self.is_measured {
            false => why,
            true => format!("{why} (the limit is {MARGIN} times what narrow storage costs there)"),
        })
    }
}

impl<'a> Rounding<'a> {
    pub(super) fn new(graph: &'a DecodeGraph) -> Self {
        let exact = CpuExecutor::new(Arc::new(graph.recording.in_f32()));
        Self { graph, exact, narrow: Vec::new(), in_chunks: 0 }
    }

    /// Distance of the logits from those in f32, and the limit of its NMSE that the storage
    /// warrants. Draws errors of the storage until one warrants the distance.
    pub(super) fn of(&mut self, storage: Storage, reached: &Reached<'_>) -> Result<Judged> {
        let steps = Reached { in_chunks: 0, ..*reached };
        let exact = self.graph.logits_after(&mut self.exact, &steps)?;
        if std::mem::replace(&mut self.in_chunks, reached.in_chunks) != reached.in_chunks {
            self.narrow.clear();
        }
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
            let narrow = self.graph.logits_after(&mut self.narrow[draw], reached)?;
            limit = limit.max(MARGIN * storage.distance(&exact, &narrow).nmse);
        }
        Ok(Judged { distance, limit, is_measured: true })
    }
}

impl DecodeGraph {
    /// Logits of an executor after these tokens; it goes on where it stands if it can.
    fn logits_after(&self, executor: &mut CpuExecutor, reached: &Reached<'_>) -> Result<Vec<f32>> {
        let Reached { tokens, in_chunks, .. } = *reached;
        let mut decoder = Decoder::new(self, executor);
        let mut done = decoder.state(StateWord::Position)? as usize;
        if done > tokens.len() || done < in_chunks {
            decoder.reset(0)?;
            done = 0;
        }
        if done == 0 && in_chunks > 0 {
            decoder.feed(&tokens[..in_chunks], Prompts::Chunks)?;
            done = in_chunks;
        }
        if done < tokens.len() {
            decoder.feed(&tokens[done..], Prompts::TokenByToken)?;
        }
        decoder.logits()
    }
}
