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
    /// True of browsers: whatever the text, indices are clamped there.
    pub web: bool,
    /// Features that the adapter has and that are hidden here.
    pub mask: Mask,
}

/// Optional feature of an adapter that can be hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Subgroup operations.
    Subgroups,
    /// 16-bit floats.
    F16,
    /// Timestamps of the GPU.
    Timestamps,
    /// Buffers that are coherent among workgroups, for persistent kernels.
    Coherent,
    /// Cooperative matrices.
    Matrices,
}

/// Hidden features and limits, with which any machine stands for a poorer one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// Features that are hidden by name.
    pub without: Vec<Feature>,
    /// Only the features that wgpu counts as WebGPU's, and WebGPU's default limits.
    pub strict_webgpu: bool,
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
            web: false,
            mask: Mask::default(),
        }
    }

    /// Returns true if a subgroup multiplies matrices of f16, 16 by 16, into sums in f32.
    pub fn has_matrix_units(&self) -> bool {
        let wanted = CooperativeMatrix {
            m: 16,
            n: 16,
            k: 16,
            inputs: MatrixScalar::F16,
            sums: MatrixScalar::F32,
        };
        self.f16 && self.subgroup.is_some() && self.cooperative_matrices.contains(&wanted)
    }

    /// The subgroup size if every pipeline gets the same one, else 0 (read it at run time).
    pub fn fixed_subgroup(&self) -> u32 {
        match self.subgroup {
            Some((min, max)) if min == max => min,
            _ => 0,
        }
    }
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 5] = [
        Feature::Subgroups,
        Feature::F16,
        Feature::Timestamps,
        Feature::Coherent,
        Feature::Matrices,
    ];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::Subgroups => "subgroups",
            Feature::F16 => "f16",
            Feature::Timestamps => "timestamps",
            Feature::Coherent => "coherent",
            Feature::Matrices => "matrices",
        }
    }

    /// wgpu 30 counts it among WebGPU's features. Subgroups it does not, though WebGPU has them.
    const fn is_webgpu(self) -> bool {
        matches!(self, Feature::F16 | Feature::Timestamps)
    }
}

impl Mask {
    /// True if nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.without.is_empty() && !self.strict_webgpu
    }

    /// True if the feature is hidden.
    pub fn hides(&self, feature: Feature) -> bool {
        self.without.contains(&feature) || (self.strict_webgpu && !feature.is_webgpu())
    }

    /// Words that follow the reason why something lacks a feature; empty where that is the
    /// adapter's own lack.
    pub fn of(&self, feature: Feature) -> String {
        match (self.without.contains(&feature), self.hides(feature)) {
            (true, _) => format!(", masked by --without {}", feature.name()),
            (_, true) => self.of_limit().to_owned(),
            _ => String::new(),
        }
    }

    /// Words that follow the reason why something is beyond a limit.
    pub fn of_limit(&self) -> &'static str {
        if self.strict_webgpu { ", masked by --strict-webgpu" } else { "" }
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strict = self.strict_webgpu.then(|| "strict WebGPU".to_owned());
        let names: Vec<_> = self.without.iter().map(|feature| feature.name()).collect();
        let without = (!names.is_empty()).then(|| format!("without {}", names.join(", ")));
        let parts: Vec<_> = strict.into_iter().chain(without).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_says_what_hides_a_feature() {
        let mask = Mask { without: vec![Feature::F16], strict_webgpu: true };
        assert_eq!(mask.of(Feature::F16), ", masked by --without f16");
        assert_eq!(mask.of(Feature::Matrices), ", masked by --strict-webgpu");
        assert_eq!(mask.of(Feature::Timestamps), "");
        assert!(!mask.hides(Feature::Timestamps) && !mask.is_empty());
        assert_eq!(mask.to_string(), "strict WebGPU, without f16");
        assert!(Mask::default().is_empty() && !Mask::default().hides(Feature::Coherent));
    }
}
