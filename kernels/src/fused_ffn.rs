//! Gate and up projection with their activation: the first half of a gated feed-forward block.

use crate::descriptor::*;
use crate::gemv_q;
use crate::geometry::{dense_only, quantised_only};
use crate::layout::{Format, Packing, act_bytes};
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(n: usize, k: usize, format: Format, act: u32) -> Shape {
    Shape::new(&[
        ("N", n as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACT", f64::from(act)),
        ("ACTS", 0.0),
        ("NORM", 0.0),
        ("EPS", f64::from(1e-6f32)),
    ])
}

/// Outputs a subgroup variant gives a workgroup of 256: `each` to every subgroup, an even number.
fn outputs_per_group(caps: &Capabilities, each: f64) -> Vec<(&'static str, f64)> {
    let size = caps.subgroup.map_or(32, |(_, max)| max.max(4));
    let subgroups = f64::from((256 / size).max(2));
    vec![("OUTS_PER_WG", each * subgroups), ("SG", f64::from(caps.fixed_subgroup()))]
}

const OUTS: &[Stage] =
    &[Stage { entry: "main", grid: |s, c| s.dim("N").div_ceil(c["OUTS_PER_WG"] as usize) }];

const TEAMS: &[Stage] = &[Stage {
    entry: "main",
    grid: |s, c| s.dim("N").div_ceil(((c["WG"] / c["LANES"]) as usize).max(1)),
}];

const LANES: &[(&str, &[f64])] =
    &[("WG", &[64.0, 128.0, 256.0]), ("LANES", &[4.0, 8.0, 16.0, 32.0])];

/// The matrix as `planes.wgsl` sees it: rows, each a stream of blocks of its own.
fn stacked(s: &Shape) -> Vec<(&'static str, f64)> {
    vec![("ROWS", 2.0 * s.float("N")), ALONG_ROWS]
}

/// Lanes an output: as many as a subgroup has, unless fewer fill a large GPU as well and idle less
/// in the last round. 1152 weights are 36 chunks, which keep 32 lanes half idle and 4 lanes busy.
fn lanes(s: &Shape, caps: &Capabilities) -> f64 {
    f64::from(gemv_q::lanes_of(s, s.dim("N"), gemv_q::subgroup(caps).min(32), 1))
}

/// Chunks of x that lie in workgroup memory at a time (see `x_tile.wgsl`), beside at most
/// 4 KiB of sums: a power of two, so that any number of lanes is busy.
fn tile(s: &Shape, caps: &Capabilities) -> (&'static str, f64) {
    let chunk: usize = if Format::of(s) == Format::Q8_0 { 16 } else { 32 };
    let fits = (caps.workgroup_memory as usize).saturating_sub(4096) / (16 * (chunk / 4 + 1));
    let most = ((fits / 2 + 1).next_power_of_two()).max(1);
    ("TILE", most.min(s.dim("K").div_ceil(chunk)) as f64)
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "fused_ffn",
    summary: "act(gate) * up of one product with gate and up rows, SwiGLU or GeGLU",
    params: &[
        Param::dim("N", "elements of y; the matrix has N gate rows, then N up rows", 16, 120),
        Param::dim("K", "columns of the matrix, elements of the vector", 256, 1000),
        weight(Format::ALL),
        ACT,
        ACTS,
        Param::choice(
            "NORM",
            "what the matrix meets: none: x; rms: the RMSNorm of stream",
            &["none", "rms"],
        ),
        EPS,
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| 2 * s.dim("N") * s.dim("K")),
        Binding::input("x", Elem::Act, |s| s.dim("K")),
        Binding::input("stream", Elem::F32, |s| s.dim("K")),
        Binding::input("norm_weight", Elem::F32, |s| s.dim("K")),
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
        Variant { name: "workgroup", stages: TEAMS, tunables: LANES, refuses: dense_only, ..PLAIN },
        Variant {
            name: "workgroup_q",
            stages: TEAMS,
            constants: |s, caps| [&stacked(s)[..], &[tile(s, caps)]].concat(),
            tunables: LANES,
            refuses: quantised_only,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes",
            stages: TEAMS,
            constants: |s, caps| {
                let geometry =
                    [("LANES", lanes(s, caps)), ("SG", f64::from(caps.fixed_subgroup()))];
                [&stacked(s)[..], &geometry, &[tile(s, caps)]].concat()
            },
            tunables: &[("WG", &[64.0, 128.0, 256.0, 512.0]), ("LANES", &[4.0, 8.0, 16.0, 32.0])],
            refuses: quantised_only,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_dp4a24",
            stages: &[Stage { entry: "main", grid: |s, c| gemv_q::dot4_groups(2 * s.dim("N"), c) }],
            // Two outputs to a group of lanes: they may make one word of f16.
            constants: |s, caps| {
                [&stacked(s)[..], &gemv_q::dot4(s, caps, 2 * s.dim("N"), 4, 264)].concat()
            },
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("LANES", &[4.0, 8.0, 16.0, 32.0]),
                ("GROUPS", &[132.0, 264.0, 1056.0]),
            ],
            refuses: |s, caps| quantised_only(s, caps).or_else(|| gemv_q::below_a_block(s)),
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: OUTS,
            constants: |_, caps| outputs_per_group(caps, 1.0),
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("OUTS_PER_WG", &[2.0, 4.0, 8.0, 16.0, 32.0]),
            ],
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "subgroup_pair",
            stages: OUTS,
            constants: |_, caps| outputs_per_group(caps, 2.0),
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("OUTS_PER_WG", &[4.0, 8.0, 16.0, 32.0, 64.0]),
            ],
            refuses: dense_only,
            ..PLAIN
        },
    ],
    prefer: |s| {
        if Format::of(s).is_dense() {
            &["workgroup", "subgroup", "naive"]
        } else {
            &["planes_dp4a24", "planes", "workgroup_q", "naive"]
        }
    },
    cost: |s| {
        let (n, k) = (s.float("N"), s.float("K"));
        let vector = if s.dim("NORM") == 1 { 8.0 } else { act_bytes(s) };
        Cost {
            bytes: 2.0 * n * Format::of(s).row_bytes(s.dim("K")) as f64
                + act_bytes(s) * n
                + vector * k,
            flops: 4.0 * n * k + 10.0 * n,
        }
    },
    tolerance: |s| Tolerance {
        k: if Format::of(s).is_dense() {
            16.0 + 2.0 * s.float("K").sqrt()
        } else {
            64.0 + 4.0 * s.float("K").sqrt()
        },
        rounding: 0.0,
        nmse: if s.dim("N") < 8 { 9e-6 } else { 1e-10 },
        reason: "two products as in gemv and gemv_q; how far their errors reach the result is in the \
                 reference's magnitude, exp is allowed 3 + 2|x| ULP",
    },
    cases: || {
        let mut cases = Vec::new();
        for &f in Format::DENSE {
            // The models' widths, and some that are no multiple of 8, 4 or 2.
            cases.push(shape(1, 1, f, 0));
            cases.push(shape(40, 1152, f, 1));
            cases.push(shape(33, 1001, f, 0));
            cases.push(shape(3, 7, f, 1).with("NORM", 1.0).with("ACTS", 1.0));
            cases.push(shape(17, 1004, f, 0).with("NORM", 1.0).with("ACTS", 1.0));
        }
        cases.push(shape(18, 2048, Format::Bf16, 0));
        cases.push(shape(9, 1152, Format::F16, 1).with("ACTS", 1.0));
        for &f in Format::QUANTISED {
            cases.push(shape(7, 1152, f, 1).with("ACTS", 1.0));
            cases.push(shape(16, 300, f, 0).with("NORM", 1.0));
        }
        // More workgroups than one grid dimension holds, for those of few outputs a group.
        cases.push(shape(524_295, 3, Format::F16, 0).with("ACTS", 1.0));
        cases
    },
    bench: || {
        let gemma = |f| shape(6912, 1152, f, 1);
        vec![
            gemma(Format::Bf16),
            gemma(Format::Bf16).with("NORM", 1.0),
            shape(8192, 2048, Format::Bf16, 0),
            shape(6144, 2048, Format::Bf16, 0),
            gemma(Format::F16),
            gemma(Format::Q4_0),
            shape(8192, 2048, Format::Q4K, 0),
        ]
    },
};
