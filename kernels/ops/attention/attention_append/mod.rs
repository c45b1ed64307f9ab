//! A token from the product of its QKV matrix to the output of attention: its heads are normed and
//! rotated, its key and value appended, and attention runs over the cache. Of several sequences at
//! one position, the same for each.

use crate::adapter::Capabilities;
use crate::attention::geometry::*;
use crate::attention::*;
use crate::codes::{FloatFormat, KV_BLOCK, KvFormat, Norm, RopeFactors, RopeStyle, TokensOf};
use crate::descriptor::*;
use crate::len;
use crate::param::{dim, n_kv};
use crate::shared::*;

crate::params! {
    /// Parameters of `attention_append`.
    pub struct AttentionAppend {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(4),
        head_dim: usize = HEAD_DIM,
        qk_norm: Norm = QK_NORM,
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

/// Over an f16 cache of `kv_size` slots, with f32 output.
fn over(kv_size: usize, layer: Layer) -> AttentionAppend {
    let Layer { q_per_kv, kv_heads, head_dim, qk_norm, rope_style } = layer;
    AttentionAppend {
        q_per_kv,
        kv_heads,
        head_dim,
        qk_norm,
        rope_style,
        eps: 1e-6,
        rope_base: 10_000.0,
        rope_factors: RopeFactors::None,
        kv_size,
        kv_format: KvFormat::F16,
        act_format: FloatFormat::F32,
        scale: layer.scale(),
        sequences: 1,
    }
}

/// Bytes of workgroup memory for the new token's heads and the steps of its key and value.
fn new_head_bytes(p: &AttentionAppend) -> usize {
    (p.q_per_kv + 2) * p.head_dim * 4 + 8 * p.head_dim.div_ceil(KV_BLOCK)
}

/// What new_token_subgroup.wgsl holds of a head in arrays of fixed length.
fn too_long(p: &AttentionAppend, caps: &Capabilities) -> Option<String> {
    let size = caps.subgroup.map_or(32, |(smallest, _)| smallest.max(4)) as usize;
    // Sixteen vec4 a lane.
    exceeds("HEAD_DIM", p.head_dim, 64 * size)
}

/// Rotated pairs are taken two by two.
fn odd_pairs(p: &AttentionAppend) -> Option<String> {
    no_multiple("HEAD_DIM", p.head_dim, 4)
}

/// The declaration.
pub static OPERATION: Declaration<AttentionAppend> = Declaration {
    name: "attention_append",
    summary: "qkv_rope_append and attention_decode in one: QKV product to attention's output",
    fuses: Some(Fusion {
        of: &["qkv_rope_append", "attention_decode"],
        // Caches of so few or so many slots were measured to be as fast or faster apart; page.md.
        against: |p| {
            let slots = p.kv_size;
            (!(129..=8192).contains(&slots))
                .then(|| format!("measured no faster with {slots} slots, only with 129 to 8192"))
        },
        // Of phases the second costs a wait and not a dispatch, however few slots there are.
        against_phase: |p| {
            let slots = p.kv_size;
            (slots > 8192)
                .then(|| format!("measured no faster with {slots} slots, only with up to 8192"))
        },
        pays_with: |_, variant| variant != "naive",
    }),
    state: &[n_kv(256, 900)],
    bindings: &[
        state(),
        // Of keys so large, what a cache's format takes from them would decide alone.
        qkv::<AttentionAppend>().drawn(|p| Draw::Queries {
            of: p.q_elements() / p.sequences,
            row: p.qkv_heads() * p.head_dim / p.sequences,
        }),
        Binding::<AttentionAppend>::input("qk_norm", f32s, len!(p => 2 * p.head_dim))
            .drawn(|p| Draw::Queries { of: p.head_dim, row: 2 * p.head_dim }),
        rope(),
        appended_cache("k_cache"),
        appended_cache("v_cache"),
        Binding::scratch("q", f32s, len!(p => p.q_heads() * p.head_dim)),
        scores(),
        tops(),
        partials(),
        Binding::output(
            "y",
            |p, _| Elem::Floats(p.act_format),
            len!(p => p.q_heads() * p.head_dim),
        ),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[
                Stage { entry: "append", grid: |p, _| p.qkv_heads() },
                Stage { entry: "score", grid: |p, c| groups_for(p.q_heads() * p.kv_size, c) },
                Stage {
                    entry: "weigh_values",
                    grid: |p, c| groups_for(p.q_elements().div_ceil(2), c),
                },
            ],
            constants: |p, _| {
                vec![
                    ("TOKENS_OF", f64::from(TokensOf::Each.code())),
                    ("N_TOKENS", p.sequences as f64),
                ]
            },
            tunables: WORKGROUPS,
            ..Variant::PLAIN
        },
        Variant {
            name: "split_kv_workgroup",
            stages: &split_stages(),
            // Its sums take a word an invocation.
            constants: |p, caps| workgroup_constants(p, caps, 4, new_head_bytes(p)),
            tunables: SPLIT_WORKGROUP_TUNABLES,
            unsupported: |p, _| ragged(p).or_else(|| odd_pairs(p)).or_else(|| too_many_heads(p)),
            ..Variant::PLAIN
        },
        Variant {
            name: "split_kv",
            stages: &split_stages(),
            constants: |p, caps| two_stages(split_constants(p, caps, 0, new_head_bytes(p))),
            phase: |p, caps, grid| split_phase(p, caps, grid, new_head_bytes(p), true),
            // The new token's row it takes from workgroup memory.
            renews: &["k_cache", "v_cache"],
            inlined: Some(split_inlined()),
            tunables: SPLIT_TUNABLES,
            unsupported: |p, caps| {
                odd_pairs(p).or_else(|| too_long(p, caps)).or_else(|| split_unsupported(p, caps))
            },
            ..Variant::PLAIN
        },
        Variant {
            name: "whole_kv",
            stages: &[Stage { entry: "attend", grid: |p, _| p.kv_heads() }],
            constants: |p, caps| without_splits(split_constants(p, caps, 0, new_head_bytes(p))),
            phase: |p, caps, grid| {
                phase_constants(p, caps, grid, new_head_bytes(p)).map(without_splits)
            },
            renews: &["k_cache", "v_cache"],
            tunables: WHOLE_TUNABLES,
            unsupported: |p, caps| {
                odd_pairs(p).or_else(|| too_long(p, caps)).or_else(|| split_unsupported(p, caps))
            },
            ..Variant::PLAIN
        },
    ],
    prefer: |_| &["split_kv", "split_kv_workgroup", "whole_kv", "naive"],
    cost: |p, s| {
        let (slots, query, key) = (p.slots(s.n_kv), p.q_elements(), p.k_elements());
        // The new token's row is written and not read.
        let cache = 2 * slots * p.kv_heads() * p.vector_bytes();
        let heads = 4 * (query + 2 * key) + p.act_format.bytes() * query;
        Cost {
            bytes: (cache + heads + 12 * p.head_dim) as f64,
            flops: (4 * slots * query + 7 * (query + key)) as f64,
        }
    },
    tolerance: |p, s| Tolerance {
        k: 24.0 + 3.0 * (p.head_dim as f64).sqrt() + (s.n_kv as f64).sqrt(),
        rounding: 0.0,
        // A step of f16 in the new key and value, whose direction WGSL leaves open; of q8_0 the
        // quants whose values lie half way between two, each 1/127 of its block at most, of
        // one slot among all.
        nmse: match p.kv_format {
            KvFormat::F32 => 1e-9,
            KvFormat::F16 => 1e-6,
            KvFormat::Q8_0 => 1e-5 + 1.3e-4 / p.slots(s.n_kv) as f64,
        },
        reason: "as attention_decode over queries and a key off as qkv_rope_append's, whose \
                 magnitudes are in the scores'; what rounding the new key and value may \
                 move is in the reference's magnitude",
    },
    cases: || {
        use RopeStyle::{Interleaved, Neox};
        // Every variant compiles anew for every shape: few shapes, each for several reasons.
        let case = |p: AttentionAppend, n_kv| Case::from(p).n_kv(n_kv);
        let f32_cache = |p| AttentionAppend { kv_format: KvFormat::F32, ..p };
        let q8_cache = |p| AttentionAppend { kv_format: KvFormat::Q8_0, ..p };
        let f16_output = |p| AttentionAppend { act_format: FloatFormat::F16, ..p };
        let (rope_base, rope_factors) = (500_000.0, RopeFactors::Llama3);
        let llama3 = |p| AttentionAppend { rope_base, rope_factors, ..p };
        let normed = |q_per_kv, head_dim, rope_style| {
            let qk_norm = Norm::Rms;
            Layer { q_per_kv, kv_heads: 1, head_dim, qk_norm, rope_style }
        };
        let plain = |head_dim| Layer { qk_norm: Norm::None, ..normed(1, head_dim, Neox) };
        vec![
            case(over(512, GEMMA), 700), // local layer, ring wrapped
            case(f32_cache(f16_output(over(1024, GEMMA))), 300),
            case(f16_output(llama3(over(300, LLAMA))), 257),
            case(f32_cache(over(40, LLAMA)), 1),
            case(f32_cache(over(130, QWEN)), 129),
            case(over(130, QWEN), 131),
            case(f32_cache(over(1, plain(32))), 7),
            case(over(16, normed(2, 32, Interleaved)), 17),
            case(over(100, THREE_OF_80), 70), // thread groups with idle lanes
            case(AttentionAppend { sequences: 3, ..over(512, GEMMA) }, 700),
            case(AttentionAppend { sequences: 8, ..f32_cache(llama3(over(300, LLAMA))) }, 200),
            case(f32_cache(over(40, normed(8, 64, Neox))), 40),
            case(q8_cache(over(512, GEMMA)), 700),
            case(q8_cache(f16_output(llama3(over(300, LLAMA)))), 257),
            case(q8_cache(over(130, QWEN)), 131),
            case(q8_cache(over(1, plain(32))), 7),
            case(q8_cache(over(100, THREE_OF_80)), 70),
            // Two chunks a lane.
            case(q8_cache(over(2100, THREE_OF_80)), 2060),
            case(q8_cache(over(4096, normed(4, 64, Interleaved))), 3001),
            case(q8_cache(AttentionAppend { sequences: 3, ..over(40, LLAMA) }), 40),
            // Several rounds of every thread group, the last one ragged.
            case(f32_cache(over(9000, plain(64))), 8771),
        ]
    },
    bench: || full_caches(over),
};
