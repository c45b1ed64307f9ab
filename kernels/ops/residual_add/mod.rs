//! Adds a block's output to the residual stream.

use crate::declare::*;

crate::params! {
    /// Parameters of `residual_add`.
    pub struct ResidualAdd {
        n: usize = dim("N", "elements", 64, 3000),
    }
}

/// The declaration.
pub static OPERATION: Declaration<ResidualAdd> = Declaration {
    name: "residual_add",
    summary: "x += delta",
    fuses: None,
    state: &[],
    bindings: &[
        spreads(Binding::in_out("x", &f32s, len!(p => p.n))),
        spreads(Binding::input("delta", &f32s, len!(p => p.n))),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.n, c))]),
        Variant {
            unsupported: &|p, _| no_multiple("N", p.n, 4),
            ..Variant::sized("vec4", &[Stage::main(&|p, c| groups_for(p.n / 4, c))])
        },
    ],
    prefer: &|_| &["vec4", "naive"],
    cost: &|p, _| Cost { bytes: 12.0 * p.n as f64, flops: p.n as f64 },
    tolerance: &|_, _| Tolerance::new(1.0, 1e-13, "one rounded addition"),
    cases: "N=1|3|64|1152|2048|2051",
    bench: "N=1152|2048",
};
