//! Description of an adapter.

use serde::Serialize;

/// Description of an adapter, for `doctor` and every record.
#[derive(Default, Clone, Debug, Serialize)]
pub struct AdapterSummary {
    /// Place in the list of adapters.
    pub index: usize,
    /// Marketing name.
    pub name: String,
    /// Driver and its version.
    pub driver: String,
    /// vulkan, metal or dx12.
    pub backend: String,
    /// PCI address, if the back end reports it.
    pub pci: Option<String>,
    /// discrete-gpu, integrated-gpu, cpu, …
    pub kind: String,
    /// A software implementation: right, but no subject for speed claims.
    pub software: bool,
    /// Smallest and largest subgroup size, absent without subgroup operations.
    pub subgroup_size: Option<[u32; 2]>,
    /// 16-bit floats.
    pub f16: bool,
    /// GPU timestamps around passes.
    pub timestamps: bool,
    /// Bytes of one storage binding.
    pub max_binding_bytes: u64,
    /// Bytes of one buffer.
    pub max_buffer_bytes: u64,
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Storage buffers a stage may bind.
    pub storage_buffers: u32,
    /// Cooperative matrices a subgroup multiplies, as `MxNxK inputs to sums`.
    pub cooperative_matrices: Vec<String>,
}
