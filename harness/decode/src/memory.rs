//! Device memory of a model with its context: predicted before it is loaded, measured after it ran.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::Observer;
use super::graph::DecodeGraph;
use lathe_device::error::Result;
use lathe_device::execute::GpuExecutor;
use lathe_device::gpu::{DeviceMemory, Gpu, Pipelines, Policy};
use lathe_device::plan::memory::Memory;
use lathe_record::bytes;

/// Memory that a graph will take.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Predicted {
    /// Bytes by purpose.
    predicted: Memory,
    /// Sum of these bytes.
    pub predicted_bytes: u64,
    /// Bytes that the device has free before; null where it does not say.
    free_bytes: Option<u64>,
    /// Bytes of its memory; null where it does not say.
    device_bytes: Option<u64>,
    /// `--memory-limit`.
    limit_bytes: Option<u64>,
}

/// Predicted and measured memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Taken {
    #[serde(flatten)]
    predicted: Predicted,
    /// Peak of wgpu's allocator; null where the back end has none.
    pub allocated_peak_bytes: Option<u64>,
    /// Peak by the driver's count, with memory that allocators take in advance; null where it does
    /// not say.
    used_peak_bytes: Option<u64>,
    /// Bytes of the executor's buffers.
    #[serde(skip)]
    held: u64,
}

impl Predicted {
    /// Memory of a graph on a device, and an error if it exceeds the free memory or the limit.
    pub fn of(gpu: &Gpu, graph: &DecodeGraph) -> (Self, Result<()>) {
        let memory = Memory::of(&graph.recording);
        let device = gpu.memory();
        let predicted = Self {
            predicted: memory,
            predicted_bytes: memory.total(),
            free_bytes: device.filter(|m| m.budget.is_some()).map(DeviceMemory::free),
            device_bytes: device.map(|m| m.size),
            limit_bytes: gpu.memory_limit,
        };
        (predicted, gpu.admit(&graph.recording, &memory))
    }

    /// The prediction with the peaks of a run, whose executor held `held` bytes.
    pub fn measured(self, gpu: &Gpu, held: u64) -> Taken {
        let peak = gpu.peak_memory();
        let (allocated_peak_bytes, used_peak_bytes) = (peak.allocated, peak.used);
        Taken { predicted: self, allocated_peak_bytes, used_peak_bytes, held }
    }
}

impl Taken {
    /// Bytes at the peak, or where the back end has no count those of the executor's buffers.
    pub fn bytes(&self) -> u64 {
        self.allocated_peak_bytes.unwrap_or(self.held)
    }
}

/// Loads a graph onto a device. `on` hears first the memory that this will take, then the bytes
/// loaded.
///
/// # Errors
/// It does not fit, or the device refuses a buffer or a pipeline.
pub fn load(
    gpu: &Arc<Gpu>,
    pipelines: &Pipelines,
    graph: &DecodeGraph,
    on: &mut dyn Observer,
) -> Result<GpuExecutor> {
    let (predicted, admitted) = Predicted::of(gpu, graph);
    admitted?;
    on.predicted(&predicted);
    // Peaks count from now on.
    gpu.forget_peak();
    let (gpu, recording) = (Arc::clone(gpu), Arc::clone(&graph.recording));
    GpuExecutor::new(gpu, pipelines, recording, Policy::Plain, &mut |done, all| {
        on.loaded(done, all);
    })
}

impl fmt::Display for Predicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} predicted ({})", bytes(self.predicted_bytes), self.predicted)?;
        match (self.free_bytes, self.device_bytes) {
            (Some(free), Some(all)) => write!(f, "; {} free of {}", bytes(free), bytes(all))?,
            (_, Some(all)) => {
                write!(f, "; the device has {}, how much is free it does not say", bytes(all))?;
            }
            _ => write!(f, "; how much memory the device has the back end does not say")?,
        }
        self.limit_bytes.map_or(Ok(()), |limit| write!(f, ", limit {}", bytes(limit)))
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} predicted", bytes(self.predicted.predicted_bytes))?;
        if let Some(peak) = self.allocated_peak_bytes {
            write!(f, ", {} allocated at peak", bytes(peak))?;
        }
        if let Some(used) = self.used_peak_bytes {
            write!(f, ", {} in use by the driver's count", bytes(used))?;
        }
        Ok(())
    }
}
