//! A branch into the residual stream and the stream's norm for the next matrix, in one dispatch.

use crate::descriptor::*;
use crate::layout::act_bytes;
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(n: usize, eps: f32, post: u32, acts: u32) -> Shape {
    Shape::new(&[
        ("N", n as f64),
        ("EPS", f64::from(eps)),
        ("OFFSET", 0.0),
        ("POST", f64::from(post)),
        ("ACTS", f64::from(acts)),
    ])
}

fn n(s: &Shape) -> usize {
    s.dim("N")
}

/// Parameter `POST`.
pub(crate) const POST: Param = Param::choice(
    "POST",
    "norm the branch before it is added (Gemma); post_weight is read only then",
    &["none", "rms"],
);

const ONE: &[Stage] = &[Stage { entry: "main", grid: |_, _| 1 }];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "residual_rms_norm",
    summary: "x += delta or rms_norm(delta), then y = rms_norm(x), in one workgroup",
    params: &[
        Param::dim("N", "elements of every vector", 256, 5000),
        Param::float("EPS", "added to the mean squares", 1e-6, 1e-2),
        OFFSET,
        POST,
        ACTS_OUT,
    ],
    bindings: &[
        Binding::in_out("x", Elem::F32, n),
        Binding::input("delta", Elem::F32, n),
        Binding::input("post_weight", Elem::F32, n),
        Binding::input("next_weight", Elem::F32, n),
        Binding::output("y", Elem::Act, n),
    ],
    variants: &[
        Variant { name: "naive", stages: ONE, ..PLAIN },
        Variant {
            name: "workgroup",
            stages: ONE,
            tunables: &[("WG", &[64.0, 128.0, 256.0, 512.0, 1024.0])],
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: ONE,
            constants: |s, caps| {
                // As many invocations as there are fours of elements, in whole subgroups.
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4)) as usize;
                let most = (caps.invocations.min(512) as usize / size).max(1) * size;
                let fours = (n(s) / 4).max(1);
                let each = fours.div_ceil(most);
                let wide = fours.div_ceil(each).next_multiple_of(size);
                vec![("WG", wide as f64)]
            },
            tunables: &[("WG", &[128.0, 256.0, 288.0, 512.0, 1024.0])],
            refuses: |s, _| {
                (!n(s).is_multiple_of(4)).then(|| format!("N={} is no multiple of 4", n(s)))
            },
            ..PLAIN
        },
    ],
    prefer: |_| &["subgroup", "workgroup", "naive"],
    cost: |s| {
        let read = 16.0 + 4.0 * s.float("POST");
        Cost {
            bytes: (read + act_bytes(s)) * s.float("N"),
            flops: (5.0 + 4.0 * s.float("POST")) * s.float("N"),
        }
    },
    tolerance: |s| Tolerance {
        k: 8.0 + s.float("N").sqrt(),
        rounding: 0.0,
        // Few elements may cancel in x + branch, and NMSE then divides by next to nothing.
        nmse: if n(s) < 8 { 9e-6 } else { 1e-11 },
        reason: "two norms as in rms_norm and a rounded sum between them; how far an error of the \
                 branch reaches y is in the reference's magnitude",
    },
    cases: || {
        let mut cases = Vec::new();
        for post in [0, 1] {
            for (n, eps) in [(1, 1e-6), (3, 1e-2), (1152, 1e-6), (2048, 1e-5), (2051, 1e-6)] {
                cases.push(shape(n, eps, post, (n as u32 + post) % 2));
            }
            // Longer than what a workgroup of 256 or 512 keeps in registers.
            cases.push(shape(8200, 1e-6, post, 1).with("OFFSET", 1.0));
        }
        cases
    },
    bench: || vec![shape(1152, 1e-6, 1, 0), shape(2048, 1e-5, 0, 0)],
};
