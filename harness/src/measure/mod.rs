//! Measuring: GPU time of kernels, cold and warm, against the measured copy bandwidth.

pub mod ab;
mod bench;
mod copy;
mod environment;
pub mod tune;

pub use bench::{Bench, BenchOptions, Output, Session, Temperature};
pub use copy::{Copier, CopyBandwidth, copy_bandwidth};
pub use environment::environment;
