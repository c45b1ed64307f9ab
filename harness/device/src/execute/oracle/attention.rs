//! Attention, its caches, and the heads of a QKV product.

use lathe_kernels::attention::{Cache, Heads};
use lathe_kernels::attention_append::AttentionAppend;
use lathe_kernels::attention_decode::AttentionDecode;
use lathe_kernels::attention_prefill::AttentionPrefill;
use lathe_kernels::kv_append::KvAppend;
use lathe_kernels::kv_window::KvWindow;
use lathe_kernels::qk_norm_rope::QkNormRope;
use lathe_kernels::qkv_rope_append::QkvRopeAppend;
use lathe_kernels::rope::Rope;
use lathe_kernels::{Norm, QkvBias, StateWord, TokensOf, WindowMove};
use lathe_reference::attention_decode::{Attention, Rounded, attention_decode};
use lathe_reference::attention_prefill::{Prefill, attention_prefill};
use lathe_reference::kv_append::{CacheShape, KvFormat, kv_append};
use lathe_reference::kv_window::{to_ring, to_rows};
use lathe_reference::qkv_rope_append::{Token, qkv_rope_append, store};
use lathe_reference::{self as reference, Expected};
use rayon::prelude::*;

use super::{Inputs, Oracle, Outcomes};
use crate::execute::value::Value;
use crate::plan::recording::Op;

fn cache_shape<P: Cache>(p: &P) -> CacheShape {
    CacheShape { kv_heads: p.kv_heads(), capacity: p.kv_size(), head_dim: p.head_dim() }
}

fn cache_format<P: Cache>(p: &P) -> KvFormat {
    match p.kv_format() {
        lathe_kernels::KvFormat::F32 => KvFormat::F32,
        lathe_kernels::KvFormat::F16 => KvFormat::F16,
        lathe_kernels::KvFormat::Q8_0 => KvFormat::Q8_0,
    }
}

/// A cache with a token's row in its slot.
fn appended<P: Cache>(
    p: &P,
    inputs: &Inputs<'_>,
    name: &'static str,
    row: &Expected,
) -> (&'static str, Expected) {
    let mut cache = Expected::exact(inputs.f32s(name));
    store(&mut cache, row, &cache_shape(p), inputs.position(), cache_format(p));
    (name, cache)
}

/// Puts a token's rows into both caches of one of several sequences, without copying the caches.
fn append<P: Cache>(
    p: &P,
    op: &Op,
    values: &mut [Value],
    (sequence, position): (usize, u32),
    rows: [&[f32]; 2],
) {
    for (name, row) in ["k_cache", "v_cache"].into_iter().zip(rows) {
        if let Value::F32(cache) = &mut values[op.tensor(name).0] {
            let shape = cache_shape(p);
            // Rows of a chunk have room for the largest one.
            let cache = &mut cache[sequence * shape.elements()..][..shape.elements()];
            kv_append(cache, row, &shape, position, cache_format(p));
        }
    }
}

/// Query heads are spread over threads: they do not know of each other.
impl Oracle for AttentionDecode {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (heads, d) = (self.q_heads(), self.head_dim);
        let attention =
            Attention { heads: 1, scale: self.scale, seen: inputs.position() as usize + 1 };
        let q = &inputs.f32s("q")[..heads * d];
        let (k, v) = (inputs.f32s("k_cache"), inputs.f32s("v_cache"));
        let one = CacheShape { kv_heads: 1, ..cache_shape(self) };
        let of_head = |(head, q): (usize, &[f32])| {
            let part = head / self.q_per_kv * one.elements()..;
            let (k, v) = (&k[part.clone()][..one.elements()], &v[part][..one.elements()]);
            attention_decode(q, k, v, &one, &attention)
        };
        let parts: Vec<_> = q.par_chunks(d).enumerate().map(of_head).collect();
        inputs.real("y", Expected::join(parts))
    }
}

/// Queries are spread over threads. Their rows may hold K and V too.
impl Oracle for AttentionPrefill {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        const QUERIES_A_TASK: usize = 8;
        let shape = cache_shape(self);
        let (heads, d) = (self.q_heads(), self.head_dim);
        let rows = inputs.f32s("q").chunks(self.row_elements()).take(self.n_tokens);
        let queries: Vec<&[f32]> = rows.map(|row| &row[..heads * d]).collect();
        let (k, v) = (inputs.f32s("k_cache"), inputs.f32s("v_cache"));
        let position = inputs.position() as usize;
        let given = inputs.words("state")[StateWord::PromptLen as usize] as usize;
        let (first, oldest) = self.slots(position);
        let rounded = match inputs.rounding.map_or(0, |rounding| rounding.f16_operands) {
            0 => Rounded::Nothing,
            1 => Rounded::Queries,
            _ => Rounded::All,
        };
        // Queries beyond the prompt attend to what its last token does.
        let (count, last) = (self.count(position, given), self.kv_size - 1);
        let of_task = |(i, queries): (usize, &[&[f32]])| {
            let prefill = Prefill {
                heads,
                scale: self.scale,
                first: first + i * QUERIES_A_TASK,
                last: last.min(first + count - 1),
                oldest,
                window: Some(self.window).filter(|w| *w > 0),
                rounded,
            };
            attention_prefill(queries, k, v, &shape, &prefill)
        };
        let parts: Vec<_> = queries.par_chunks(QUERIES_A_TASK).enumerate().map(of_task).collect();
        inputs.real("y", Expected::join(parts))
    }
}

/// Heads of the current token, those of all sequences one after the other.
fn appended_token(p: &AttentionAppend, inputs: &Inputs<'_>) -> Token {
    let (weights, bias) = inputs.f32s("qk_norm").split_at(2 * p.head_dim);
    let norm = (p.qk_norm == Norm::Rms).then(|| (weights.split_at(p.head_dim).into(), p.eps));
    let bias = (p.qkv_bias == QkvBias::Added).then_some(bias);
    let rope = inputs.rotation(p.rope_style);
    let one = CacheShape { kv_heads: p.kv_heads, ..cache_shape(p) };
    let heads = p.qkv_heads() / p.sequences;
    let rows = inputs.f32s("qkv").chunks(heads * p.head_dim).take(p.sequences);
    let tokens: Vec<_> = rows.map(|row| qkv_rope_append(row, bias, &one, norm, &rope)).collect();
    let all = |of: fn(&Token) -> &Expected| Expected::join(tokens.iter().map(|t| of(t).clone()));
    Token { q: all(|t| &t.q), k: all(|t| &t.k), v: all(|t| &t.v) }
}

/// Attention of a token over caches that hold it.
fn attended(
    p: &AttentionAppend,
    inputs: &Inputs<'_>,
    token: &Token,
    [k, v]: [&[f32]; 2],
) -> Expected {
    let seen = inputs.position() as usize + 1;
    let attention = Attention { heads: p.q_heads(), scale: p.scale, seen };
    let errors = [&token.k, &token.v].map(|row| {
        let row = row.to_f32();
        let vectors = row.chunks(p.head_dim);
        vectors.flat_map(|vector| cache_format(p).ambiguity(vector)).collect::<Vec<_>>()
    });
    let errors = [&errors[0][..], &errors[1]];
    let attend = reference::attention_append::attention_append;
    attend(token, k, v, &cache_shape(p), &attention, errors)
}

impl Oracle for AttentionAppend {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let new = appended_token(self, inputs);
        let caches = [("k_cache", &new.k), ("v_cache", &new.v)].map(|(name, row)| {
            let mut cache = inputs.f32s(name).to_vec();
            let (shape, position) = (cache_shape(self), inputs.position());
            kv_append(&mut cache, &row.to_f32(), &shape, position, cache_format(self));
            (cache, appended(self, inputs, name, row))
        });
        let [(k, k_stored), (v, v_stored)] = caches;
        inputs.reals([("y", attended(self, inputs, &new, [&k, &v])), k_stored, v_stored])
    }

    fn in_place(&self, op: &Op, values: &mut [Value]) -> bool {
        let inputs = Inputs { op, values, rounding: None };
        let (new, position) = (appended_token(self, &inputs), inputs.position());
        append(self, op, values, (0, position), [&new.k.to_f32(), &new.v.to_f32()]);
        let inputs = Inputs { op, values, rounding: None };
        let caches = ["k_cache", "v_cache"].map(|name| inputs.f32s(name));
        let y = attended(self, &inputs, &new, caches).to_f32();
        let y = y.iter().map(|v| self.act_format.round(*v)).collect();
        values[op.tensor("y").0] = Value::F32(y);
        true
    }
}

/// Key and value heads in the product of a QKV matrix.
fn new_rows<'a>(p: &KvAppend, qkv: &'a [f32]) -> [&'a [f32]; 2] {
    let (_, rest) = qkv.split_at(p.q_heads() * p.head_dim);
    let (k, rest) = rest.split_at(p.kv_heads * p.head_dim);
    [k, &rest[..k.len()]]
}

impl Oracle for KvAppend {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let [k, v] = new_rows(self, inputs.f32s("qkv")).map(Expected::exact);
        let appended = |name, row| appended(self, inputs, name, row);
        inputs.reals([appended("k_cache", &k), appended("v_cache", &v)])
    }

    fn in_place(&self, op: &Op, values: &mut [Value]) -> bool {
        let inputs = Inputs { op, values, rounding: None };
        let position = inputs.position();
        let [k, v] = new_rows(self, inputs.f32s("qkv")).map(<[f32]>::to_vec);
        append(self, op, values, (0, position), [&k, &v]);
        true
    }
}

impl Oracle for KvWindow {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (kv_heads, head_dim) = (self.kv_heads, self.head_dim);
        let shape = CacheShape { kv_heads, capacity: self.kv_size, head_dim };
        let position = inputs.position();
        let given = inputs.words("state")[StateWord::PromptLen as usize];
        let count = (given.saturating_sub(position) as usize).min(self.n_tokens);
        let pairs = [("k_cache", "k_rows"), ("v_cache", "v_rows")];
        let moved = pairs.map(|(ring, rows)| {
            let (ring_values, row_values) = (inputs.f32s(ring), inputs.f32s(rows));
            let (n, position) = (self.n_tokens, position as usize);
            let (written, values) = match self.window_move {
                WindowMove::ToRows => {
                    let mut values = row_values.to_vec();
                    to_rows(ring_values, &mut values, &shape, n, position);
                    (rows, values)
                }
                WindowMove::ToRing => {
                    let mut values = ring_values.to_vec();
                    to_ring(row_values, &mut values, &shape, n, position, count);
                    (ring, values)
                }
            };
            (written, Expected::exact(&values))
        });
        inputs.reals(moved)
    }
}

impl Oracle for QkNormRope {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let d = self.head_dim;
        let rope = inputs.rotation(self.rope_style);
        let norm = |name| (self.qk_norm == Norm::Rms).then(|| (inputs.f32s(name), self.eps));
        let rotated = |heads: &[f32], name| {
            reference::qk_norm_rope::qk_norm_rope(heads, d, norm(name), &rope)
        };
        let (q, rest) = inputs.f32s("qkv").split_at(self.q_heads() * d);
        let (k, v) = rest.split_at(self.kv_heads * d);
        let parts = [rotated(q, "q_norm"), rotated(k, "k_norm"), Expected::exact(v)];
        inputs.real("qkv", Expected::join(parts))
    }
}

fn tokens(p: &QkvRopeAppend, inputs: &Inputs<'_>) -> Vec<Token> {
    let (q_norm, bias) = inputs.f32s("q_norm").split_at(p.head_dim);
    let norm = (p.qk_norm == Norm::Rms).then(|| ([q_norm, inputs.f32s("k_norm")], p.eps));
    let bias = (p.qkv_bias == QkvBias::Added).then_some(bias);
    let rows = inputs.f32s("qkv").chunks(p.qkv_heads() * p.head_dim);
    let token = |(i, row)| {
        let mut rope = inputs.rotation(p.rope_style);
        if p.tokens_of == TokensOf::One {
            rope.position += i as u32;
        }
        qkv_rope_append(row, bias, &cache_shape(p), norm, &rope)
    };
    rows.enumerate().map(token).collect()
}

/// Sequence and position in the cache of each token that is stored: all tokens but a chunk's
/// padding beyond the prompt.
fn places(p: &QkvRopeAppend, inputs: &Inputs<'_>) -> Vec<(usize, u32)> {
    let position = inputs.position();
    if p.tokens_of == TokensOf::Each {
        return (0..p.n_tokens).map(|sequence| (sequence, position)).collect();
    }
    let first = if p.before > 0 { p.before as u32 } else { position };
    let count = match p.n_tokens {
        1 => 1,
        n => {
            let given = inputs.words("state")[StateWord::PromptLen as usize];
            given.saturating_sub(position).min(n as u32)
        }
    };
    (first..first + count).map(|place| (0, place)).collect()
}

fn queries(tokens: Vec<Token>) -> Expected {
    Expected::join(tokens.into_iter().map(|token| token.q))
}

impl Oracle for QkvRopeAppend {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (tokens, shape) = (tokens(self, inputs), cache_shape(self));
        let format = cache_format(self);
        let stored = |name: &'static str, new: fn(&Token) -> &Expected| {
            let caches = inputs.f32s(name).chunks(shape.elements());
            let mut caches: Vec<_> = caches.map(Expected::exact).collect();
            for (token, (sequence, place)) in tokens.iter().zip(places(self, inputs)) {
                store(&mut caches[sequence], new(token), &shape, place, format);
            }
            (name, Expected::join(caches))
        };
        let [k, v] = [stored("k_cache", |t| &t.k), stored("v_cache", |t| &t.v)];
        inputs.reals([("q", queries(tokens)), k, v])
    }

    fn in_place(&self, op: &Op, values: &mut [Value]) -> bool {
        let inputs = Inputs { op, values, rounding: None };
        let (tokens, places) = (tokens(self, &inputs), places(self, &inputs));
        for (token, place) in tokens.iter().zip(places) {
            append(self, op, values, place, [&token.k.to_f32(), &token.v.to_f32()]);
        }
        if let Value::F32(q) = &mut values[op.tensor("q").0] {
            // It may have room for more rows than these tokens fill.
            let new = queries(tokens).to_f32();
            q[..new.len()].copy_from_slice(&new);
        }
        true
    }
}

impl Oracle for Rope {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rotation = inputs.rotation(self.rope_style);
        inputs.real(
            "x",
            reference::rope::rope(inputs.f32s("x"), self.head_dim, self.stride(), &rotation),
        )
    }
}
