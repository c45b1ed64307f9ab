//! The one place where a kernel's parameters and bindings meet its reference.
//!
//! A kernel of a few lines has its arm in [`oracle`]; a longer one has a module of its name below.

mod choose;
mod lm_head;

use lathe_kernels::Shape;
use lathe_reference as reference;
use lathe_reference::Expected;
use lathe_reference::kv_append::CacheShape;
use lathe_reference::quant;
use rayon::prelude::*;

use super::cpu::{Outcome, Value};
use crate::recording::{FloatFormat, Op, TensorId};
use crate::weights::{WeightRows, oracle_format};

/// What an operation should leave in the tensors it writes, given what all tensors hold before.
/// Panics for a kernel without an oracle, which the contract test rules out.
pub(crate) fn expected(op: &Op, values: &[Value]) -> Vec<(TensorId, Outcome)> {
    oracle(op, values)
        .unwrap_or_else(|| panic!("kernel {} has no oracle in execute/oracle.rs", op.kernel().name))
}

/// Runs an operation that changes little of a large tensor without copying it: a cache is far
/// larger than what a step appends to it. False when the operation is no such one.
pub(super) fn in_place(op: &Op, values: &mut [Value]) -> bool {
    if op.kernel().name != "kv_append" {
        return false;
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
        "rms_norm" => {
            let (x, weight) = (inputs.f32s("x"), inputs.f32s("weight"));
            let (eps, offset) = (s.float("EPS") as f32, s.float("OFFSET") as f32);
            let rows = x.chunks(s.dim("N"));
            real("y", join(rows.map(|r| reference::rms_norm::rms_norm(r, weight, eps, offset))))
        }
        "gemv" | "gemv_q" => {
            let product = gemv(inputs.weights("weights"), inputs.f32s("x"));
            real("y", placed(inputs.f32s("y"), s.dim("FIRST"), product))
        }
        "qk_norm_rope" => {
            let qkv = inputs.f32s("qkv");
            let d = s.dim("HEAD_DIM");
            let (queries, keys) = (s.dim("KV_HEADS") * s.dim("GROUP") * d, s.dim("KV_HEADS") * d);
            let spec = inputs.value("rope").rope();
            let rope = reference::qk_norm_rope::Rope {
                style: match s.dim("STYLE") {
                    0 => reference::qk_norm_rope::RopeStyle::Interleaved,
                    _ => reference::qk_norm_rope::RopeStyle::Neox,
                },
                base: spec.base,
                freq_factors: spec.freq_factors.as_deref(),
                position: inputs.position(),
            };
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
            let heads = s.dim("KV_HEADS") * s.dim("GROUP");
            let attention = reference::attention_decode::Attention {
                heads,
                scale: s.float("SCALE") as f32,
                seen: inputs.position() as usize + 1,
            };
            let q = &inputs.f32s("qkv")[..heads * s.dim("HEAD_DIM")];
            let (k, v) = (inputs.f32s("k_cache"), inputs.f32s("v_cache"));
            real("out", reference::attention_decode::attention_decode(q, k, v, &cache, &attention))
        }
        "glu" => {
            let (gate, up) = inputs.f32s("gate_up").split_at(s.dim("N"));
            let activation = match s.dim("ACT") {
                0 => reference::glu::Activation::Silu,
                _ => reference::glu::Activation::GeluTanh,
            };
            real("y", reference::glu::glu(gate, up, activation))
        }
        "residual_add" => {
            let (x, delta) = (inputs.f32s("x"), inputs.f32s("delta"));
            real("x", reference::residual_add::residual_add(x, delta))
        }
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

/// The reference's GEMV with rows spread over threads.
fn gemv(rows: &WeightRows, x: &[f32]) -> Expected {
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
            .for_each(|((v, m), bytes)| {
                reference::gemv::gemv_rows(format, bytes, rows.k, x, v, m);
            });
    }
    Expected { value, magnitude }
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
            format: match s.get("KV") {
                Some(code) if code == FloatFormat::F16.code() => {
                    reference::kv_append::KvFormat::F16
                }
                _ => reference::kv_append::KvFormat::F32,
            },
        }
    }
}
