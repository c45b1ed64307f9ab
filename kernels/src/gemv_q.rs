//! Quantised matrix times vector: ggml blocks are decoded on the way.

use crate::descriptor::*;
use crate::layout::{ACT_NAMES, Format, act_bytes};
use crate::shape::{Param, ParamKind, Shape};

fn format(s: &Shape) -> Format {
    Format::from_code(s.dim("WEIGHT"))
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
    name: "gemv_q",
    summary: "quantised matrix (ROWS, K) times vector (K), f32 accumulation",
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
            kind: ParamKind::Formats(Format::QUANTISED),
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
    variants: &[Variant {
        name: "naive",
        stages: &[Stage { entry: "main", grid: |s, c| s.dim("ROWS").div_ceil(c["WG"] as usize) }],
        tunables: WORKGROUPS,
        ..PLAIN
    }],
    prefer: |_| &["naive"],
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
        for &f in Format::QUANTISED {
            // Widths of the models; 1152 is no whole number of superblocks of 256.
            for (rows, k) in [(64, 1152), (17, 2048), (3, 6912), (33, 256), (5, 300), (1, 7)] {
                cases.push(shape(rows, k, f));
            }
            cases.push(shape(40, 512, f).with("ACTS", 1.0).with("FIRST", 64.0));
        }
        cases
    },
    bench: || {
        let shape = |(rows, k), f| shape(rows, k, f);
        let mut shapes = Vec::new();
        for f in [Format::Q4K, Format::Q4_0] {
            shapes.push(shape((8192, 2048), f));
            shapes.push(shape((262_144, 1152), f));
        }
        shapes.extend(Format::QUANTISED.iter().map(|f| shape((2048, 8192), *f)));
        shapes
    },
};
