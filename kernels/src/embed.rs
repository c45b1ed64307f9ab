//! Token embedding: gather one row and scale it.

use crate::descriptor::*;
use crate::layout::{Format, Packing, STATE_WORDS};
use crate::shape::{Param, ParamKind, Shape};

fn format(s: &Shape) -> Format {
    Format::from_code(s.dim("WEIGHT"))
}

fn shape(vocab: usize, hidden: usize, format: Format, scale: f64, seen: usize) -> Shape {
    Shape::new(&[
        ("VOCAB", vocab as f64),
        ("HIDDEN", hidden as f64),
        ("WEIGHT", format.code()),
        ("PACKING", Packing::Blocks.code()),
        ("SCALE", scale),
        ("FIRST", 0.0),
        ("PART", 0.0),
        ("SEEN", seen as f64),
    ])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "embed",
    summary: "gather the current token's embedding row and scale it",
    params: &[
        Param {
            name: "VOCAB",
            doc: "rows of the table",
            kind: ParamKind::Dim { tile: 32, max: 300 },
        },
        Param {
            name: "HIDDEN",
            doc: "elements of a row",
            kind: ParamKind::Dim { tile: 64, max: 1500 },
        },
        Param {
            name: "WEIGHT",
            doc: "storage format of the table",
            kind: ParamKind::Formats(Format::ALL),
        },
        Param {
            name: "PACKING",
            doc: "layout of quantised rows; a tied head decides it",
            kind: ParamKind::Choice(Packing::NAMES),
        },
        Param {
            name: "SCALE",
            doc: "factor on every element; Gemma's is sqrt(HIDDEN)",
            kind: ParamKind::Float { low: 0.5, high: 34.0 },
        },
        Param {
            name: "FIRST",
            doc: "token of row 0 of a part: a table too large for one binding comes in parts",
            kind: ParamKind::Start { max: 70 },
        },
        Param {
            name: "PART",
            doc: "the whole table, or a part that leaves x as it is for tokens of the others",
            kind: ParamKind::Choice(&["whole", "part"]),
        },
        Param {
            name: "SEEN",
            doc: "tokens seen, the current one included (tests only; decode keeps it on the GPU)",
            kind: ParamKind::Dim { tile: 8, max: 40 },
        },
    ],
    bindings: &[
        Binding { name: "state", role: Role::Input, elem: Elem::U32, len: |_| STATE_WORDS },
        Binding { name: "tokens", role: Role::Input, elem: Elem::U32, len: |s| s.dim("SEEN") },
        Binding {
            name: "table",
            role: Role::Input,
            elem: Elem::Weights,
            len: |s| s.dim("VOCAB") * s.dim("HIDDEN"),
        },
        Binding { name: "x", role: Role::InOut, elem: Elem::F32, len: |s| s.dim("HIDDEN") },
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("HIDDEN").div_ceil(c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| {
                    (format(s).row_stride(s.dim("HIDDEN"), Packing::Blocks) / 16)
                        .div_ceil(c["WG"] as usize)
                },
            }],
            tunables: WORKGROUPS,
            refuses: |s, _| {
                (!format(s).is_dense()).then(|| format!("{} has blocks", format(s).name()))
            },
            ..PLAIN
        },
        Variant {
            name: "quantised",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("HIDDEN") / 4).div_ceil(c["WG"] as usize),
            }],
            constants: |s, _| {
                let packing = Packing::from_code(s.dim("PACKING"));
                format(s).fields(s.dim("HIDDEN"), packing)
            },
            tunables: WORKGROUPS,
            refuses: |s, _| {
                let n = s.dim("HIDDEN");
                if format(s).is_dense() {
                    return Some(format!("{} has no blocks", format(s).name()));
                }
                (n % 4 != 0).then(|| format!("HIDDEN={n} is no multiple of 4"))
            },
            ..PLAIN
        },
    ],
    prefer: |s| {
        if format(s).is_dense() { &["vec4", "naive"] } else { &["quantised", "naive"] }
    },
    cost: |s| {
        let n = s.float("HIDDEN");
        Cost { bytes: format(s).row_bytes(s.dim("HIDDEN")) as f64 + 4.0 * n, flops: n }
    },
    tolerance: |_| Tolerance {
        k: 2.0,
        rounding: 0.0,
        nmse: 1e-13,
        reason: "a conversion exact but for the sum with a minimum, and one rounded product",
    },
    cases: || {
        let packings = [Packing::Blocks, Packing::Planes];
        let all = Format::ALL.iter().flat_map(|f| packings.map(|p| (*f, p)));
        all.filter(|(f, p)| !f.is_dense() || *p == Packing::Blocks)
            .flat_map(|(f, p)| {
                [
                    shape(320, 1152, f, f64::from(1152f32.sqrt()), 3),
                    shape(7, 2048, f, 1.0, 1),
                    shape(5, 13, f, 1.0, 9),
                    shape(1, 1, f, 1.0, 1),
                ]
                .map(|s| s.with("PACKING", p.code()))
            })
            // Before, in and behind a part: the token is below 90.
            .chain([0.0, 40.0, 80.0, 100.0].into_iter().flat_map(|first| {
                [Format::Bf16, Format::Q4K]
                    .map(|f| shape(90, 256, f, 1.0, 3).with("PART", 1.0).with("FIRST", first))
            }))
            .collect()
    },
    bench: || {
        [Format::Bf16, Format::Q8_0, Format::Q6K]
            .map(|f| shape(262_144, 1152, f, f64::from(1152f32.sqrt()), 1))
            .into()
    },
};
