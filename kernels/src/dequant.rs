//! Quantised rows to plain values: what a generic matrix product, or a reader of weights, needs.

use crate::descriptor::*;
use crate::layout::{ACT_NAMES, Format, Packing, act_bytes};
use crate::shape::{Param, ParamKind, Shape};

fn format(s: &Shape) -> Format {
    Format::from_code(s.dim("WEIGHT"))
}

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

fn planes(_: &Shape, _: &Capabilities) -> Vec<(&'static str, f64)> {
    vec![("PACKING", Packing::Planes.code())]
}

const ROUNDS: &[(&str, &[f64])] =
    &[("WG", &[64.0, 128.0, 256.0, 512.0]), ("PER", &[1.0, 2.0, 4.0])];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "dequant",
    summary: "quantised rows (ROWS, K) to f32 or f16, tight row-major",
    params: &[
        Param { name: "ROWS", doc: "rows", kind: ParamKind::Dim { tile: 8, max: 40 } },
        Param {
            name: "K",
            doc: "elements of a row",
            kind: ParamKind::Dim { tile: 256, max: 2500 },
        },
        Param {
            name: "WEIGHT",
            doc: "storage format of the rows",
            kind: ParamKind::Formats(Format::QUANTISED),
        },
        Param { name: "ACTS", doc: "storage format of y", kind: ParamKind::Choice(ACT_NAMES) },
    ],
    bindings: &[
        Binding { name: "weights", role: Role::Input, elem: Elem::Weights, len: elements },
        Binding { name: "y", role: Role::Output, elem: Elem::Act, len: elements },
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
            constants: |_, caps| {
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4));
                let subgroups = f64::from((256 / size).max(1));
                vec![("SPANS_PER_WG", subgroups), ("SG", f64::from(caps.fixed_subgroup()))]
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
            constants: planes,
            tunables: ROUNDS,
            refuses: ragged,
            packing: Packing::Planes,
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
            constants: planes,
            tunables: ROUNDS,
            refuses: ragged,
            packing: Packing::Planes,
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |s| {
        let n = elements(s) as f64;
        Cost {
            bytes: s.float("ROWS") * format(s).row_bytes(s.dim("K")) as f64 + act_bytes(s) * n,
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
        for &f in Format::QUANTISED {
            // 1152 is no whole number of superblocks; 2304 reaches a second tile.
            cases.push(shape(9, 1152, f, 0));
            cases.push(shape(3, 2304, f, 1));
            cases.push(shape(5, 77, f, u32::from(f.block_len() == 32)));
        }
        cases.push(shape(1, 1, Format::Q8_0, 0));
        // More workgroups than one grid dimension holds, for the variants of one row a group.
        cases.push(shape(65_537, 8, Format::Q4_0, 1));
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
