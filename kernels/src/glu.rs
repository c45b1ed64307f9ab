//! Gated linear unit (Shazeer, arXiv 2002.05202): SwiGLU and GeGLU.

use crate::descriptor::*;
use crate::layout::act_bytes;
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(n: usize, act: u32, acts: u32) -> Shape {
    Shape::new(&[("N", n as f64), ("ACT", f64::from(act)), ("ACTS", f64::from(acts))])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "glu",
    summary: "act(gate) * up, SiLU or GELU (tanh)",
    params: &[Param::dim("N", "elements of gate, of up and of y", 64, 3000), ACT, ACTS_OUT],
    bindings: &[
        Binding::input("gate_up", Elem::F32, |s| 2 * s.dim("N")),
        Binding::output("y", Elem::Act, |s| s.dim("N")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("N").div_ceil(2 * c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("N") / 4).div_ceil(c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            refuses: |s, _| {
                (s.dim("N") % 4 != 0).then(|| format!("N={} is no multiple of 4", s.dim("N")))
            },
            ..PLAIN
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |s| Cost { bytes: (8.0 + act_bytes(s)) * s.float("N"), flops: 10.0 * s.float("N") },
    tolerance: |_| Tolerance {
        k: 16.0,
        rounding: 0.0,
        nmse: 1e-11,
        reason: "WGSL allows exp an error of 3 + 2|x| ULP; the magnitude carries |x|",
    },
    cases: || {
        [0, 1]
            .into_iter()
            .flat_map(|act| {
                [1, 3, 256, 1004, 6912, 8192].map(move |n| shape(n, act, (n as u32 / 2 + act) % 2))
            })
            .collect()
    },
    bench: || vec![shape(6912, 1, 0), shape(8192, 0, 0), shape(6144, 0, 0)],
};
