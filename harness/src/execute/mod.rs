//! One recording, two executors.

pub mod cpu;
pub mod gpu;
pub mod oracle;
pub mod value;

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::Result;
use crate::plan::recording::TensorId;

pub use cpu::CpuExecutor;
pub use gpu::{GpuExecutor, OpTimer, TimedStep};

/// Steps that ended together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The watched words, one a step.
    pub words: Vec<u32>,
    /// When the batch was seen to be done, since the stream began.
    pub at: Duration,
    /// GPU time from its first dispatch to its last, where timestamps exist.
    pub gpu: Option<Duration>,
}

/// Which steps a stream runs.
#[derive(Clone, Debug)]
pub struct Stream {
    /// How many each submission has, at least one.
    pub batches: Vec<usize>,
    /// The tensor of words each step appends to.
    pub words: TensorId,
    /// The word the first step writes.
    pub from: usize,
}

/// What a decode session needs of an executor.
pub trait Execute {
    /// Writes words of a [`crate::plan::recording::Content::Words`] tensor from word `at` on.
    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()>;
    /// Sets a tensor of words or of KV values to zero.
    fn clear(&mut self, tensor: TensorId) -> Result<()>;
    /// Runs the whole recording `steps` times and returns when done.
    fn run(&mut self, steps: usize) -> Result<()>;
    /// Runs many steps without waiting for each: the next batch is recorded while the last one
    /// runs. `on` hears of each batch in order and may end the stream early; batches already
    /// submitted then still run.
    fn stream(
        &mut self,
        stream: &Stream,
        on: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<()>;
    /// Reads words back.
    fn read_words(&mut self, tensor: TensorId) -> Result<Vec<u32>>;
    /// Reads f32 values (KV values widened) back.
    fn read_f32(&mut self, tensor: TensorId) -> Result<Vec<f32>>;
}
