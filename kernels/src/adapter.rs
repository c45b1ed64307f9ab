//! Features and limits of an adapter, as far as kernels depend on them.

use std::fmt;

/// Features and limits of an adapter that kernels depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Smallest and largest subgroup size, when subgroup operations are available.
    pub subgroup: Option<(u32, u32)>,
    /// 16-bit floats in WGSL.
    pub f16: bool,
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// Invocations in a workgroup.
    pub invocations: u32,
    /// Bytes of one storage binding.
    pub binding_bytes: u64,
    /// Storage buffers a stage may bind.
    pub storage_buffers: u32,
    /// Bind groups of a pipeline.
    pub bind_groups: u32,
    /// Workgroups per grid dimension.
    pub grid_dimension: u32,
    /// Cooperative matrices that a subgroup multiplies.
    pub cooperative_matrices: Vec<CooperativeMatrix>,
}

/// Sizes and types of cooperative matrices, C (m, n) += A (m, k) times B (k, n), that an adapter
/// multiplies in one operation of a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CooperativeMatrix {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Elements of A and B.
    pub inputs: MatrixScalar,
    /// Elements of C.
    pub sums: MatrixScalar,
}

/// Element type of a cooperative matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatrixScalar {
    /// IEEE binary16.
    F16,
    /// IEEE binary32.
    F32,
    /// 32-bit signed.
    I32,
    /// 32-bit unsigned.
    U32,
}

impl fmt::Display for CooperativeMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |s: MatrixScalar| match s {
            MatrixScalar::F16 => "f16",
            MatrixScalar::F32 => "f32",
            MatrixScalar::I32 => "i32",
            MatrixScalar::U32 => "u32",
        };
        let Self { m, n, k, inputs, sums } = *self;
        write!(f, "{m}x{n}x{k} {} to {}", name(inputs), name(sums))
    }
}

impl Capabilities {
    /// Capabilities of every WebGPU adapter: no optional feature, the default limits.
    pub fn minimal() -> Self {
        Self {
            subgroup: None,
            f16: false,
            workgroup_memory: 16 << 10,
            invocations: 256,
            binding_bytes: 128 << 20,
            storage_buffers: 8,
            bind_groups: 4,
            grid_dimension: 65535,
            cooperative_matrices: Vec::new(),
        }
    }

    /// The subgroup size if every pipeline gets the same one, else 0 (read it at run time).
    pub fn fixed_subgroup(&self) -> u32 {
        match self.subgroup {
            Some((min, max)) if min == max => min,
            _ => 0,
        }
    }
}
