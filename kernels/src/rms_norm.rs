//! Root-mean-square normalisation (Zhang and Sennrich, arXiv 1910.07467), standard and Gemma.

use crate::descriptor::*;
use crate::layout::act_bytes;
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(rows: usize, n: usize, eps: f32, offset: u32, acts: u32) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("N", n as f64),
        ("EPS", f64::from(eps)),
        ("OFFSET", f64::from(offset)),
        ("ACTS", f64::from(acts)),
    ])
}

const WIDTHS: &[(&str, &[f64])] = &[("WG", &[64.0, 128.0, 256.0, 512.0, 1024.0])];

const fn variant(
    name: &'static str,
    tunables: &'static [(&'static str, &'static [f64])],
) -> Variant {
    Variant {
        name,
        stages: &[Stage { entry: "main", grid: |s, _| s.dim("ROWS") }],
        tunables,
        refuses: too_many_or_odd,
        ..PLAIN
    }
}

fn too_many(s: &Shape, caps: &Capabilities) -> Option<String> {
    let (rows, most) = (s.dim("ROWS"), caps.grid_dimension as usize);
    (rows > most).then(|| format!("ROWS={rows} exceeds {most} workgroups"))
}

fn too_many_or_odd(s: &Shape, caps: &Capabilities) -> Option<String> {
    let (rows, n) = (s.dim("ROWS"), s.dim("N"));
    too_many(s, caps).or_else(|| {
        // Two workgroups would write one word.
        (rows > 1 && n % 2 == 1 && s.dim("ACTS") == 1)
            .then(|| format!("N={n} is odd: with f16 activations rows would share words"))
    })
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "rms_norm",
    summary: "RMSNorm of each row, standard (w) or Gemma (1 + w)",
    params: &[
        Param::dim("ROWS", "rows normalised on their own; 1 in decode", 2, 5),
        Param::dim("N", "elements of a row", 256, 3000),
        EPS,
        OFFSET,
        ACTS_OUT,
    ],
    bindings: &[
        Binding::input("x", Elem::F32, |s| s.dim("ROWS") * s.dim("N")),
        Binding::input("weight", Elem::F32, |s| s.dim("N")),
        Binding::output("y", Elem::Act, |s| s.dim("ROWS") * s.dim("N")),
    ],
    variants: &[
        Variant { name: "naive", stages: &[Stage { entry: "main", grid: |_, _| 1 }], ..PLAIN },
        variant("workgroup", WIDTHS),
        variant("subgroup", WIDTHS),
        Variant {
            constants: |s, caps| {
                // An invocation for every four elements, in whole subgroups of any size.
                let most = caps.invocations.min(512) as usize / 64 * 64;
                let width = (s.dim("N") / 4).next_multiple_of(64).clamp(64, most.max(64));
                vec![("WG", width as f64)]
            },
            refuses: |s, caps| {
                let n = s.dim("N");
                if n % 4 != 0 {
                    return Some(format!("N={n} is no multiple of 4"));
                }
                too_many(s, caps)
            },
            ..variant("subgroup_vec4", WIDTHS)
        },
    ],
    prefer: |_| &["subgroup_vec4", "subgroup", "workgroup", "naive"],
    cost: |s| {
        let (rows, n) = (s.float("ROWS"), s.float("N"));
        Cost { bytes: (4.0 + act_bytes(s)) * rows * n + 4.0 * n, flops: 4.0 * rows * n }
    },
    tolerance: |s| Tolerance {
        k: 8.0 + s.float("N").sqrt(),
        rounding: 0.0,
        nmse: 1e-11,
        reason: "the sum of N squares (no cancellation) and an inverseSqrt of 2 ULP scale the row",
    },
    cases: || {
        let mut cases = Vec::new();
        for offset in [0, 1] {
            for (n, eps) in [(1, 1e-6), (1152, 1e-6), (2048, 1e-5), (255, 1e-5), (6912, 1e-6)] {
                cases.push(shape(1, n, eps, offset, offset));
            }
            cases.push(shape(8, 128, 1e-6, offset, 1 - offset));
        }
        cases
    },
    bench: || vec![shape(1, 1152, 1e-6, 0, 0), shape(1, 2048, 1e-5, 0, 0)],
};
