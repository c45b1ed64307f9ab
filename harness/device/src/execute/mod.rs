//! One recording, two executors.

pub mod cpu;
pub mod gpu;
pub mod oracle;
pub mod value;

use std::ops::{ControlFlow, Range};
use std::time::Duration;

use crate::error::Result;
use crate::plan::recording::{Part, TensorId};

pub use cpu::CpuExecutor;
pub use gpu::{GpuExecutor, OpTimer, TimedStep};

/// What runs together, and which words are read back after it.
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
    /// When it was seen to be done, since the stream began.
    pub at: Duration,
    /// GPU time from its first dispatch to its last, of a timed stream where there are timestamps.
    pub gpu: Option<Duration>,
}

/// Submissions that run one after the other.
#[derive(Clone, Debug)]
pub struct Stream {
    /// In order.
    pub submissions: Vec<Submission>,
    /// The tensor of words that is read back.
    pub words: TensorId,
    /// Submissions of steps alone, which follow each other, become one as long as it takes no
    /// longer than this, by the time of the last step that ended.
    pub joined_up_to: Option<Duration>,
    /// Whether each [`Batch`] has its time on the GPU, where there are timestamps. Writing and
    /// reading them takes time between two submissions: 10 us on an NVIDIA H200.
    pub timed: bool,
}

impl Submission {
    /// Whether it is nothing but steps, whose words lie behind each other.
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

/// What a decode session needs of an executor.
pub trait Execute {
    /// Writes words of a [`crate::plan::recording::TensorInit::Words`] tensor from word `at` on.
    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()>;
    /// Sets a tensor of words or of KV values to zero.
    fn clear(&mut self, tensor: TensorId) -> Result<()>;
    /// Makes ready whatever parts need that was not run before, such as pipelines of a chunk.
    fn prepare(&mut self, parts: &[Part]) -> Result<()>;
    /// Runs parts of the recording and returns when done.
    fn run(&mut self, parts: &[Part]) -> Result<()>;
    /// Runs submissions without waiting for each: the next one is recorded while the last one
    /// runs. `on` hears of each in order and may end the stream early; what is already submitted
    /// then still runs.
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
