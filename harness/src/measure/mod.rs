//! Measuring: GPU time of kernels, cold and warm, against the measured copy bandwidth.

mod bench;
mod copy;
mod span;
pub mod stats;
mod steady;

pub use bench::{Bench, BenchOptions, Measured, Temperature, Timing, measure};
pub use copy::{CopyBandwidth, copy_bandwidth};
pub use span::{Clock, Span};
pub use steady::steady;
