//! Matrix times vector, the bulk of every decode step.

use crate::descriptor::*;
use crate::geometry::*;
use crate::layout::{Format, act_bytes};
use crate::shape::{Param, Shape};
use crate::shared::*;

/// Most columns of the variants that keep a sum for each.
const MOST_COLS: usize = 8;

fn few_columns(s: &Shape, _: &Capabilities) -> Option<String> {
    let cols = s.dim("COLS");
    (cols > MOST_COLS).then(|| format!("COLS={cols} exceeds {MOST_COLS} sums"))
}

/// Columns that begin anywhere are read element by element: left to the portable variants.
fn whole_columns(s: &Shape, caps: &Capabilities) -> Option<String> {
    let (cols, k) = (s.dim("COLS"), s.dim("K"));
    (cols > 1 && !k.is_multiple_of(8))
        .then(|| format!("COLS={cols} of K={k}: columns are no whole number of chunks"))
        .or_else(|| few_columns(s, caps))
}

fn one_column(s: &Shape, _: &Capabilities) -> Option<String> {
    let cols = s.dim("COLS");
    (cols > 1).then(|| format!("COLS={cols}: it keeps one sum a row"))
}

fn shape(rows: usize, k: usize, format: Format) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", 0.0),
        ("FIRST", 0.0),
        ("COLS", 1.0),
        ("BETA", 0.0),
    ])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "gemv",
    summary: "matrix (ROWS, K) times vector (K), f32 accumulation",
    params: &[
        ROWS,
        columns(1500),
        weight(Format::DENSE),
        ACTS_IN,
        FIRST,
        Param::dim("COLS", "vectors in x, each with a y: tokens decoded together", 1, 8),
        BETA,
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| s.dim("ROWS") * s.dim("K")),
        Binding::input("x", Elem::Act, |s| s.dim("COLS") * s.dim("K")),
        Binding::in_out("y", Elem::F32, |s| s.dim("COLS") * (s.dim("FIRST") + s.dim("ROWS"))),
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
            refuses: few_columns,
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: &[Stage { entry: "main", grid: rows_grid }],
            constants: |_, caps| rows_per_group(caps, 1.0),
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("ROWS_PER_WG", &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
            ],
            refuses: whole_columns,
            ..PLAIN
        },
        Variant {
            name: "subgroup_multicol",
            stages: &[Stage { entry: "main", grid: rows_grid }],
            constants: |_, caps| rows_per_group(caps, 4.0),
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("ROWS_PER_WG", &[4.0, 8.0, 16.0, 32.0, 64.0, 128.0]),
            ],
            refuses: one_column,
            ..PLAIN
        },
        Variant {
            name: "subgroup_cols",
            stages: &[Stage { entry: "main", grid: |s, _| s.dim("ROWS").div_ceil(4) }],
            constants: |s, caps| {
                // A workgroup is four rows: with many of them one subgroup does.
                let most = if s.dim("ROWS") < 16_384 { 256 } else { 64 };
                let wg = chunks16(s).next_power_of_two().clamp(32, most);
                vec![("WG", wg.min(caps.invocations as usize) as f64)]
            },
            tunables: &[("WG", &[32.0, 64.0, 128.0, 256.0, 512.0])],
            refuses: whole_columns,
            ..PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage { entry: "main", grid: rows_grid }],
            constants: |_, caps| rows_per_group(caps, 1.0),
            tunables: WHOLE_SHARES,
            refuses: one_column,
            ..PLAIN
        },
        Variant {
            name: "vec2",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| shared_team(caps, chunks8(s), 2),
            tunables: TEAMS,
            refuses: |s, caps| match Format::of(s) {
                Format::F32 => Some("WEIGHT=f32: eight bytes are two weights".into()),
                _ => one_column(s, caps),
            },
            ..PLAIN
        },
        Variant {
            name: "split_row",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| team(s, caps, chunks16(s), 1),
            tunables: TEAMS,
            refuses: one_column,
            ..PLAIN
        },
        Variant {
            name: "split_k",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| [shared_team(caps, chunks16(s), 1), vec![("RUN", 2.0)]].concat(),
            tunables: STACKED_TEAMS,
            refuses: one_column,
            ..PLAIN
        },
    ],
    prefer: |s| {
        if s.dim("COLS") > 1 {
            &["subgroup_cols", "subgroup", "workgroup", "naive"]
        } else if s.dim("ROWS") >= 32_768 {
            &["subgroup_multicol", "subgroup", "workgroup", "naive"]
        } else if chunks16(s) > 512 && Format::of(s) != Format::F32 {
            &["vec2", "split_row", "workgroup", "naive"]
        } else {
            &["split_k", "split_row", "workgroup", "naive"]
        }
    },
    cost: |s| {
        let (rows, k, cols) = (s.float("ROWS"), s.float("K"), s.float("COLS"));
        let each = cols * (4.0 * (1.0 + s.float("BETA")) * rows + act_bytes(s) * k);
        Cost {
            bytes: rows * Format::of(s).row_bytes(s.dim("K")) as f64 + each,
            flops: 2.0 * rows * k * cols,
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
        // Gemma, Llama and Qwen widths, and widths no multiple of 8, 4 or 2.
        let sizes = [(1, 1), (33, 6912), (17, 2048), (65, 1004), (40, 1001), (1153, 12)];
        let mut cases = sizes.map(|(rows, k)| shape(rows, k, Format::Bf16)).to_vec();
        for &f in Format::DENSE {
            cases.push(shape(3, 7, f));
            // f16 activations and a later first element, on whole and on ragged rows.
            cases.push(shape(40, 1152, f).with("ACTS", 1.0).with("FIRST", 64.0));
            cases.push(shape(9, 1003, f).with("ACTS", 1.0).with("FIRST", 1.0));
            cases.push(shape(21, 640, f).with("COLS", 4.0).with("FIRST", 3.0));
            // Into the residual stream.
            cases.push(shape(39, 2048, f).with("BETA", 1.0).with("FIRST", 2.0));
            cases.push(shape(5, 304, f).with("BETA", 1.0).with("COLS", 3.0));
        }
        // Ragged columns share their words and chunks.
        cases.push(shape(6, 301, Format::F16).with("COLS", 8.0).with("ACTS", 1.0));
        // As many rows as decide for other lanes, and more rounds than one.
        cases.push(shape(1152, 1152, Format::Bf16));
        cases.push(shape(2, 16_411, Format::F16));
        // More workgroups than one grid dimension holds, for the variants of few rows a group.
        cases.push(shape(262_147, 5, Format::F16));
        cases
    },
    bench: || {
        let sizes = [(1152, 1152), (13824, 1152), (1152, 6912), (8192, 2048), (262_144, 1152)];
        let one = sizes.into_iter().map(|(rows, k)| shape(rows, k, Format::Bf16));
        let four = [(1152, 6912), (13824, 1152)].into_iter();
        one.chain(four.map(|(rows, k)| shape(rows, k, Format::Bf16).with("COLS", 4.0))).collect()
    },
};
