//! What happens to the product of the QKV matrix before attention: norm of the heads, rotation of
//! queries and keys, keys and values into the cache.

use crate::descriptor::*;
use crate::shape::{Param, Shape};
use crate::shared::*;

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

const A_HEAD: &[Stage] = &[Stage { entry: "main", grid: |s, _| heads(s) + 2 * s.dim("KV_HEADS") }];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "qkv_rope_append",
    summary: "per-head RMSNorm (optional) and rotary embedding of Q and K, K and V into the cache",
    params: &[
        GROUP,
        kv_heads(5),
        HEAD_DIM,
        QK_NORM,
        STYLE,
        EPS,
        BASE,
        FACTORS,
        Param::dim("CAPACITY", "slots of the cache; position modulo CAPACITY is written", 16, 60),
        KV,
        seen(16, 200),
    ],
    bindings: &[
        STATE,
        Binding::input("qkv", Elem::F32, qkv_len),
        Binding::input("q_norm", Elem::F32, |s| s.dim("HEAD_DIM")),
        Binding::input("k_norm", Elem::F32, |s| s.dim("HEAD_DIM")),
        ROPE,
        Binding::output("q", Elem::F32, |s| heads(s) * s.dim("HEAD_DIM")),
        Binding::in_out("k_cache", Elem::Kv, cache_len),
        Binding::in_out("v_cache", Elem::Kv, cache_len),
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
