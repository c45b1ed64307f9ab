//! What is known of an adapter.

use serde::{Serialize, Serializer};

use lathe_kernels::{Capabilities, CooperativeMatrix};

/// What `doctor` and every record say of an adapter.
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
    /// Where it sits on the PCI bus, where the back end says so.
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
    #[serde(serialize_with = "as_text")]
    pub cooperative_matrices: Vec<CooperativeMatrix>,
}

fn as_text<S: Serializer>(
    all: &[CooperativeMatrix],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(ToString::to_string))
}

impl AdapterSummary {
    /// The same facts as kernels ask for them.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            subgroup: self.subgroup_size.map(|[min, max]| (min, max)),
            f16: self.f16,
            workgroup_memory: self.workgroup_memory,
            invocations: self.invocations,
            // Tensors that lie in one buffer are bound together.
            binding_bytes: self.max_binding_bytes.min(self.max_buffer_bytes),
            storage_buffers: self.storage_buffers,
            // As many as every adapter has; a device knows better.
            bind_groups: 4,
            grid_dimension: 65535,
            cooperative_matrices: self.cooperative_matrices.clone(),
        }
    }
}
