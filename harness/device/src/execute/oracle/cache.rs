//! KV caches as the reference sees them.

use lathe_kernels::attention::{Cache, Heads};
use lathe_reference::Expected;
use lathe_reference::kv_append::{self, CacheShape, KvFormat};
use lathe_reference::qkv_rope_append;

use super::Inputs;
use crate::execute::value::Value;
use crate::plan::recording::Op;

pub(super) fn shape<P: Cache>(p: &P) -> CacheShape {
    CacheShape { kv_heads: p.kv_heads(), capacity: p.kv_size(), head_dim: p.head_dim() }
}

pub(super) fn format<P: Cache>(p: &P) -> KvFormat {
    match p.kv_format() {
        lathe_kernels::KvFormat::F32 => KvFormat::F32,
        lathe_kernels::KvFormat::F16 => KvFormat::F16,
        lathe_kernels::KvFormat::Q8_0 => KvFormat::Q8_0,
    }
}

/// Key and value heads in the product of a QKV matrix.
pub(super) fn new_rows<'a, P: Heads>(p: &P, qkv: &'a [f32]) -> [&'a [f32]; 2] {
    let (_, rest) = qkv.split_at(p.q_heads() * p.head_dim());
    let (k, rest) = rest.split_at(p.kv_heads() * p.head_dim());
    [k, &rest[..k.len()]]
}

/// A cache with a token's row in its slot.
pub(super) fn appended<P: Cache>(
    p: &P,
    inputs: &Inputs<'_>,
    name: &'static str,
    row: &Expected,
) -> (&'static str, Expected) {
    let mut cache = Expected::exact(inputs.f32s(name));
    qkv_rope_append::store(&mut cache, row, &shape(p), inputs.position(), format(p));
    (name, cache)
}

/// Both caches with a token's rows, without copying them, for one of several sequences.
pub(super) fn append<P: Cache>(
    p: &P,
    op: &Op,
    values: &mut [Value],
    (sequence, position): (usize, u32),
    rows: [&[f32]; 2],
) {
    for (name, row) in ["k_cache", "v_cache"].into_iter().zip(rows) {
        if let Value::F32(cache) = &mut values[op.tensor(name).0] {
            let shape = shape(p);
            // Rows of a chunk have room for the largest one.
            let cache = &mut cache[sequence * shape.elements()..][..shape.elements()];
            kv_append::kv_append(cache, row, &shape, position, format(p));
        }
    }
}
