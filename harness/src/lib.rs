//! The harness of Lathe under one name: a facade of its crates, for programs that want all of it.
//!
//! ```text
//! GGUF bytes → model (checked views) → decode::Weights → decode::graph → Recording
//!            → execute::{GpuExecutor, CpuExecutor} → tokens, logits
//! ```

pub use lathe_decode as decode;
pub use lathe_device::{
    Error, Result, error, execute, gpu, judge, measure, plan, register, register_variants, wgpu,
};
pub use lathe_model as model;
pub use lathe_record as data;
pub use lathe_record::files;
pub use lathe_report as report;
pub use lathe_web as web;
