//! The device: adapter choice, one opened device with its faults, its memory, pipelines, buffers
//! and the timing of submissions.

mod adapter;
mod buffers;
mod device;
mod grid_barrier;
mod memory;
mod pipeline;
mod state;
mod sysfs;
mod timer;

/// The wgpu that shaders are compiled with; `Cargo.toml` pins it.
pub const WGPU_VERSION: &str = "30.0.1";

/// The naga that wgpu translates them with, of the same release.
pub const NAGA_VERSION: &str = "30.0.1";

pub use adapter::{adapters, none_found};
pub use buffers::{DeviceBuffer, GUARD_BYTES, Policy, poison};
pub use device::{Checks, Gpu, MemoryUse};
pub use memory::{Budget, DeviceMemory};
pub(crate) use pipeline::Bound;
pub use pipeline::{Pipeline, Pipelines};
pub use timer::Span;
pub(crate) use timer::Timestamps;
