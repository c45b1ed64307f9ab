//! A product, its norm and the residual stream: the second half of a feed-forward block, or the
//! output projection of attention.

use crate::descriptor::*;
use crate::gemv_q;
use crate::geometry::*;
use crate::layout::{Format, Packing, act_bytes};
use crate::shape::{Param, Shape};
use crate::shared::*;

fn rows(s: &Shape) -> usize {
    s.dim("ROWS")
}

fn shape(rows: usize, k: usize, format: Format, post: u32, next: u32) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", 0.0),
        ("EPS", f64::from(1e-6f32)),
        ("OFFSET", 0.0),
        ("POST", f64::from(post)),
        ("NEXT", f64::from(next)),
    ])
}

/// One workgroup for the norms.
const NORMS: Stage = Stage { entry: "norms", grid: |_, _| 1 };

const TWO: &[Stage] = &[Stage { entry: "product", grid: lanes_grid }, NORMS];

/// Lanes as in [`workgroup_lanes`], in a workgroup whose norms are summed in a tree.
fn tree_lanes(s: &Shape, caps: &Capabilities) -> Vec<(&'static str, f64)> {
    let mut constants = workgroup_lanes(s, caps);
    constants.retain(|(name, _)| *name != "WG");
    constants.push(("WG", f64::from(1u32 << caps.invocations.clamp(1, 256).ilog2())));
    constants
}

/// Teams of a workgroup that is wide enough for the norms too.
fn wide_teams(s: &Shape, caps: &Capabilities) -> Vec<(&'static str, f64)> {
    let mut constants = shared_team(caps, chunks16(s), 1);
    constants.push(("RUN", 2.0));
    let size = caps.subgroup.map_or(64, |(_, max)| max.max(4));
    let lanes = constants.iter().find(|c| c.0 == "LANES").map_or(1, |c| c.1 as u32);
    let wide = |teams: &u32| lanes * teams >= 256 && (lanes * teams).is_multiple_of(size);
    let teams = (1..=caps.invocations.min(512) / lanes).find(wide);
    for (name, value) in &mut constants {
        if let ("TEAMS", Some(teams)) = (*name, teams) {
            *value = f64::from(teams);
        }
    }
    constants
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "matmul_rmsnorm_fused",
    summary: "matrix times vector, normed, added to the residual stream, and its next norm",
    params: &[
        Param::dim("ROWS", "rows of the matrix, elements of the stream", 32, 300),
        columns(1500),
        weight(Format::ALL),
        ACTS,
        Param::float("EPS", "added to the mean squares", 1e-6, 1e-2),
        OFFSET,
        POST,
        Param::choice(
            "NEXT",
            "norm the stream for the next matrix; y and next_weight are used only then",
            &["none", "rms"],
        ),
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| rows(s) * s.dim("K")),
        Binding::input("x", Elem::Act, |s| s.dim("K")),
        Binding::in_out("stream", Elem::F32, rows),
        Binding::input("post_weight", Elem::F32, rows),
        Binding::input("next_weight", Elem::F32, rows),
        // Stays as it is without NEXT.
        Binding::in_out("y", Elem::Act, rows),
        Binding::scratch("branch", Elem::F32, rows),
        Binding::counter("arrived", |_| 1),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[
                Stage { entry: "product", grid: |s, c| rows(s).div_ceil(c["WG"] as usize) },
                NORMS,
            ],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "single_workgroup",
            stages: &[Stage { entry: "main", grid: |_, _| 1 }],
            tunables: &[("WG", &[128.0, 256.0, 512.0, 1024.0])],
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "two_pass",
            stages: TWO,
            constants: tree_lanes,
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0]),
                ("LANES", &[8.0, 16.0, 32.0, 64.0]),
                ("UNROLL", &[4.0, 9.0]),
            ],
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "two_pass_q",
            stages: TWO,
            constants: |s, caps| [gemv_q::tree_constants(s, caps), vec![ALONG_ROWS]].concat(),
            tunables: &[("WG", &[64.0, 128.0, 256.0]), ("LANES", gemv_q::LANES)],
            refuses: quantised_only,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "two_pass_subgroup",
            stages: &[Stage { entry: "product", grid: team_grid }, NORMS],
            constants: wide_teams,
            tunables: STACKED_TEAMS,
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "two_pass_dp4a24",
            stages: &[
                Stage { entry: "product", grid: |s, c| gemv_q::dot4_groups(rows(s), c) },
                NORMS,
            ],
            constants: |s, caps| [gemv_q::dot4_constants(s, caps), vec![ALONG_ROWS]].concat(),
            tunables: gemv_q::TURNS,
            refuses: |s, caps| quantised_only(s, caps).or_else(|| gemv_q::below_a_block(s)),
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "last_workgroup",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| rows(s).div_ceil(c["ROWS_PER_WG"] as usize),
            }],
            constants: |s, _| {
                // Four loads a lane where rows are short; half as many arrivals as rows at the most.
                let spans = Format::of(s).row_bytes(s.dim("K")).div_ceil(16 * 256);
                vec![("ROWS_PER_WG", if spans == 1 { 4.0 } else { 2.0 })]
            },
            tunables: &[
                ("WG", &[128.0, 192.0, 224.0, 256.0, 320.0, 448.0, 512.0]),
                ("ROWS_PER_WG", &[1.0, 2.0, 4.0]),
            ],
            refuses: dense_only,
            ..PLAIN
        },
    ],
    prefer: |s| {
        if Format::of(s).is_dense() {
            // What `last_workgroup` relies on is more than WGSL promises: by hint or tuned choice.
            &["two_pass_subgroup", "two_pass", "naive"]
        } else {
            &["two_pass_dp4a24", "two_pass_q", "naive"]
        }
    },
    cost: |s| {
        let (r, k) = (s.float("ROWS"), s.float("K"));
        let norms = 4.0 * s.float("POST") + s.float("NEXT") * (4.0 + act_bytes(s));
        Cost {
            bytes: r * (Format::of(s).row_bytes(s.dim("K")) as f64 + 8.0 + norms)
                + act_bytes(s) * k,
            flops: 2.0 * r * k + r * (1.0 + 4.0 * (s.float("POST") + s.float("NEXT"))),
        }
    },
    tolerance: |s| Tolerance {
        // Codes may be summed with an offset that is taken out per 32 weights, as in gemv_q.
        k: s.float("ROWS").sqrt()
            + if Format::of(s).is_dense() {
                16.0 + 2.0 * s.float("K").sqrt()
            } else {
                64.0 + 4.0 * s.float("K").sqrt()
            },
        rounding: 0.0,
        nmse: if rows(s) < 8 { 9e-6 } else { 1e-10 },
        reason: "a product as in gemv or gemv_q and norms as in rms_norm; how far an error of the \
                 product reaches the stream and y is in the reference's magnitude",
    },
    cases: || {
        let mut cases = Vec::new();
        for &f in Format::DENSE {
            cases.push(shape(48, 6912, f, 1, 0));
            cases.push(shape(130, 1152, f, 1, 1).with("ACTS", 1.0).with("OFFSET", 1.0));
            cases.push(shape(67, 1001, f, 0, 1));
            cases.push(shape(1, 1, f, 1, 0));
        }
        cases.push(shape(2048, 64, Format::Bf16, 0, 1));
        cases.push(shape(2601, 12, Format::F16, 1, 1).with("ACTS", 1.0));
        for &f in Format::QUANTISED {
            cases.push(shape(9, 1152, f, 1, 0));
            cases.push(shape(20, 300, f, 0, 1).with("ACTS", 1.0));
        }
        cases
    },
    bench: || {
        vec![
            shape(1152, 6912, Format::Bf16, 1, 0),
            shape(1152, 6912, Format::Bf16, 1, 1),
            shape(1152, 1024, Format::Bf16, 1, 1),
            shape(2048, 8192, Format::Bf16, 0, 1),
            shape(1152, 6912, Format::F32, 1, 0),
            shape(1152, 6912, Format::Q4_0, 1, 1),
            shape(2048, 8192, Format::Q4K, 0, 1),
        ]
    },
};
