//! Gated linear unit (Shazeer, arXiv 2002.05202): SwiGLU and GeGLU.

use crate::codes::{Activation, FloatFormat};
use crate::descriptor::*;
use crate::len;
use crate::param::dim;
use crate::shared::*;

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
        Binding::input("gate_up", f32s, len!(p => p.rows * 2 * p.n)),
        Binding::output("y", |p, _| Elem::Floats(p.act_format), len!(p => p.rows * p.n)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(|p, c| groups_for((p.rows * p.n).div_ceil(2), c))]),
        Variant {
            phase: |_, _, grid| Some(vec![("WG", f64::from(grid.invocations))]),
            unsupported: |p, _| no_multiple("N", p.n, 4),
            ..Variant::sized("vec4", &[Stage::main(|p, c| groups_for(p.rows * (p.n / 4), c))])
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |p, _| {
        let n = (p.rows * p.n) as f64;
        Cost { bytes: (8.0 + p.act_format.bytes() as f64) * n, flops: 10.0 * n }
    },
    tolerance: |_, _| Tolerance {
        k: 16.0,
        rounding: 0.0,
        nmse: 1e-11,
        reason: "WGSL allows exp an error of 3 + 2|x| ULP; the magnitude carries |x|",
    },
    cases: || {
        use FloatFormat::{F16, F32};
        let mut cases = Vec::new();
        for &activation in Activation::ALL {
            // Each length meets both formats of y, one under each activation.
            let formats = [(1, F32), (3, F16), (256, F32), (1004, F32), (6912, F32), (8192, F32)];
            for (n, under_silu) in formats {
                let act_format = match (activation, under_silu) {
                    (Activation::Silu, format) => format,
                    (Activation::GeluTanh, F32) => F16,
                    (Activation::GeluTanh, _) => F32,
                };
                cases.push(Glu { n, activation, act_format, rows: 1 }.into());
            }
            for (rows, n, act_format) in [(3, 7, F32), (5, 96, F16), (17, 130, F16)] {
                cases.push(Glu { n, activation, act_format, rows }.into());
            }
        }
        cases
    },
    bench: || {
        use Activation::{GeluTanh, Silu};
        let shapes = [(6912, GeluTanh), (8192, Silu), (6144, Silu)];
        [(1, FloatFormat::F32), (1024, FloatFormat::F16)]
            .map(|(rows, act_format)| {
                shapes.map(|(n, activation)| Glu { n, activation, act_format, rows }.into())
            })
            .concat()
    },
};
