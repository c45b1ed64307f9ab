//! QK-norm and rotary position embedding (Su et al., arXiv 2104.09864) on Q and K in place.

use crate::attention::*;
use crate::declare::*;

crate::params! {
    /// Parameters of `qk_norm_rope`.
    pub struct QkNormRope {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(5),
        head_dim: usize = HEAD_DIM,
        qk_norm: Norm = QK_NORM,
        rope_style: RopeStyle = ROPE_STYLE,
        eps: f32 = EPS,
        rope_base: f32 = ROPE_BASE,
        rope_factors: RopeFactors = ROPE_FACTORS,
    }
}

has_heads!(QkNormRope);

impl Rotates for QkNormRope {
    fn table(&self) -> (f32, usize, RopeFactors) {
        (self.rope_base, self.head_dim, self.rope_factors)
    }
}

/// A workgroup a head.
const fn variant(name: &'static str, tunables: &'static str) -> Variant<QkNormRope> {
    Variant {
        name,
        stages: &[Stage { entry: "main", grid: &|p, _| p.q_heads() + p.kv_heads }],
        tunables,
        ..Variant::PLAIN
    }
}

/// The declaration.
pub static OPERATION: Declaration<QkNormRope> = Declaration {
    name: "qk_norm_rope",
    summary: "per-head RMSNorm (optional) and rotary embedding of Q and K, in place",
    fuses: None,
    state: &[n_kv(512, 2000)],
    bindings: &[
        state(),
        spreads(Binding::in_out("qkv", &f32s, qkv_len())),
        spreads(head_norm("q_norm")),
        spreads(head_norm("k_norm")),
        rope(),
    ],
    variants: &[
        variant("naive", ""),
        variant("workgroup", WORKGROUPS),
        variant("subgroup", WORKGROUPS),
    ],
    prefer: &|_| &["subgroup", "workgroup", "naive"],
    cost: &|p, _| {
        let elements = p.q_elements() + p.k_elements();
        Cost { bytes: (8 * elements + 12 * p.head_dim) as f64, flops: (7 * elements) as f64 }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            8.0 + (p.head_dim as f64).sqrt(),
            1e-11,
            "as rms_norm, then two products with table entries rounded once",
        )
    },
    cases: "
        EPS=1e-6,ROPE_BASE=10000:
            LAYER=gemma,N_KV=511; LAYER=llama,N_KV=129; LAYER=qwen,N_KV=3000
            # A position beyond sixteen bits.
            HEAD_DIM=32,ROPE_STYLE=neox,N_KV=66000
            LAYER=llama,ROPE_BASE=500000,ROPE_FACTORS=llama3,N_KV=8192
    ",
    bench: "
        EPS=1e-6,ROPE_BASE=10000,N_KV=128:
            LAYER=gemma|llama|qwen
    ",
};
