//! Everything that needs a device: plans, checks, measuring, models and decode.
//!
//! ```text
//! GGUF bytes → model (checked views) → decode::Weights → decode::graph → Recording
//!            → execute::{GpuExecutor, CpuExecutor} → tokens, logits
//! ```

#![warn(clippy::print_stdout, reason = "the command writes by itself, and sees errors")]

pub mod data;
pub mod decode;
pub mod error;
pub mod execute;
pub mod files;
pub mod gpu;
pub mod judge;
pub mod measure;
pub mod model;
pub mod plan;
pub mod report;

pub use error::{Error, Result};
pub use execute::oracle::register;
pub use lathe_kernels::register_variants;
/// For [`gpu::Gpu::from_wgpu`], whose device must be of this version.
pub use wgpu;
