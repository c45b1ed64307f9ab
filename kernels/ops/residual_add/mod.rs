//! Adds a block's output to the residual stream.

use crate::descriptor::*;
use crate::len;
use crate::param::dim;

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
        Binding::in_out("x", f32s, len!(p => p.n)),
        Binding::input("delta", f32s, len!(p => p.n)),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage { entry: "main", grid: |p, c| p.n.div_ceil(c["WG"] as usize) }],
            tunables: WORKGROUPS,
            ..Variant::PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage { entry: "main", grid: |p, c| (p.n / 4).div_ceil(c["WG"] as usize) }],
            tunables: WORKGROUPS,
            unsupported: |p, _| (p.n % 4 != 0).then(|| format!("N={} is no multiple of 4", p.n)),
            ..Variant::PLAIN
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |p, _| Cost { bytes: 12.0 * p.n as f64, flops: p.n as f64 },
    tolerance: |_, _| Tolerance {
        k: 1.0,
        rounding: 0.0,
        nmse: 1e-13,
        reason: "one rounded addition",
    },
    cases: || [1, 3, 64, 1152, 2048, 2051].map(|n| ResidualAdd { n }.into()).into(),
    bench: || [1152, 2048].map(|n| ResidualAdd { n }.into()).into(),
};
