//! RMSNorm as the prologue of a matrix times vector: a dispatch less where a norm has one reader.

use crate::descriptor::*;
use crate::gemv_q::{self, LANES, groups, staged, subgroup};
use crate::geometry::*;
use crate::layout::{Format, Packing};
use crate::shape::Shape;
use crate::shared::*;

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
    params: &[ROWS, columns(1500), weight(Format::ALL), FIRST, EPS, OFFSET],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| s.dim("ROWS") * s.dim("K")),
        Binding::input("x", Elem::F32, |s| s.dim("K")),
        Binding::input("norm_weight", Elem::F32, |s| s.dim("K")),
        Binding::in_out("y", Elem::F32, |s| s.dim("FIRST") + s.dim("ROWS")),
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
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: &[Stage { entry: "main", grid: rows_grid }],
            constants: |_, caps| rows_per_group(caps, 1.0),
            tunables: WHOLE_SHARES,
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "vec2",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| team(s, caps, chunks8(s), 1),
            tunables: TEAMS,
            refuses: |s, caps| match Format::of(s) {
                Format::F32 => Some("WEIGHT=f32: eight bytes are two weights".into()),
                _ => dense_only(s, caps),
            },
            ..PLAIN
        },
        Variant {
            name: "split_row",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| team(s, caps, chunks16(s), 1),
            tunables: TEAMS,
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "split_k",
            stages: &[Stage { entry: "main", grid: team_grid }],
            constants: |s, caps| stacked_team(s, caps, chunks16(s), 3),
            tunables: STACKED_TEAMS,
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "workgroup_q",
            stages: &[Stage { entry: "main", grid: |s, c| groups(s, c, 1) }],
            constants: |s, caps| {
                let mut constants = gemv_q::tree_constants(s, caps);
                constants.push(ALONG_ROWS);
                constants
            },
            tunables: &[("WG", &[64.0, 128.0, 256.0]), ("LANES", LANES)],
            refuses: quantised_only,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes",
            stages: &[Stage { entry: "main", grid: |s, c| groups(s, c, 1) }],
            constants: |s, caps| {
                let mut constants = staged(s, subgroup(caps).min(32), caps);
                constants.push(ALONG_ROWS);
                constants
            },
            tunables: &[("WG", &[64.0, 128.0, 256.0, 512.0]), ("LANES", LANES)],
            refuses: quantised_only,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_dp4a24",
            stages: &[Stage { entry: "main", grid: |s, c| gemv_q::dot4_groups(s.dim("ROWS"), c) }],
            constants: |s, caps| {
                let mut constants = gemv_q::dot4_constants(s, caps);
                constants.push(ALONG_ROWS);
                constants
            },
            tunables: gemv_q::TURNS,
            refuses: |s, caps| quantised_only(s, caps).or_else(|| gemv_q::below_a_block(s)),
            packing: Packing::Planes,
            ..PLAIN
        },
    ],
    prefer: |s| match (s.dim("ROWS"), Format::of(s)) {
        (_, quantised) if !quantised.is_dense() => {
            &["planes_dp4a24", "planes", "workgroup_q", "naive"]
        }
        // x and the norm's weights weigh more than a row: few loads of them count, until lanes
        // run short.
        (4096.., _) => &["split_k", "subgroup", "workgroup", "naive"],
        (_, Format::F32) => &["split_row", "subgroup", "workgroup", "naive"],
        _ => &["vec2", "split_row", "workgroup", "naive"],
    },
    cost: |s| {
        let (rows, k) = (s.float("ROWS"), s.float("K"));
        Cost {
            bytes: rows * Format::of(s).row_bytes(s.dim("K")) as f64 + 4.0 * rows + 8.0 * k,
            flops: 2.0 * rows * k + 4.0 * k,
        }
    },
    tolerance: |s| Tolerance {
        // Codes may be summed with an offset that is taken out per 32 weights, as in gemv_q.
        k: if Format::of(s).is_dense() {
            16.0 + 3.0 * s.float("K").sqrt()
        } else {
            64.0 + 4.0 * s.float("K").sqrt()
        },
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
        for (i, &f) in Format::QUANTISED.iter().enumerate() {
            let offset = (i % 2) as u32;
            cases.push(shape(37, 1152, f, 1e-6, offset).with("FIRST", 64.0 * f64::from(offset)));
            cases.push(shape(5, 300 + i, f, 1e-5, 1 - offset));
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
            .chain([
                shape(1536, 1152, Format::Q4_0, 1e-6, 0),
                shape(3072, 2048, Format::Q4K, 1e-5, 0),
            ])
            .collect()
    },
};
