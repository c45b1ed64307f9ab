//! Parameters, bindings and lengths that several kernels share: one name, one meaning. What
//! the modules below `wgsl/` are to the shaders.

use crate::descriptor::{Binding, Elem};
use crate::layout::{ACT_NAMES, Format, KV_NAMES, Order, STATE_WORDS};
use crate::shape::{Param, Shape};

/// Rows of a matrix that makes one vector.
pub(crate) const ROWS: Param = Param::dim("ROWS", "rows of the matrix, elements of y", 32, 300);

/// Columns of a matrix; sweeps draw at most `max`.
pub(crate) const fn columns(max: u32) -> Param {
    Param::dim("K", "columns of the matrix, elements of x", 256, max)
}

/// Format of a matrix out of `set`.
pub(crate) const fn weight(set: &'static [Format]) -> Param {
    Param::formats("WEIGHT", "storage format of the matrix", set)
}

/// `ORDER` of kernels over planes that have no such parameter: blocks run along the rows.
pub(crate) const ALONG_ROWS: (&str, f64) = ("ORDER", Order::RowWise.code());

/// Format of the activations a kernel reads.
pub(crate) const ACTS_IN: Param = Param::choice("ACTS", "storage format of x", ACT_NAMES);

/// Format of the activations a kernel writes.
pub(crate) const ACTS_OUT: Param = Param::choice("ACTS", "storage format of y", ACT_NAMES);

/// Format of the activations a kernel reads and writes.
pub(crate) const ACTS: Param = Param::choice("ACTS", "storage format of x and y", ACT_NAMES);

/// Where in `y` a matrix begins to write.
pub(crate) const FIRST: Param = Param::start(
    "FIRST",
    "element of y that row 0 makes: matrices of several formats fill one vector",
    70,
);

/// Whether a product is added to what was there.
pub(crate) const BETA: Param = Param::mostly(
    "BETA",
    "factor of what y held, to which the product is added: a residual stream with 1",
    &["0", "1"],
);

/// Activation of a gated feed-forward block.
pub(crate) const ACT: Param =
    Param::choice("ACT", "activation of the gate", &["silu", "gelu_tanh"]);

/// Epsilon of an RMSNorm.
pub(crate) const EPS: Param = Param::float("EPS", "added to the mean square", 1e-6, 1e-2);

/// Convention of an RMSNorm's weight.
pub(crate) const OFFSET: Param = Param::choice(
    "OFFSET",
    "added to the norm's weight: standard 0, Gemma 1 (GGUF files already hold 1 + w)",
    &["standard", "gemma"],
);

/// Gemma's norm of a branch before it joins the residual stream.
pub(crate) const POST: Param = Param::choice(
    "POST",
    "norm the branch before it is added (Gemma); post_weight is read only then",
    &["none", "rms"],
);

/// Query heads of a KV head.
pub(crate) const GROUP: Param = Param::dim("GROUP", "query heads per KV head", 2, 5);

/// KV heads; sweeps draw at most `max`.
pub(crate) const fn kv_heads(max: u32) -> Param {
    Param::dim("KV_HEADS", "KV heads", 2, max)
}

/// Elements of a head.
pub(crate) const HEAD_DIM: Param =
    Param::one_of("HEAD_DIM", "elements of a head", &[32, 64, 80, 96, 128, 256]);

/// QK-norm.
pub(crate) const QK_NORM: Param =
    Param::choice("NORM", "norm each query and key head first", &["none", "rms"]);

/// Which elements of a head turn together.
pub(crate) const STYLE: Param = Param::choice(
    "STYLE",
    "pairs that turn together: (2i, 2i+1) or (i, i + HEAD_DIM/2)",
    &["interleaved", "neox"],
);

/// Base of the rope table.
pub(crate) const BASE: Param =
    Param::float("BASE", "base of the frequencies (in the rope table)", 1e4, 1e6);

/// Divisors of the rope table.
pub(crate) const FACTORS: Param = Param::choice(
    "FACTORS",
    "frequency divisors, Llama 3's rope_freqs (in the rope table)",
    &["none", "llama3"],
);

/// Format of a cache.
pub(crate) const KV: Param = Param::choice("KV", "storage format of the cache", KV_NAMES);

/// Factor on attention's scores.
pub(crate) const SCALE: Param =
    Param::float("SCALE", "factor on the scores, usually HEAD_DIM^-1/2", 0.05, 0.3);

/// Tokens of the sequence so far; sweeps draw them as a size of `tile`, at most `max`.
pub(crate) const fn seen(tile: u32, max: u32) -> Param {
    let doc = "tokens seen, the current one included (tests only; decode keeps it on the GPU)";
    Param::dim("SEEN", doc, tile, max)
}

/// Tokens of the prompt.
pub(crate) const GIVEN: Param =
    Param::dim("GIVEN", "tokens the host gave (tests only; decode keeps it on the GPU)", 4, 9);

/// State of the sequence; see [`crate::StateWord`].
pub(crate) const STATE: Binding = Binding::input("state", Elem::U32, |_| STATE_WORDS);

/// Angles of every position up to the current one.
pub(crate) const ROPE: Binding =
    Binding::input("rope", Elem::Rope, |s| s.dim("SEEN") * s.dim("HEAD_DIM"));

/// Query heads.
pub(crate) fn heads(s: &Shape) -> usize {
    s.dim("KV_HEADS") * s.dim("GROUP")
}

/// Elements of the product of a QKV matrix: query, key and value heads.
pub(crate) fn qkv_len(s: &Shape) -> usize {
    s.dim("KV_HEADS") * (s.dim("GROUP") + 2) * s.dim("HEAD_DIM")
}

/// Elements of a cache, (KV_HEADS, CAPACITY, HEAD_DIM).
pub(crate) fn cache_len(s: &Shape) -> usize {
    s.dim("KV_HEADS") * s.dim("CAPACITY") * s.dim("HEAD_DIM")
}
