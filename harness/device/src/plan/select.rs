//! Selection of a variant: an explicit choice, or the first of the kernel's preferences that can
//! run, on the web after the variants that were the fastest there.

use std::collections::BTreeMap;

use lathe_kernels::{Capabilities, Kernel, ReflectError, Shape};
use lathe_record::record::FIRST_PREFERENCE;

use crate::error::{Error, Result};
use crate::plan::target::{Target, kernel_named};
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

/// Explicit choices by the kernel's name: a variant, or a user's file, which every operation of a
/// step then runs.
pub type Hints = BTreeMap<String, Subject>;

/// Parses hints as given on the command line, one per kernel: `KERNEL=VARIANT`, `KERNEL=FILE.wgsl`
/// or `KERNEL/VARIANT=FILE.wgsl`. Without a variant a file replaces the kernel's first.
///
/// # Errors
/// A text has another form or names a kernel or a variant that does not exist; a file cannot be
/// read, does not link or does not validate; or two hints are for one kernel.
pub fn parse_hints(texts: &[String]) -> Result<Hints> {
    let mut hints = Hints::new();
    for text in texts {
        let usage = |reason: &str| Error::Usage(format!("hint {text}: {reason}"));
        let (left, right) = text.split_once('=').ok_or_else(|| {
            usage("expected KERNEL=VARIANT, KERNEL=FILE.wgsl or KERNEL/VARIANT=FILE.wgsl")
        })?;
        let (name, place) = left.split_once('/').map_or((left, None), |(k, v)| (k, Some(v)));
        let kernel = kernel_named(name)?;
        let hint = match place {
            None => Target::side(kernel, right)?,
            Some(place) if is_file(right) => Target::side(kernel, &format!("{place}={right}"))?,
            Some(_) => {
                return Err(usage("KERNEL/VARIANT takes the place of a variant with a FILE.wgsl"));
            }
        };
        if let Some(other) = hints.get(name) {
            let (other, hint) = (other.name(), hint.name());
            return Err(Error::Usage(format!("hints name {name} twice: {other} and {hint}")));
        }
        hints.insert(name.to_owned(), hint);
    }
    Ok(hints)
}

/// The reason why no variant could be selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The hinted variant cannot run this shape. It is never replaced by another.
    #[error("{0}")]
    HintUnavailable(String),
    /// The hinted file does not fit the kernel; the message begins with the file.
    #[error(transparent)]
    File(ReflectError),
    /// No variant can run this shape.
    #[error("{0}")]
    Nothing(String),
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
    for name in kernel.prefer_on(shape, caps) {
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
    let (name, shape, reasons) = (kernel.name, shape.show(kernel.params), passed_over.join("; "));
    Err(SelectError::Nothing(format!("no variant of {name} can run {shape}: {reasons}")))
}

fn hinted(
    kernel: &'static Kernel,
    shape: &Shape,
    caps: &Capabilities,
    hint: &Subject,
) -> Result<Selection, SelectError> {
    let mut why = "explicit hint".to_owned();
    if hint.path().is_some() {
        why += &format!(", in the place of {}/{}", kernel.name, hint.variant.name);
    }
    let reason = match hint.plan_of_step(shape, caps) {
        // Its weights and caches are other operations' too.
        Ok(plan) if plan.is_laid_out() => {
            "its mapping lays weights or caches out, which whole steps do not".to_owned()
        }
        Ok(plan) => return Ok(Selection { plan, why }),
        Err(PlanError::Reflect(e)) if hint.path().is_some() => return Err(SelectError::File(e)),
        Err(e) => e.to_string(),
    };
    let (name, hint, shape) = (kernel.name, hint.name(), shape.show(kernel.params));
    let why = format!("hint {name}={hint} cannot hold for {shape}: {reason}");
    Err(SelectError::HintUnavailable(why))
}
