//! `lathe diff`: the first operation at which the device and the reference disagree.
//!
//! Every operation is judged on its own: the reference gets the inputs the device had, so an error
//! is found where it is made, not where it has grown large.

use std::sync::Arc;

use lathe_reference as reference;

use crate::check;
use crate::error::Result;
use crate::execute::oracle;
use crate::execute::value::{Outcome, Value};
use crate::execute::{Execute, GpuExecutor};
use crate::recording::{Content, Op, Recording, TensorId};

/// An operation whose output is off.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Divergence {
    /// Step (position) at which it happened.
    pub step: usize,
    /// Index in the recording.
    pub op_index: usize,
    /// Layer and operation.
    pub label: String,
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// Parameters.
    pub shape: String,
    /// Tensor and what is wrong with it.
    pub reason: String,
}

/// Runs one step operation by operation; returns the first that disagrees.
pub fn step(executor: &mut GpuExecutor, step: usize) -> Result<Option<Divergence>> {
    let recording = Arc::clone(&executor.recording);
    let mut values: Vec<Value> = recording.tensors.iter().map(|t| light(&t.content)).collect();
    for (index, op) in recording.ops.iter().enumerate() {
        refresh(executor, &recording, op, &mut values)?;
        executor.run_op(index)?;
        let mut chosen = None;
        for (tensor, outcome) in oracle::expected(op, &values) {
            let reason = compare(executor, &recording, op, tensor, &outcome, &mut chosen)?;
            if let Some(reason) = reason {
                return Ok(Some(Divergence {
                    step,
                    op_index: index,
                    label: op.label.to_string(),
                    kernel: op.kernel().name.into(),
                    variant: op.plan.variant.clone(),
                    shape: op.shape.show(op.kernel().params),
                    reason,
                }));
            }
        }
    }
    Ok(None)
}

/// Weights and tables as they are; what operations write is filled by [`refresh`].
fn light(content: &Content) -> Value {
    match content {
        Content::Activation { .. } | Content::Kv { .. } => Value::F32(Vec::new()),
        Content::Words(_) => Value::U32(Vec::new()),
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
        match recording.tensors[tensor.0].content {
            Content::Activation { .. } | Content::Kv { .. } => {
                values[tensor.0] = Value::F32(executor.read_values(*tensor)?);
            }
            Content::Words(_) => values[tensor.0] = Value::U32(executor.read_words(*tensor)?),
            Content::Counter(_)
            | Content::Values(_)
            | Content::Weights(..)
            | Content::Rope(_)
            | Content::Uniform(_) => {}
        }
    }
    Ok(())
}

fn compare(
    executor: &mut GpuExecutor,
    recording: &Recording,
    op: &Op,
    tensor: TensorId,
    outcome: &Outcome,
    chosen: &mut Option<u32>,
) -> Result<Option<String>> {
    let name = &recording.tensors[tensor.0].name;
    let mismatch = match outcome {
        Outcome::Words(words) => reference::compare_exact(words, &executor.read_words(tensor)?)
            .err()
            .map(|m| m.to_string()),
        Outcome::Choice { .. } => outcome.choice(&executor.read_words(tensor)?, chosen).err(),
        Outcome::Ranking { values, rows, .. } => {
            let content = &recording.tensors[values.0].content;
            let tolerance = check::tolerance(&(op.kernel().tolerance)(&op.shape), content);
            let (values, indices) = (executor.read_values(*values)?, executor.read_words(tensor)?);
            reference::lm_head_topk::judge(rows, &tolerance, &values, &indices).err()
        }
        Outcome::Real(expected) => {
            // Decode shapes carry no SEEN; the tolerance is that of a full cache.
            let shape = match (op.shape.get("SEEN"), op.shape.get("CAPACITY")) {
                (None, Some(capacity)) => op.shape.clone().with("SEEN", capacity),
                _ => op.shape.clone(),
            };
            let content = &recording.tensors[tensor.0].content;
            let tolerance = check::tolerance(&(op.plan.tolerance)(&shape), content);
            let got = executor.read_values(tensor)?;
            reference::compare(expected, &got, &tolerance).err().map(|m| m.to_string())
        }
    };
    Ok(mismatch.map(|m| format!("{name}: {m}")))
}
