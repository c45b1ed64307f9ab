//! `lathe diff`: the first operation at which the kernels and the reference disagree.
//!
//! Every operation is judged on its own: the reference gets the device's inputs, so an error is
//! found at the operation that makes it, not where it has grown large.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::execute::Kernels;
use crate::execute::oracle::{self, Outcomes};
use crate::execute::value::Value;
use crate::judge::finite::{self, Narrow};
use crate::judge::{Outcome, Verdict, judge};
use crate::plan::recording::{Op, Part, Recording, TensorId, TensorInit};

/// An operation whose output is off.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Divergence {
    /// Step (position) at which it happened.
    pub step: usize,
    /// Index in the part of the recording.
    pub op_index: usize,
    /// Layer and operation.
    pub label: String,
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// Parameters.
    pub shape: String,
    /// Tensor and its fault.
    pub reason: String,
    /// Origin of a value that is not finite, if that is the fault.
    #[serde(skip)]
    pub not_finite: Option<Source>,
}

/// Origin of a value that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An input of the operation.
    Input,
    /// Storage that has no room for it.
    Narrow(Narrow),
}

/// Runs a step, a chunk or the tail after the last chunk operation by operation and returns the
/// first that disagrees. `step` is the position at which the part begins.
pub fn part(executor: &mut dyn Kernels, part: Part, step: usize) -> Result<Option<Divergence>> {
    let recording = Arc::clone(executor.recording());
    recording.refuse_persistent("a comparison by operation")?;
    executor.prepare(&[part])?;
    let mut values: Vec<Value> = recording.tensors.iter().map(|t| light(&t.content)).collect();
    for (index, op) in recording.part(part).iter().enumerate() {
        refresh(executor, &recording, op, &mut values)?;
        executor.run_op(part, index)?;
        let outcomes = oracle::judged(op, &values)?;
        let mut left = BTreeMap::new();
        for (tensor, _) in &outcomes {
            left.insert(*tensor, executor.read_bytes(*tensor)?);
        }
        let state = oracle::state(op, &values);
        let failed = match judge(&recording, op, state, &outcomes, &left) {
            Verdict::Failed { reason, .. } => Some(reason),
            Verdict::Passed { .. } | Verdict::Unavailable { .. } => None,
        };
        // Storage is to blame where the kernel is right: all that follows is compared with nothing.
        let off = not_finite(&recording, op, &outcomes, &values, &left)
            .filter(|(_, source)| failed.is_none() || *source == Source::Input);
        let not_finite = off.as_ref().map(|(_, source)| *source);
        let Some(reason) = off.map(|(reason, _)| reason).or(failed) else { continue };
        return Ok(Some(Divergence {
            step,
            op_index: index,
            label: op.label.to_string(),
            kernel: op.kernel().name.into(),
            variant: op.plan.variant.clone(),
            shape: op.shape.show(op.kernel().params),
            reason,
            not_finite,
        }));
    }
    Ok(None)
}

/// A value that is not finite because an input is not, or because its storage has no room: what is
/// expected is the value before it was stored.
fn not_finite(
    recording: &Recording,
    op: &Op,
    outcomes: &Outcomes,
    values: &[Value],
    left: &BTreeMap<TensorId, Vec<u8>>,
) -> Option<(String, Source)> {
    let reads = oracle::reads_not_finite(op, values);
    outcomes.iter().find_map(|(id, outcome)| {
        let Outcome::Real(expected) = outcome else { return None };
        let tensor = &recording.tensors[id.0];
        let (index, why, source) = if reads {
            let index = expected.value.iter().position(|v| !v.is_finite())?;
            (index, "since an input is not", Source::Input)
        } else {
            let narrow = finite::narrow(op, &tensor.content)?;
            let index = tensor.content.values(&left[id]).iter().position(|v| !v.is_finite())?;
            (index, "for want of room", Source::Narrow(narrow))
        };
        Some((format!("{}[{index}] is not finite, {why}", tensor.name), source))
    })
}

/// Weights and tables as they are; [`refresh`] fills the tensors that operations write.
fn light(content: &TensorInit) -> Value {
    match content {
        TensorInit::Activation { .. } | TensorInit::Kv { .. } => Value::F32(Vec::new()),
        TensorInit::Words(_) => Value::U32(Vec::new()),
        other => Value::of(other),
    }
}

fn refresh(
    executor: &mut dyn Kernels,
    recording: &Recording,
    op: &Op,
    values: &mut [Value],
) -> Result<()> {
    for (_, tensor) in &op.bindings {
        values[tensor.0] = match recording.tensors[tensor.0].content {
            TensorInit::Activation { .. } | TensorInit::Kv { .. } => {
                Value::F32(executor.read_f32(*tensor)?)
            }
            TensorInit::Words(_) => Value::U32(executor.read_words(*tensor)?),
            // Given, or what no reference reads.
            _ => continue,
        };
    }
    Ok(())
}
