//! RMSNorm as the prologue of a matrix times vector: a dispatch less where a norm has one reader.

use crate::descriptor::*;
use crate::geometry::*;
use crate::layout::Format;
use crate::shape::{Param, ParamKind, Shape};

fn format(s: &Shape) -> Format {
    Format::from_code(s.dim("WEIGHT"))
}

fn shape(rows: usize, k: usize, format: Format, eps: f32, offset: u32) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("FIRST", 0.0),
        ("EPS", f64::from(eps)),
        ("OFFSET", f64::from(offset)),
    ])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "norm_gemv",
    summary: "matrix (ROWS, K) times the RMSNorm of a vector (K)",
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
        Param {
            name: "FIRST",
            doc: "element of y that row 0 makes: matrices of several formats fill one vector",
            kind: ParamKind::Start { max: 70 },
        },
        Param {
            name: "EPS",
            doc: "added to the mean square",
            kind: ParamKind::Float { low: 1e-6, high: 1e-2 },
        },
        Param {
            name: "OFFSET",
            doc: "added to the norm's weight: standard 0, Gemma 1 (GGUF files already hold 1 + w)",
            kind: ParamKind::Choice(&["standard", "gemma"]),
        },
    ],
    bindings: &[
        Binding {
            name: "weights",
            role: Role::Input,
            elem: Elem::Weights,
            len: |s| s.dim("ROWS") * s.dim("K"),
        },
        Binding { name: "x", role: Role::Input, elem: Elem::F32, len: |s| s.dim("K") },
        Binding { name: "norm_weight", role: Role::Input, elem: Elem::F32, len: |s| s.dim("K") },
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
            stages: &[Stage { entry: "main", grid: lanes_grid }],
            constants: workgroup_lanes,
            tunables: WORKGROUP_LANES,
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: &[Stage { entry: "main", grid: rows_grid }],
            constants: |_, caps| rows_per_group(caps, 1.0),
            tunables: WHOLE_SHARES,
            ..PLAIN
        },
        Variant {
            name: "vec2",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| team(s, caps, chunks8(s), 1),
            tunables: TEAMS,
            refuses: |s, _| {
                let wide = format(s) == Format::F32;
                wide.then(|| "WEIGHT=f32: eight bytes are two weights".into())
            },
            ..PLAIN
        },
        Variant {
            name: "split_row",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| team(s, caps, chunks16(s), 1),
            tunables: TEAMS,
            ..PLAIN
        },
        Variant {
            name: "split_k",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| stacked_team(s, caps, chunks16(s), 3),
            tunables: STACKED_TEAMS,
            ..PLAIN
        },
    ],
    prefer: |s| match (s.dim("ROWS"), format(s)) {
        // x and the norm's weights weigh more than a row: few loads of them count, until lanes
        // run short.
        (4096.., _) => &["split_k", "subgroup", "workgroup", "naive"],
        (_, Format::F32) => &["split_row", "subgroup", "workgroup", "naive"],
        _ => &["vec2", "split_row", "workgroup", "naive"],
    },
    cost: |s| {
        let (rows, k) = (s.float("ROWS"), s.float("K"));
        Cost {
            bytes: rows * format(s).row_bytes(s.dim("K")) as f64 + 4.0 * rows + 8.0 * k,
            flops: 2.0 * rows * k + 4.0 * k,
        }
    },
    tolerance: |s| Tolerance {
        k: 16.0 + 3.0 * s.float("K").sqrt(),
        rounding: 0.0,
        // A few rows may all but cancel, and NMSE then divides by next to nothing; the element
        // bound, which is relative to sum|w n|, still holds each of them.
        nmse: if s.dim("ROWS") < 8 { 9e-6 } else { 1e-10 },
        reason: "K rounded products and additions behave as a random walk of step eps * sum|w n|; \
                 so does the sum of K squares, of which a root of 2 ULP scales the row",
    },
    cases: || {
        let mut cases = Vec::new();
        for (i, &f) in Format::DENSE.iter().enumerate() {
            let offset = (i % 2) as u32;
            // A later first element, on whole and on ragged rows.
            cases.push(shape(40, 1152, f, 1e-6, offset).with("FIRST", 64.0));
            cases.push(shape(9, 1003, f, 1e-5, 1 - offset).with("FIRST", 1.0));
            cases.push(shape(3, 7, f, 1e-6, offset));
        }
        // Gemma, Llama and Qwen widths, and widths no multiple of 8, 4 or 2.
        for (rows, k) in [(1, 1), (33, 6912), (17, 2048), (65, 1004), (40, 1001)] {
            cases.push(shape(rows, k, Format::Bf16, 1e-6, 0));
        }
        // As many rows as decide for other lanes, and more workgroups than one dimension holds.
        cases.push(shape(1536, 1152, Format::Bf16, 1e-6, 1));
        cases.push(shape(262_147, 5, Format::F16, 1e-6, 0));
        cases
    },
    bench: || {
        [(1536, 1152), (13824, 1152), (3072, 2048), (4096, 2048), (16384, 2048), (12288, 2048)]
            .into_iter()
            .map(|(rows, k)| shape(rows, k, Format::Bf16, 1e-6, 0))
            .collect()
    },
};
