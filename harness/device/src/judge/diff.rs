//! `lathe diff`: the first operation at which the device and the reference disagree.
//!
//! Every operation is judged on its own: the reference gets the device's inputs, so an error is
//! found at the operation that makes it, not where it has grown large.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::execute::oracle::{self, Outcomes};
use crate::execute::value::Value;
use crate::execute::{Execute, GpuExecutor};
use crate::judge::finite::{self, Narrow};
use crate::judge::{Outcome, Verdict, judge};
use crate::plan::recording::{Op, Part, Recording, TensorInit};

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
    /// Where a value that is not finite comes from, if that is the fault.
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
pub fn part(executor: &mut GpuExecutor, part: Part, step: usize) -> Result<Option<Divergence>> {
    let recording = Arc::clone(&executor.recording);
    recording.refuse_persistent("a comparison by operation")?;
    executor.prepare(&[part])?;
    let mut values: Vec<Value> = recording.tensors.iter().map(|t| light(&t.content)).collect();
    for (index, op) in recording.part(part).iter().enumerate() {
        refresh(executor, &recording, op, &mut values)?;
        executor.run_op(part, index)?;
        let outcomes = oracle::judged(op, &values)?;
        let mut left = BTreeMap::new();
        for (tensor, _) in &outcomes {
            left.insert(*tensor, executor.block(*tensor).read(&executor.gpu)?);
        }
        let state = oracle::state(op, &values);
        // The kernel may be right, but all that follows is compared with nothing.
        let not_finite = not_finite(&recording, op, &outcomes, &values);
        let reason = match (judge(&recording, op, state, &outcomes, &left), &not_finite) {
            (_, Some((reason, _))) => reason.clone(),
            (Verdict::Failed { reason, .. }, None) => reason,
            (Verdict::Passed { .. } | Verdict::Unavailable { .. }, None) => continue,
        };
        return Ok(Some(Divergence {
            step,
            op_index: index,
            label: op.label.to_string(),
            kernel: op.kernel().name.into(),
            variant: op.plan.variant.clone(),
            shape: op.shape.show(op.kernel().params),
            reason,
            not_finite: not_finite.map(|(_, source)| source),
        }));
    }
    Ok(None)
}

/// An expected value that is not finite, because an input is not or its storage has no room.
fn not_finite(
    recording: &Recording,
    op: &Op,
    outcomes: &Outcomes,
    values: &[Value],
) -> Option<(String, Source)> {
    let mut off = outcomes.iter().filter_map(|(tensor, outcome)| {
        let Outcome::Real(expected) = outcome else { return None };
        let (index, value) = expected.value.iter().enumerate().find(|(_, v)| !v.is_finite())?;
        let tensor = &recording.tensors[tensor.0];
        Some((format!("{}[{index}] is {value}", tensor.name), finite::narrow(op, &tensor.content)))
    });
    if oracle::reads_not_finite(op, values) {
        let (what, _) = off.next()?;
        return Some((format!("{what}, since an input is not finite"), Source::Input));
    }
    let (what, narrow) = off.find_map(|(what, narrow)| Some((what, narrow?)))?;
    Some((format!("{what}, beyond 65504"), Source::Narrow(narrow)))
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
    executor: &mut GpuExecutor,
    recording: &Recording,
    op: &Op,
    values: &mut [Value],
) -> Result<()> {
    for (_, tensor) in &op.bindings {
        values[tensor.0] = match recording.tensors[tensor.0].content {
            TensorInit::Activation { .. } | TensorInit::Kv { .. } => {
                Value::F32(executor.read_values(*tensor)?)
            }
            TensorInit::Words(_) => Value::U32(executor.read_words(*tensor)?),
            // Given, or what no reference reads.
            _ => continue,
        };
    }
    Ok(())
}
