//! Rotary position embedding (Su et al., arXiv 2104.09864) of heads in place, on its own.

use crate::descriptor::*;
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(heads: u32, head_dim: u32, stride: u32, style: u32, seen: u32) -> Shape {
    Shape::new(&[
        ("HEADS", f64::from(heads)),
        ("HEAD_DIM", f64::from(head_dim)),
        ("STRIDE", f64::from(stride)),
        ("STYLE", f64::from(style)),
        ("BASE", 10_000.0),
        ("FACTORS", 0.0),
        ("SEEN", f64::from(seen)),
    ])
}

/// Elements from the first of one head to the first of the next.
fn stride(s: &Shape) -> usize {
    s.dim("STRIDE").max(s.dim("HEAD_DIM"))
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "rope",
    summary: "rotary embedding of heads, in place",
    params: &[
        Param::dim("HEADS", "heads", 8, 40),
        HEAD_DIM,
        Param::start(
            "STRIDE",
            "elements from one head to the next; less than HEAD_DIM means HEAD_DIM",
            600,
        ),
        STYLE,
        BASE,
        FACTORS,
        seen(512, 2000),
    ],
    bindings: &[
        STATE,
        Binding::in_out("x", Elem::F32, |s| (s.dim("HEADS") - 1) * stride(s) + s.dim("HEAD_DIM")),
        ROPE,
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("HEADS") * s.dim("HEAD_DIM") / 2).div_ceil(c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("HEADS") * s.dim("HEAD_DIM") / 8).div_ceil(c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            refuses: |s, _| {
                let (d, stride) = (s.dim("HEAD_DIM"), stride(s));
                if d % 8 != 0 {
                    return Some(format!("HEAD_DIM={d} is no multiple of 8"));
                }
                (stride % 4 != 0).then(|| format!("STRIDE={stride} is no multiple of 4"))
            },
            ..PLAIN
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |s| {
        let elements = s.float("HEADS") * s.float("HEAD_DIM");
        Cost { bytes: 8.0 * elements + 4.0 * s.float("HEAD_DIM"), flops: 3.0 * elements }
    },
    tolerance: |_| Tolerance {
        k: 4.0,
        rounding: 0.0,
        nmse: 1e-12,
        reason: "two products with table entries rounded once, and their rounded sum",
    },
    cases: || {
        vec![
            shape(4, 256, 0, 1, 511),
            shape(8, 64, 0, 0, 129),
            // Heads of Q, K and V of one token side by side, only the first of each three turned.
            shape(5, 128, 384, 1, 30_000),
            shape(3, 64, 67, 0, 77),
            shape(1, 32, 0, 1, 1),
            shape(32, 64, 0, 0, 8192).with("BASE", 500_000.0).with("FACTORS", 1.0),
            shape(7, 80, 84, 1, 9),
        ]
    },
    bench: || vec![shape(5, 256, 0, 1, 128), shape(40, 64, 0, 0, 128), shape(24, 128, 0, 1, 128)],
};
