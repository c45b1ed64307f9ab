//! From kernel, variant and shape to what a device has to do: constants, entry points, grids.
//! Pure data; the GPU executor turns it into pipelines.

use std::borrow::Cow;
use std::sync::Arc;

use lathe_kernels::{Capabilities, Constants, Kernel, ReflectError, Reflection, Shape, Variant};

/// One variant, specialised for one shape on one adapter.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Variant name, or the file of a user's own WGSL.
    pub variant: String,
    /// WGSL handed to the device.
    pub text: Cow<'static, str>,
    /// The text is a built-in variant's: its indexing is proven by the sweeps, so it may run
    /// without wgpu's checks. Any other text never does.
    pub trusted: bool,
    /// What naga says of it.
    pub reflection: Arc<Reflection>,
    /// Values of all overrides.
    pub constants: Constants,
    /// Dispatches, in order.
    pub stages: Vec<PlannedStage>,
}

/// One dispatch of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStage {
    /// WGSL entry point.
    pub entry: String,
    /// Workgroups in x and y.
    pub groups: [u32; 2],
}

/// Why a plan cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The adapter or the shape rules the variant out.
    #[error("{0}")]
    Unavailable(String),
    /// The WGSL does not fit the kernel.
    #[error(transparent)]
    Reflect(#[from] ReflectError),
}

impl Plan {
    /// Specialises a built-in variant.
    pub fn of(
        kernel: &'static Kernel,
        variant: &'static Variant,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Result<Self, PlanError> {
        let source = lathe_kernels::source(kernel.name, variant.name)
            .expect("the contract test pairs variants and files");
        let reflection = lathe_kernels::reflection(kernel.name, variant.name)
            .expect("the contract test pairs variants and files");
        Self::build(kernel, variant, shape, caps, Cow::Borrowed(source.text), reflection)
    }

    /// Specialises another WGSL text in the place of a variant's. Its `// uses:` lines name the
    /// same preludes as a built-in file's.
    pub fn with_text(
        kernel: &'static Kernel,
        variant: &'static Variant,
        shape: &Shape,
        caps: &Capabilities,
        text: &str,
        path: &str,
    ) -> Result<Self, PlanError> {
        let text = lathe_kernels::compose(text, path)?;
        let reflection = Arc::new(Reflection::of(&text, path)?);
        Self::build(kernel, variant, shape, caps, Cow::Owned(text), reflection)
    }

    fn build(
        kernel: &'static Kernel,
        variant: &'static Variant,
        shape: &Shape,
        caps: &Capabilities,
        text: Cow<'static, str>,
        reflection: Arc<Reflection>,
    ) -> Result<Self, PlanError> {
        let unavailable = |reason: String| Err(PlanError::Unavailable(reason));
        if reflection.needs_subgroup && caps.subgroup.is_none() {
            return unavailable("needs subgroup operations".into());
        }
        if reflection.needs_f16 && !caps.f16 {
            return unavailable("needs 16-bit floats (shader-f16)".into());
        }
        if let Some(reason) = (variant.refuses)(shape, caps) {
            return unavailable(reason);
        }
        let tuned = (variant.constants)(shape, caps);
        let constants = reflection.constants(shape.iter().chain(tuned))?;
        let mut stages = Vec::with_capacity(variant.stages.len());
        for stage in variant.stages {
            let (memory, invocations) = reflection.workgroup(stage.entry, &constants)?;
            if memory > caps.workgroup_memory {
                return unavailable(format!(
                    "needs {memory} bytes of workgroup memory, the adapter has {}",
                    caps.workgroup_memory
                ));
            }
            if invocations > caps.invocations {
                return unavailable(format!(
                    "needs {invocations} invocations a workgroup, the adapter has {}",
                    caps.invocations
                ));
            }
            let buffers = reflection.entry(stage.entry).map_or(0, |e| e.buffers.len());
            if buffers > caps.storage_buffers as usize {
                return unavailable(format!(
                    "needs {buffers} storage buffers, the adapter has {}",
                    caps.storage_buffers
                ));
            }
            let groups = fold((stage.grid)(shape, &constants), caps.grid_dimension);
            let Some(groups) = groups else {
                return unavailable("needs more workgroups than two grid dimensions hold".into());
            };
            stages.push(PlannedStage { entry: stage.entry.to_owned(), groups });
        }
        Ok(Self {
            kernel,
            variant: variant.name.to_owned(),
            trusted: matches!(text, Cow::Borrowed(_)),
            text,
            reflection,
            constants,
            stages,
        })
    }
}

/// Workgroups as x and y, y as small as the adapter's limit allows.
fn fold(groups: usize, limit: u32) -> Option<[u32; 2]> {
    let limit = limit as usize;
    let y = groups.div_ceil(limit).max(1);
    let x = groups.div_ceil(y);
    (y <= limit).then_some([x as u32, y as u32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_covers_all_groups_and_keeps_the_limit() {
        assert_eq!(fold(1, 65535), Some([1, 1]));
        assert_eq!(fold(65535, 65535), Some([65535, 1]));
        assert_eq!(fold(65536, 65535), Some([32768, 2]));
        assert_eq!(fold(10, 3), None);
        for n in 1..200 {
            if let Some([x, y]) = fold(n, 16) {
                assert!(x <= 16 && y <= 16 && (x * y) as usize >= n);
            }
        }
    }
}
