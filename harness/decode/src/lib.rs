//! A model as a recording, and sessions that run it.

pub mod graph;
pub mod kv_cache;
pub mod load;
pub mod model;
pub mod once;
pub mod perplexity;
mod prefix;
pub mod profile;
pub mod prompts;
pub mod sampling;
pub mod sequences;
pub mod session;
pub mod timed;
pub mod trial;

pub use graph::{Chunks, DecodeGraph, GraphOptions};
pub use kv_cache::KvCache;
pub use load::{LoadOptions, Weights};
pub use model::{Apart, Model, Prompt, Session, SessionOptions};
pub use prefix::{Prefix, VERIFIED};
pub use sampling::Sampling;
pub use session::{GaveUp, Known, Run, RunOptions};
pub use trial::{Script, Timed, Trial};
