//! Tensor contents as bytes of the device: laid out, read back, shared.

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
