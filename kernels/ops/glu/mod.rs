//! Gated linear unit (Shazeer, arXiv 2002.05202): SwiGLU and GeGLU.

use crate::declare::*;

crate::params! {
    /// Parameters of `glu`.
    pub struct Glu {
        n: usize = dim("N", "elements of a row of gate, of up and of y", 64, 3000),
        activation: Activation = ACTIVATION,
        act_format: FloatFormat = ACT_FORMAT_OUT,
        rows: usize = ACT_ROWS,
    }
}

/// The declaration.
pub static OPERATION: Declaration<Glu> = Declaration {
    name: "glu",
    summary: "act(gate) * up, SiLU or GELU (tanh)",
    fuses: None,
    state: &[],
    bindings: &[
        spreads(Binding::input("gate_up", &f32s, len!(p => p.rows * 2 * p.n))),
        Binding::output("y", floats!(act_format), len!(p => p.rows * p.n)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for((p.rows * p.n).div_ceil(2), c))]),
        Variant {
            as_stage: &|_, _, grid| Some(vec![("WG", f64::from(grid.invocations))]),
            unsupported: &|p, _| no_multiple("N", p.n, 4),
            ..Variant::sized("vec4", &[Stage::main(&|p, c| groups_for(p.rows * (p.n / 4), c))])
        },
    ],
    prefer: &|_| &["vec4", "naive"],
    cost: &|p, _| {
        let n = (p.rows * p.n) as f64;
        Cost { bytes: (8.0 + p.act_format.bytes() as f64) * n, flops: 10.0 * n }
    },
    tolerance: &|_, _| {
        Tolerance::new(
            16.0,
            1e-11,
            "WGSL allows exp an error of 3 + 2|x| ULP; the magnitude carries |x|",
        )
    },
    cases: "
        # Each length meets both formats of y, one under each activation.
        N=1|256|1004|6912|8192
        N=3,ACT_FORMAT=f16
        N=1|256|1004|6912|8192,ACTIVATION=gelu_tanh,ACT_FORMAT=f16
        N=3,ACTIVATION=gelu_tanh
        ACTIVATION=silu|gelu_tanh:
            N=7,ROWS=3; N=96,ACT_FORMAT=f16,ROWS=5; N=130,ACT_FORMAT=f16,ROWS=17
    ",
    bench: "
        N=6912,ACTIVATION=gelu_tanh
        N=8192|6144
        N=6912,ACTIVATION=gelu_tanh,ACT_FORMAT=f16,ROWS=1024
        N=8192|6144,ACT_FORMAT=f16,ROWS=1024
    ",
};
