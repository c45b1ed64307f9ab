//! Everything that needs a device: plans, the two executors, checks against the reference,
//! measuring and tuning, of built-in kernels and of files of the user's.
//!
//! ```text
//! select → plan → Recording → execute::{GpuExecutor, CpuExecutor} → judge, measure, tune
//! ```

#![warn(clippy::print_stdout, reason = "the command writes by itself, and sees errors")]

pub mod error;
pub mod execute;
pub mod gpu;
pub mod judge;
pub mod measure;
pub mod plan;

pub use error::{Error, Result};
pub use execute::oracle::register;
pub use lathe_kernels::register_variants;
/// For [`gpu::Gpu::from_wgpu`], whose device must be of this version.
pub use wgpu;
