//! What happens to the product of the QKV matrix before attention: norm of the heads, rotation of
//! queries and keys, keys and values into the cache.

use crate::descriptor::*;
use crate::layout::{KV_NAMES, STATE_WORDS};
use crate::shape::{Param, ParamKind, Shape};

fn shape(group: u32, kv_heads: u32, head_dim: u32, norm: u32, style: u32) -> Shape {
    Shape::new(&[
        ("GROUP", f64::from(group)),
        ("KV_HEADS", f64::from(kv_heads)),
        ("HEAD_DIM", f64::from(head_dim)),
        ("NORM", f64::from(norm)),
        ("STYLE", f64::from(style)),
        ("EPS", f64::from(1e-6f32)),
        ("BASE", 10_000.0),
        ("FACTORS", 0.0),
        ("CAPACITY", 512.0),
        ("KV", 0.0),
        ("SEEN", 129.0),
    ])
}

fn heads(s: &Shape) -> usize {
    s.dim("KV_HEADS") * (s.dim("GROUP") + 2)
}

fn cache_len(s: &Shape) -> usize {
    s.dim("KV_HEADS") * s.dim("CAPACITY") * s.dim("HEAD_DIM")
}

const A_HEAD: &[Stage] = &[Stage { entry: "main", grid: |s, _| heads(s) }];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "qkv_rope_append",
    summary: "per-head RMSNorm (optional) and rotary embedding of Q and K, K and V into the cache",
    params: &[
        Param {
            name: "GROUP",
            doc: "query heads per KV head",
            kind: ParamKind::Dim { tile: 2, max: 5 },
        },
        Param { name: "KV_HEADS", doc: "KV heads", kind: ParamKind::Dim { tile: 2, max: 5 } },
        Param {
            name: "HEAD_DIM",
            doc: "elements of a head",
            kind: ParamKind::OneOf(&[32, 64, 80, 96, 128, 256]),
        },
        Param {
            name: "NORM",
            doc: "norm each query and key head first",
            kind: ParamKind::Choice(&["none", "rms"]),
        },
        Param {
            name: "STYLE",
            doc: "pairs that turn together: (2i, 2i+1) or (i, i + HEAD_DIM/2)",
            kind: ParamKind::Choice(&["interleaved", "neox"]),
        },
        Param {
            name: "EPS",
            doc: "added to the mean square",
            kind: ParamKind::Float { low: 1e-6, high: 1e-3 },
        },
        Param {
            name: "BASE",
            doc: "base of the frequencies (in the rope table)",
            kind: ParamKind::Float { low: 1e4, high: 1e6 },
        },
        Param {
            name: "FACTORS",
            doc: "frequency divisors, Llama 3's rope_freqs (in the rope table)",
            kind: ParamKind::Choice(&["none", "llama3"]),
        },
        Param {
            name: "CAPACITY",
            doc: "slots of the cache; position modulo CAPACITY is written",
            kind: ParamKind::Dim { tile: 16, max: 60 },
        },
        Param { name: "KV", doc: "storage format of the cache", kind: ParamKind::Choice(KV_NAMES) },
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
            len: |s| heads(s) * s.dim("HEAD_DIM"),
        },
        Binding { name: "q_norm", role: Role::Input, elem: Elem::F32, len: |s| s.dim("HEAD_DIM") },
        Binding { name: "k_norm", role: Role::Input, elem: Elem::F32, len: |s| s.dim("HEAD_DIM") },
        Binding {
            name: "rope",
            role: Role::Input,
            elem: Elem::Rope,
            len: |s| s.dim("SEEN") * s.dim("HEAD_DIM"),
        },
        Binding {
            name: "q",
            role: Role::Output,
            elem: Elem::F32,
            len: |s| s.dim("KV_HEADS") * s.dim("GROUP") * s.dim("HEAD_DIM"),
        },
        Binding { name: "k_cache", role: Role::InOut, elem: Elem::Kv, len: cache_len },
        Binding { name: "v_cache", role: Role::InOut, elem: Elem::Kv, len: cache_len },
    ],
    variants: &[
        Variant { name: "naive", stages: A_HEAD, ..PLAIN },
        Variant {
            name: "workgroup",
            stages: A_HEAD,
            constants: |s, _| {
                vec![("WG", (s.dim("HEAD_DIM") / 4).next_power_of_two().max(4) as f64)]
            },
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: A_HEAD,
            constants: |s, caps| {
                // Whole subgroups: drivers disagree on how many a workgroup with a rest has.
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4)) as usize;
                vec![("WG", (s.dim("HEAD_DIM") / 4).next_multiple_of(size) as f64)]
            },
            ..PLAIN
        },
    ],
    prefer: |_| &["subgroup", "workgroup", "naive"],
    cost: |s| {
        let (kv_heads, d) = (s.float("KV_HEADS"), s.float("HEAD_DIM"));
        let (queries, stored) = (kv_heads * s.float("GROUP") * d, 2.0 * kv_heads * d);
        Cost {
            bytes: 8.0 * queries + stored * (4.0 + 4.0 / (1.0 + s.float("KV"))) + 12.0 * d,
            flops: 7.0 * (queries + stored / 2.0),
        }
    },
    tolerance: |s| Tolerance {
        k: 8.0 + s.float("HEAD_DIM").sqrt(),
        rounding: 0.0,
        nmse: 1e-11,
        reason: "as rms_norm, then two products with table entries rounded once; f16 caches add \
                 the rounding of their type, whose direction WGSL leaves open",
    },
    cases: || {
        let gemma = shape(4, 1, 256, 1, 1);
        let llama = shape(4, 8, 64, 0, 0);
        let qwen = shape(2, 8, 128, 1, 1).with("CAPACITY", 64.0);
        vec![
            gemma.clone().with("SEEN", 513.0), // the ring begins anew
            gemma.with("SEEN", 700.0).with("KV", 1.0),
            llama.clone().with("BASE", 500_000.0).with("FACTORS", 1.0).with("SEEN", 512.0),
            llama.with("KV", 1.0),
            qwen.clone().with("SEEN", 30_000.0),
            qwen.with("KV", 1.0).with("SEEN", 1.0),
            shape(1, 1, 32, 0, 1).with("CAPACITY", 1.0).with("SEEN", 7.0),
            shape(3, 2, 80, 1, 0).with("CAPACITY", 5.0).with("KV", 1.0).with("SEEN", 10.0),
        ]
    },
    bench: || {
        [shape(4, 1, 256, 1, 1), shape(4, 8, 64, 0, 0), shape(2, 8, 128, 1, 1)]
            .map(|s| s.with("KV", 1.0))
            .to_vec()
    },
};
