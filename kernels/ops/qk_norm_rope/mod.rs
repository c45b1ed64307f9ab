//! QK-norm and rotary position embedding (Su et al., arXiv 2104.09864) on Q and K in place.

use crate::attention::*;
use crate::codes::{Norm, RopeFactors, RopeStyle};
use crate::descriptor::*;
use crate::param::n_kv;
use crate::shared::*;

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

/// Heads of a layer, rotated without divisors.
fn heads(layer: Layer) -> QkNormRope {
    let Layer { q_per_kv, kv_heads, head_dim, qk_norm, rope_style } = layer;
    QkNormRope {
        q_per_kv,
        kv_heads,
        head_dim,
        qk_norm,
        rope_style,
        eps: 1e-6,
        rope_base: 10_000.0,
        rope_factors: RopeFactors::None,
    }
}

/// A workgroup a head.
const fn variant(name: &'static str, tunables: Tunables) -> Variant<QkNormRope> {
    Variant {
        name,
        stages: &[Stage { entry: "main", grid: |p, _| p.q_heads() + p.kv_heads }],
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
        Binding::in_out("qkv", f32s, qkv_len()),
        head_norm("q_norm"),
        head_norm("k_norm"),
        rope(),
    ],
    variants: &[
        variant("naive", &[]),
        variant("workgroup", WORKGROUPS),
        variant("subgroup", WORKGROUPS),
    ],
    prefer: |_| &["subgroup", "workgroup", "naive"],
    cost: |p, _| {
        let elements = p.q_elements() + p.k_elements();
        Cost { bytes: (8 * elements + 12 * p.head_dim) as f64, flops: (7 * elements) as f64 }
    },
    tolerance: |p, _| Tolerance {
        k: 8.0 + (p.head_dim as f64).sqrt(),
        rounding: 0.0,
        nmse: 1e-11,
        reason: "as rms_norm, then two products with table entries rounded once",
    },
    cases: || {
        let case = |p: QkNormRope, n_kv| Case::from(p).n_kv(n_kv);
        let llama = heads(LLAMA);
        let (rope_base, rope_factors) = (500_000.0, RopeFactors::Llama3);
        vec![
            case(heads(GEMMA), 511),
            case(llama, 129),
            case(heads(QWEN), 30_000),
            case(heads(ONE_OF_32), 1),
            case(QkNormRope { rope_base, rope_factors, ..llama }, 8192),
        ]
    },
    bench: || MODELS.map(|layer| Case::from(heads(layer)).n_kv(128)).into(),
};
