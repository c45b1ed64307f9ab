//! Which variant runs: an explicit choice, or the first of the kernel's preferences that can.

use std::collections::BTreeMap;

use lathe_kernels::{Capabilities, Kernel, Shape};

use crate::plan::tuned::Tuned;
use crate::plan::{Plan, PlanError};

/// A selected variant, specialised, with the reason it was taken.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The specialised variant.
    pub plan: Plan,
    /// One line for logs and reports.
    pub why: String,
}

/// Explicit choices: kernel name to variant name.
pub type Hints = BTreeMap<String, String>;

/// Why nothing could be selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The hint names no variant of this kernel.
    #[error("hint {kernel}={hint}: kernel {kernel} has no such variant; it has {known}")]
    UnknownVariant {
        /// Kernel.
        kernel: &'static str,
        /// The hint's variant.
        hint: String,
        /// What there is.
        known: String,
    },
    /// The hinted variant cannot run here. It is never replaced by another.
    #[error("hint {kernel}={hint} cannot hold for {shape}: {reason}")]
    HintUnavailable {
        /// Kernel.
        kernel: &'static str,
        /// The hint's variant.
        hint: String,
        /// The shape at hand.
        shape: String,
        /// Why.
        reason: String,
    },
    /// No variant can run.
    #[error("no variant of {kernel} can run {shape}: {reasons}")]
    Nothing {
        /// Kernel.
        kernel: &'static str,
        /// The shape at hand.
        shape: String,
        /// Each variant's reason.
        reasons: String,
    },
}

/// Selects a variant. An explicit choice always wins or fails loudly; then comes what was tuned
/// for this adapter and shape, then the kernel's own preferences.
pub fn select(
    kernel: &'static Kernel,
    shape: &Shape,
    caps: &Capabilities,
    hints: &Hints,
    tuned: Option<&Tuned>,
) -> Result<Selection, SelectError> {
    if let Some(hint) = hints.get(kernel.name) {
        let variant = kernel.variant(hint).ok_or_else(|| SelectError::UnknownVariant {
            kernel: kernel.name,
            hint: hint.clone(),
            known: names(kernel.variants.iter().map(|v| v.name)),
        })?;
        return match Plan::of(kernel, variant, shape, caps) {
            Ok(plan) => Ok(Selection { plan, why: "explicit hint".into() }),
            Err(e) => Err(SelectError::HintUnavailable {
                kernel: kernel.name,
                hint: hint.clone(),
                shape: shape.show(kernel.params),
                reason: e.to_string(),
            }),
        };
    }
    // For `bench --selected` and `tune`, which look at one operation; a graph has decided already.
    let apart = kernel.fuses.as_ref().and_then(|fusion| {
        let reason = fusion.against(shape)?;
        Some(format!("; decode takes {} instead: {reason}", fusion.of.join(" and ")))
    });
    let apart = apart.unwrap_or_default();
    if let Some((plan, why)) = tuned.and_then(|t| t.find(kernel, shape, caps)) {
        return Ok(Selection { plan, why: why + &apart });
    }
    let mut passed_over = Vec::new();
    for name in kernel.prefer(shape) {
        let variant = kernel.variant(name).expect("the contract test checks preferences");
        match Plan::of(kernel, variant, shape, caps) {
            Ok(plan) => {
                let why = if passed_over.is_empty() {
                    "first preference for this shape".to_owned()
                } else {
                    format!("first that can run; {}", passed_over.join("; "))
                };
                return Ok(Selection { plan, why: why + &apart });
            }
            Err(e @ (PlanError::Unavailable(_) | PlanError::Reflect(_))) => {
                passed_over.push(format!("{name}: {e}"));
            }
        }
    }
    Err(SelectError::Nothing {
        kernel: kernel.name,
        shape: shape.show(kernel.params),
        reasons: passed_over.join("; "),
    })
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    all.collect::<Vec<_>>().join(", ")
}
