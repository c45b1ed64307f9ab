//! Rotary position embedding (Su et al., arXiv 2104.09864) of heads in place, on its own.

use crate::declare::*;

crate::params! {
    /// Parameters of `rope`.
    pub struct Rope {
        heads: usize = dim("HEADS", "heads", 8, 40),
        head_dim: usize = HEAD_DIM,
        stride: usize = start(
            "STRIDE",
            "elements from one head to the next; less than HEAD_DIM means HEAD_DIM",
            600,
        ),
        rope_style: RopeStyle = ROPE_STYLE,
        rope_base: f32 = ROPE_BASE,
        rope_factors: RopeFactors = ROPE_FACTORS,
    }
}

impl Rotates for Rope {
    fn table(&self) -> (f32, usize, RopeFactors) {
        (self.rope_base, self.head_dim, self.rope_factors)
    }
}

impl Rope {
    /// Elements from the first of one head to the first of the next.
    pub fn stride(&self) -> usize {
        self.stride.max(self.head_dim)
    }

    fn elements(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// The declaration.
pub static OPERATION: Declaration<Rope> = Declaration {
    name: "rope",
    summary: "rotary embedding of heads, in place",
    fuses: None,
    state: &[n_kv(512, 2000)],
    bindings: &[
        state(),
        spreads(Binding::in_out("x", &f32s, len!(p => (p.heads - 1) * p.stride() + p.head_dim))),
        rope(),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.elements() / 2, c))]),
        Variant {
            unsupported: &|p, _| {
                no_multiple("HEAD_DIM", p.head_dim, 8)
                    .or_else(|| no_multiple("STRIDE", p.stride(), 4))
            },
            ..Variant::sized("vec4", &[Stage::main(&|p, c| groups_for(p.elements() / 8, c))])
        },
    ],
    prefer: &|_| &["vec4", "naive"],
    cost: &|p, _| {
        let elements = p.elements() as f64;
        Cost { bytes: 8.0 * elements + 4.0 * p.head_dim as f64, flops: 3.0 * elements }
    },
    tolerance: &|_, _| {
        Tolerance::new(
            4.0,
            1e-12,
            "two products with table entries rounded once, and their rounded sum",
        )
    },
    cases: "
        ROPE_BASE=10000:
            HEADS=4,HEAD_DIM=256,ROPE_STYLE=neox,N_KV=511
            HEADS=8,HEAD_DIM=64,N_KV=129
            # Heads of Q, K and V of one token side by side, only the first of each three rotated.
            HEADS=5,HEAD_DIM=128,STRIDE=384,ROPE_STYLE=neox,N_KV=3000
            HEADS=3,HEAD_DIM=64,STRIDE=67,N_KV=77
            # A position beyond sixteen bits.
            HEAD_DIM=32,ROPE_STYLE=neox,N_KV=66000
            HEADS=32,HEAD_DIM=64,ROPE_BASE=500000,ROPE_FACTORS=llama3,N_KV=8192
            HEADS=7,HEAD_DIM=80,STRIDE=84,ROPE_STYLE=neox,N_KV=9
    ",
    bench: "
        ROPE_STYLE=neox,ROPE_BASE=10000,N_KV=128:
            HEADS=5,HEAD_DIM=256
            HEADS=40,HEAD_DIM=64,ROPE_STYLE=interleaved
            HEADS=24,HEAD_DIM=128
    ",
};
