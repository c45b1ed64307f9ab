//! What tensors hold, as bytes of the device: laid out, read back, shared.

use crate::gpu::{Block, Gpu};
use crate::plan::memory::UPLOAD_BYTES;
use crate::plan::recording::Content;

/// Whether two tensors of one name can be the same memory: as long, and laid out alike.
pub(super) fn alike(a: &Content, b: &Content) -> bool {
    let same = match (a, b) {
        (Content::Weights(a, packed), Content::Weights(b, other)) => {
            a.format == b.format && (a.format.is_dense() || packed == other)
        }
        (Content::WeightPart(a, laid), Content::WeightPart(b, other)) => {
            a.format == b.format && laid == other
        }
        (Content::Kv { order: a, .. }, Content::Kv { order: b, .. }) => a == b,
        (Content::Weights(..) | Content::WeightPart(..) | Content::Apart(_), _) => false,
        (_, Content::Weights(..) | Content::WeightPart(..) | Content::Apart(_)) => false,
        _ => true,
    };
    same && a.device_bytes() == b.device_bytes()
}

/// Writes what a new tensor holds. `on` hears how many bytes of a matrix are on their way, as often
/// as some are: one may be half of a model.
pub(super) fn fill(gpu: &Gpu, block: &Block, content: &Content, on: &mut dyn FnMut(u64)) {
    match content {
        // wgpu hands out zeroed memory, but a guarded block is poisoned.
        Content::Counter(len) => block.write(gpu, 0, &vec![0; 4 * len]),
        Content::Activation { .. } | Content::Words(_) | Content::Kv { .. } => {}
        Content::Apart(_) => {}
        Content::WeightPart(rows, layout) => block.write(gpu, 0, &layout.bytes(rows)),
        Content::Values(values) => block.write(gpu, 0, bytemuck::cast_slice(values)),
        Content::Weights(rows, packing) => {
            rows.pack(*packing, UPLOAD_BYTES as usize, |offset, bytes| {
                block.write(gpu, offset, bytes);
                on(bytes.len() as u64);
            });
        }
        Content::Rope(spec) => block.write(gpu, 0, bytemuck::cast_slice(&spec.table())),
        Content::Uniform(bytes) => block.write(gpu, 0, bytes),
    }
}
