//! Selection of a variant: an explicit choice, or the first of the kernel's preferences that can
//! run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use lathe_kernels::{Capabilities, Kernel, ReflectError, Shape};
use lathe_record::record::FIRST_PREFERENCE;

use crate::error::{Error, Result};
use crate::plan::target::{kernel_named, variant_named};
use crate::plan::tuned::Tuned;
use crate::plan::user::is_file;
use crate::plan::{Plan, PlanError, Subject};

/// A selected variant, specialised, with the reason it was taken.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The specialised variant.
    pub plan: Plan,
    /// One line for logs and reports.
    pub why: String,
}

/// Explicit choices by the kernel's name.
pub type Hints = BTreeMap<String, Hint>;

/// An explicit choice for one kernel.
#[derive(Clone, Debug)]
pub enum Hint {
    /// A variant by its name.
    Variant(String),
    /// A user's file: every operation of a step runs the same text.
    File(Subject),
}

impl From<&str> for Hint {
    fn from(variant: &str) -> Self {
        Hint::Variant(variant.to_owned())
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::Variant(name) => f.write_str(name),
            Hint::File(file) => f.write_str(&file.name()),
        }
    }
}

impl Hint {
    /// Reads `KERNEL=VARIANT`, `KERNEL=FILE.wgsl` or `KERNEL/VARIANT=FILE.wgsl`. Without a variant
    /// a file replaces the kernel's first.
    ///
    /// # Errors
    /// The text has another form, names a kernel or a variant that does not exist, or the file
    /// cannot be read, does not link or does not validate.
    pub fn parse(text: &str) -> Result<(String, Self)> {
        let usage = |reason: &str| Error::Usage(format!("hint {text}: {reason}"));
        let (left, right) = text.split_once('=').ok_or_else(|| {
            usage("expected KERNEL=VARIANT, KERNEL=FILE.wgsl or KERNEL/VARIANT=FILE.wgsl")
        })?;
        let (name, place) = left.split_once('/').map_or((left, None), |(k, v)| (k, Some(v)));
        match place {
            _ if is_file(right) => {
                let kernel = kernel_named(name)?;
                let first = || Ok(&kernel.variants[0]);
                let place = place.map_or_else(first, |place| variant_named(kernel, place))?;
                let file = Subject::compile(Path::new(right), kernel, place);
                Ok((name.to_owned(), Hint::File(file.map_err(PlanError::into_usage)?)))
            }
            None => Ok((name.to_owned(), right.into())),
            Some(_) => Err(usage("KERNEL/VARIANT takes the place of a variant with a FILE.wgsl")),
        }
    }
}

/// Parses hints as given on the command line, one per kernel.
///
/// # Errors
/// Same as [`Hint::parse`], and two hints for one kernel.
pub fn parse_hints(texts: &[String]) -> Result<Hints> {
    let mut hints = Hints::new();
    for text in texts {
        let (kernel, hint) = Hint::parse(text)?;
        if let Some(other) = hints.get(&kernel) {
            return Err(Error::Usage(format!("hints name {kernel} twice: {other} and {hint}")));
        }
        hints.insert(kernel, hint);
    }
    Ok(hints)
}

/// The reason why no variant could be selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The hint names no variant of this kernel.
    #[error("hint {0}={1}: {2}")]
    UnknownVariant(&'static str, String, Error),
    /// The hinted variant cannot run here. It is never replaced by another.
    #[error("hint {kernel}={hint} cannot hold for {shape}: {reason}")]
    HintUnavailable {
        /// Kernel.
        kernel: &'static str,
        /// The hint's variant.
        hint: String,
        /// The shape.
        shape: String,
        /// The reason.
        reason: String,
    },
    /// The hinted file does not fit the kernel; the message begins with the file.
    #[error(transparent)]
    File(ReflectError),
    /// No variant can run.
    #[error("no variant of {kernel} can run {shape}: {reasons}")]
    Nothing {
        /// Kernel.
        kernel: &'static str,
        /// The shape.
        shape: String,
        /// Each variant's reason.
        reasons: String,
    },
}

/// Selects a variant. An explicit choice always wins or fails with an error; then comes the choice
/// tuned for this adapter and shape, then the kernel's own preferences.
pub fn select(
    kernel: &'static Kernel,
    shape: &Shape,
    caps: &Capabilities,
    hints: &Hints,
    tuned: Option<&Tuned>,
) -> Result<Selection, SelectError> {
    if let Some(hint) = hints.get(kernel.name) {
        return hinted(kernel, shape, caps, hint);
    }
    // For `bench --selected` and `tune`, which look at one operation; a graph has decided already.
    let apart = kernel.fuses.as_ref().and_then(|fusion| {
        let reason = (fusion.against)(shape)?;
        Some(format!("; decode takes {} instead: {reason}", fusion.of.join(" and ")))
    });
    let apart = apart.unwrap_or_default();
    if let Some((plan, why)) = tuned.and_then(|t| t.find(kernel, shape, caps)) {
        return Ok(Selection { plan, why: why + &apart });
    }
    let mut passed_over = Vec::new();
    for name in kernel.prefer(shape) {
        let Some(variant) = kernel.variant(name) else {
            passed_over.push(format!("{name}: no such variant"));
            continue;
        };
        match Plan::of(kernel, variant, shape, caps) {
            Err(e) => passed_over.push(format!("{name}: {e}")),
            Ok(plan) => {
                let why = match passed_over.as_slice() {
                    [] => FIRST_PREFERENCE.to_owned(),
                    reasons => format!("first that can run; {}", reasons.join("; ")),
                };
                return Ok(Selection { plan, why: why + &apart });
            }
        }
    }
    Err(SelectError::Nothing {
        kernel: kernel.name,
        shape: shape.show(kernel.params),
        reasons: passed_over.join("; "),
    })
}

fn hinted(
    kernel: &'static Kernel,
    shape: &Shape,
    caps: &Capabilities,
    hint: &Hint,
) -> Result<Selection, SelectError> {
    let (plan, why) = match hint {
        Hint::Variant(name) => {
            let variant = variant_named(kernel, name)
                .map_err(|e| SelectError::UnknownVariant(kernel.name, name.clone(), e))?;
            (Plan::of(kernel, variant, shape, caps), "explicit hint".to_owned())
        }
        Hint::File(file) => {
            let place = file.variant.name;
            let why = format!("explicit hint, in the place of {}/{place}", kernel.name);
            (file.plan_of_step(shape, caps), why)
        }
    };
    let reason = match (plan, hint) {
        // Its weights and caches are other operations' too.
        (Ok(plan), _) if plan.is_laid_out() => {
            "its mapping lays weights or caches out, which whole steps do not".to_owned()
        }
        (Ok(plan), _) => return Ok(Selection { plan, why }),
        (Err(PlanError::Reflect(e)), Hint::File(_)) => return Err(SelectError::File(e)),
        (Err(e), _) => e.to_string(),
    };
    let (hint, shape) = (hint.to_string(), shape.show(kernel.params));
    Err(SelectError::HintUnavailable { kernel: kernel.name, hint, shape, reason })
}
