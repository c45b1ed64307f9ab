//! A token from the product of its QKV matrix to its mixed values: heads normed and turned, key and value
//! appended, attention over the cache.

use crate::attention_decode::{
    SPLIT_STAGES, SPLITS, most_splits, ragged, row_bytes, split_constants, split_refuses,
    too_many_heads, two_stages, workgroup_constants,
};
use crate::descriptor::*;
use crate::layout::act_bytes;
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
        ("KV", 1.0),
        ("ACTS", 0.0),
        ("SCALE", f64::from(1.0 / (head_dim as f32).sqrt())),
        ("SEEN", 129.0),
    ])
}

/// Bytes of workgroup memory for the new token's heads.
fn fresh_bytes(s: &Shape) -> usize {
    (s.dim("GROUP") + 2) * s.dim("HEAD_DIM") * 4
}

/// What fresh_subgroup.wgsl holds of a head in arrays of fixed length.
fn too_long(s: &Shape, caps: &Capabilities) -> Option<String> {
    let size = caps.subgroup.map_or(32, |(smallest, _)| smallest.max(4)) as usize;
    let quads = s.dim("HEAD_DIM").div_ceil(4 * size);
    (quads > 16).then(|| format!("a lane would hold {quads} fours of a head, 16 at most"))
}

/// Turned pairs are taken two by two.
fn odd_pairs(s: &Shape) -> Option<String> {
    let d = s.dim("HEAD_DIM");
    (!d.is_multiple_of(4)).then(|| format!("HEAD_DIM={d} is no multiple of 4"))
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "attention_append",
    summary: "qkv_rope_append and attention_decode in one: from the QKV product to mixed values",
    params: &[
        GROUP,
        kv_heads(4),
        HEAD_DIM,
        QK_NORM,
        STYLE,
        EPS,
        BASE,
        FACTORS,
        Param::dim(
            "CAPACITY",
            "slots of the cache; position modulo CAPACITY is written, min(SEEN, CAPACITY) are \
                  attended",
            256,
            700,
        ),
        KV,
        ACTS_OUT,
        SCALE,
        seen(256, 900),
    ],
    bindings: &[
        STATE,
        Binding::input("qkv", Elem::F32, qkv_len),
        Binding::input("qk_norm", Elem::F32, |s| 2 * s.dim("HEAD_DIM")),
        ROPE,
        Binding::in_out("k_cache", Elem::Kv, cache_len),
        Binding::in_out("v_cache", Elem::Kv, cache_len),
        Binding::scratch("q", Elem::F32, |s| heads(s) * s.dim("HEAD_DIM")),
        Binding::scratch("scores", Elem::F32, |s| heads(s) * s.dim("CAPACITY")),
        Binding::scratch("tops", Elem::F32, |s| 2 * heads(s) * most_splits(s)),
        Binding::scratch("partials", Elem::F32, |s| heads(s) * most_splits(s) * s.dim("HEAD_DIM")),
        Binding::output("y", Elem::Act, |s| heads(s) * s.dim("HEAD_DIM")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[
                Stage { entry: "append", grid: |s, _| heads(s) + 2 * s.dim("KV_HEADS") },
                Stage {
                    entry: "score",
                    grid: |s, c| (heads(s) * s.dim("CAPACITY")).div_ceil(c["WG"] as usize),
                },
                Stage {
                    entry: "mix",
                    grid: |s, c| (heads(s) * s.dim("HEAD_DIM")).div_ceil(2 * c["WG"] as usize),
                },
            ],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "split_kv_workgroup",
            stages: SPLIT_STAGES,
            // Its sums take a word an invocation.
            constants: |s, caps| workgroup_constants(s, caps, 4, fresh_bytes(s)),
            tunables: &[("SPLITS", SPLITS), ("IN_FLIGHT", &[1.0, 2.0, 4.0])],
            refuses: |s, _| ragged(s).or_else(|| odd_pairs(s)).or_else(|| too_many_heads(s)),
            ..PLAIN
        },
        Variant {
            name: "split_kv",
            stages: SPLIT_STAGES,
            constants: |s, caps| two_stages(split_constants(s, caps, 0, fresh_bytes(s))),
            tunables: &[
                ("SPLITS", SPLITS),
                ("WG", &[128.0, 256.0, 512.0]),
                ("IN_FLIGHT", &[2.0, 4.0, 8.0]),
            ],
            refuses: |s, caps| {
                odd_pairs(s).or_else(|| too_long(s, caps)).or_else(|| split_refuses(s, caps))
            },
            ..PLAIN
        },
    ],
    prefer: |_| &["split_kv", "split_kv_workgroup", "naive"],
    cost: |s| {
        let slots = s.float("SEEN").min(s.float("CAPACITY"));
        let (kv_heads, d) = (s.float("KV_HEADS"), s.float("HEAD_DIM"));
        let (query, row) = (kv_heads * s.float("GROUP") * d, kv_heads * row_bytes(s) as f64);
        // The new token's row is written and not read.
        Cost {
            bytes: 2.0 * slots * row
                + 4.0 * (query + 2.0 * kv_heads * d)
                + act_bytes(s) * query
                + 12.0 * d,
            flops: 4.0 * slots * query + 7.0 * (query + kv_heads * d),
        }
    },
    tolerance: |s| Tolerance {
        k: 24.0 + 3.0 * s.float("HEAD_DIM").sqrt() + s.float("SEEN").sqrt(),
        rounding: 0.0,
        // A step of f16 in the new key and value, whose direction WGSL leaves open.
        nmse: if s.dim("KV") == 1 { 1e-6 } else { 1e-9 },
        reason: "as attention_decode over queries and a key off as qkv_rope_append's, whose magnitudes \
                 are in the scores'; what rounding the new key and value to f16 may move is in \
                 the reference's magnitude",
    },
    cases: || {
        // Every variant compiles anew for every shape: few shapes, each for several reasons.
        let at = |s: Shape, capacity: u32, seen: u32| {
            s.with("CAPACITY", f64::from(capacity)).with("SEEN", f64::from(seen))
        };
        let f32s = |s: Shape| s.with("KV", 0.0);
        let f16 = |s: Shape| s.with("ACTS", 1.0);
        let gemma = shape(4, 1, 256, 1, 1);
        let llama = shape(4, 8, 64, 0, 0);
        let qwen = shape(2, 8, 128, 1, 1);
        vec![
            at(gemma.clone(), 512, 700), // local layer, ring wrapped
            at(f32s(f16(gemma)), 1024, 300),
            f16(at(llama.clone(), 300, 257)).with("BASE", 500_000.0).with("FACTORS", 1.0),
            at(f32s(llama), 40, 1),
            at(f32s(qwen.clone()), 130, 129),
            at(qwen, 130, 131),
            at(f32s(shape(1, 1, 32, 0, 1)), 1, 7),
            at(shape(2, 1, 32, 1, 0), 16, 17),
            at(shape(3, 2, 80, 1, 0), 100, 70), // teams with idle lanes
            at(f32s(shape(8, 1, 64, 1, 1)), 40, 40),
            // Several rounds of every team, the last one ragged.
            at(f32s(shape(1, 1, 64, 0, 1)), 9000, 8771),
        ]
    },
    bench: || {
        let mut shapes = Vec::new();
        for context in [512.0, 8192.0, 32_768.0] {
            for s in [shape(4, 1, 256, 1, 1), shape(4, 8, 64, 0, 0), shape(2, 8, 128, 1, 1)] {
                shapes.push(s.with("CAPACITY", context).with("SEEN", context));
            }
        }
        shapes
    },
};
