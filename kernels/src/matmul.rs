//! Matrix times matrix, the bulk of a prompt: many tokens at once.

use crate::descriptor::*;
use crate::layout::{Format, Packing, act_bytes};
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(m: usize, rows: usize, k: usize, format: Format) -> Shape {
    Shape::new(&[
        ("M", m as f64),
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("PACKING", 0.0),
        ("ACTS", 0.0),
        ("FIRST", 0.0),
        ("AFTER", 0.0),
    ])
}

fn tiles(s: &Shape, tm: usize, tn: usize) -> usize {
    s.dim("M").div_ceil(tm) * s.dim("ROWS").div_ceil(tn)
}

/// Workgroups below which a GPU of a hundred or more compute units idles: smaller tiles then.
const ENOUGH: usize = 128;

/// What f32 arithmetic costs, the same for every variant that keeps its operands.
fn f32_tolerance(s: &Shape) -> Tolerance {
    Tolerance {
        k: 8.0 + 2.0 * s.float("K").sqrt(),
        rounding: 0.0,
        // A few elements may all but cancel, and NMSE then divides by next to nothing; the element
        // bound, which is relative to sum|w x|, still holds each of them.
        nmse: if s.dim("M") * s.dim("ROWS") < 8 { 9e-6 } else { 1e-10 },
        reason: "K rounded additions behave as a random walk of step eps * sum|w x|; the rigorous \
                 bound K*eps would hide a missing product",
    }
}

/// What rounding the operands to f16 adds. Activations that are f16 already and weights whose
/// values have 11 bits or fewer are not rounded again.
fn f16_tolerance(s: &Shape) -> Tolerance {
    let exact = matches!(Format::of(s), Format::F16 | Format::Bf16);
    let rounded = f64::from(u8::from(!exact)) + f64::from(u8::from(s.dim("ACTS") == 0));
    let k = s.float("K");
    // 2^-11, half a unit in the last place of f16, in multiples of 2^-23.
    let half_ulp = 4096.0;
    Tolerance {
        k: 8.0 + 2.0 * k.sqrt() + k / 16.0 + rounded * half_ulp * (4.0 / k.sqrt()).min(1.0),
        rounding: 0.0,
        nmse: if rounded > 0.0 { 1e-6 } else { 1e-9 },
        reason: "operands rounded to f16 err by up to 2^-11 each, as a random walk of K such steps \
                 of which 4 sqrt(K) are six deviations or more; matrix units truncate sums, up to \
                 one unit in the last place every 16 products; else as f32",
    }
}

/// Tiles of `tile` x `tile` elements, FM x FN fragments a subgroup.
fn fragments(caps: &Capabilities, tile: f64, fm: f64, fn_: f64) -> Vec<(&'static str, f64)> {
    let subgroup = caps.subgroup.map_or(32, |(_, max)| max);
    vec![("TM", tile), ("TN", tile), ("FM", fm), ("FN", fn_), ("SG", f64::from(subgroup))]
}

/// What the variants on matrix units share.
const MATRIX_UNITS: Variant = Variant {
    stages: &[Stage { entry: "main", grid: |s, c| tiles(s, c["TM"] as usize, c["TN"] as usize) }],
    refuses: |s, _| {
        (s.dim("M") < 8).then(|| "fewer than 8 rows: half of a fragment is idle".into())
    },
    tolerance: Some(f16_tolerance),
    ..PLAIN
};

pub(crate) static KERNEL: Kernel = Kernel {
    name: "matmul",
    summary: "rows (M, K) times a matrix (ROWS, K) transposed, f32 accumulation",
    params: &[
        Param::dim("M", "rows of x and y: tokens", 16, 70),
        Param::dim("ROWS", "rows of the matrix, elements made in a row of y", 64, 140),
        Param::dim("K", "columns of the matrix, elements of a row of x", 32, 300),
        weight(Format::ALL),
        Param::choice("PACKING", "how quantised rows are laid out", Packing::NAMES),
        ACTS_IN,
        Param::start("FIRST", "element of a row of y that row 0 of the matrix makes", 70),
        Param::start("AFTER", "elements of a row of y after those made here", 70),
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| s.dim("ROWS") * s.dim("K")),
        Binding::input("x", Elem::Act, |s| s.dim("M") * s.dim("K")),
        Binding::in_out("y", Elem::F32, |s| {
            s.dim("M") * (s.dim("FIRST") + s.dim("ROWS") + s.dim("AFTER"))
        }),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("M") * s.dim("ROWS")).div_ceil(c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "tiled",
            stages: &[Stage { entry: "main", grid: |s, _| tiles(s, 16, 16) }],
            ..PLAIN
        },
        Variant {
            name: "register_tiled",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| tiles(s, c["TM"] as usize, c["TN"] as usize),
            }],
            constants: |s, _| {
                let (tm, tn, rm) = if tiles(s, 128, 128) >= ENOUGH {
                    (128.0, 128.0, 8.0)
                } else if tiles(s, 64, 128) >= ENOUGH {
                    (64.0, 128.0, 4.0)
                } else {
                    (64.0, 64.0, 4.0)
                };
                vec![("TM", tm), ("TN", tn), ("RM", rm)]
            },
            tunables: &[("TM", &[64.0, 128.0]), ("TN", &[64.0, 128.0]), ("RM", &[4.0, 8.0])],
            ..PLAIN
        },
        Variant {
            name: "cooperative_matrix",
            constants: |s, caps| {
                let large = tiles(s, 128, 128) >= ENOUGH;
                let (tile, each) = if large { (128.0, 4.0) } else { (64.0, 2.0) };
                fragments(caps, tile, each, each)
            },
            tunables: &[
                ("TM", &[64.0, 128.0]),
                ("TN", &[64.0, 128.0]),
                ("TK", &[32.0, 64.0]),
                ("FM", &[2.0, 4.0]),
                ("FN", &[2.0, 4.0]),
            ],
            ..MATRIX_UNITS
        },
        Variant {
            name: "cooperative_matrix_8",
            constants: |_, caps| fragments(caps, 32.0, 2.0, 2.0),
            tunables: &[
                ("TM", &[32.0, 64.0]),
                ("TN", &[32.0, 64.0]),
                ("TK", &[16.0, 32.0]),
                ("FM", &[2.0, 4.0]),
                ("FN", &[2.0, 4.0]),
            ],
            ..MATRIX_UNITS
        },
    ],
    // Matrix units only where the caller has f16 activations already and weights lose little:
    // f32 activations may lie beyond f16's range, and f32 weights were wanted as they are.
    prefer: |s| {
        if s.dim("ACTS") == 1 && Format::of(s) != Format::F32 {
            &["cooperative_matrix", "cooperative_matrix_8", "register_tiled", "tiled", "naive"]
        } else {
            &["register_tiled", "tiled", "naive"]
        }
    },
    cost: |s| {
        let (m, rows, k) = (s.float("M"), s.float("ROWS"), s.float("K"));
        Cost {
            bytes: rows * Format::of(s).row_bytes(s.dim("K")) as f64
                + m * (4.0 * rows + act_bytes(s) * k),
            flops: 2.0 * m * rows * k,
        }
    },
    tolerance: f32_tolerance,
    cases: || {
        let mut cases = Vec::new();
        for &f in Format::ALL {
            let quantised = !f.is_dense();
            // Several depths of a tile and of a block, tiles not full in M and ROWS.
            cases.push(shape(9, 70, 300, f));
            cases.push(shape(33, 130, 256, f).with("ACTS", 1.0).with("FIRST", 4.0));
            if quantised {
                let ragged = shape(17, 65, 300, f).with("PACKING", 1.0).with("ACTS", 1.0);
                cases.push(ragged.with("AFTER", 3.0));
                cases.push(shape(16, 24, 1152, f).with("PACKING", 1.0));
            } else {
                // K in no words, whole tiles of y between others' elements.
                cases.push(shape(12, 40, 77, f).with("ACTS", 1.0).with("FIRST", 1.0));
                cases.push(shape(10, 3, 44, f).with("AFTER", 2.0));
            }
        }
        // A whole tile of 128 x 128, one of 64 x 64 beside others' elements, one element.
        cases.push(shape(128, 128, 64, Format::F16).with("ACTS", 1.0));
        let beside = [("FIRST", 64.0), ("AFTER", 32.0), ("ACTS", 1.0)];
        cases.push(beside.iter().fold(shape(64, 64, 96, Format::Bf16), |s, (n, v)| s.with(n, *v)));
        cases.push(shape(1, 1, 1, Format::F32));
        cases
    },
    bench: || {
        let f16 = |m, rows, k| shape(m, rows, k, Format::F16).with("ACTS", 1.0);
        let q4_k = |m| shape(m, 8192, 2048, Format::Q4K).with("PACKING", 1.0).with("ACTS", 1.0);
        vec![
            f16(128, 1152, 1152),
            f16(512, 1152, 1152),
            f16(128, 13824, 1152),
            f16(512, 13824, 1152),
            f16(128, 8192, 2048),
            f16(512, 8192, 2048),
            q4_k(128),
            q4_k(512),
        ]
    },
};
