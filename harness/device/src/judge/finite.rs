//! The first operation that leaves a value which is not finite.

use std::sync::Arc;

use lathe_kernels::{Elem, FloatFormat, KvFormat, Problem, Role, State};

use crate::error::Result;
use crate::execute::Execute;
use crate::plan::recording::{Op, Part, Recording, TensorId, TensorInit};

/// A value that is not finite, where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// Layer and operation, with its kernel and variant.
    pub op: String,
    /// Layer, if the operation belongs to one.
    pub layer: Option<usize>,
    /// Tensor that it wrote.
    pub tensor: String,
    /// Index of the value.
    pub index: usize,
    /// The value.
    pub value: f32,
    /// Storage in which the value may have overflowed.
    pub narrow: Option<Narrow>,
}

/// Storage with a smaller range than f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// Inputs of matrices.
    Activations,
    /// Operands of matrix units, made of f32 by the kernel, and a variant that keeps f32.
    Operands {
        /// Kernel.
        kernel: &'static str,
        /// Variant.
        wide: &'static str,
    },
    /// The KV cache.
    Kv,
}

/// Runs a part operation by operation, each once, and returns the first that leaves a value which
/// is not finite. `live` are the tokens of a chunk that are not padding. The executor has no
/// persistent kernel.
///
/// # Errors
/// The device is lost.
pub fn part(executor: &mut dyn Execute, part: Part, live: usize) -> Result<Option<NotFinite>> {
    let recording = Arc::clone(executor.recording());
    executor.prepare(&[part])?;
    for (index, op) in recording.part(part).iter().enumerate() {
        executor.run_op(part, index)?;
        for (tensor, len) in written(&recording, op, part, live) {
            let values = executor.read_f32(tensor)?;
            let bad = values.iter().take(len).enumerate().find(|(_, v)| !v.is_finite());
            let Some((index, value)) = bad else { continue };
            let written = &recording.tensors[tensor.0];
            return Ok(Some(NotFinite {
                op: format!("{} ({}/{})", op.label, op.kernel().name, op.plan.variant),
                layer: op.label.layer,
                tensor: written.name.clone(),
                index,
                value: *value,
                narrow: narrow(op, &written.content),
            }));
        }
    }
    Ok(None)
}

/// Tensors of floats that an operation writes, and how many values of each are looked at.
fn written(recording: &Recording, op: &Op, part: Part, live: usize) -> Vec<(TensorId, usize)> {
    let problem = Problem { shape: op.shape.clone(), state: State::default() };
    let mut written = Vec::new();
    for (name, tensor) in &op.bindings {
        let Some(binding) = op.kernel().binding(name) else { continue };
        let is_real = matches!(binding.elem(&problem), Elem::F32 | Elem::Floats(_) | Elem::Kv(_));
        if !is_real || !matches!(binding.role, Role::Output | Role::InOut) {
            continue;
        }
        let len = binding.len(&problem);
        let rows = match part {
            Part::Chunk(chunk) => recording.chunks[chunk].tokens,
            Part::Steps(_) | Part::Tail => 1,
        };
        // Rows behind a prompt's last token hold nothing.
        let rows_of = &recording.tensors[tensor.0];
        let is_rows =
            rows_of.is_of_chunk() && matches!(rows_of.content, TensorInit::Activation { .. });
        let len = if is_rows { len / rows * live.min(rows) } else { len };
        written.push((*tensor, len));
    }
    written
}

pub(super) fn narrow(op: &Op, content: &TensorInit) -> Option<Narrow> {
    let problem = Problem { shape: op.shape.clone(), state: State::default() };
    match content {
        _ if op.plan.tolerance(&problem).f16_range => {
            let kernel = op.kernel();
            let is_wide = |name: &&str| !kernel.tolerance(kernel.variant(name), &problem).f16_range;
            let wide = kernel.prefer(&op.shape).iter().copied().find(is_wide)?;
            Some(Narrow::Operands { kernel: kernel.name, wide })
        }
        TensorInit::Kv { vectors, .. } => (vectors.format != KvFormat::F32).then_some(Narrow::Kv),
        TensorInit::Activation { format, .. } => {
            (*format != FloatFormat::F32).then_some(Narrow::Activations)
        }
        _ => None,
    }
}
