//! Attention of one new token over the KV cache, grouped-query, full or sliding window.

use crate::attention::geometry::*;
use crate::attention::*;
use crate::declare::*;

crate::params! {
    /// Parameters of `attention_decode`.
    pub struct AttentionDecode {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(4),
        head_dim: usize = HEAD_DIM,
        kv_size: usize =
            dim("KV_SIZE", "slots of the cache; min(N_KV, KV_SIZE) of them are attended", 256, 700),
        kv_format: KvFormat = KV_FORMAT,
        act_format: FloatFormat = ACT_FORMAT_OUT,
        scale: f32 = SCALE,
    }
}

has_cache!(AttentionDecode);

/// Heads are taken in fours, at most `most` elements of them.
fn no_fours(p: &AttentionDecode, most: usize) -> Option<String> {
    no_multiple("HEAD_DIM", p.head_dim, 4).or_else(|| exceeds("HEAD_DIM", p.head_dim, most))
}

/// Vectors of slots that hold no token yet.
fn unfilled(p: &AttentionDecode, s: State) -> Vec<usize> {
    p.vectors_in(p.slots(s.n_kv)..p.kv_size)
}

const LARGE_TILES: u32 = 32 << 10;

/// A workgroup a query head.
const A_HEAD: &[Stage<AttentionDecode>] = &[Stage::main(&|p, _| p.q_heads())];

/// The declaration.
pub static OPERATION: Declaration<AttentionDecode> = Declaration {
    name: "attention_decode",
    summary: "attention of one token over a full or ring KV cache, grouped queries",
    fuses: None,
    state: &[n_kv(256, 900)],
    bindings: &[
        state(),
        spreads(
            Binding::<AttentionDecode>::input("q", &f32s, len!(p => p.q_heads() * p.head_dim))
                .drawn(&|p| Draw::Queries { of: p.head_dim, row: p.head_dim }),
        ),
        spreads(read_cache("k_cache").never_reads(&unfilled)),
        spreads(read_cache("v_cache").never_reads(&unfilled)),
        scores(),
        tops(),
        partials(),
        Binding::counter("counters", len!(p => p.kv_heads)),
        Binding::output("y", floats!(act_format), len!(p => p.q_heads() * p.head_dim)),
    ],
    variants: &[
        Variant::sized(
            "naive",
            &[
                Stage { entry: "score", grid: &|p, c| groups_for(p.q_heads() * p.kv_size, c) },
                Stage {
                    entry: "weigh_values",
                    grid: &|p, c| groups_for(p.q_elements().div_ceil(2), c),
                },
            ],
        ),
        Variant {
            tunables: "WG=64|128|256",
            unsupported: &|p, _| no_fours(p, 1024),
            ..Variant::new("streaming", A_HEAD)
        },
        Variant {
            constants: &|p, _| tiled_constants(p, 1, 64, 32, 12 << 10),
            tunables: "TILE=4|8|16|32",
            unsupported: &|p, _| ragged(p),
            ..Variant::new("tiled_small", A_HEAD)
        },
        Variant {
            constants: &|p, caps| {
                let room = (caps.workgroup_memory as usize).min(48 << 10);
                tiled_constants(p, p.q_per_kv, 256, 128, room)
            },
            tunables: "TILE=16|32|64",
            unsupported: &|p, caps| {
                ragged(p).or_else(|| {
                    let has = caps.workgroup_memory;
                    (has < LARGE_TILES).then(|| {
                        format!(
                            "needs {LARGE_TILES} bytes of workgroup memory, the adapter has {has}"
                        )
                    })
                })
            },
            ..Variant::new("tiled_large", &[Stage::main(&|p, _| p.kv_heads)])
        },
        Variant {
            tunables: "WG=64|128|256",
            unsupported: &|p, _| no_fours(p, 1024),
            ..Variant::new("online", A_HEAD)
        },
        Variant {
            constants: &|p, caps| {
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
            unsupported: &|p, _| no_fours(p, 256),
            ..Variant::new("online_subgroup", A_HEAD)
        },
        Variant {
            constants: &|p, caps| workgroup_constants(p, caps, 0, 0),
            tunables: SPLIT_WORKGROUP_TUNABLES,
            unsupported: &|p, _| ragged(p).or_else(|| too_many_heads(p)),
            ..Variant::new("split_kv_workgroup", &split_stages())
        },
        Variant {
            constants: &|p, caps| two_stages(split_constants(p, caps, 0, 0)),
            as_stage: &|p, caps, grid| split_stage(p, caps, grid, 0, false),
            tunables: SPLIT_TUNABLES,
            unsupported: &split_unsupported,
            ..Variant::new("split_kv", &split_stages())
        },
        Variant {
            constants: &|p, caps| {
                // One workgroup reads the results of all splits of a KV head.
                let most = ((128 << 10) / (p.q_per_kv * 4 * p.head_dim)).max(8);
                let mut constants = split_constants(p, caps, 24, 0);
                for (_, splits) in constants.iter_mut().filter(|c| c.0 == "SPLITS") {
                    *splits = splits.min(most as f64);
                }
                constants
            },
            tunables: SPLIT_TUNABLES,
            unsupported: &split_unsupported,
            ..Variant::new("split_kv_last", &[Stage { entry: "attend", grid: &split_grid }])
        },
    ],
    prefer: &|p| {
        // Below, the second dispatch costs more than the one workgroup a head that it saves.
        if p.kv_size <= 128 {
            &["online_subgroup", "split_kv", "online", "streaming", "naive"]
        } else {
            &["split_kv", "online_subgroup", "split_kv_workgroup", "online", "streaming", "naive"]
        }
    },
    cost: &|p, s| {
        let slots = p.slots(s.n_kv);
        let cache = 2 * slots * p.kv_heads * p.vector_bytes();
        let query = p.q_elements();
        Cost {
            bytes: (cache + (4 + p.act_format.bytes()) * query) as f64,
            flops: (4 * slots * query) as f64,
        }
    },
    tolerance: &|p, s| {
        Tolerance::new(
            16.0 + (p.head_dim as f64).sqrt() + (p.slots(s.n_kv) as f64).sqrt(),
            1e-9,
            "score errors act through exp on every weight (in the reference's magnitude); sums \
                 over head_dim and slots behave as random walks",
        )
    },
    cases: "
        # Every variant compiles anew for every shape: few shapes, each for several reasons. First a
        # local layer whose ring wrapped, and a global one.
        LAYER=gemma,KV_SIZE=512,KV_FORMAT=f16,N_KV=700
        LAYER=gemma,KV_SIZE=1024,ACT_FORMAT=f16,N_KV=300
        LAYER=llama,KV_SIZE=300,KV_FORMAT=f16,ACT_FORMAT=f16,N_KV=257
        LAYER=qwen,KV_SIZE=130,N_KV=129
        LAYER=qwen,KV_SIZE=130,KV_FORMAT=f16,N_KV=130
        HEAD_DIM=32,KV_FORMAT=f16,SCALE=0.17677669
        Q_PER_KV=2,HEAD_DIM=32,KV_SIZE=16,SCALE=0.17677669,N_KV=17
        Q_PER_KV=8,HEAD_DIM=64,KV_SIZE=40,KV_FORMAT=f16,SCALE=0.125,N_KV=40
        # Thread groups with idle lanes.
        Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80,KV_SIZE=100,KV_FORMAT=f16,SCALE=0.1118034,N_KV=70
        LAYER=gemma,KV_SIZE=512,KV_FORMAT=q8_0,N_KV=700
        LAYER=llama,KV_SIZE=300,KV_FORMAT=q8_0,ACT_FORMAT=f16,N_KV=257
        LAYER=qwen,KV_SIZE=130,KV_FORMAT=q8_0,N_KV=130
        Q_PER_KV=2,HEAD_DIM=32,KV_SIZE=16,KV_FORMAT=q8_0,SCALE=0.17677669,N_KV=55|65540
        Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80,KV_SIZE=100,KV_FORMAT=q8_0,SCALE=0.1118034,N_KV=70
        # Two chunks a lane.
        Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80,KV_SIZE=2100,KV_FORMAT=q8_0,SCALE=0.1118034,N_KV=2060
        Q_PER_KV=4,HEAD_DIM=64,KV_SIZE=4096,KV_FORMAT=q8_0,SCALE=0.125,N_KV=3001
        # One score, large and of either sign: a sentinel is not below.
        Q_PER_KV=8,KV_HEADS=2,HEAD_DIM=64,KV_SIZE=5,SCALE=100000,N_KV=1
        # Several rounds of every thread group, the last one ragged, and slots beyond 16384.
        HEAD_DIM=64,KV_SIZE=16700,KV_FORMAT=f16,SCALE=0.125,N_KV=16421
    ",
    bench: "
        KV_FORMAT=f16:
            LAYER=gemma|llama|qwen,KV_SIZE=512,N_KV=512
            LAYER=gemma|llama|qwen,KV_SIZE=8192,N_KV=8192
            LAYER=gemma|llama|qwen,KV_SIZE=32768,N_KV=32768
    ",
};
