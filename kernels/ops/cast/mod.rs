//! Values in another storage format, such as that of a KV cache or of an engine's own activations.

use crate::declare::*;

crate::params! {
    /// Parameters of `cast`.
    pub struct Cast {
        n: usize = dim("N", "values", 64, 3000),
        from: FloatFormat = choice("FROM", "storage format of x", &FloatFormat::ALL),
        to: FloatFormat = choice("TO", "storage format of y", &FloatFormat::ALL),
    }
}

/// The declaration.
pub static OPERATION: Declaration<Cast> = Declaration {
    name: "cast",
    summary: "values between f32, f16 and bf16",
    fuses: None,
    state: &[],
    bindings: &[
        spreads(Binding::input("x", floats!(from), len!(p => p.n))),
        Binding::output("y", floats!(to), len!(p => p.n)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.n.div_ceil(2), c))]),
        Variant {
            tunables: "WG=64|128|256|512",
            unsupported: &|p, _| no_multiple("N", p.n, 8),
            ..Variant::new("vec4", &[Stage::main(&|p, c| groups_for(p.n * p.to.bytes() / 16, c))])
        },
    ],
    prefer: &|_| &["vec4", "naive"],
    cost: &|p, _| Cost { bytes: (p.n * (p.from.bytes() + p.to.bytes())) as f64, flops: 0.0 },
    tolerance: &|_, _| {
        Tolerance::new(
            0.0,
            1e-14,
            "f32 holds each value exactly and bf16 has one nearest; f16 adds the rounding of \
                 what stores it",
        )
    },
    cases: "
        FROM=f32|f16|bf16:
            N=1152|77
            N=1152|77,TO=f16
            N=1152|77,TO=bf16
        TO=bf16
        # More workgroups than one grid dimension holds.
        N=8388616,FROM=f16
    ",
    bench: "
        N=67108864:
            # A KV cache of 8192 positions of Llama 3.2 1B, 16 layers of K.
            TO=f16
            FROM=f16
            TO=bf16
            FROM=bf16
    ",
};
