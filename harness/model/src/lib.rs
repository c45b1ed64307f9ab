//! Checkpoints as plain data: the bytes of a GGUF file or of a Hugging Face folder, checked views
//! into them, the shape of the model they hold, its tokenizer and its chat template. Nothing here
//! knows the GPU.
//!
//! ```text
//! path → ModelFile (mapped bytes, index of tensors by GGUF's names) → Config (shapes, checked
//!                                                                     against the tensors)
//! ModelFile → write_gguf → the same model in other weight types
//! SynthSpec → write_synth → a valid file of random weights
//! ```

#[cfg(feature = "text")]
pub mod chat;
pub mod config;
mod error;
#[cfg(feature = "text")]
pub mod export;
mod fault;
mod file;
pub mod finite;
mod folder;
pub mod gguf;
mod json;
mod keys;
mod mapped;
mod names;
pub mod quantise;
pub mod rope;
pub mod safetensors;
mod summary;
pub mod synth;
pub mod token_type;
#[cfg(feature = "text")]
pub mod tokenizer;
#[cfg(feature = "text")]
mod vocabulary;
mod write;

pub use config::{Arch, Config};
pub use error::{ModelError, ModelErrorKind};
pub use fault::Fault;
pub use file::ModelFile;
pub use folder::config_of;
pub use gguf::{GgmlType, Gguf, TensorInfo};
pub use keys::{Found, Keys};
pub use mapped::Mapped;
pub use rope::RopeScaling;
pub use summary::{MetadataLine, ModelSummary, TypeSummary, describe};
pub use write::Fallback;
