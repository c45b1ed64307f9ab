//! Measuring: GPU time of kernels, cold and warm, against the measured copy bandwidth.

pub mod ab;
mod bench;
mod ceilings;
mod environment;
mod ring;
mod session;
pub mod tune;
mod watch;

/// The device of tests, or a message on stderr where there is none; with `LATHE_REQUIRE_GPU=1` that
/// is a failure.
#[cfg(test)]
fn test_gpu() -> Option<std::sync::Arc<crate::gpu::Gpu>> {
    match crate::gpu::Gpu::open(None, crate::gpu::Checks::Files) {
        Ok(gpu) => Some(std::sync::Arc::new(gpu)),
        Err(e) => {
            assert!(std::env::var("LATHE_REQUIRE_GPU").as_deref() != Ok("1"), "{e}");
            eprintln!("UNAVAILABLE, not tested: {e}");
            None
        }
    }
}

pub use bench::{Bench, BenchOptions, Temperature};
pub use ceilings::{Copier, ceilings, copy_bandwidth, peaks};
pub use environment::{build, command_line, environment};
pub use session::{Outcome, Planned, Request, Session};
pub use watch::{Repetitions, RunWatch, canary};
