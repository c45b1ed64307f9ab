//! Measuring: GPU time of kernels, cold and warm, against the measured copy bandwidth.

pub mod ab;
mod bench;
mod ceilings;
mod copy;
mod environment;
mod ring;
mod session;
pub mod tune;
mod watch;

pub use bench::{Bench, BenchOptions, Sampled, Temperature};
pub use ceilings::{ceilings, peaks};
pub use copy::{Copier, CopyBandwidth, copy_bandwidth};
pub use environment::{command_line, environment};
pub use session::Session;
pub use watch::{GpuWatch, Watch};
