//! Attention of one new token over the KV cache, grouped-query, full or sliding window.

use crate::attention::geometry::*;
use crate::attention::*;
use crate::codes::{FloatFormat, KvFormat};
use crate::descriptor::*;
use crate::len;
use crate::param::{dim, n_kv};
use crate::shared::*;

crate::params! {
    /// Parameters of `attention_decode`.
    pub struct AttentionDecode {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(4),
        head_dim: usize = HEAD_DIM,
        kv_size: usize = dim(
            "KV_SIZE",
            "slots of the cache; min(N_KV, KV_SIZE) of them are attended",
            256,
            700,
        ),
        kv_format: KvFormat = KV_FORMAT,
        act_format: FloatFormat = ACT_FORMAT_OUT,
        scale: f32 = SCALE,
    }
}

has_cache!(AttentionDecode);

/// Over an f16 cache of `kv_size` slots, with f32 output.
fn over(kv_size: usize, layer: Layer) -> AttentionDecode {
    let Layer { q_per_kv, kv_heads, head_dim, .. } = layer;
    AttentionDecode {
        q_per_kv,
        kv_heads,
        head_dim,
        kv_size,
        kv_format: KvFormat::F16,
        act_format: FloatFormat::F32,
        scale: layer.scale(),
    }
}

/// Heads are taken in fours, at most `most` elements of them.
fn no_fours(p: &AttentionDecode, most: usize) -> Option<String> {
    no_multiple("HEAD_DIM", p.head_dim, 4).or_else(|| exceeds("HEAD_DIM", p.head_dim, most))
}

const LARGE_TILES: u32 = 32 << 10;

/// A workgroup a query head.
const A_HEAD: &[Stage<AttentionDecode>] = &[Stage { entry: "main", grid: |p, _| p.q_heads() }];

/// The declaration.
pub static OPERATION: Declaration<AttentionDecode> = Declaration {
    name: "attention_decode",
    summary: "attention of one token over a full or ring KV cache, grouped queries",
    fuses: None,
    state: &[n_kv(256, 900)],
    bindings: &[
        state(),
        Binding::<AttentionDecode>::input("q", f32s, len!(p => p.q_heads() * p.head_dim))
            .drawn(|p| Draw::Queries { of: p.head_dim, row: p.head_dim }),
        read_cache("k_cache"),
        read_cache("v_cache"),
        scores(),
        tops(),
        partials(),
        Binding::counter("counters", len!(p => p.kv_heads)),
        Binding::output(
            "y",
            |p, _| Elem::Floats(p.act_format),
            len!(p => p.q_heads() * p.head_dim),
        ),
    ],
    variants: &[
        Variant::sized(
            "naive",
            &[
                Stage { entry: "score", grid: |p, c| groups_for(p.q_heads() * p.kv_size, c) },
                Stage {
                    entry: "weigh_values",
                    grid: |p, c| groups_for(p.q_elements().div_ceil(2), c),
                },
            ],
        ),
        Variant {
            name: "streaming",
            stages: A_HEAD,
            tunables: &[("WG", &[64.0, 128.0, 256.0])],
            unsupported: |p, _| no_fours(p, 1024),
            ..Variant::PLAIN
        },
        Variant {
            name: "tiled_small",
            stages: A_HEAD,
            constants: |p, _| tiled_constants(p, 1, 64, 32, 12 << 10),
            tunables: &[("TILE", &[4.0, 8.0, 16.0, 32.0])],
            unsupported: |p, _| ragged(p),
            ..Variant::PLAIN
        },
        Variant {
            name: "tiled_large",
            stages: &[Stage { entry: "main", grid: |p, _| p.kv_heads }],
            constants: |p, caps| {
                let room = (caps.workgroup_memory as usize).min(48 << 10);
                tiled_constants(p, p.q_per_kv, 256, 128, room)
            },
            tunables: &[("TILE", &[16.0, 32.0, 64.0])],
            unsupported: |p, caps| {
                ragged(p).or_else(|| {
                    let has = caps.workgroup_memory;
                    (has < LARGE_TILES).then(|| {
                        format!(
                            "needs {LARGE_TILES} bytes of workgroup memory, the adapter has {has}"
                        )
                    })
                })
            },
            ..Variant::PLAIN
        },
        Variant {
            name: "online",
            stages: A_HEAD,
            tunables: &[("WG", &[64.0, 128.0, 256.0])],
            unsupported: |p, _| no_fours(p, 1024),
            ..Variant::PLAIN
        },
        Variant {
            name: "online_subgroup",
            stages: A_HEAD,
            constants: |p, caps| {
                let size = caps.subgroup.map_or(32, |(min, _)| min.max(4));
                // As many subgroups as workgroup memory holds accumulators for.
                let slot = 4 * p.head_dim as u32 + 8;
                let most = (caps.workgroup_memory / slot).min(caps.invocations / size).max(1);
                let subgroups = 1u32 << most.min(32).ilog2();
                vec![
                    ("WG", f64::from(subgroups * size)),
                    ("SG_MIN", f64::from(size)),
                    ("SUBGROUPS", f64::from(subgroups)),
                ]
            },
            unsupported: |p, _| no_fours(p, 256),
            ..Variant::PLAIN
        },
        Variant {
            name: "split_kv_workgroup",
            stages: &split_stages(),
            constants: |p, caps| workgroup_constants(p, caps, 0, 0),
            tunables: SPLIT_WORKGROUP_TUNABLES,
            unsupported: |p, _| ragged(p).or_else(|| too_many_heads(p)),
            ..Variant::PLAIN
        },
        Variant {
            name: "split_kv",
            stages: &split_stages(),
            constants: |p, caps| two_stages(split_constants(p, caps, 0, 0)),
            phase: |p, caps, grid| split_phase(p, caps, grid, 0, false),
            tunables: SPLIT_TUNABLES,
            unsupported: split_unsupported,
            ..Variant::PLAIN
        },
        Variant {
            name: "split_kv_last",
            stages: &[Stage { entry: "attend", grid: split_grid }],
            constants: |p, caps| {
                // One workgroup reads the results of all splits of a KV head.
                let most = ((128 << 10) / (p.q_per_kv * 4 * p.head_dim)).max(8);
                let mut constants = split_constants(p, caps, 24, 0);
                for (_, splits) in constants.iter_mut().filter(|c| c.0 == "SPLITS") {
                    *splits = splits.min(most as f64);
                }
                constants
            },
            tunables: SPLIT_TUNABLES,
            unsupported: split_unsupported,
            ..Variant::PLAIN
        },
    ],
    prefer: |p| {
        // Below, the second dispatch costs more than the one workgroup a head that it saves.
        if p.kv_size <= 128 {
            &["online_subgroup", "split_kv", "online", "streaming", "naive"]
        } else {
            &["split_kv", "online_subgroup", "split_kv_workgroup", "online", "streaming", "naive"]
        }
    },
    cost: |p, s| {
        let slots = p.slots(s.n_kv);
        let cache = 2 * slots * p.kv_heads * p.vector_bytes();
        let query = p.q_elements();
        Cost {
            bytes: (cache + (4 + p.act_format.bytes()) * query) as f64,
            flops: (4 * slots * query) as f64,
        }
    },
    tolerance: |p, s| Tolerance {
        k: 16.0 + (p.head_dim as f64).sqrt() + (s.n_kv as f64).sqrt(),
        rounding: 0.0,
        nmse: 1e-9,
        reason: "score errors act through exp on every weight (in the reference's magnitude); sums \
                 over head_dim and slots behave as random walks",
    },
    cases: || {
        // Every variant compiles anew for every shape: few shapes, each for several reasons.
        let case = |p: AttentionDecode, n_kv| Case::from(p).n_kv(n_kv);
        let f32_cache = |p| AttentionDecode { kv_format: KvFormat::F32, ..p };
        let q8_cache = |p| AttentionDecode { kv_format: KvFormat::Q8_0, ..p };
        let f16_output = |p| AttentionDecode { act_format: FloatFormat::F16, ..p };
        let heads = |q_per_kv, head_dim| Layer { q_per_kv, kv_heads: 1, head_dim, ..GEMMA };
        vec![
            case(over(512, GEMMA), 700), // local layer, ring wrapped
            case(f32_cache(f16_output(over(1024, GEMMA))), 300), // global layer
            case(f16_output(over(300, LLAMA)), 257),
            case(f32_cache(over(130, QWEN)), 129),
            case(over(130, QWEN), 130),
            case(over(1, heads(1, 32)), 1),
            case(f32_cache(over(16, heads(2, 32))), 17),
            case(over(40, heads(8, 64)), 40),
            case(over(100, THREE_OF_80), 70), // thread groups with idle lanes
            case(q8_cache(over(512, GEMMA)), 700),
            case(q8_cache(f16_output(over(300, LLAMA))), 257),
            case(q8_cache(over(130, QWEN)), 130),
            case(q8_cache(over(16, heads(2, 32))), 17),
            case(q8_cache(over(100, THREE_OF_80)), 70),
            // Two chunks a lane.
            case(q8_cache(over(2100, THREE_OF_80)), 2060),
            case(q8_cache(over(4096, heads(4, 64))), 3001),
            // Several rounds of every thread group, the last one ragged.
            case(over(9000, heads(1, 64)), 8771),
        ]
    },
    bench: || full_caches(over),
};
