//! An interpreter of naga's IR that finds faults of compute shaders without a GPU.
//!
//! [`Program::of`] lowers an entry point once. [`run`] executes a dispatch over [`Buffer`]s, lane
//! by lane of whole workgroups, and returns [`Finding`]s: races, memory that was never written,
//! barriers that not every invocation reaches, accesses out of bounds, and arithmetic that WGSL
//! leaves open or that wgpu's run-time checks would hide.
//!
//! An access races with another if both touch one memory location, one of them writes, different
//! invocations make them, and no barrier lies between. Order of execution does not matter: a race
//! is found even where the drawn schedule has no harm done. Atomics on buffers order workgroups as
//! release and acquire do in other languages, if a `storageBarrier` precedes the writing one and a
//! barrier follows the reading one. WGSL alone promises less.

#![deny(unsafe_code)]

mod code;
mod finding;
mod lower;
mod machine;
mod types;

pub use finding::{Fault, Finding, Invocation, Other, line};
pub use lower::{BufferUse, Program};
pub use machine::{Buffer, Options, run};

/// Reasons that a shader cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interpreter does not know it.
    #[error("the interpreter does not know {0}")]
    Unsupported(String),
    /// A dispatch does not fit the program.
    #[error("{0}")]
    Dispatch(String),
}
