//! Rotary position embedding (Su et al., arXiv 2104.09864) of heads in place, on its own.

use crate::codes::{RopeFactors, RopeStyle};
use crate::descriptor::*;
use crate::len;
use crate::param::{dim, n_kv, start};
use crate::shared::*;

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

/// Heads side by side, without divisors.
fn heads(heads: usize, head_dim: usize, rope_style: RopeStyle) -> Rope {
    let rope_factors = RopeFactors::None;
    Rope { heads, head_dim, stride: 0, rope_style, rope_base: 10_000.0, rope_factors }
}

/// The declaration.
pub static OPERATION: Declaration<Rope> = Declaration {
    name: "rope",
    summary: "rotary embedding of heads, in place",
    fuses: None,
    state: &[n_kv(512, 2000)],
    bindings: &[
        state(),
        Binding::in_out("x", f32s, len!(p => (p.heads - 1) * p.stride() + p.head_dim)),
        rope(),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(|p, c| groups_for(p.elements() / 2, c))]),
        Variant {
            unsupported: |p, _| {
                no_multiple("HEAD_DIM", p.head_dim, 8)
                    .or_else(|| no_multiple("STRIDE", p.stride(), 4))
            },
            ..Variant::sized("vec4", &[Stage::main(|p, c| groups_for(p.elements() / 8, c))])
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |p, _| {
        let elements = p.elements() as f64;
        Cost { bytes: 8.0 * elements + 4.0 * p.head_dim as f64, flops: 3.0 * elements }
    },
    tolerance: |_, _| Tolerance {
        k: 4.0,
        rounding: 0.0,
        nmse: 1e-12,
        reason: "two products with table entries rounded once, and their rounded sum",
    },
    cases: || {
        use RopeStyle::{Interleaved, Neox};
        let case = |p: Rope, n_kv| Case::from(p).n_kv(n_kv);
        vec![
            case(heads(4, 256, Neox), 511),
            case(heads(8, 64, Interleaved), 129),
            // Heads of Q, K and V of one token side by side, only the first of each three rotated.
            case(Rope { stride: 384, ..heads(5, 128, Neox) }, 30_000),
            case(Rope { stride: 67, ..heads(3, 64, Interleaved) }, 77),
            case(heads(1, 32, Neox), 1),
            case(
                Rope {
                    rope_base: 500_000.0,
                    rope_factors: RopeFactors::Llama3,
                    ..heads(32, 64, Interleaved)
                },
                8192,
            ),
            case(Rope { stride: 84, ..heads(7, 80, Neox) }, 9),
        ]
    },
    bench: || {
        [(5, 256, RopeStyle::Neox), (40, 64, RopeStyle::Interleaved), (24, 128, RopeStyle::Neox)]
            .map(|(n, head_dim, style)| Case::from(heads(n, head_dim, style)).n_kv(128))
            .into()
    },
};
