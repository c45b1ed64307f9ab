//! Adds a block's output to the residual stream.

use crate::descriptor::*;
use crate::shape::{Param, Shape};

fn shape(n: usize) -> Shape {
    Shape::new(&[("N", n as f64)])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "residual_add",
    summary: "x += delta",
    params: &[Param::dim("N", "elements", 64, 3000)],
    bindings: &[
        Binding::in_out("x", Elem::F32, |s| s.dim("N")),
        Binding::input("delta", Elem::F32, |s| s.dim("N")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage { entry: "main", grid: |s, c| s.dim("N").div_ceil(c["WG"] as usize) }],
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
    cost: |s| Cost { bytes: 12.0 * s.float("N"), flops: s.float("N") },
    tolerance: |_| Tolerance { k: 1.0, rounding: 0.0, nmse: 1e-13, reason: "one rounded addition" },
    cases: || [1, 3, 64, 1152, 2048, 2051].map(shape).to_vec(),
    bench: || [1152, 2048].map(shape).to_vec(),
};
