//! Quantised rows to plain values: what a generic matrix product, or a reader of weights, needs.

use crate::descriptor::*;
use crate::layout::{Format, Packing, act_bytes};
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(rows: usize, k: usize, format: Format, acts: u32) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", f64::from(acts)),
    ])
}

fn elements(s: &Shape) -> usize {
    s.dim("ROWS") * s.dim("K")
}

/// Elements of sixteen bytes of y.
fn each(s: &Shape) -> usize {
    if s.dim("ACTS") == 1 { 8 } else { 4 }
}

/// Rows of y begin on sixteen bytes only then.
fn ragged(s: &Shape, _: &Capabilities) -> Option<String> {
    let (k, each) = (s.dim("K"), each(s));
    (k % each != 0).then(|| format!("K={k} is no multiple of {each}: rows begin between stores"))
}

/// Several stores an invocation only where one already fills a large device (270336 invocations
/// on 132 multiprocessors), and then in smaller workgroups.
fn rounds(s: &Shape) -> Vec<(&'static str, f64)> {
    let (per, wg) = match elements(s) / each(s) {
        0..=0x4_0000 => (1.0, 256.0),
        0x4_0001..=0x8_0000 => (2.0, 256.0),
        _ => (4.0, 64.0),
    };
    vec![("PER", per), ("WG", wg)]
}

/// With where the fields of packed rows lie.
fn over(
    packing: Packing,
    s: &Shape,
    mut constants: Vec<(&'static str, f64)>,
) -> Vec<(&'static str, f64)> {
    constants.extend(Format::of(s).fields(s.dim("K"), packing));
    constants
}

const ROUNDS: &[(&str, &[f64])] =
    &[("WG", &[64.0, 128.0, 256.0, 512.0]), ("PER", &[1.0, 2.0, 4.0])];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "dequant",
    summary: "quantised rows (ROWS, K) to f32 or f16, tight row-major",
    params: &[
        Param::dim("ROWS", "rows", 8, 40),
        Param::dim("K", "elements of a row", 256, 2500),
        Param::formats("WEIGHT", "storage format of the rows", Format::QUANTISED),
        ACTS_OUT,
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, elements),
        Binding::output("y", Elem::Act, elements),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| elements(s).div_ceil(2 * c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| {
                    (s.dim("ROWS") * s.dim("K").div_ceil(256)).div_ceil(c["SPANS_PER_WG"] as usize)
                },
            }],
            constants: |s, caps| {
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4));
                let subgroups = f64::from((256 / size).max(1));
                let fixed = f64::from(caps.fixed_subgroup());
                over(Packing::Blocks, s, vec![("SPANS_PER_WG", subgroups), ("SG", fixed)])
            },
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("SPANS_PER_WG", &[2.0, 4.0, 8.0, 16.0, 32.0]),
            ],
            refuses: ragged,
            ..PLAIN
        },
        Variant {
            name: "shared",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("ROWS") * s.dim("K").div_ceil(c["TILE"] as usize),
            }],
            constants: |s, _| over(Packing::Blocks, s, Vec::new()),
            tunables: &[("WG", &[64.0, 128.0, 256.0, 512.0]), ("TILE", &[2048.0, 4096.0, 8192.0])],
            refuses: ragged,
            ..PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (elements(s) / each(s)).div_ceil((c["WG"] * c["PER"]) as usize),
            }],
            constants: |s, _| over(Packing::Planes, s, rounds(s)),
            tunables: ROUNDS,
            refuses: ragged,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "multicol",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| {
                    let groups = s.dim("ROWS").div_ceil(c["PER"] as usize);
                    (groups * (s.dim("K") / each(s))).div_ceil(c["WG"] as usize)
                },
            }],
            constants: |s, _| over(Packing::Planes, s, rounds(s)),
            tunables: ROUNDS,
            refuses: ragged,
            packing: Packing::Planes,
            ..PLAIN
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |s| {
        let n = elements(s) as f64;
        Cost {
            bytes: s.float("ROWS") * Format::of(s).row_bytes(s.dim("K")) as f64 + act_bytes(s) * n,
            flops: 2.0 * n,
        }
    },
    tolerance: |_| Tolerance {
        k: 0.0,
        rounding: 0.0,
        nmse: 1e-14,
        reason: "every product is exact in f32 and at most one sum is rounded, in any order",
    },
    cases: || {
        let mut cases = Vec::new();
        for (acts, &f) in [0, 1].into_iter().cycle().zip(Format::QUANTISED) {
            // Nine superblocks: more than one tile.
            cases.push(shape(5, 2304, f, acts));
            cases.push(shape(5, 77, f, acts));
        }
        // No whole number of superblocks; more rows than invocations take together.
        cases.push(shape(9, 1152, Format::Q4K, 0));
        cases.push(shape(9, 1152, Format::Q5_0, 0));
        cases.push(shape(1, 1, Format::Q8_0, 0));
        // More workgroups than one grid dimension holds, for the variants of one row a group; four
        // rounds for those that have them.
        cases.push(shape(65_537, 32, Format::Q4_0, 0));
        cases
    },
    bench: || {
        let both = |f| [0, 1].map(|acts| shape(8192, 8192, f, acts));
        let mut shapes: Vec<Shape> = [Format::Q4K, Format::Q8_0, Format::Q4_0, Format::Q6K]
            .into_iter()
            .flat_map(both)
            .collect();
        shapes.push(shape(65_536, 1152, Format::Q4_0, 0));
        shapes
    },
};
