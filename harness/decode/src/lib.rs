//! A model as a recording, the loop that decodes with it, and its observers: verify, time, print,
//! profile.

pub mod ab;
pub mod bench;
mod decoder;
mod finite;
pub mod graph;
pub mod load;
pub mod memory;
pub mod model;
mod options;
pub mod perplexity;
pub mod profile;
pub mod prompts;
pub mod sampling;
mod session;
mod verify;

pub use decoder::{Decoder, FRAME, GaveUp, Run, Seen, prompt_parts};
pub use graph::{DecodeGraph, KvCache};
pub use load::Weights;
pub use model::Model;
pub use options::{Chunks, DecodeOptions, Prompts, Script};
pub use sampling::Sampling;
pub use session::{Looks, Session};
pub use verify::{Checked, VERIFIED, Verifier, diff, logits_limit};

use lathe_device::error::Result;

/// Phase of a decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first positions are compared with the reference.
    Verifying,
    /// The decode is repeated until clocks are up.
    WarmingUp,
    /// The decode begins; once more if steps go on with a dispatch per stage.
    Running,
    /// The last state is compared with another way to it.
    VerifyingEnd,
}

/// Hears of a decode or a benchmark while it goes on; `()` does not care.
#[allow(unused_variables, reason = "names say what observers that care hear")]
pub trait Observer {
    /// Memory that a model will take, before it is loaded.
    fn predicted(&mut self, memory: &memory::Predicted) {}
    /// Bytes of weights loaded so far, of `all`.
    fn loaded(&mut self, bytes: u64, all: u64) {}
    /// A decode is at this phase.
    fn phase(&mut self, phase: Phase) {}
    /// A token was chosen.
    fn token(&mut self, token: u32) {}
    /// A step's logits, where steps are observed.
    ///
    /// # Errors
    /// They cannot be taken: the decode ends.
    fn look(&mut self, seen: Seen<'_>) -> Result<()> {
        Ok(())
    }
    /// All steps were observed.
    ///
    /// # Errors
    /// What was taken cannot be kept.
    fn looked(&mut self) -> Result<()> {
        Ok(())
    }
    /// A test of `runs` runs begins.
    fn begins(&mut self, test: &str, runs: usize) {}
    /// One of the runs ended.
    fn ran(&mut self) {}
    /// All runs ended.
    fn ended(&mut self) {}
}

impl Observer for () {}
