//! Writes the current token's K and V into the cache.

use crate::descriptor::*;
use crate::layout::{KV_NAMES, STATE_WORDS};
use crate::shape::{Param, ParamKind, Shape};

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

fn cache_len(s: &Shape) -> usize {
    s.dim("KV_HEADS") * s.dim("CAPACITY") * s.dim("HEAD_DIM")
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "kv_append",
    summary: "append K and V of the current token to a full or ring cache, f32 or f16",
    params: &[
        Param {
            name: "GROUP",
            doc: "query heads per KV head (they lie before K and V in qkv)",
            kind: ParamKind::Dim { tile: 2, max: 5 },
        },
        Param { name: "KV_HEADS", doc: "KV heads", kind: ParamKind::Dim { tile: 2, max: 5 } },
        Param {
            name: "HEAD_DIM",
            doc: "elements of a head",
            kind: ParamKind::OneOf(&[32, 64, 80, 96, 128, 256]),
        },
        Param {
            name: "CAPACITY",
            doc: "slots; position modulo CAPACITY is written",
            kind: ParamKind::Dim { tile: 16, max: 60 },
        },
        Param { name: "KV", doc: "storage format", kind: ParamKind::Choice(KV_NAMES) },
        Param {
            name: "SEEN",
            doc: "tokens seen, the current one included (tests only; decode keeps it on the GPU)",
            kind: ParamKind::Dim { tile: 16, max: 200 },
        },
    ],
    bindings: &[
        Binding { name: "state", role: Role::Input, elem: Elem::U32, len: |_| STATE_WORDS },
        Binding {
            name: "qkv",
            role: Role::Input,
            elem: Elem::F32,
            len: |s| s.dim("KV_HEADS") * (s.dim("GROUP") + 2) * s.dim("HEAD_DIM"),
        },
        Binding { name: "k_cache", role: Role::InOut, elem: Elem::Kv, len: cache_len },
        Binding { name: "v_cache", role: Role::InOut, elem: Elem::Kv, len: cache_len },
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
