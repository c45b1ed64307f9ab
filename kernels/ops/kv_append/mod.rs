//! Writes the current token's K and V into the cache.

use crate::attention::*;
use crate::declare::*;

crate::params! {
    /// Parameters of `kv_append`.
    pub struct KvAppend {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(5),
        head_dim: usize = HEAD_DIM,
        kv_size: usize = dim("KV_SIZE", "slots; position modulo KV_SIZE is written", 16, 60),
        kv_format: KvFormat = KV_FORMAT,
    }
}

has_cache!(KvAppend);

/// The declaration.
pub static OPERATION: Declaration<KvAppend> = Declaration {
    name: "kv_append",
    summary: "append K and V of the current token to a full or ring cache",
    fuses: None,
    state: &[n_kv(16, 200)],
    bindings: &[state(), spreads(qkv()), appended_cache("k_cache"), appended_cache("v_cache")],
    variants: &[Variant::sized(
        "naive",
        &[Stage::main(&|p, c| groups_for(p.kv_heads * p.vector_bytes() / 4, c))],
    )],
    prefer: &|_| &["naive"],
    cost: &|p, _| {
        let new = 4 * p.k_elements() + p.kv_heads * p.vector_bytes();
        Cost { bytes: (2 * new) as f64, flops: 0.0 }
    },
    tolerance: &|_, _| {
        Tolerance::exact(
            "f32 is copied; f16 is rounded in a direction that WGSL leaves open, by up to a step; \
                 values of q8_0 are off by half a step, whose rounding to f16 comes on top",
        )
    },
    cases: "
        KV_FORMAT=f32|f16|q8_0:
            LAYER=gemma,KV_SIZE=512,N_KV=513; LAYER=llama,KV_SIZE=100,N_KV=100
            LAYER=qwen,KV_SIZE=60,N_KV=65540
            HEAD_DIM=32,N_KV=7
    ",
    bench: "
        LAYER=gemma,KV_SIZE=512,KV_FORMAT=f16,N_KV=128
        LAYER=qwen,KV_SIZE=4096,KV_FORMAT=f16,N_KV=128
    ",
};
