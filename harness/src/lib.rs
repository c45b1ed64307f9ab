//! Everything that needs a device, and the `lathe` command.
//!
//! ```text
//! GGUF bytes → model (checked views) → decode::Weights → decode::graph → Recording
//!            → execute::{GpuExecutor, CpuExecutor} → tokens, logits
//! ```

pub mod backend_text;
pub mod check;
pub mod cli;
pub mod data;
pub mod decode;
pub mod diff;
pub mod error;
pub mod execute;
pub mod gpu;
pub mod judge;
pub mod measure;
pub mod model;
pub mod plan;
pub mod recording;
pub mod report;
pub mod select;
pub mod tune;
pub mod tuned;
pub mod user;
pub mod weights;

pub use error::{Error, Result};
