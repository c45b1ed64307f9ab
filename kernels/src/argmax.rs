//! Greedy choice of the next token, and the end of a step.

use crate::descriptor::*;
use crate::layout::STATE_WORDS;
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(n: usize, seen: usize, given: usize) -> Shape {
    Shape::new(&[("N", n as f64), ("SEEN", seen as f64), ("GIVEN", given as f64)])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "argmax",
    summary: "greedy choice (lower index wins ties), next token and position",
    params: &[Param::dim("N", "logits", 256, 70_000), seen(4, 9), GIVEN],
    bindings: &[
        Binding::input("logits", Elem::F32, |s| s.dim("N")),
        Binding::in_out("tokens", Elem::U32, |s| s.dim("SEEN") + 1),
        Binding::in_out("state", Elem::U32, |_| STATE_WORDS),
        Binding::scratch("partial_values", Elem::F32, |_| 64),
        Binding::scratch("partial_indices", Elem::U32, |_| 64),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage { entry: "main", grid: |_, _| 1 }],
            tunables: &[],
            ..PLAIN
        },
        Variant {
            name: "workgroup",
            stages: &[Stage { entry: "main", grid: |_, _| 1 }],
            tunables: &[("WG", &[128.0, 256.0, 512.0, 1024.0])],
            ..PLAIN
        },
        Variant {
            name: "two_pass",
            stages: &[
                Stage { entry: "slices", grid: |_, c| c["PARTS"] as usize },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            tunables: &[("WG", &[128.0, 256.0, 512.0]), ("PARTS", &[16.0, 32.0, 64.0])],
            ..PLAIN
        },
    ],
    prefer: |s| {
        if s.dim("N") >= 8192 {
            &["two_pass", "workgroup", "naive"]
        } else {
            &["workgroup", "naive"]
        }
    },
    cost: |s| Cost { bytes: 4.0 * s.float("N"), flops: 0.0 },
    tolerance: |_| Tolerance { k: 0.0, rounding: 0.0, nmse: 0.0, reason: "the index is exact" },
    cases: || {
        // Tails of a vocabulary: a tile times n plus 3.
        [1, 2, 255, 256, 257, 64 * 256 + 3, 128_256, 262_147]
            .into_iter()
            .flat_map(|n| [shape(n, 3, 1), shape(n, 2, 5)])
            .collect()
    },
    // All tokens given: repeated runs advance the position and must not write past `tokens`.
    bench: || [262_144, 128_256, 151_936].map(|n| shape(n, 1, u32::MAX as usize)).to_vec(),
};
