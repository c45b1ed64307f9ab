//! Sampling of the next token, and the end of a step.

use crate::descriptor::*;
use crate::layout::STATE_WORDS;
use crate::shape::{Param, Shape};
use crate::shared::*;

/// Logits, beyond which sums of their weights would leave 64 bits.
const MOST: usize = 1 << 24;

/// Entries that a workgroup sorts at once.
const LIST: usize = 1024;

/// Tokens that the lists of `candidates` hold.
const MOST_CANDIDATES: usize = 256;

const MOST_MERGERS: usize = 64;

/// Groups of logits that a workgroup of `threshold` has, and the most such workgroups.
const RUN: usize = 32;
const MOST_BLOCKS: usize = 256;

/// Tokens that top-k keeps, 0 for all; the greedy choice is the first of them.
fn kept(s: &Shape) -> usize {
    if s.float("TEMPERATURE") == 0.0 { 1 } else { s.dim("TOP_K") }
}

fn shape(n: usize, [temperature, top_p, penalty]: [f32; 3], top_k: usize) -> Shape {
    Shape::new(&[
        ("N", n as f64),
        ("TEMPERATURE", f64::from(temperature)),
        ("TOP_K", top_k as f64),
        ("TOP_P", f64::from(top_p)),
        ("REPEAT_PENALTY", f64::from(penalty)),
        ("LAST_N", 0.0),
        ("SEEN", 9.0),
        ("GIVEN", 1.0),
    ])
}

/// The largest power of two of invocations in a workgroup, up to 1024.
fn largest_group(caps: &Capabilities) -> f64 {
    f64::from(1 << caps.invocations.clamp(1, 1024).ilog2())
}

fn impossible(s: &Shape, _: &Capabilities) -> Option<String> {
    if s.dim("N") >= MOST {
        return Some(format!("sums of {MOST} weights and more leave 64 bits"));
    }
    (s.float("REPEAT_PENALTY") <= 0.0).then(|| "a penalty of 0 divides by it".into())
}

/// Why the variants that hold all tokens that stay in workgroup memory cannot run a shape.
fn too_many(s: &Shape, caps: &Capabilities) -> Option<String> {
    impossible(s, caps).or_else(|| {
        let fits = (1..=MOST_CANDIDATES).contains(&kept(s));
        (!fits).then(|| format!("its lists hold 1 to {MOST_CANDIDATES} tokens"))
    })
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "sample",
    summary: "repetition penalty, temperature, top-k, top-p, one draw; next token and position",
    params: &[
        Param::dim("N", "logits", 1024, 4000),
        Param::float("TEMPERATURE", "divides the logits; 0 takes the largest", 0.0, 2.0),
        Param::start("TOP_K", "tokens that stay; 0 keeps all", 70),
        Param::float("TOP_P", "share of the probability that stays; 1 keeps all", 0.0, 1.1),
        Param::float(
            "REPEAT_PENALTY",
            "divides positive, multiplies negative logits of seen tokens; 1 changes nothing",
            1.0,
            2.0,
        ),
        Param::start(
            "LAST_N",
            "last tokens the penalty looks at, the current one included; 0 for all",
            5,
        ),
        seen(4, 9),
        GIVEN,
    ],
    bindings: &[
        Binding::input("logits", Elem::F32, |s| s.dim("N")),
        Binding::in_out("tokens", Elem::U32, |s| s.dim("SEEN") + 1),
        Binding::in_out("state", Elem::U32, |_| STATE_WORDS),
        // Whole vectors of four.
        Binding::scratch("keys", Elem::U32, |s| s.dim("N").next_multiple_of(4)),
        Binding::scratch("maxima", Elem::U32, |_| RUN * MOST_BLOCKS + 1),
        // `sorted` has every logit, `candidates` the first of every slice, of 256 at the least.
        Binding::scratch("lists", Elem::U32, |s| {
            2 * s
                .dim("N")
                .next_multiple_of(LIST)
                .max(kept(s).min(MOST_CANDIDATES) * s.dim("N").div_ceil(256))
        }),
        Binding::scratch("merged", Elem::U32, |s| 2 * MOST_MERGERS * kept(s)),
        Binding::scratch("masses", Elem::U32, |s| 2 * s.dim("N").next_multiple_of(LIST)),
        Binding::scratch("brackets", Elem::U32, |s| 4 * s.dim("N").div_ceil(LIST)),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage { entry: "main", grid: |_, _| 1 }],
            constants: |_, caps| vec![("WG", largest_group(caps))],
            refuses: impossible,
            ..PLAIN
        },
        Variant {
            name: "candidates",
            stages: &[
                Stage { entry: "slices", grid: |s, c| s.dim("N").div_ceil(c["SLICE"] as usize) },
                Stage {
                    entry: "merge",
                    grid: |s, c| match s.dim("N").div_ceil(c["SLICE"] as usize) * kept(s) {
                        0..=LIST => 0,
                        _ => c["MERGERS"] as usize,
                    },
                },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            constants: |_, caps| vec![("WG", largest_group(caps).min(512.0))],
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("SLICE", &[256.0, 512.0, 1024.0, 2048.0]),
                ("MERGERS", &[8.0, 16.0, 32.0]),
            ],
            refuses: too_many,
            ..PLAIN
        },
        Variant {
            name: "sorted",
            stages: &[
                Stage { entry: "sort", grid: |s, _| s.dim("N").div_ceil(LIST) },
                Stage { entry: "weigh", grid: |s, _| s.dim("N").div_ceil(LIST) },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            tunables: &[("WG", &[128.0, 256.0, 512.0])],
            refuses: impossible,
            ..PLAIN
        },
        Variant {
            name: "threshold",
            stages: &[
                // One more than take maxima: it prepares the draw.
                Stage { entry: "scan", grid: |_, c| c["BLOCKS"] as usize + 1 },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            constants: |s, caps| {
                // A vector a group where there are no more, and as many as fill a large GPU.
                let blocks = s.dim("N").div_ceil(4 * RUN).next_power_of_two().min(128);
                let coarse = (2 * kept(s)).next_power_of_two().clamp(128, 512);
                vec![
                    ("WG", largest_group(caps)),
                    ("BLOCKS", blocks as f64),
                    ("COARSE", coarse as f64),
                ]
            },
            tunables: &[
                ("WG", &[256.0, 512.0, 1024.0]),
                ("BLOCKS", &[64.0, 128.0, 256.0]),
                ("COARSE", &[128.0, 256.0, 512.0]),
            ],
            refuses: too_many,
            ..PLAIN
        },
    ],
    prefer: |_| &["threshold", "candidates", "sorted", "naive"],
    cost: |s| Cost { bytes: 4.0 * s.float("N"), flops: 0.0 },
    tolerance: |_| Tolerance {
        k: 0.0,
        rounding: 0.0,
        nmse: 0.0,
        reason: "weights and sums are integers, and the two rounded products are defined: the \
                 token is exact",
    },
    cases: || {
        vec![
            shape(1, [0.8, 0.9, 1.3], 40),
            shape(50, [1.0, 0.95, 1.3], 20),
            shape(257, [1.5, 1.0, 1.0], 0).with("GIVEN", 20.0),
            shape(1024, [0.8, 0.95, 1.3], 40),
            shape(1025, [1.0, 0.95, 1.3], 0),
            shape(3000, [0.0, 1.0, 1.1], 0),
            // Runs that end among many equal logits, with all tokens but one, with one alone.
            shape(5000, [2.0, 0.5, 1.0], 300),
            shape(700, [1e-3, 0.999, 1.0], 699),
            shape(700, [1e30, 0.5, 1.2], 0).with("LAST_N", 3.0),
            shape(700, [1.0, 0.0, 1.0], 200),
            shape(131_075, [0.7, 0.9, 1.1], 50).with("LAST_N", 4.0),
        ]
    },
    // All tokens given: repeated runs advance the position and must not write past `tokens`.
    bench: || {
        let given = |s: Shape| s.with("SEEN", 1.0).with("GIVEN", f64::from(u32::MAX));
        let mut shapes: Vec<_> =
            [262_144, 128_256, 151_936].map(|n| given(shape(n, [0.8, 0.9, 1.0], 50))).to_vec();
        let penalised = given(shape(262_144, [0.8, 0.9, 1.1], 50));
        shapes.push(penalised.with("SEEN", 64.0).with("LAST_N", 64.0));
        shapes.push(given(shape(262_144, [0.8, 0.9, 1.0], 0)));
        shapes
    },
};
