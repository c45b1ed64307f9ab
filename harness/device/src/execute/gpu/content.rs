//! Tensor contents as bytes of the device: laid out, read back, shared.

use crate::gpu::{DeviceBuffer, Gpu};
use crate::plan::memory::UPLOAD_BYTES;
use crate::plan::recording::TensorInit;

/// Returns true if two tensors of one name can share memory: equal length and layout.
pub(super) fn alike(a: &TensorInit, b: &TensorInit) -> bool {
    let same = match (a, b) {
        (TensorInit::Weights(a, packed), TensorInit::Weights(b, other)) => {
            a.format == b.format && (a.format.is_dense() || packed == other)
        }
        (TensorInit::WeightPart(a, laid), TensorInit::WeightPart(b, other)) => {
            a.format == b.format && laid == other
        }
        (TensorInit::Kv { order: a, .. }, TensorInit::Kv { order: b, .. }) => a == b,
        (TensorInit::Weights(..) | TensorInit::WeightPart(..) | TensorInit::Apart(_), _) => false,
        (_, TensorInit::Weights(..) | TensorInit::WeightPart(..) | TensorInit::Apart(_)) => false,
        _ => true,
    };
    same && a.device_bytes() == b.device_bytes()
}

/// Writes the initial content of a new tensor. `on` receives the number of bytes written by each
/// upload: a matrix may be half of a model.
pub(super) fn fill(gpu: &Gpu, block: &DeviceBuffer, content: &TensorInit, on: &mut dyn FnMut(u64)) {
    match content {
        // wgpu hands out zeroed memory, but a guarded block is poisoned.
        TensorInit::Counter(len) => block.write(gpu, 0, &vec![0; 4 * len]),
        TensorInit::Activation { .. } | TensorInit::Words(_) | TensorInit::Kv { .. } => {}
        TensorInit::Apart(_) => {}
        TensorInit::WeightPart(rows, layout) => block.write(gpu, 0, &layout.bytes(rows)),
        TensorInit::Values(values) => block.write(gpu, 0, bytemuck::cast_slice(values)),
        TensorInit::Weights(rows, packing) => {
            rows.pack(*packing, UPLOAD_BYTES as usize, |offset, bytes| {
                block.write(gpu, offset, bytes);
                on(bytes.len() as u64);
            });
        }
        TensorInit::Rope(spec) => block.write(gpu, 0, bytemuck::cast_slice(&spec.table())),
        TensorInit::Uniform(bytes) => block.write(gpu, 0, bytes),
    }
}
