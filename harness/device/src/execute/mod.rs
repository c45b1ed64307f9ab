//! One recording, three executors.

pub mod cpu;
pub mod gpu;
pub mod interpreter;
pub mod oracle;
pub mod value;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::plan::recording::{Part, Recording, TensorId};

pub use cpu::CpuExecutor;
pub use gpu::{GpuExecutor, OpTimer, TimedStep};

/// Parts of a recording submitted together, and the words read back after them.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Parts of the recording, in order.
    pub parts: Vec<Part>,
    /// Words of the stream's tensor.
    pub words: Range<usize>,
}

/// A submission that ended.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The words read back.
    pub words: Vec<u32>,
    /// Decode steps it ran.
    pub steps: usize,
    /// Time at which it was seen to be done, since the stream began.
    pub at: Duration,
    /// GPU time from its first dispatch to its last, of a timed stream where there are timestamps.
    pub gpu: Option<Duration>,
}

/// Submissions that run one after the other.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The submissions, in order.
    pub submissions: Vec<Submission>,
    /// The tensor of words that is read back.
    pub words: TensorId,
    /// Longest time of a joined submission: consecutive submissions of steps alone are merged up to
    /// it, as predicted from the last step that ended.
    pub joined_up_to: Option<Duration>,
    /// True if each [`Batch`] has its GPU time, where there are timestamps. Writing and reading
    /// them takes time between two submissions: 10 us on an NVIDIA H200.
    pub timed: bool,
}

impl Submission {
    /// Returns true if it consists of steps alone, whose words are consecutive.
    fn is_steps(&self) -> bool {
        matches!(self.parts.as_slice(), [Part::Steps(_)])
    }

    fn steps(&self) -> usize {
        let steps = self.parts.iter().map(|part| match part {
            Part::Steps(steps) => *steps,
            Part::Chunk(_) | Part::Tail => 0,
        });
        steps.sum()
    }
}

/// The interface of an executor to a decode session.
pub trait Execute {
    /// The recording it runs.
    fn recording(&self) -> &Arc<Recording>;
    /// An executor of the same tensors without persistent kernels; none where there are none.
    fn apart(&self) -> Result<Option<Box<dyn Execute>>>;
    /// Runs one operation of a prepared part, which lies in no persistent kernel.
    fn run_op(&mut self, part: Part, op: usize) -> Result<()>;
    /// Writes words of a [`crate::plan::recording::TensorInit::Words`] tensor from word `at` on.
    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()>;
    /// Sets a tensor of words or of KV values to zero.
    fn clear(&mut self, tensor: TensorId) -> Result<()>;
    /// Prepares whatever parts need before their first run, such as pipelines of a chunk.
    fn prepare(&mut self, parts: &[Part]) -> Result<()>;
    /// Runs parts of the recording and returns when done.
    fn run(&mut self, parts: &[Part]) -> Result<()>;
    /// Runs submissions without waiting for each: the next one is recorded while the last one runs.
    /// `on` receives each in order and may end the stream early; submissions already made still
    /// run.
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

/// An executor that runs the kernels themselves, over bytes as a device has them.
pub trait Kernels: Execute {
    /// The bytes of a tensor.
    fn read_bytes(&mut self, tensor: TensorId) -> Result<Vec<u8>>;
}
