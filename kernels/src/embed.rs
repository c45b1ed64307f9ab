//! Token embedding: gather one row and scale it.

use crate::descriptor::*;
use crate::layout::{Format, Packing};
use crate::shape::{Param, Shape};
use crate::shared::*;

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
        Param::dim("VOCAB", "rows of the table", 32, 300),
        Param::dim("HIDDEN", "elements of a row", 64, 1500),
        Param::formats("WEIGHT", "storage format of the table", Format::ALL),
        Param::choice(
            "PACKING",
            "layout of quantised rows; a tied head decides it",
            Packing::NAMES,
        ),
        Param::float("SCALE", "factor on every element; Gemma's is sqrt(HIDDEN)", 0.5, 34.0),
        Param::start(
            "FIRST",
            "token of row 0 of a part: a table too large for one binding comes in parts",
            70,
        ),
        Param::choice(
            "PART",
            "the whole table, or a part that leaves x as it is for tokens of the others",
            &["whole", "part"],
        ),
        seen(8, 40),
    ],
    bindings: &[
        STATE,
        Binding::input("tokens", Elem::U32, |s| s.dim("SEEN")),
        Binding::input("table", Elem::Weights, |s| s.dim("VOCAB") * s.dim("HIDDEN")),
        Binding::in_out("x", Elem::F32, |s| s.dim("HIDDEN")),
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
                    (Format::of(s).row_stride(s.dim("HIDDEN"), Packing::Blocks) / 16)
                        .div_ceil(c["WG"] as usize)
                },
            }],
            tunables: WORKGROUPS,
            refuses: |s, _| {
                (!Format::of(s).is_dense()).then(|| format!("{} has blocks", Format::of(s).name()))
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
                Format::of(s).fields(s.dim("HIDDEN"), packing)
            },
            tunables: WORKGROUPS,
            refuses: |s, _| {
                let n = s.dim("HIDDEN");
                if Format::of(s).is_dense() {
                    return Some(format!("{} has no blocks", Format::of(s).name()));
                }
                (n % 4 != 0).then(|| format!("HIDDEN={n} is no multiple of 4"))
            },
            ..PLAIN
        },
    ],
    prefer: |s| {
        if Format::of(s).is_dense() { &["vec4", "naive"] } else { &["quantised", "naive"] }
    },
    cost: |s| {
        let n = s.float("HIDDEN");
        Cost { bytes: Format::of(s).row_bytes(s.dim("HIDDEN")) as f64 + 4.0 * n, flops: n }
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
