//! Values in another storage format: what a KV cache or an engine's own activations need.

use crate::descriptor::*;
use crate::layout::FLOAT_NAMES;
use crate::shape::{Param, Shape};

const F32: u32 = 0;
const F16: u32 = 1;
const BF16: u32 = 2;

fn shape(n: usize, from: u32, to: u32) -> Shape {
    Shape::new(&[("N", n as f64), ("FROM", f64::from(from)), ("TO", f64::from(to))])
}

fn bytes(s: &Shape, param: &str) -> usize {
    if s.dim(param) == 0 { 4 } else { 2 }
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "cast",
    summary: "values between f32, f16 and bf16",
    params: &[
        Param::dim("N", "values", 64, 3000),
        Param::choice("FROM", "storage format of x", FLOAT_NAMES),
        Param::choice("TO", "storage format of y", FLOAT_NAMES),
    ],
    bindings: &[
        Binding::input("x", Elem::Floats("FROM"), |s| s.dim("N")),
        Binding::output("y", Elem::Floats("TO"), |s| s.dim("N")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("N").div_ceil(2 * c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| (s.dim("N") * bytes(s, "TO") / 16).div_ceil(c["WG"] as usize),
            }],
            tunables: &[("WG", &[64.0, 128.0, 256.0, 512.0])],
            refuses: |s, _| {
                let n = s.dim("N");
                (n % 8 != 0).then(|| format!("N={n} is no multiple of 8"))
            },
            ..PLAIN
        },
    ],
    prefer: |_| &["vec4", "naive"],
    cost: |s| {
        let n = s.float("N");
        Cost { bytes: n * (bytes(s, "FROM") + bytes(s, "TO")) as f64, flops: 0.0 }
    },
    tolerance: |_| Tolerance {
        k: 0.0,
        rounding: 0.0,
        nmse: 1e-14,
        reason: "f32 holds each value exactly and bf16 has one nearest; f16 adds the rounding of \
                 what stores it",
    },
    cases: || {
        let mut cases = Vec::new();
        for from in [F32, F16, BF16] {
            for to in [F32, F16, BF16] {
                cases.push(shape(1152, from, to));
                cases.push(shape(77, from, to));
            }
        }
        cases.push(shape(1, F32, BF16));
        // More workgroups than one grid dimension holds.
        cases.push(shape(128 * 65_536 + 8, F16, F32));
        cases
    },
    bench: || {
        // A KV cache of 8192 positions of Llama 3.2 1B, 16 layers of K.
        let n = 16 * 8192 * 512;
        vec![shape(n, F32, F16), shape(n, F16, F32), shape(n, F32, BF16), shape(n, BF16, F32)]
    },
};
