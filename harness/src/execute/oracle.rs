//! The one place where a kernel's parameters and bindings meet its reference.
//!
//! A kernel of a few lines has its arm in [`oracle`]; a longer one has a module of its name below.

mod attention_append;
mod attention_prefill;
mod choose;
mod fused_ffn;
mod gemv_q;
mod lm_head;
mod matmul;
mod matmul_rmsnorm_fused;
mod qkv_rope_append;
mod residual_rms_norm;

use lathe_kernels::Shape;
use lathe_reference as reference;
use lathe_reference::Expected;
use lathe_reference::kv_append::CacheShape;
use lathe_reference::quant;
use lathe_reference::rope::{Rope, RopeStyle};
use rayon::prelude::*;

use super::value::{Outcome, Value};
use crate::recording::{FloatFormat, Op, TensorId};
use crate::weights::{Bytes, WeightRows, oracle_format};

/// What an operation should leave in the tensors it writes, given what all tensors hold before.
/// Panics for a kernel without an oracle, which the contract test rules out.
pub(crate) fn expected(op: &Op, values: &[Value]) -> Vec<(TensorId, Outcome)> {
    oracle(op, values)
        .unwrap_or_else(|| panic!("kernel {} has no oracle in execute/oracle.rs", op.kernel().name))
}

/// Runs an operation that changes little of a large tensor without copying it: a cache is far
/// larger than what a step appends to it. False when the operation is no such one.
pub(super) fn in_place(op: &Op, values: &mut [Value]) -> bool {
    match op.kernel().name {
        "kv_append" => {}
        "qkv_rope_append" => {
            qkv_rope_append::in_place(op, values);
            return true;
        }
        "attention_append" => {
            attention_append::in_place(op, values);
            return true;
        }
        _ => return false,
    }
    let at = KvAppend::of(op, values);
    for (name, new) in [("k_cache", &at.k), ("v_cache", &at.v)] {
        if let Value::F32(cache) = &mut values[op.tensor(name).0] {
            reference::kv_append::kv_append(cache, new, &at.shape, at.position, at.format);
        }
    }
    true
}

/// What an operation finds: its parameters and the values of its bindings.
struct Inputs<'a> {
    op: &'a Op,
    values: &'a [Value],
}

type Outcomes = Vec<(TensorId, Outcome)>;

impl<'a> Inputs<'a> {
    fn shape(&self) -> &'a Shape {
        &self.op.shape
    }

    fn value(&self, name: &str) -> &'a Value {
        &self.values[self.op.tensor(name).0]
    }

    fn f32s(&self, name: &str) -> &'a [f32] {
        self.value(name).f32s()
    }

    fn words(&self, name: &str) -> &'a [u32] {
        self.value(name).words()
    }

    fn weights(&self, name: &str) -> &'a WeightRows {
        self.value(name).weights()
    }

    /// The position in `state`: tokens seen before the one at hand.
    fn position(&self) -> u32 {
        position(self.value("state"))
    }

    /// The rotation of the position at hand.
    fn rope(&self) -> Rope<'a> {
        let spec = self.value("rope").rope();
        Rope {
            style: match self.shape().dim("STYLE") {
                0 => RopeStyle::Interleaved,
                _ => RopeStyle::Neox,
            },
            base: spec.base,
            freq_factors: spec.freq_factors.as_deref(),
            position: self.position(),
        }
    }

    /// The only output, as real numbers.
    fn real(&self, name: &str, expected: Expected) -> Outcomes {
        vec![(self.op.tensor(name), Outcome::Real(expected))]
    }
}

fn oracle(op: &Op, values: &[Value]) -> Option<Outcomes> {
    let inputs = Inputs { op, values };
    let s = inputs.shape();
    let real = |name: &str, e: Expected| inputs.real(name, e);
    Some(match op.kernel().name {
        "embed" => {
            let table = inputs.weights("table");
            let token = inputs.words("tokens")[inputs.position() as usize];
            let first = if s.dim("PART") == 1 { s.dim("FIRST") } else { 0 };
            let scale = s.float("SCALE") as f32;
            match (token as usize).checked_sub(first).filter(|row| *row < table.rows()) {
                Some(row) => {
                    let row = row_of(table, row);
                    real("x", reference::embed::embed(format_of(table), row, table.k, 0, scale))
                }
                None => real("x", kept(inputs.f32s("x"))),
            }
        }
        "dequant" => {
            let rows = inputs.weights("weights");
            let parts = rows.parts.iter();
            let values =
                |part: &Bytes| reference::dequant::dequant(format_of(rows), part.get(), rows.k);
            real("y", join(parts.map(values)))
        }
        "cast" => {
            let to = FloatFormat::from_code(s.dim("TO"));
            let rounded = to == FloatFormat::Bf16;
            real("y", reference::cast::cast(inputs.f32s("x"), rounded))
        }
        "rms_norm" => {
            let (x, weight) = (inputs.f32s("x"), inputs.f32s("weight"));
            let (eps, offset) = (s.float("EPS") as f32, s.float("OFFSET") as f32);
            let rows = x.chunks(s.dim("N"));
            real("y", join(rows.map(|r| reference::rms_norm::rms_norm(r, weight, eps, offset))))
        }
        "gemv_q" => gemv_q::gemv_q(&inputs),
        "gemv" => {
            let weights = inputs.weights("weights");
            let cols = s.get("COLS").map_or(1, |c| c as usize);
            let pitch = s.dim("FIRST") + s.dim("ROWS");
            let columns = inputs.f32s("x").chunks(s.dim("K")).zip(inputs.f32s("y").chunks(pitch));
            let product = |(x, y)| placed(y, s.dim("FIRST"), onto(y, s, gemv(weights, x)));
            real("y", join(columns.take(cols).map(product)))
        }
        "matmul" => matmul::matmul(&inputs),
        "norm_gemv" => {
            let (eps, offset) = (s.float("EPS") as f32, s.float("OFFSET") as f32);
            let (x, weight) = (inputs.f32s("x"), inputs.f32s("norm_weight"));
            let n = reference::norm_gemv::normed(x, weight, eps, offset);
            let product = over_rows(inputs.weights("weights"), |format, rows, v, m| {
                reference::norm_gemv::norm_rows(format, rows, &n, v, m);
            });
            real("y", placed(inputs.f32s("y"), s.dim("FIRST"), product))
        }
        "rope" => {
            let d = s.dim("HEAD_DIM");
            let stride = s.dim("STRIDE").max(d);
            real("x", reference::rope::rope(inputs.f32s("x"), d, stride, &inputs.rope()))
        }
        "qk_norm_rope" => {
            let qkv = inputs.f32s("qkv");
            let d = s.dim("HEAD_DIM");
            let (queries, keys) = (s.dim("KV_HEADS") * s.dim("GROUP") * d, s.dim("KV_HEADS") * d);
            let rope = inputs.rope();
            let norm =
                |name| (s.dim("NORM") == 1).then(|| (inputs.f32s(name), s.float("EPS") as f32));
            let turned = |heads: &[f32], name| {
                reference::qk_norm_rope::qk_norm_rope(heads, d, norm(name), &rope)
            };
            let (q, rest) = qkv.split_at(queries);
            let (k, v) = rest.split_at(keys);
            let untouched = v.iter().map(|x| (f64::from(*x), 0.0)).collect();
            real("qkv", join([turned(q, "q_norm"), turned(k, "k_norm"), untouched]))
        }
        "qkv_rope_append" => qkv_rope_append::qkv_rope_append(&inputs),
        "kv_append" => {
            let at = KvAppend::of(op, values);
            [("k_cache", &at.k), ("v_cache", &at.v)]
                .map(|(name, new)| {
                    let mut cache = inputs.f32s(name).to_vec();
                    reference::kv_append::kv_append(
                        &mut cache,
                        new,
                        &at.shape,
                        at.position,
                        at.format,
                    );
                    let all = cache.iter().map(|x| (f64::from(*x), 0.0)).collect();
                    (op.tensor(name), Outcome::Real(all))
                })
                .into()
        }
        "attention_decode" => {
            let cache = cache_shape(s);
            let (heads, d) = (s.dim("KV_HEADS") * s.dim("GROUP"), s.dim("HEAD_DIM"));
            let attention = reference::attention_decode::Attention {
                heads: 1,
                scale: s.float("SCALE") as f32,
                seen: inputs.position() as usize + 1,
            };
            let q = &inputs.f32s("q")[..heads * d];
            let (k, v) = (inputs.f32s("k_cache"), inputs.f32s("v_cache"));
            // A head a task: query heads do not know of each other.
            let one = CacheShape { kv_heads: 1, ..cache };
            let of_head = |(head, q): (usize, &[f32])| {
                let part = head / s.dim("GROUP") * one.elements()..;
                let (k, v) = (&k[part.clone()][..one.elements()], &v[part][..one.elements()]);
                reference::attention_decode::attention_decode(q, k, v, &one, &attention)
            };
            let parts: Vec<_> = q.par_chunks(d).enumerate().map(of_head).collect();
            let joined = Expected {
                value: parts.iter().flat_map(|p| p.value.iter().copied()).collect(),
                magnitude: parts.iter().flat_map(|p| p.magnitude.iter().copied()).collect(),
            };
            real("y", joined)
        }
        "attention_append" => attention_append::attention_append(&inputs),
        "attention_prefill" => attention_prefill::attention_prefill(&inputs),
        "glu" => {
            let (gate, up) = inputs.f32s("gate_up").split_at(s.dim("N"));
            real("y", reference::glu::glu(gate, up, activation(s)))
        }
        "fused_ffn" => fused_ffn::fused_ffn(&inputs),
        "residual_add" => {
            let (x, delta) = (inputs.f32s("x"), inputs.f32s("delta"));
            real("x", reference::residual_add::residual_add(x, delta))
        }
        "matmul_rmsnorm_fused" => matmul_rmsnorm_fused::matmul_rmsnorm_fused(&inputs),
        "residual_rms_norm" => residual_rms_norm::residual_rms_norm(&inputs),
        "argmax" => choose::end(&inputs, reference::argmax::argmax(inputs.f32s("logits"))),
        "sample" => choose::sample(&inputs),
        "lm_head_argmax" => lm_head::argmax(&inputs),
        "lm_head_topk" => lm_head::top_k(&inputs),
        _ => return None,
    })
}

/// `new` from element `first` on among values that stay as they are.
fn placed(old: &[f32], first: usize, new: Expected) -> Expected {
    let end = first + new.value.len();
    join([kept(&old[..first]), new, kept(&old[end..])])
}

/// A product with BETA times what its elements of `y` held: nothing, or all of it.
fn onto(y: &[f32], s: &Shape, mut product: Expected) -> Expected {
    if s.dim("BETA") == 0 {
        return product;
    }
    let sums = product.value.iter_mut().zip(&mut product.magnitude);
    for ((value, magnitude), held) in sums.zip(&y[s.dim("FIRST")..]) {
        *value += f64::from(*held);
        *magnitude += f64::from(held.abs());
    }
    product
}

/// Values that stay as they are.
fn kept(values: &[f32]) -> Expected {
    values.iter().map(|v| (f64::from(*v), 0.0)).collect()
}

fn position(state: &Value) -> u32 {
    state.words()[lathe_kernels::StateWord::Position as usize]
}

fn join(parts: impl IntoIterator<Item = Expected>) -> Expected {
    let mut all = Expected::default();
    for part in parts {
        all.value.extend(part.value);
        all.magnitude.extend(part.magnitude);
    }
    all
}

fn format_of(rows: &WeightRows) -> quant::Format {
    oracle_format(rows.format)
}

fn row_of(rows: &WeightRows, mut index: usize) -> &[u8] {
    for part in &rows.parts {
        let here = rows.rows_of(part);
        if index < here {
            return &part.get()[index * rows.row_bytes()..][..rows.row_bytes()];
        }
        index -= here;
    }
    panic!("row {index} past the end of {rows:?}")
}

/// The reference's GEMV.
fn gemv(rows: &WeightRows, x: &[f32]) -> Expected {
    over_rows(rows, |format, bytes, v, m| {
        reference::gemv::gemv_rows(format, bytes, rows.k, x, v, m);
    })
}

/// What `product` makes of some rows, with values and magnitudes to fill: all of them, spread over
/// threads.
fn over_rows(
    rows: &WeightRows,
    product: impl Fn(quant::Format, &[u8], &mut [f64], &mut [f64]) + Sync,
) -> Expected {
    const ROWS_A_TASK: usize = 64;
    let format = format_of(rows);
    let count = rows.rows();
    let (mut value, mut magnitude) = (vec![0.0; count], vec![0.0; count]);
    let (mut values, mut magnitudes) = (&mut value[..], &mut magnitude[..]);
    for part in &rows.parts {
        let n = rows.rows_of(part);
        let (v, m);
        (v, values) = values.split_at_mut(n);
        (m, magnitudes) = magnitudes.split_at_mut(n);
        v.par_chunks_mut(ROWS_A_TASK)
            .zip(m.par_chunks_mut(ROWS_A_TASK))
            .zip(part.get().par_chunks((ROWS_A_TASK * rows.row_bytes()).max(1)))
            .for_each(|((v, m), bytes)| product(format, bytes, v, m));
    }
    Expected { value, magnitude }
}
fn activation(s: &Shape) -> reference::glu::Activation {
    match s.dim("ACT") {
        0 => reference::glu::Activation::Silu,
        _ => reference::glu::Activation::GeluTanh,
    }
}

fn kv_format(s: &Shape) -> reference::kv_append::KvFormat {
    match s.get("KV") {
        Some(code) if code == FloatFormat::F16.code() => reference::kv_append::KvFormat::F16,
        _ => reference::kv_append::KvFormat::F32,
    }
}

fn cache_shape(s: &Shape) -> CacheShape {
    CacheShape {
        kv_heads: s.dim("KV_HEADS"),
        capacity: s.dim("CAPACITY"),
        head_dim: s.dim("HEAD_DIM"),
    }
}

struct KvAppend {
    k: Vec<f32>,
    v: Vec<f32>,
    shape: CacheShape,
    position: u32,
    format: reference::kv_append::KvFormat,
}

impl KvAppend {
    fn of(op: &Op, values: &[Value]) -> Self {
        let s = &op.shape;
        let qkv = values[op.tensor("qkv").0].f32s();
        let keys = s.dim("KV_HEADS") * s.dim("HEAD_DIM");
        let from = keys * s.dim("GROUP");
        Self {
            k: qkv[from..from + keys].to_vec(),
            v: qkv[from + keys..from + 2 * keys].to_vec(),
            shape: cache_shape(s),
            position: position(&values[op.tensor("state").0]),
            format: kv_format(s),
        }
    }
}
