//! Targets of commands: variants of a kernel, or a user's WGSL file that replaces a variant.

use std::path::Path;

use lathe_kernels::{Capabilities, Kernel, KernelVariant, Problem};

use super::user::is_file;
use super::{PlanError, Subject, shapes};
use crate::error::{Error, Result, meant};

/// Variants of one kernel, or the one that a file replaces.
#[derive(Clone, Debug)]
pub struct Target {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Variants, as named or in the order of the declaration; or the file.
    pub subjects: Vec<Subject>,
}

impl Target {
    /// Every variant of a kernel.
    pub fn of(kernel: &'static Kernel) -> Self {
        let subjects = kernel.variants.iter().map(|variant| Subject::of(kernel, variant));
        Self { kernel, subjects: subjects.collect() }
    }

    /// All kernels, or the one that `KERNEL` or `KERNEL/VARIANT` names.
    pub fn parse(text: Option<&str>) -> Result<Vec<Self>> {
        match text {
            None => Ok(lathe_kernels::kernels().iter().map(Self::of).collect()),
            Some(text) => Ok(vec![Self::one(text)?]),
        }
    }

    /// The kernel or variant that `KERNEL` or `KERNEL/VARIANT` names.
    pub fn one(text: &str) -> Result<Self> {
        if is_file(text) {
            return Err(Error::Usage(format!(
                "{text} is a file and no kernel: name the kernel in whose place it stands, and the \
                 file with --wgsl; `validate` takes a file alone"
            )));
        }
        let (name, variant) = match text.split_once('/') {
            Some((name, variant)) => (name, Some(variant)),
            None => (text, None),
        };
        let kernel = kernel_named(name)?;
        match variant {
            None => Ok(Self::of(kernel)),
            Some(variant) => Self::variant(kernel, variant),
        }
    }

    fn variant(kernel: &'static Kernel, name: &str) -> Result<Self> {
        Ok(Self { kernel, subjects: vec![Subject::of(kernel, variant_named(kernel, name)?)] })
    }

    /// One side of a comparison: `VARIANT`, `FILE.wgsl` or `VARIANT=FILE.wgsl`. A file alone
    /// replaces the first variant.
    pub fn side(kernel: &'static Kernel, text: &str) -> Result<Subject> {
        let target = match text.split_once('=') {
            _ if !is_file(text) => Self::variant(kernel, text)?,
            // A file's own name may have one.
            Some((name, file)) if !Path::new(text).exists() => {
                Self::variant(kernel, name)?.with_file(file.as_ref())?
            }
            _ => Self::of(kernel).with_file(text.as_ref())?,
        };
        Ok(target.subjects.into_iter().next().expect("a kernel has variants"))
    }

    /// A user's file that replaces the first of these variants.
    pub fn with_file(self, path: &Path) -> Result<Self> {
        let subject = Subject::compile(path, self.kernel, self.subjects[0].variant);
        let subjects = vec![subject.map_err(PlanError::into_usage)?];
        Ok(Self { subjects, ..self })
    }

    /// All problems of a `--shape`. Parameters that it does not name keep the kernel's defaults, or
    /// take values that the file supports.
    pub fn problems(&self, text: &str, caps: &Capabilities) -> Result<Vec<Problem>> {
        let problems = shapes::all(self.kernel, text)?;
        match self.subjects.as_slice() {
            [file] if file.path().is_some() => shapes::filled(problems, text, file, caps),
            _ => Ok(problems),
        }
    }
}

/// The kernel of this name.
pub fn kernel_named(name: &str) -> Result<&'static Kernel> {
    lathe_kernels::kernel(name).ok_or_else(|| {
        let known: Vec<_> = lathe_kernels::kernels().iter().map(|k| k.name).collect();
        Error::Usage(format!("no kernel `{name}`; {}", meant(name, &known)))
    })
}

/// The kernel's variant of this name.
fn variant_named(kernel: &'static Kernel, name: &str) -> Result<&'static KernelVariant> {
    kernel.variant(name).ok_or_else(|| {
        let known: Vec<_> = kernel.variants.iter().map(|v| v.name).collect();
        let meant = meant(name, &known);
        Error::Usage(format!("kernel {} has no variant `{name}`; {meant}", kernel.name))
    })
}
