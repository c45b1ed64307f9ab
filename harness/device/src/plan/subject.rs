//! Subjects of checks, benchmarks and tuning.

use std::path::Path;
use std::sync::Arc;

use lathe_kernels::{Capabilities, Constants, Kernel, KernelVariant, Problem, Shape};

use super::user::UserKernel;
use super::{Plan, PlanError};

/// A variant of a kernel, with some of its overrides set, or a user's file that replaces it. A file
/// is read, linked and parsed once, for any number of shapes.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The variant, or the one that a file replaces.
    pub variant: &'static KernelVariant,
    constants: Constants,
    pub(super) file: Option<Arc<UserKernel>>,
}

impl Subject {
    /// A built-in or registered variant.
    pub fn of(kernel: &'static Kernel, variant: &'static KernelVariant) -> Self {
        Self::tuned(kernel, variant, Constants::new())
    }

    /// A built-in or registered variant with some overrides set.
    pub fn tuned(
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
        constants: Constants,
    ) -> Self {
        Self { kernel, variant, constants, file: None }
    }

    /// Reads, links and parses `path` and the TOML file of the same name, if there is one; or, if
    /// `path` is a TOML file, it and the WGSL that it names. Its grid is that of `variant`, unless
    /// its mapping gives another.
    ///
    /// # Errors
    /// A file cannot be read, does not link or does not validate. A file that does not fit the
    /// kernel is reported once it is planned.
    pub fn compile(
        path: &Path,
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
    ) -> Result<Self, PlanError> {
        let file = Some(Arc::new(UserKernel::read(path, kernel, variant)?));
        Ok(Self { file, ..Self::of(kernel, variant) })
    }

    /// The user's file.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// The variant's name, or the file's.
    pub fn name(&self) -> String {
        self.path().map_or_else(|| self.variant.name.into(), |path| path.display().to_string())
    }

    /// Specialises it for a problem. Where a mapping names the state, the plan is for that state
    /// alone.
    ///
    /// # Errors
    /// It cannot run there, or a file does not fit the kernel.
    pub fn plan(&self, problem: &Problem, caps: &Capabilities) -> Result<Plan, PlanError> {
        match &self.file {
            Some(file) => file.plan(&problem.shape, Some(problem.state), caps),
            None => self.plan_of_step(&problem.shape, caps),
        }
    }

    /// Specialises it for a step that is recorded once and runs at every position.
    ///
    /// # Errors
    /// See [`Subject::plan`]; or its mapping names the state.
    pub fn plan_of_step(&self, shape: &Shape, caps: &Capabilities) -> Result<Plan, PlanError> {
        let Self { kernel, variant, constants, .. } = self;
        match &self.file {
            Some(file) => file.plan(shape, None, caps),
            None => Plan::tuned(kernel, variant, shape, caps, constants),
        }
    }
}
