//! Tensor contents as bytes of the device: laid out, read back, shared.

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

/// Initial content of a tensor, by parts of at most [`UPLOAD_BYTES`] with their byte offsets: a
/// matrix may be half of a model.
pub(in crate::execute) fn fill(content: &TensorInit, write: &mut dyn FnMut(u64, &[u8])) {
    match content {
        // wgpu hands out zeroed memory, but a guarded block is poisoned.
        TensorInit::Counter(len) => write(0, &vec![0; 4 * len]),
        TensorInit::Activation { .. } | TensorInit::Words(_) | TensorInit::Kv { .. } => {}
        TensorInit::Apart(_) => {}
        TensorInit::WeightPart(rows, layout) => write(0, &layout.bytes(rows)),
        TensorInit::Values(values) => write(0, bytemuck::cast_slice(values)),
        TensorInit::Weights(rows, packing) => rows.pack(*packing, UPLOAD_BYTES as usize, write),
        TensorInit::Rope(spec) => write(0, bytemuck::cast_slice(&spec.table())),
        TensorInit::Uniform(bytes) => write(0, bytes),
    }
}
