//! A recording without narrow storage, for the reference.

use lathe_kernels::param::Value;
use lathe_kernels::{FloatFormat, KvFormat, Shape};

use super::recording::{Recording, TensorInit};

impl Recording {
    /// The operations of this recording with all activations, keys and values in f32. Its plans
    /// are still those of the narrow formats, so only the reference can run it.
    #[must_use]
    pub fn in_f32(&self) -> Self {
        let mut wide = self.clone();
        for tensor in &mut wide.tensors {
            match &mut tensor.content {
                TensorInit::Activation { format, .. } => *format = FloatFormat::F32,
                TensorInit::Kv { vectors, .. } => vectors.format = KvFormat::F32,
                _ => {}
            }
        }
        let chunks = wide.chunks.iter_mut().flat_map(|chunk| &mut chunk.ops);
        for op in wide.ops.iter_mut().chain(chunks) {
            op.shape = Shape::new(op.shape.iter().map(|(name, value)| match name {
                "ACT_FORMAT" | "X_FORMAT" => (name, FloatFormat::F32.to_f64()),
                "KV_FORMAT" => (name, KvFormat::F32.to_f64()),
                _ => (name, value),
            }));
        }
        wide
    }
}
