//! Attention of one new token over the KV cache, grouped-query, full or sliding window.

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
        ("SCALE", f64::from(1.0 / (head_dim as f32).sqrt())),
        ("SEEN", f64::from(seen)),
    ])
}

fn heads(s: &Shape) -> usize {
    s.dim("KV_HEADS") * s.dim("GROUP")
}

fn cache_len(s: &Shape) -> usize {
    s.dim("KV_HEADS") * s.dim("CAPACITY") * s.dim("HEAD_DIM")
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "attention_decode",
    summary: "attention of one token over a full or ring KV cache, grouped queries, f32 or f16",
    params: &[
        Param {
            name: "GROUP",
            doc: "query heads per KV head",
            kind: ParamKind::Dim { tile: 2, max: 5 },
        },
        Param { name: "KV_HEADS", doc: "KV heads", kind: ParamKind::Dim { tile: 2, max: 4 } },
        Param {
            name: "HEAD_DIM",
            doc: "elements of a head",
            kind: ParamKind::OneOf(&[32, 64, 80, 96, 128, 256]),
        },
        Param {
            name: "CAPACITY",
            doc: "slots of the cache; min(SEEN, CAPACITY) of them are attended",
            kind: ParamKind::Dim { tile: 256, max: 700 },
        },
        Param { name: "KV", doc: "storage format of the cache", kind: ParamKind::Choice(KV_NAMES) },
        Param {
            name: "SCALE",
            doc: "factor on the scores, usually HEAD_DIM^-1/2",
            kind: ParamKind::Float { low: 0.05, high: 0.3 },
        },
        Param {
            name: "SEEN",
            doc: "tokens seen, the current one included (tests only; decode keeps it on the GPU)",
            kind: ParamKind::Dim { tile: 256, max: 900 },
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
        Binding { name: "k_cache", role: Role::Input, elem: Elem::Kv, len: cache_len },
        Binding { name: "v_cache", role: Role::Input, elem: Elem::Kv, len: cache_len },
        Binding {
            name: "scores",
            role: Role::Scratch,
            elem: Elem::F32,
            len: |s| heads(s) * s.dim("CAPACITY"),
        },
        Binding {
            name: "out",
            role: Role::Output,
            elem: Elem::F32,
            len: |s| heads(s) * s.dim("HEAD_DIM"),
        },
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[
                Stage {
                    entry: "score",
                    grid: |s, c| (heads(s) * s.dim("CAPACITY")).div_ceil(c["WG"] as usize),
                },
                Stage {
                    entry: "mix",
                    grid: |s, c| (heads(s) * s.dim("HEAD_DIM")).div_ceil(c["WG"] as usize),
                },
            ],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "online",
            stages: &[Stage { entry: "main", grid: |s, _| heads(s) }],
            tunables: &[("WG", &[64.0, 128.0, 256.0])],
            ..PLAIN
        },
        Variant {
            name: "online_subgroup",
            stages: &[Stage { entry: "main", grid: |s, _| heads(s) }],
            constants: |s, caps| {
                let size = caps.subgroup.map_or(32, |(min, _)| min.max(4));
                // As many subgroups as workgroup memory holds accumulators for.
                let slot = 4 * s.dim("HEAD_DIM") as u32 + 8;
                let most = (caps.workgroup_memory / slot).min(caps.invocations / size).max(1);
                let subgroups = 1u32 << most.min(32).ilog2();
                vec![
                    ("WG", f64::from(subgroups * size)),
                    ("SG_MIN", f64::from(size)),
                    ("SUBGROUPS", f64::from(subgroups)),
                ]
            },
            tunables: &[],
            refuses: |s, _| {
                (s.dim("HEAD_DIM") > 256)
                    .then(|| format!("HEAD_DIM={} exceeds 256", s.dim("HEAD_DIM")))
            },
            ..PLAIN
        },
    ],
    prefer: |_| &["online_subgroup", "online", "naive"],
    cost: |s| {
        let slots = s.float("SEEN").min(s.float("CAPACITY"));
        let cache = 2.0 * slots * s.float("KV_HEADS") * s.float("HEAD_DIM");
        let query = s.float("KV_HEADS") * s.float("GROUP") * s.float("HEAD_DIM");
        Cost {
            bytes: cache * 4.0 / (1.0 + s.float("KV")) + 8.0 * query,
            flops: 4.0 * slots * query,
        }
    },
    tolerance: |s| Tolerance {
        k: 16.0 + s.float("HEAD_DIM").sqrt() + s.float("SEEN").sqrt(),
        rounding: 0.0,
        nmse: 1e-9,
        reason: "score errors act through exp on every weight (in the reference's magnitude); sums \
                 over head_dim and slots behave as random walks",
    },
    cases: || {
        let mut cases = Vec::new();
        for kv in [0, 1] {
            cases.push(shape(4, 1, 256, 512, kv, 700)); // Gemma, local layer, ring wrapped
            cases.push(shape(4, 1, 256, 1024, kv, 300)); // Gemma, global layer
            cases.push(shape(4, 8, 64, 300, kv, 257)); // Llama
            cases.push(shape(2, 8, 128, 130, kv, 129)); // Qwen
            cases.push(shape(1, 1, 32, 1, kv, 1));
            cases.push(shape(2, 1, 32, 16, kv, 17));
        }
        cases
    },
    bench: || {
        vec![
            shape(4, 1, 256, 512, 1, 512),
            shape(4, 8, 64, 8192, 1, 8192),
            shape(2, 8, 128, 8192, 1, 8192),
        ]
    },
};
