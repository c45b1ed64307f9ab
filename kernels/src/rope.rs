//! Rotary position embedding (Su et al., arXiv 2104.09864) of heads in place, on its own.

use crate::descriptor::*;
use crate::layout::STATE_WORDS;
use crate::shape::{Param, ParamKind, Shape};

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

const WIDTHS: &[(&str, &[f64])] = &[("WG", &[32.0, 64.0, 128.0, 256.0])];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "rope",
    summary: "rotary embedding of heads, in place",
    params: &[
        Param { name: "HEADS", doc: "heads", kind: ParamKind::Dim { tile: 8, max: 40 } },
        Param {
            name: "HEAD_DIM",
            doc: "elements of a head",
            kind: ParamKind::OneOf(&[32, 64, 80, 96, 128, 256]),
        },
        Param {
            name: "STRIDE",
            doc: "elements from one head to the next; less than HEAD_DIM means HEAD_DIM",
            kind: ParamKind::Start { max: 600 },
        },
        Param {
            name: "STYLE",
            doc: "pairs that turn together: (2i, 2i+1) or (i, i + HEAD_DIM/2)",
            kind: ParamKind::Choice(&["interleaved", "neox"]),
        },
        Param {
            name: "BASE",
            doc: "base of the frequencies (in the rope table)",
            kind: ParamKind::Float { low: 1e4, high: 1e6 },
        },
        Param {
            name: "FACTORS",
            doc: "frequency divisors, Llama 3's rope_freqs (in the rope table)",
            kind: ParamKind::Choice(&["none", "llama3"]),
        },
        Param {
            name: "SEEN",
            doc: "tokens seen, the current one included (tests only; decode keeps it on the GPU)",
            kind: ParamKind::Dim { tile: 512, max: 2000 },
        },
    ],
    bindings: &[
        Binding { name: "state", role: Role::Input, elem: Elem::U32, len: |_| STATE_WORDS },
        Binding {
            name: "x",
            role: Role::InOut,
            elem: Elem::F32,
            len: |s| (s.dim("HEADS") - 1) * stride(s) + s.dim("HEAD_DIM"),
        },
        Binding {
            name: "rope",
            role: Role::Input,
            elem: Elem::Rope,
            len: |s| s.dim("SEEN") * s.dim("HEAD_DIM"),
        },
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("HEADS") * s.dim("HEAD_DIM") / 2).div_ceil(c["WG"] as usize),
            }],
            tunables: WIDTHS,
            ..PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("HEADS") * s.dim("HEAD_DIM") / 8).div_ceil(c["WG"] as usize),
            }],
            tunables: WIDTHS,
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
