//! Parameters and bindings that several operations share: one name, one meaning. `wgsl/` is its
//! counterpart for the shaders.

use crate::codes::*;
use crate::descriptor::{Binding, Draw, Elem, OfState, words};
use crate::layout::RopeSpec;
use crate::param::*;

/// Rows of a matrix that makes one vector.
pub const ROWS: Typed<usize> = dim("ROWS", "rows of the matrix, elements of y", 32, 300);

/// Columns of a matrix; sweeps draw at most `max`.
pub const fn columns(max: u32) -> Typed<usize> {
    dim("K", "columns of the matrix, elements of x", 256, max)
}

/// Format of a matrix out of `set`.
pub const fn weight(set: &'static &'static [Format]) -> Typed<Format> {
    choice("WEIGHT", "storage format of the matrix", set)
}

/// Format of the activations an operation reads.
pub const ACT_FORMAT_IN: Typed<FloatFormat> =
    choice("ACT_FORMAT", "storage format of x", &FloatFormat::STORED);

/// Format of the activations an operation writes.
pub const ACT_FORMAT_OUT: Typed<FloatFormat> =
    choice("ACT_FORMAT", "storage format of y", &FloatFormat::STORED);

/// Format of the activations an operation reads and writes.
pub const ACT_FORMAT: Typed<FloatFormat> =
    choice("ACT_FORMAT", "storage format of x and y", &FloatFormat::STORED);

/// Tokens of a prompt that go through an operation together: the current one and those after it.
pub const N_TOKENS: Typed<usize> = dim(
    "N_TOKENS",
    "tokens: one, or those of a chunk of a prompt, or one of each of some sequences",
    2,
    9,
);

/// Owner of the tokens.
pub const TOKENS_OF: Typed<TokensOf> = choice(
    "TOKENS_OF",
    "whose they are: neighbours of one sequence, from the current one on, or the current token of \
     each of N_TOKENS sequences that are all at one position",
    &TokensOf::ALL,
);

/// Sequences whose step ends together.
pub const SEQUENCES: Typed<usize> =
    dim("SEQUENCES", "sequences at one position, each with a row of logits and of state", 2, 5);

/// Slots that hold the tokens before a chunk, where a cache holds just these and the chunk.
pub const BEFORE: Typed<usize> = start(
    "BEFORE",
    "slots that hold the tokens before the first one, which then stands in slot BEFORE; 0: slots are \
     positions",
    40,
);

/// Rows of activations, one a token.
pub const ACT_ROWS: Typed<usize> =
    dim("ROWS", "rows, one a token; more than one in a chunk of a prompt", 2, 9);

/// Refuses rows of f16 that cannot be written two elements a word.
pub fn odd_f16_rows(rows: usize, n: usize, act_format: FloatFormat) -> Option<String> {
    (rows > 1 && n % 2 == 1 && act_format == FloatFormat::F16)
        .then(|| format!("N={n} is odd, ROWS exceeds 1, and ACT_FORMAT is f16"))
}

/// Refuses a value that is no multiple of the elements read at a time.
pub fn no_multiple(name: &str, value: usize, of: usize) -> Option<String> {
    (!value.is_multiple_of(of)).then(|| format!("{name}={value} is no multiple of {of}"))
}

/// Refuses a value above the variant's maximum.
pub fn exceeds(name: &str, value: usize, most: usize) -> Option<String> {
    (value > most).then(|| format!("{name}={value} exceeds {most}"))
}

/// First element of `y` that a matrix writes.
pub const Y_OFFSET: Typed<usize> = start(
    "Y_OFFSET",
    "element of y that row 0 makes: matrices of several formats fill one vector",
    70,
);

/// Elements of `y` after those that a matrix writes.
pub const Y_AFTER: Typed<usize> =
    start("Y_AFTER", "elements of a row of y after those made here", 70);

/// Factor of the old value that a product is added to.
pub const BETA: Typed<Beta> = mostly(
    "BETA",
    "factor of what y held, to which the product is added: a residual stream with 1",
    &Beta::ALL,
);

/// Activation of a gated feed-forward block.
pub const ACTIVATION: Typed<Activation> =
    choice("ACTIVATION", "activation of the gate", &Activation::ALL);

/// Epsilon of an RMSNorm.
pub const EPS: Typed<f32> = float("EPS", "added to the mean square", 1e-6, 1e-2);

/// Convention of an RMSNorm's weight.
pub const WEIGHT_OFFSET: Typed<NormOffset> = choice(
    "WEIGHT_OFFSET",
    "added to the norm's weight: standard 0, Gemma 1 (GGUF files already hold 1 + w)",
    &NormOffset::ALL,
);

/// Gemma's norm of a branch before it joins the residual stream.
pub const POST_NORM: Typed<Norm> = choice(
    "POST_NORM",
    "norm the branch before it is added (Gemma); post_weight is read only then",
    &Norm::ALL,
);

/// Query heads of a KV head.
pub const Q_PER_KV: Typed<usize> = dim("Q_PER_KV", "query heads per KV head", 2, 5);

/// KV heads; sweeps draw at most `max`.
pub const fn kv_heads(max: u32) -> Typed<usize> {
    dim("KV_HEADS", "KV heads", 2, max)
}

/// Elements of a head.
pub const HEAD_DIM: Typed<usize> =
    one_of("HEAD_DIM", "elements of a head", &[32, 64, 80, 96, 128, 256]);

/// QK-norm.
pub const QK_NORM: Typed<Norm> =
    choice("QK_NORM", "norm each query and key head first", &Norm::ALL);

/// Bias of queries, keys and values.
pub const QKV_BIAS: Typed<QkvBias> = mostly(
    "QKV_BIAS",
    "add a bias to queries, keys and values first; it lies behind the norm's weights for queries, or \
     for both",
    &QkvBias::ALL,
);

/// Elements of a head that rotate together.
pub const ROPE_STYLE: Typed<RopeStyle> = choice(
    "ROPE_STYLE",
    "pairs that rotate together: (2i, 2i+1) or (i, i + HEAD_DIM/2)",
    &RopeStyle::ALL,
);

/// Base of the rope table.
pub const ROPE_BASE: Typed<f32> =
    float("ROPE_BASE", "base of the frequencies (in the rope table)", 1e4, 1e6).within(1.0, 1e12);

/// Scaling of the rope table.
pub const ROPE_FACTORS: Typed<RopeFactors> = choice(
    "ROPE_FACTORS",
    "frequency divisors, with yarn also a factor on sines and cosines (in the rope table)",
    &RopeFactors::ALL,
);

/// Format of a cache.
pub const KV_FORMAT: Typed<KvFormat> =
    choice("KV_FORMAT", "storage format of the cache", &KvFormat::ALL);

/// Factor on attention's scores.
pub const SCALE: Typed<f32> =
    float("SCALE", "factor on the scores, usually HEAD_DIM^-1/2", 0.05, 0.3);

/// State of the sequence, only read; see [`crate::StateWord`].
pub const fn state<P>() -> Binding<P> {
    Binding::input("state", &words, crate::len!(_ => STATE_WORDS)).drawn(&|_| Draw::State)
}

/// Parameters of a rope table.
pub trait Rotates {
    /// Base, head_dim and scaling.
    fn table(&self) -> (f32, usize, RopeFactors);

    /// Number of rotated tokens, from the position on.
    fn n_tokens(&self) -> usize {
        1
    }
}

/// Binding of the rope angles of every position up to the last token's.
pub const fn rope<P: Rotates>() -> Binding<P> {
    let spec: OfState<P, Elem> = &|p, s| {
        let (base, head_dim, factors) = p.table();
        Elem::Rope(RopeSpec::drawn(base, head_dim, factors, s.n_kv - 1 + p.n_tokens()))
    };
    Binding::input("rope", spec, crate::len!(p, s => (s.n_kv - 1 + p.n_tokens()) * p.table().1))
}
