//! The LM head fused with the largest logits: the others are never written.

use crate::descriptor::*;
use crate::geometry::{dense_only, quantised_only};
use crate::layout::{Format, Packing};
use crate::lm_head_argmax::{
    DOT4_TUNABLES, HEAD_COLUMNS, HEAD_FIRST, HEAD_ROWS, PART, cost, dot4_geometry, dot4_groups,
    dot4_refuses, planes_geometry, row_groups,
};
use crate::shape::{Param, Shape};
use crate::shared::*;

/// Entries that a workgroup sorts at once.
const LIST: usize = 1024;

/// A quarter of them, so that sorting more than fit goes on.
const MOST: usize = LIST / 4;

const MOST_MERGERS: usize = 64;

fn too_many(s: &Shape, _: &Capabilities) -> Option<String> {
    (s.dim("TOP_K") > MOST).then(|| format!("its lists hold {MOST} logits"))
}

/// A variant of `rows`, `merge` and `choose`; merging is left out where all lists fit at once.
const fn stages() -> &'static [Stage] {
    &[
        Stage { entry: "rows", grid: row_groups },
        Stage { entry: "merge", grid: |s, c| mergers(s, c, row_groups(s, c)) },
        Stage { entry: "choose", grid: |_, _| 1 },
    ]
}

/// Rows of a workgroup: some 500 lists are merged in a quarter of the time of 1000 (measured on the
/// H200 with 128256 and 262144 rows), and a list's workgroup holds 1024 rows.
fn list_rows(s: &Shape) -> (&'static str, f64) {
    let rows = s.dim("ROWS").div_ceil(512).next_multiple_of(64).clamp(256, LIST);
    ("ROWS_PER_WG", rows as f64)
}

/// Workgroups that merge the lists of `groups` others.
fn mergers(s: &Shape, c: &Constants, groups: usize) -> usize {
    match groups * s.dim("TOP_K") {
        0..=LIST => 0,
        _ => c["MERGERS"] as usize,
    }
}

fn shape(rows: usize, k: usize, format: Format, top_k: usize) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", 0.0),
        ("FIRST", 0.0),
        ("PART", 0.0),
        ("TOP_K", top_k as f64),
    ])
}

const LANE_TUNABLES: &[(&str, &[f64])] = &[
    ("WG", &[64.0, 128.0, 256.0]),
    ("LANES", &[16.0, 32.0, 64.0]),
    ("ROWS_PER_WG", &[128.0, 256.0, 512.0]),
    ("MERGERS", &[8.0, 16.0, 32.0]),
];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "lm_head_topk",
    summary: "largest TOP_K elements of matrix (ROWS, K) times vector (K), in order",
    params: &[
        HEAD_ROWS,
        HEAD_COLUMNS,
        weight(Format::ALL),
        ACTS_IN,
        HEAD_FIRST,
        PART,
        Param::dim("TOP_K", "logits wanted", 16, 64),
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| s.dim("ROWS") * s.dim("K")),
        Binding::input("x", Elem::Act, |s| s.dim("K")),
        Binding::in_out("top_values", Elem::F32, |s| s.dim("TOP_K")),
        Binding::in_out("top_indices", Elem::U32, |s| s.dim("TOP_K")),
        // A list of every workgroup, of 64 rows at the least.
        Binding::scratch("lists", Elem::U32, |s| 2 * s.dim("ROWS").div_ceil(64) * s.dim("TOP_K")),
        Binding::scratch("merged", Elem::U32, |s| 2 * MOST_MERGERS * s.dim("TOP_K")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: stages(),
            tunables: WORKGROUPS,
            refuses: too_many,
            ..PLAIN
        },
        Variant {
            name: "workgroup",
            stages: stages(),
            constants: |s, _| vec![list_rows(s)],
            tunables: LANE_TUNABLES,
            refuses: |s, caps| too_many(s, caps).or_else(|| dense_only(s, caps)),
            ..PLAIN
        },
        Variant {
            name: "blocks",
            stages: stages(),
            constants: |s, _| vec![list_rows(s)],
            tunables: LANE_TUNABLES,
            refuses: |s, caps| too_many(s, caps).or_else(|| quantised_only(s, caps)),
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: stages(),
            constants: |s, caps| vec![list_rows(s), ("SG", f64::from(caps.fixed_subgroup()))],
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("ROWS_PER_WG", &[128.0, 256.0, 512.0, 1024.0]),
                ("MERGERS", &[8.0, 16.0, 32.0]),
            ],
            refuses: |s, caps| too_many(s, caps).or_else(|| dense_only(s, caps)),
            ..PLAIN
        },
        Variant {
            name: "planes",
            stages: stages(),
            constants: |s, caps| {
                let mut constants = planes_geometry(s, caps, 8 * LIST as u32);
                constants.push(list_rows(s));
                constants
            },
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("LANES", &[4.0, 8.0, 16.0, 32.0]),
                ("ROWS_PER_WG", &[256.0, 512.0, 1024.0]),
                ("MERGERS", &[8.0, 16.0, 32.0]),
            ],
            refuses: |s, caps| too_many(s, caps).or_else(|| quantised_only(s, caps)),
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_dp4a24",
            stages: &[
                Stage { entry: "rows", grid: dot4_groups },
                Stage { entry: "merge", grid: |s, c| mergers(s, c, dot4_groups(s, c)) },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            constants: dot4_geometry,
            tunables: DOT4_TUNABLES,
            refuses: |s, caps| too_many(s, caps).or_else(|| dot4_refuses(s, caps)),
            packing: Packing::Planes,
            ..PLAIN
        },
    ],
    prefer: |s| {
        if Format::of(s).is_dense() {
            &["subgroup", "workgroup", "naive"]
        } else {
            &["planes_dp4a24", "planes", "blocks", "naive"]
        }
    },
    cost,
    tolerance: |s| Tolerance {
        k: 8.0 + 2.0 * s.float("K").sqrt(),
        rounding: 0.0,
        // A few rows may all but cancel; each of them still has its own bound.
        nmse: if s.dim("ROWS") < 8 { 9e-6 } else { 1e-10 },
        reason: "K rounded additions behave as a random walk of step eps * sum|w x|; sorted values \
                 move no farther than the farthest of them, and a logit belongs to its index",
    },
    cases: || {
        let mut cases = Vec::new();
        for &f in Format::DENSE {
            cases.push(shape(700, 1152, f, 50).with("ACTS", 1.0));
            cases.push(shape(129, 1003, f, 20).with("PART", 3.0).with("FIRST", 64.0));
        }
        for &f in Format::QUANTISED {
            cases.push(shape(70, 300, f, 16));
        }
        // Rows longer than is staged at once, and more of them than a workgroup has.
        cases.push(shape(9, 6912, Format::Q4K, 8));
        cases.push(shape(21, 5003, Format::Q8_0, 8));
        cases.push(shape(1100, 70, Format::Q5_1, 8).with("ACTS", 1.0));
        // Fewer rows than wanted.
        cases.push(shape(1, 1, Format::F32, 5));
        for part in 0..4 {
            let part = |s: Shape| s.with("PART", f64::from(part)).with("FIRST", 9.0);
            cases.push(part(shape(13, 64, Format::F16, 40)));
            cases.push(part(shape(40, 256, Format::Q4K, 8)));
        }
        // Lists to merge, and more workgroups than one grid dimension holds.
        cases.push(shape(100_003, 5, Format::F16, 64));
        // More rows a workgroup, several turns of them, and lists that are no power of two long.
        cases.push(shape(140_003, 40, Format::Q4_0, 50));
        cases.push(shape(140_003, 8, Format::Bf16, 50));
        cases
    },
    bench: || {
        [
            (262_144, 1152, Format::Bf16, 64),
            (128_256, 2048, Format::Bf16, 64),
            (262_144, 1152, Format::Q8_0, 64),
        ]
        .map(|(rows, k, f, top)| shape(rows, k, f, top))
        .to_vec()
    },
};
