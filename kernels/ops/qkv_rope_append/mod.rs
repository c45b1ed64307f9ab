//! What happens to the product of the QKV matrix before attention: norm of the heads, rotation of
//! queries and keys, keys and values into the cache.

use crate::attention::*;
use crate::codes::{KvFormat, Norm, RopeFactors, RopeStyle, TokensOf};
use crate::descriptor::*;
use crate::len;
use crate::param::{PROMPT_LEN, dim, n_kv};
use crate::shared::*;

crate::params! {
    /// Parameters of `qkv_rope_append`.
    pub struct QkvRopeAppend {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(5),
        head_dim: usize = HEAD_DIM,
        qk_norm: Norm = QK_NORM,
        rope_style: RopeStyle = ROPE_STYLE,
        eps: f32 = EPS,
        rope_base: f32 = ROPE_BASE,
        rope_factors: RopeFactors = ROPE_FACTORS,
        kv_size: usize =
            dim("KV_SIZE", "slots of the cache; they wrap", 16, 60),
        kv_format: KvFormat = KV_FORMAT,
        n_tokens: usize = N_TOKENS,
        tokens_of: TokensOf = TOKENS_OF,
        before: usize = BEFORE,
    }
}

has_cache!(QkvRopeAppend);

impl Rotates for QkvRopeAppend {
    fn table(&self) -> (f32, usize, RopeFactors) {
        (self.rope_base, self.head_dim, self.rope_factors)
    }

    fn n_tokens(&self) -> usize {
        match self.tokens_of {
            TokensOf::One => self.n_tokens,
            TokensOf::Each => 1,
        }
    }
}

impl QkvRopeAppend {
    /// Sequences with caches of their own.
    pub fn sequences(&self) -> usize {
        match self.tokens_of {
            TokensOf::One => 1,
            TokensOf::Each => self.n_tokens,
        }
    }
}

/// The caches of all sequences.
const fn caches(name: &'static str) -> Binding<QkvRopeAppend> {
    Binding::in_out(
        name,
        |p, _| Elem::Kv(p.vectors()),
        len!(p => p.sequences() * p.kv_heads * p.kv_size * p.head_dim),
    )
}

/// The heads of a layer, rotated without divisors, into f32 caches of 512 slots.
fn heads(layer: Layer) -> QkvRopeAppend {
    let Layer { q_per_kv, kv_heads, head_dim, qk_norm, rope_style } = layer;
    QkvRopeAppend {
        q_per_kv,
        kv_heads,
        head_dim,
        qk_norm,
        rope_style,
        eps: 1e-6,
        rope_base: 10_000.0,
        rope_factors: RopeFactors::None,
        kv_size: 512,
        kv_format: KvFormat::F32,
        n_tokens: 1,
        tokens_of: TokensOf::One,
        before: 0,
    }
}

const A_HEAD: &[Stage<QkvRopeAppend>] =
    &[Stage { entry: "main", grid: |p, _| p.n_tokens * p.qkv_heads() }];

/// The declaration.
pub static OPERATION: Declaration<QkvRopeAppend> = Declaration {
    name: "qkv_rope_append",
    summary: "per-head RMSNorm (optional) and rotary embedding of Q and K, K and V into the cache",
    fuses: None,
    state: &[n_kv(16, 200), PROMPT_LEN],
    bindings: &[
        state(),
        Binding::input("qkv", f32s, len!(p => p.n_tokens * p.qkv_heads() * p.head_dim)),
        head_norm("q_norm"),
        head_norm("k_norm"),
        rope(),
        Binding::output("q", f32s, len!(p => p.n_tokens * p.q_heads() * p.head_dim)),
        caches("k_cache"),
        caches("v_cache"),
    ],
    variants: &[
        Variant { name: "naive", stages: A_HEAD, ..Variant::PLAIN },
        Variant {
            name: "workgroup",
            stages: A_HEAD,
            constants: |p, _| vec![("WG", (p.head_dim / 4).next_power_of_two().max(4) as f64)],
            ..Variant::PLAIN
        },
        Variant {
            name: "subgroup",
            stages: A_HEAD,
            constants: |p, caps| {
                // Whole subgroups: drivers disagree on how many a workgroup with a rest has.
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4)) as usize;
                vec![("WG", (p.head_dim / 4).next_multiple_of(size) as f64)]
            },
            phase: |p, _, grid| {
                let wg = grid.invocations as usize;
                (wg >= p.head_dim / 4).then(|| vec![("WG", wg as f64)])
            },
            ..Variant::PLAIN
        },
    ],
    prefer: |_| &["subgroup", "workgroup", "naive"],
    cost: |p, _| {
        let (query, key) = (p.q_elements(), p.k_elements());
        Cost {
            bytes: (p.n_tokens
                * (8 * query + 2 * (4 * key + p.kv_heads * p.vector_bytes()) + 4 * p.head_dim)
                + 8 * p.head_dim) as f64,
            flops: (7 * p.n_tokens * (query + key)) as f64,
        }
    },
    tolerance: |p, _| Tolerance {
        k: 8.0 + (p.head_dim as f64).sqrt(),
        rounding: 0.0,
        nmse: 1e-11,
        reason: "as rms_norm, then two products with table entries rounded once; caches add the \
                 rounding of their type: of f16 in a direction that WGSL leaves open, of q8_0 half a \
                 step and what f16 takes from that",
    },
    cases: || {
        let case = |p: QkvRopeAppend, n_kv| Case::from(p).n_kv(n_kv);
        let f16 = |p| QkvRopeAppend { kv_format: KvFormat::F16, ..p };
        let q8 = |p| QkvRopeAppend { kv_format: KvFormat::Q8_0, ..p };
        let (gemma, llama) = (heads(GEMMA), heads(LLAMA));
        let qwen = QkvRopeAppend { kv_size: 64, ..heads(QWEN) };
        let (rope_base, rope_factors) = (500_000.0, RopeFactors::Llama3);
        vec![
            case(gemma, 513), // the ring begins anew
            case(f16(gemma), 700),
            case(QkvRopeAppend { rope_base, rope_factors, ..llama }, 512),
            case(f16(llama), 129),
            case(q8(gemma), 700),
            case(q8(llama), 129),
            case(q8(QkvRopeAppend { kv_size: 5, ..heads(THREE_OF_80) }), 10),
            case(q8(QkvRopeAppend { n_tokens: 9, kv_size: 7, ..heads(ONE_OF_32) }), 20)
                .prompt_len(40),
            case(q8(QkvRopeAppend { n_tokens: 33, kv_size: 40, before: 7, ..qwen }), 3)
                .prompt_len(30),
            case(q8(QkvRopeAppend { n_tokens: 3, tokens_of: TokensOf::Each, ..gemma }), 513),
            case(qwen, 30_000),
            case(f16(qwen), 1),
            case(QkvRopeAppend { kv_size: 1, ..heads(ONE_OF_32) }, 7),
            case(f16(QkvRopeAppend { kv_size: 5, ..heads(THREE_OF_80) }), 10),
            // Tokens of a prompt: more than a ring has slots, fewer than the chunk has room for,
            // rows behind a window.
            case(QkvRopeAppend { n_tokens: 9, kv_size: 7, ..heads(ONE_OF_32) }, 20).prompt_len(40),
            case(f16(QkvRopeAppend { n_tokens: 16, ..gemma }), 505).prompt_len(515),
            case(QkvRopeAppend { n_tokens: 33, kv_size: 40, before: 7, ..qwen }, 3).prompt_len(30),
            case(f16(QkvRopeAppend { n_tokens: 6, before: 3, kv_size: 8, ..llama }), 1)
                .prompt_len(9),
            // Tokens of several sequences, in rings and in full caches.
            case(f16(QkvRopeAppend { n_tokens: 3, tokens_of: TokensOf::Each, ..gemma }), 513),
            case(QkvRopeAppend { n_tokens: 8, tokens_of: TokensOf::Each, ..qwen }, 30),
        ]
    },
    bench: || {
        let f16 = |p| QkvRopeAppend { kv_format: KvFormat::F16, ..p };
        let step = MODELS.map(|layer| Case::from(f16(heads(layer))).n_kv(129));
        let chunk = MODELS.map(|layer| {
            let p = QkvRopeAppend { n_tokens: 1024, kv_size: 1024, ..f16(heads(layer)) };
            Case::from(p).n_kv(1).prompt_len(1024)
        });
        [step, chunk].concat()
    },
};
