//! Operations between the QKV matrix and attention: norm of the heads, rotation of queries and
//! keys, keys and values into the cache.

use crate::attention::*;
use crate::declare::*;

crate::params! {
    /// Parameters of `qkv_rope_append`.
    pub struct QkvRopeAppend {
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(5),
        head_dim: usize = HEAD_DIM,
        qk_norm: Norm = QK_NORM,
        qkv_bias: QkvBias = QKV_BIAS,
        rope_style: RopeStyle = ROPE_STYLE,
        eps: f32 = EPS,
        rope_base: f32 = ROPE_BASE,
        rope_factors: RopeFactors = ROPE_FACTORS,
        kv_size: usize = dim("KV_SIZE", "slots of the cache; they wrap", 16, 60),
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
    /// Elements of the bias.
    fn bias_len(&self) -> usize {
        self.qkv_bias.of(self.qkv_heads() * self.head_dim)
    }

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
        &|p, _| Elem::Kv(p.vectors()),
        len!(p => p.sequences() * p.kv_heads * p.kv_size * p.head_dim),
    )
}

const A_HEAD: &[Stage<QkvRopeAppend>] = &[Stage::main(&|p, _| p.n_tokens * p.qkv_heads())];

/// The declaration.
pub static OPERATION: Declaration<QkvRopeAppend> = Declaration {
    name: "qkv_rope_append",
    summary: "per-head RMSNorm (optional) and rotary embedding of Q and K, K and V into the cache",
    fuses: None,
    state: &[n_kv(16, 200), PROMPT_LEN],
    bindings: &[
        state(),
        spreads(Binding::input("qkv", &f32s, len!(p => p.n_tokens * p.qkv_heads() * p.head_dim))),
        spreads(Binding::input("q_norm", &f32s, len!(p => p.head_dim + p.bias_len()))),
        spreads(head_norm("k_norm")),
        rope(),
        Binding::output("q", &f32s, len!(p => p.n_tokens * p.q_heads() * p.head_dim)),
        caches("k_cache"),
        caches("v_cache"),
    ],
    variants: &[
        Variant::new("naive", A_HEAD),
        Variant {
            constants: &|p, _| vec![("WG", (p.head_dim / 4).next_power_of_two().max(4) as f64)],
            ..Variant::new("workgroup", A_HEAD)
        },
        Variant {
            constants: &|p, caps| {
                // Whole subgroups: drivers disagree on how many a workgroup with a rest has.
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4)) as usize;
                vec![("WG", (p.head_dim / 4).next_multiple_of(size) as f64)]
            },
            as_stage: &|p, _, grid| {
                let wg = grid.invocations as usize;
                (wg >= p.head_dim / 4).then(|| vec![("WG", wg as f64)])
            },
            ..Variant::new("subgroup", A_HEAD)
        },
    ],
    prefer: &|_| &["subgroup", "workgroup", "naive"],
    cost: &|p, _| {
        let (query, key) = (p.q_elements(), p.k_elements());
        Cost {
            bytes: (p.n_tokens
                * (8 * query + 2 * (4 * key + p.kv_heads * p.vector_bytes()) + 4 * p.head_dim)
                + 8 * p.head_dim
                + 4 * p.bias_len()) as f64,
            flops: (7 * p.n_tokens * (query + key)) as f64,
        }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            8.0 + (p.head_dim as f64).sqrt(),
            1e-11,
            "as rms_norm, a bias rounded once, then two products with table entries rounded once; caches add the \
                 rounding of their type: of f16 in a direction that WGSL leaves open, of q8_0 half a \
                 step and what f16 takes from that",
        )
    },
    cases: "
        EPS=1e-6,ROPE_BASE=10000:
            # The ring begins anew.
            LAYER=gemma,KV_SIZE=512,N_KV=513
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=f16,N_KV=700
            LAYER=llama,ROPE_BASE=500000,ROPE_FACTORS=llama3,KV_SIZE=512,N_KV=512
            LAYER=llama,KV_SIZE=512,KV_FORMAT=f16,N_KV=129
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=q8_0,N_KV=700
            LAYER=llama,KV_SIZE=512,KV_FORMAT=q8_0,N_KV=129
            Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80,QK_NORM=rms,KV_SIZE=5,KV_FORMAT=q8_0,N_KV=10
            # Positions beyond sixteen bits.
            HEAD_DIM=32,ROPE_STYLE=neox,KV_SIZE=7,KV_FORMAT=q8_0:
                N_TOKENS=9,N_KV=66000,PROMPT_LEN=66020
            LAYER=qwen,KV_SIZE=40,KV_FORMAT=q8_0,N_TOKENS=33,BEFORE=7,N_KV=3,PROMPT_LEN=30
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=q8_0,N_TOKENS=3,TOKENS_OF=each,N_KV=513
            LAYER=qwen,KV_SIZE=64,N_KV=3000
            LAYER=qwen,KV_SIZE=64,KV_FORMAT=f16
            HEAD_DIM=32,ROPE_STYLE=neox,N_KV=7
            Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80,QK_NORM=rms,KV_SIZE=5,KV_FORMAT=f16,N_KV=10
            # Tokens of a prompt: more than a ring has slots, fewer than the chunk has room for,
            # rows behind a window.
            HEAD_DIM=32,ROPE_STYLE=neox,KV_SIZE=7,N_TOKENS=9,N_KV=20,PROMPT_LEN=40
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=f16,N_TOKENS=16,N_KV=505,PROMPT_LEN=515
            LAYER=qwen,KV_SIZE=40,N_TOKENS=33,BEFORE=7,N_KV=3,PROMPT_LEN=30
            LAYER=llama,KV_SIZE=8,KV_FORMAT=f16,N_TOKENS=6,BEFORE=3,PROMPT_LEN=9
            # Tokens of several sequences, in rings and in full caches.
            LAYER=gemma,KV_SIZE=512,KV_FORMAT=f16,N_TOKENS=3,TOKENS_OF=each,N_KV=513
            LAYER=qwen,KV_SIZE=64,N_TOKENS=8,TOKENS_OF=each,N_KV=30
            QKV_BIAS=added:
                Q_PER_KV=7,KV_HEADS=2,HEAD_DIM=64,ROPE_STYLE=neox,KV_SIZE=64,KV_FORMAT=f16,N_KV=30
                LAYER=llama,KV_SIZE=40,KV_FORMAT=q8_0,N_TOKENS=33,BEFORE=7,N_KV=3,PROMPT_LEN=30
                LAYER=qwen,ROPE_FACTORS=yarn,KV_SIZE=64,N_TOKENS=3,TOKENS_OF=each,N_KV=30
            LAYER=gemma,ROPE_FACTORS=linear,KV_SIZE=64,N_KV=60
    ",
    bench: "
        EPS=1e-6,ROPE_BASE=10000,KV_FORMAT=f16:
            LAYER=gemma|llama|qwen,KV_SIZE=512,N_KV=129
            LAYER=gemma|llama|qwen,KV_SIZE=1024,N_TOKENS=1024,PROMPT_LEN=1024
    ",
};
