//! Writes the current token's K and V into the cache.

use crate::descriptor::*;
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(group: u32, kv_heads: u32, head_dim: u32, capacity: u32, kv: u32, seen: u32) -> Shape {
    Shape::new(&[
        ("GROUP", f64::from(group)),
        ("KV_HEADS", f64::from(kv_heads)),
        ("HEAD_DIM", f64::from(head_dim)),
        ("CAPACITY", f64::from(capacity)),
        ("KV", f64::from(kv)),
        ("SEEN", f64::from(seen)),
    ])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "kv_append",
    summary: "append K and V of the current token to a full or ring cache, f32 or f16",
    params: &[
        GROUP,
        kv_heads(5),
        HEAD_DIM,
        Param::dim("CAPACITY", "slots; position modulo CAPACITY is written", 16, 60),
        KV,
        seen(16, 200),
    ],
    bindings: &[
        STATE,
        Binding::input("qkv", Elem::F32, qkv_len),
        Binding::in_out("k_cache", Elem::Kv, cache_len),
        Binding::in_out("v_cache", Elem::Kv, cache_len),
    ],
    variants: &[Variant {
        name: "naive",
        stages: &[Stage {
            entry: "main",
            grid: |s, c| {
                let words = s.dim("KV_HEADS") * s.dim("HEAD_DIM") / (1 + s.dim("KV"));
                words.div_ceil(c["WG"] as usize)
            },
        }],
        tunables: WORKGROUPS,
        ..PLAIN
    }],
    prefer: |_| &["naive"],
    cost: |s| {
        let values = 2.0 * s.float("KV_HEADS") * s.float("HEAD_DIM");
        Cost { bytes: values * (4.0 + 4.0 / (1.0 + s.float("KV"))), flops: 0.0 }
    },
    tolerance: |s| Tolerance {
        k: 0.0,
        rounding: if s.dim("KV") == 1 { 1.0 / 1024.0 } else { 0.0 },
        nmse: if s.dim("KV") == 1 { 1e-6 } else { 0.0 },
        reason: "f32 is copied; WGSL leaves the direction of f32 to f16 rounding open: one f16 ULP",
    },
    cases: || {
        let mut cases = Vec::new();
        for kv in [0, 1] {
            cases.push(shape(4, 1, 256, 512, kv, 513));
            cases.push(shape(4, 8, 64, 100, kv, 100));
            cases.push(shape(2, 8, 128, 64, kv, 1));
            cases.push(shape(1, 1, 32, 1, kv, 7));
        }
        cases
    },
    bench: || vec![shape(4, 1, 256, 512, 1, 128), shape(2, 8, 128, 4096, 1, 128)],
};
