//! A token from the product of its QKV matrix to the output of attention: its heads are normed and
//! rotated, its key and value appended, and attention runs over the cache. Of several sequences at
//! one position, the same for each.

use crate::attention::geometry::*;
use crate::attention::*;
use crate::declare::*;

crate::params! {
    /// Parameters of `attention_append`.
    pub struct AttentionAppend {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(4),
        head_dim: usize = HEAD_DIM,
        qk_norm: Norm = QK_NORM,
        qkv_bias: QkvBias = QKV_BIAS,
        rope_style: RopeStyle = ROPE_STYLE,
        eps: f32 = EPS,
        rope_base: f32 = ROPE_BASE,
        rope_factors: RopeFactors = ROPE_FACTORS,
        kv_size: usize = dim(
            "KV_SIZE",
            "slots of the cache; position modulo KV_SIZE is written, min(N_KV, KV_SIZE) are \
             attended",
            256,
            700,
        ),
        kv_format: KvFormat = KV_FORMAT,
        act_format: FloatFormat = ACT_FORMAT_OUT,
        scale: f32 = SCALE,
        sequences: usize = SEQUENCES,
    }
}

// Heads of all sequences lie one after the other in caches and output.
has_cache!(AttentionAppend, of all sequences);

impl Rotates for AttentionAppend {
    fn table(&self) -> (f32, usize, RopeFactors) {
        (self.rope_base, self.head_dim, self.rope_factors)
    }
}

impl AttentionAppend {
    /// Elements of the bias, which all sequences have in common.
    fn bias_len(&self) -> usize {
        self.qkv_bias.of(self.qkv_heads() / self.sequences * self.head_dim)
    }
}

/// Bytes of workgroup memory for the new token's heads and the steps of its key and value.
fn new_head_bytes(p: &AttentionAppend) -> usize {
    (p.q_per_kv + 2) * p.head_dim * 4 + 8 * p.head_dim.div_ceil(KV_BLOCK)
}

/// Refuses heads longer than the fixed arrays of new_token_subgroup.wgsl.
fn too_long(p: &AttentionAppend, caps: &Capabilities) -> Option<String> {
    let size = caps.subgroup.map_or(32, |(smallest, _)| smallest.max(4)) as usize;
    // Sixteen vec4 a lane.
    exceeds("HEAD_DIM", p.head_dim, 64 * size)
}

/// Rotated pairs are taken two by two.
fn odd_pairs(p: &AttentionAppend) -> Option<String> {
    no_multiple("HEAD_DIM", p.head_dim, 4)
}

/// Vectors of the slot that the new token overwrites, and of those that hold no token yet.
fn unread(p: &AttentionAppend, s: State) -> Vec<usize> {
    let own = (s.n_kv - 1) % p.kv_size;
    p.vectors_in(std::iter::once(own).chain(p.slots(s.n_kv)..p.kv_size))
}

/// The declaration.
pub static OPERATION: Declaration<AttentionAppend> = Declaration {
    name: "attention_append",
    summary: "qkv_rope_append and attention_decode in one: QKV product to attention's output",
    fuses: Some(Fusion {
        of: &["qkv_rope_append", "attention_decode"],
        // Caches of so few or so many slots were measured to be as fast or faster apart; page.md.
        against: &|p| {
            let slots = p.kv_size;
            (!(129..=8192).contains(&slots))
                .then(|| format!("measured no faster with {slots} slots, only with 129 to 8192"))
        },
        // Of stages the second costs a wait and not a dispatch, however few slots there are.
        against_stage: &|p| {
            let slots = p.kv_size;
            (slots > 8192)
                .then(|| format!("measured no faster with {slots} slots, only with up to 8192"))
        },
        pays_with: &|_, variant| variant != "naive",
    }),
    state: &[n_kv(256, 900)],
    bindings: &[
        state(),
        // Of keys so large, what a cache's format takes from them would decide alone.
        spreads(qkv::<AttentionAppend>().drawn(&|p| Draw::Queries {
            of: p.q_elements() / p.sequences,
            row: p.qkv_heads() * p.head_dim / p.sequences,
        })),
        Binding::<AttentionAppend>::input(
            "qk_norm",
            &f32s,
            len!(p => 2 * p.head_dim + p.bias_len()),
        )
        .drawn(&|p| Draw::Queries { of: p.head_dim, row: 2 * p.head_dim + p.bias_len() }),
        rope(),
        spreads(appended_cache("k_cache").never_reads(&unread)),
        spreads(appended_cache("v_cache").never_reads(&unread)),
        Binding::scratch("q", &f32s, len!(p => p.q_heads() * p.head_dim)),
        scores(),
        tops(),
        partials(),
        Binding::output("y", floats!(act_format), len!(p => p.q_heads() * p.head_dim)),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[
                Stage { entry: "append", grid: &|p, _| p.qkv_heads() },
                Stage { entry: "score", grid: &|p, c| groups_for(p.q_heads() * p.kv_size, c) },
                Stage {
                    entry: "weigh_values",
                    grid: &|p, c| groups_for(p.q_elements().div_ceil(2), c),
                },
            ],
            constants: &|p, _| {
                vec![
                    ("TOKENS_OF", f64::from(TokensOf::Each.code())),
                    ("N_TOKENS", p.sequences as f64),
                ]
            },
            tunables: WORKGROUPS,
            ..Variant::PLAIN
        },
        Variant {
            // Its sums take a word an invocation.
            constants: &|p, caps| workgroup_constants(p, caps, 4, new_head_bytes(p)),
            tunables: SPLIT_WORKGROUP_TUNABLES,
            unsupported: &|p, _| ragged(p).or_else(|| odd_pairs(p)).or_else(|| too_many_heads(p)),
            ..Variant::new("split_kv_workgroup", &split_stages())
        },
        Variant {
            constants: &|p, caps| two_stages(split_constants(p, caps, 0, new_head_bytes(p))),
            as_stage: &|p, caps, grid| split_stage(p, caps, grid, new_head_bytes(p), true),
            // The new token's row it takes from workgroup memory.
            refreshes: &["k_cache", "v_cache"],
            fused_producer: Some(&fused_split_combine()),
            tunables: SPLIT_TUNABLES,
            unsupported: &|p, caps| {
                odd_pairs(p).or_else(|| too_long(p, caps)).or_else(|| split_unsupported(p, caps))
            },
            ..Variant::new("split_kv", &split_stages())
        },
        Variant {
            constants: &|p, caps| without_splits(split_constants(p, caps, 0, new_head_bytes(p))),
            as_stage: &|p, caps, grid| {
                stage_constants(p, caps, grid, new_head_bytes(p)).map(without_splits)
            },
            refreshes: &["k_cache", "v_cache"],
            tunables: "WG=128|256|512|1024,IN_FLIGHT=2|4|8",
            unsupported: &|p, caps| {
                odd_pairs(p).or_else(|| too_long(p, caps)).or_else(|| split_unsupported(p, caps))
            },
            ..Variant::new("whole_kv", &[Stage { entry: "attend", grid: &|p, _| p.kv_heads() }])
        },
    ],
    prefer: &|_| &["split_kv", "split_kv_workgroup", "whole_kv", "naive"],
    cost: &|p, s| {
        let (slots, query, key) = (p.slots(s.n_kv), p.q_elements(), p.k_elements());
        // The new token's row is written and not read.
        let cache = 2 * slots * p.kv_heads() * p.vector_bytes();
        let heads = 4 * (query + 2 * key) + p.act_format.bytes() * query;
        Cost {
            bytes: (cache + heads + 12 * p.head_dim + 4 * p.bias_len()) as f64,
            flops: (4 * slots * query + 7 * (query + key)) as f64,
        }
    },
    tolerance: &|p, s| {
        Tolerance::new(
            24.0 + 3.0 * (p.head_dim as f64).sqrt() + (p.slots(s.n_kv) as f64).sqrt(),
            // A step of f16 in the new key and value, whose direction WGSL leaves open; of q8_0 the
            // quants whose values lie half way between two, each 1/127 of its block at most, of
            // one slot among all.
            match p.kv_format {
                KvFormat::F32 => 1e-9,
                KvFormat::F16 => 1e-6,
                KvFormat::Q8_0 => 1e-5 + 1.3e-4 / p.slots(s.n_kv) as f64,
            },
            "as attention_decode over queries and a key off as qkv_rope_append's, whose \
                 magnitudes are in the scores'; what rounding the new key and value may \
                 move is in the reference's magnitude",
        )
    },
    cases: "
        EPS=1e-6,ROPE_BASE=10000:
            # Every variant compiles anew for every shape: few shapes, each for several reasons.
            # First a local layer whose ring wrapped.
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=f16,N_KV=700
            LAYER=gemma,KV_SIZE=1024,ACT_FORMAT=f16,N_KV=300
            LAYER=llama,ROPE_BASE=500000,ROPE_FACTORS=llama3:
                KV_SIZE=300,KV_FORMAT=f16,ACT_FORMAT=f16,N_KV=257
            LAYER=llama,KV_SIZE=40
            LAYER=qwen,KV_SIZE=130,N_KV=129
            LAYER=qwen,KV_SIZE=130,KV_FORMAT=f16,N_KV=131
            HEAD_DIM=32,ROPE_STYLE=neox,SCALE=0.17677669,N_KV=7
            # A position beyond sixteen bits, in a ring that has gone round often.
            Q_PER_KV=2,HEAD_DIM=32,QK_NORM=rms,KV_SIZE=16,KV_FORMAT=f16,SCALE=0.17677669,N_KV=65540
            # Thread groups with idle lanes.
            Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80,QK_NORM=rms:
                KV_SIZE=100,KV_FORMAT=f16,SCALE=0.1118034,N_KV=70
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=f16,SEQUENCES=3,N_KV=700
            LAYER=llama,ROPE_BASE=500000,ROPE_FACTORS=llama3,KV_SIZE=300,SEQUENCES=8,N_KV=200
            Q_PER_KV=8,HEAD_DIM=64,QK_NORM=rms,ROPE_STYLE=neox,KV_SIZE=40,SCALE=0.125,N_KV=40
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=q8_0,N_KV=700
            LAYER=llama,ROPE_BASE=500000,ROPE_FACTORS=llama3:
                KV_SIZE=300,KV_FORMAT=q8_0,ACT_FORMAT=f16,N_KV=257
            LAYER=qwen,KV_SIZE=130,KV_FORMAT=q8_0,N_KV=131
            HEAD_DIM=32,ROPE_STYLE=neox,KV_FORMAT=q8_0,SCALE=0.17677669,N_KV=7
            # Also two chunks a lane.
            Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80,QK_NORM=rms,KV_FORMAT=q8_0,SCALE=0.1118034:
                KV_SIZE=100,N_KV=70; KV_SIZE=2100,N_KV=2060
            Q_PER_KV=4,HEAD_DIM=64,QK_NORM=rms,KV_SIZE=4096,KV_FORMAT=q8_0,SCALE=0.125,N_KV=3001
            LAYER=llama,KV_SIZE=40,KV_FORMAT=q8_0,SEQUENCES=3,N_KV=40
            QKV_BIAS=added:
                Q_PER_KV=7,KV_HEADS=2,HEAD_DIM=64,ROPE_STYLE=neox,KV_SIZE=130,SCALE=0.125:
                    KV_FORMAT=f16,N_KV=131
                LAYER=qwen,ROPE_FACTORS=yarn,KV_SIZE=40,KV_FORMAT=q8_0,SEQUENCES=3,N_KV=40
            # Several rounds of every thread group, the last one ragged, and slots beyond 16384.
            HEAD_DIM=64,ROPE_STYLE=neox,KV_SIZE=16700,SCALE=0.125,N_KV=16421
    ",
    bench: "
        EPS=1e-6,ROPE_BASE=10000,KV_FORMAT=f16:
            LAYER=gemma|llama|qwen,KV_SIZE=512,N_KV=512
            LAYER=gemma|llama|qwen,KV_SIZE=8192,N_KV=8192
            LAYER=gemma|llama|qwen,KV_SIZE=32768,N_KV=32768
    ",
};
