//! Checkpoints as plain data: the bytes of a GGUF file, checked views into them, the shape of the
//! model they hold, its tokenizer and its chat template. Nothing here knows the GPU.
//!
//! ```text
//! path → ModelFile (mapped bytes + Gguf index) → Config (shapes, checked against the tensors)
//! SynthSpec → write_synth → a valid file of random weights
//! ```

pub mod chat;
pub mod config;
mod file;
pub mod gguf;
pub mod quantise;
mod summary;
pub mod synth;
pub mod tokenizer;

pub use config::{Arch, Config, ConfigError};
pub use file::{ModelError, ModelFile};
pub use gguf::{GgmlType, Gguf, GgufError, TensorInfo};
pub use summary::{MetadataLine, ModelSummary, TypeSummary, describe};
