//! Matrix times vector, the bulk of every decode step.

use crate::descriptor::*;
use crate::layout::{ACT_NAMES, Format, act_bytes};
use crate::shape::{Param, ParamKind, Shape};

fn format(s: &Shape) -> Format {
    Format::from_code(s.dim("WEIGHT"))
}

/// Rows a subgroup variant gives a workgroup of 256: `each` to every subgroup.
fn rows_per_group(caps: &Capabilities, each: f64) -> Vec<(&'static str, f64)> {
    let size = caps.subgroup.map_or(32, |(_, max)| max.max(4));
    let subgroups = f64::from((256 / size).max(1));
    vec![("ROWS_PER_WG", each * subgroups), ("SG", f64::from(caps.fixed_subgroup()))]
}

fn shape(rows: usize, k: usize, format: Format) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", 0.0),
        ("FIRST", 0.0),
    ])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "gemv",
    summary: "matrix (ROWS, K) times vector (K), f32 accumulation",
    params: &[
        Param {
            name: "ROWS",
            doc: "rows of the matrix, elements of y",
            kind: ParamKind::Dim { tile: 32, max: 300 },
        },
        Param {
            name: "K",
            doc: "columns of the matrix, elements of x",
            kind: ParamKind::Dim { tile: 256, max: 1500 },
        },
        Param {
            name: "WEIGHT",
            doc: "storage format of the matrix",
            kind: ParamKind::Formats(Format::DENSE),
        },
        Param { name: "ACTS", doc: "storage format of x", kind: ParamKind::Choice(ACT_NAMES) },
        Param {
            name: "FIRST",
            doc: "element of y that row 0 makes: matrices of several formats fill one vector",
            kind: ParamKind::Start { max: 70 },
        },
    ],
    bindings: &[
        Binding {
            name: "weights",
            role: Role::Input,
            elem: Elem::Weights,
            len: |s| s.dim("ROWS") * s.dim("K"),
        },
        Binding { name: "x", role: Role::Input, elem: Elem::Act, len: |s| s.dim("K") },
        Binding {
            name: "y",
            role: Role::InOut,
            elem: Elem::F32,
            len: |s| s.dim("FIRST") + s.dim("ROWS"),
        },
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("ROWS").div_ceil(c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "workgroup",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("ROWS").div_ceil(((c["WG"] / c["LANES"]) as usize).max(1)),
            }],
            tunables: &[("WG", &[64.0, 128.0, 256.0]), ("LANES", &[8.0, 16.0, 32.0, 64.0])],
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("ROWS").div_ceil(c["ROWS_PER_WG"] as usize),
            }],
            constants: |_, caps| rows_per_group(caps, 1.0),
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("ROWS_PER_WG", &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
            ],
            ..PLAIN
        },
        Variant {
            name: "subgroup_multicol",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("ROWS").div_ceil(c["ROWS_PER_WG"] as usize),
            }],
            constants: |_, caps| rows_per_group(caps, 4.0),
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("ROWS_PER_WG", &[4.0, 8.0, 16.0, 32.0, 64.0, 128.0]),
            ],
            ..PLAIN
        },
    ],
    prefer: |s| {
        if s.dim("ROWS") >= 32_768 {
            &["subgroup_multicol", "subgroup", "workgroup", "naive"]
        } else {
            &["subgroup", "workgroup", "naive"]
        }
    },
    cost: |s| {
        let (rows, k) = (s.float("ROWS"), s.float("K"));
        Cost {
            bytes: rows * format(s).row_bytes(s.dim("K")) as f64 + 4.0 * rows + act_bytes(s) * k,
            flops: 2.0 * rows * k,
        }
    },
    tolerance: |s| Tolerance {
        k: 8.0 + 2.0 * s.float("K").sqrt(),
        rounding: 0.0,
        // A few rows may all but cancel, and NMSE then divides by next to nothing; the element
        // bound, which is relative to sum|w x|, still holds each of them.
        nmse: if s.dim("ROWS") < 8 { 9e-6 } else { 1e-10 },
        reason: "K rounded additions behave as a random walk of step eps * sum|w x|; the rigorous \
                 bound K*eps would hide a missing product",
    },
    cases: || {
        let mut cases = Vec::new();
        for &f in Format::DENSE {
            // Gemma, Llama and Qwen widths, and widths no multiple of 8, 4 or 2.
            // f16 activations and a later first element, on whole and on ragged rows.
            cases.push(shape(40, 1152, f).with("ACTS", 1.0).with("FIRST", 64.0));
            cases.push(shape(9, 1003, f).with("ACTS", 1.0).with("FIRST", 1.0));
            for (rows, k) in [
                (1, 1),
                (3, 7),
                (64, 1152),
                (33, 6912),
                (17, 2048),
                (65, 1004),
                (40, 1001),
                (1153, 12),
            ] {
                cases.push(shape(rows, k, f));
            }
        }
        // More workgroups than one grid dimension holds, for the variants of few rows a group.
        cases.push(shape(262_147, 5, Format::F16));
        cases
    },
    bench: || {
        [(1152, 1152), (13824, 1152), (1152, 6912), (8192, 2048), (262_144, 1152)]
            .into_iter()
            .map(|(rows, k)| shape(rows, k, Format::Bf16))
            .collect()
    },
};
