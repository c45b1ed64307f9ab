//! Writes the current token's K and V into the cache.

use crate::attention::*;
use crate::codes::KvFormat::{self, *};
use crate::descriptor::*;
use crate::param::{dim, n_kv};
use crate::shared::*;

crate::params! {
    /// Parameters of `kv_append`.
    pub struct KvAppend {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(5),
        head_dim: usize = HEAD_DIM,
        kv_size: usize =
            dim("KV_SIZE", "slots; position modulo KV_SIZE is written", 16, 60),
        kv_format: KvFormat = KV_FORMAT,
    }
}

has_cache!(KvAppend);

/// The heads of a layer into a cache of `kv_size` slots.
fn into(kv_size: usize, kv_format: KvFormat, layer: Layer) -> KvAppend {
    let Layer { q_per_kv, kv_heads, head_dim, .. } = layer;
    KvAppend { q_per_kv, kv_heads, head_dim, kv_size, kv_format }
}

/// The declaration.
pub static OPERATION: Declaration<KvAppend> = Declaration {
    name: "kv_append",
    summary: "append K and V of the current token to a full or ring cache",
    fuses: None,
    state: &[n_kv(16, 200)],
    bindings: &[state(), qkv(), appended_cache("k_cache"), appended_cache("v_cache")],
    variants: &[Variant::sized(
        "naive",
        &[Stage::main(|p, c| groups_for(p.kv_heads * p.vector_bytes() / 4, c))],
    )],
    prefer: |_| &["naive"],
    cost: |p, _| {
        let new = 4 * p.k_elements() + p.kv_heads * p.vector_bytes();
        Cost { bytes: (2 * new) as f64, flops: 0.0 }
    },
    tolerance: |_, _| Tolerance {
        k: 0.0,
        rounding: 0.0,
        nmse: 0.0,
        reason: "f32 is copied; f16 is rounded in a direction that WGSL leaves open, by up to a step; \
                 values of q8_0 are off by half a step, whose rounding to f16 comes on top",
    },
    cases: || {
        let case = |p: KvAppend, n_kv| Case::from(p).n_kv(n_kv);
        let mut cases = Vec::new();
        for kv_format in [F32, F16, Q8_0] {
            cases.push(case(into(512, kv_format, GEMMA), 513));
            cases.push(case(into(100, kv_format, LLAMA), 100));
            cases.push(case(into(64, kv_format, QWEN), 1));
            cases.push(case(into(1, kv_format, ONE_OF_32), 7));
        }
        cases
    },
    bench: || {
        [into(512, F16, GEMMA), into(4096, F16, QWEN)].map(|p| Case::from(p).n_kv(128)).into()
    },
};
