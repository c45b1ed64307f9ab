//! The recording on the CPU, operation by operation through the reference crate. This is the one
//! place where a kernel's parameters and bindings meet its oracle.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use lathe_kernels::{RopeSpec, Shape};
use lathe_reference as reference;
use lathe_reference::Expected;
use lathe_reference::kv_append::CacheShape;
use lathe_reference::quant;
use rayon::prelude::*;

use super::{Batch, Execute, Stream};
use crate::error::Result;
use crate::recording::{Content, FloatFormat, Op, Recording, TensorId};
use crate::weights::{WeightRows, oracle_format};

/// A tensor on the host.
#[derive(Clone, Debug)]
pub enum Value {
    /// Activations, given vectors, decoded KV values.
    F32(Vec<f32>),
    /// Words.
    U32(Vec<u32>),
    /// Weight rows as in the file.
    Weights(WeightRows),
    /// The specification of a rope table; the reference computes its own angles from it.
    Rope(RopeSpec),
}

/// What an operation should have left in one tensor.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Real numbers with the scale of their rounding errors.
    Real(Expected),
    /// Exact words.
    Words(Vec<u32>),
}

impl Value {
    /// The host value of a tensor's initial content.
    pub fn of(content: &Content) -> Self {
        match content {
            Content::Activation { len, .. } | Content::Kv { len, .. } => {
                Value::F32(vec![0.0; *len])
            }
            Content::Words(len) => Value::U32(vec![0; *len]),
            Content::Values(values) => Value::F32(values.to_vec()),
            Content::Weights(rows, _) => Value::Weights(rows.clone()),
            Content::Rope(spec) => Value::Rope(spec.clone()),
            Content::Uniform(bytes) => Value::U32(bytemuck::pod_collect_to_vec(bytes)),
        }
    }

    fn f32s(&self) -> &[f32] {
        match self {
            Value::F32(v) => v,
            other => panic!("recording binds {other:?} where f32 values belong"),
        }
    }

    fn words(&self) -> &[u32] {
        match self {
            Value::U32(v) => v,
            other => panic!("recording binds {other:?} where words belong"),
        }
    }

    fn weights(&self) -> &WeightRows {
        match self {
            Value::Weights(w) => w,
            other => panic!("recording binds {other:?} where weights belong"),
        }
    }

    fn rope(&self) -> &RopeSpec {
        match self {
            Value::Rope(r) => r,
            other => panic!("recording binds {other:?} where a rope table belongs"),
        }
    }
}

/// Runs a recording with the reference.
#[derive(Debug)]
pub struct CpuExecutor {
    /// What is executed.
    pub recording: Arc<Recording>,
    /// One value a tensor.
    pub values: Vec<Value>,
}

impl CpuExecutor {
    /// An executor with every tensor at its initial content.
    pub fn new(recording: Arc<Recording>) -> Self {
        let values = recording.tensors.iter().map(|t| Value::of(&t.content)).collect();
        Self { recording, values }
    }

    /// Runs one operation.
    pub fn run_op(&mut self, index: usize) {
        let recording = Arc::clone(&self.recording);
        let op = &recording.ops[index];
        if op.kernel().name == "kv_append" {
            // In place: a cache is far larger than what a step appends to it.
            let at = KvAppend::of(op, &self.values);
            for (name, new) in [("k_cache", &at.k), ("v_cache", &at.v)] {
                if let Value::F32(cache) = &mut self.values[op.tensor(name).0] {
                    reference::kv_append::kv_append(cache, new, &at.shape, at.position, at.format);
                }
            }
            return;
        }
        for (tensor, outcome) in expected(op, &self.values) {
            self.values[tensor.0] = match outcome {
                Outcome::Real(e) => {
                    let mut values = e.to_f32();
                    let content = &recording.tensors[tensor.0].content;
                    if let Content::Activation { format: FloatFormat::F16, .. } = content {
                        for v in &mut values {
                            *v = half::f16::from_f32(*v).to_f32();
                        }
                    }
                    Value::F32(values)
                }
                Outcome::Words(w) => Value::U32(w),
            };
        }
    }
}

impl Execute for CpuExecutor {
    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()> {
        if let Value::U32(all) = &mut self.values[tensor.0] {
            all[at..at + words.len()].copy_from_slice(words);
        }
        Ok(())
    }

    fn clear(&mut self, tensor: TensorId) -> Result<()> {
        match &mut self.values[tensor.0] {
            Value::F32(v) => v.fill(0.0),
            Value::U32(v) => v.fill(0),
            Value::Weights(_) | Value::Rope(_) => {}
        }
        Ok(())
    }

    fn run(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            for op in 0..self.recording.ops.len() {
                self.run_op(op);
            }
        }
        Ok(())
    }

    fn stream(
        &mut self,
        stream: Stream,
        on: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<usize> {
        let begun = Instant::now();
        for step in 0..stream.steps {
            self.run(1)?;
            let word = self.values[stream.words.0].words()[stream.from + step];
            let batch = Batch { words: vec![word], at: begun.elapsed(), gpu: None };
            if on(batch).is_break() {
                break;
            }
        }
        Ok(0)
    }

    fn read_words(&mut self, tensor: TensorId) -> Result<Vec<u32>> {
        Ok(self.values[tensor.0].words().to_vec())
    }

    fn read_f32(&mut self, tensor: TensorId) -> Result<Vec<f32>> {
        Ok(self.values[tensor.0].f32s().to_vec())
    }
}

/// What an operation should leave in the tensors it writes, given what all tensors hold before.
/// Panics for a kernel without an oracle, which the contract test rules out.
pub fn expected(op: &Op, values: &[Value]) -> Vec<(TensorId, Outcome)> {
    oracle(op, values)
        .unwrap_or_else(|| panic!("kernel {} has no oracle in execute/cpu.rs", op.kernel().name))
}

fn oracle(op: &Op, values: &[Value]) -> Option<Vec<(TensorId, Outcome)>> {
    let s = &op.shape;
    let value = |name: &str| &values[op.tensor(name).0];
    let real = |name: &str, e: Expected| vec![(op.tensor(name), Outcome::Real(e))];
    Some(match op.kernel().name {
        "embed" => {
            let table = value("table").weights();
            let token = value("tokens").words()[position(value("state")) as usize];
            let row = row_of(table, token as usize);
            let scale = s.float("SCALE") as f32;
            real("x", reference::embed::embed(format_of(table), row, table.k, 0, scale))
        }
        "rms_norm" => {
            let (x, weight) = (value("x").f32s(), value("weight").f32s());
            let (eps, offset) = (s.float("EPS") as f32, s.float("OFFSET") as f32);
            let rows = x.chunks(s.dim("N"));
            real("y", join(rows.map(|r| reference::rms_norm::rms_norm(r, weight, eps, offset))))
        }
        "gemv" | "gemv_q" => {
            let product = gemv(value("weights").weights(), value("x").f32s());
            real("y", placed(value("y").f32s(), s.dim("FIRST"), product))
        }
        "qk_norm_rope" => {
            let qkv = value("qkv").f32s();
            let d = s.dim("HEAD_DIM");
            let (queries, keys) = (s.dim("KV_HEADS") * s.dim("GROUP") * d, s.dim("KV_HEADS") * d);
            let spec = value("rope").rope();
            let rope = reference::qk_norm_rope::Rope {
                style: match s.dim("STYLE") {
                    0 => reference::qk_norm_rope::RopeStyle::Interleaved,
                    _ => reference::qk_norm_rope::RopeStyle::Neox,
                },
                base: spec.base,
                freq_factors: spec.freq_factors.as_deref(),
                position: position(value("state")),
            };
            let norm =
                |name| (s.dim("NORM") == 1).then(|| (value(name).f32s(), s.float("EPS") as f32));
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
                    let mut cache = value(name).f32s().to_vec();
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
                seen: position(value("state")) as usize + 1,
            };
            let q = &value("qkv").f32s()[..heads * s.dim("HEAD_DIM")];
            let (k, v) = (value("k_cache").f32s(), value("v_cache").f32s());
            real("out", reference::attention_decode::attention_decode(q, k, v, &cache, &attention))
        }
        "glu" => {
            let (gate, up) = value("gate_up").f32s().split_at(s.dim("N"));
            let activation = match s.dim("ACT") {
                0 => reference::glu::Activation::Silu,
                _ => reference::glu::Activation::GeluTanh,
            };
            real("y", reference::glu::glu(gate, up, activation))
        }
        "residual_add" => {
            let (x, delta) = (value("x").f32s(), value("delta").f32s());
            real("x", reference::residual_add::residual_add(x, delta))
        }
        "argmax" => {
            let mut tokens = value("tokens").words().to_vec();
            let mut state = value("state").words().to_vec();
            let choice = reference::argmax::argmax(value("logits").f32s());
            let next = state[0] + 1;
            if next >= state[1] {
                tokens[next as usize] = choice;
            }
            (state[0], state[2]) = (next, choice);
            vec![
                (op.tensor("tokens"), Outcome::Words(tokens)),
                (op.tensor("state"), Outcome::Words(state)),
            ]
        }
        _ => return None,
    })
}

/// `new` from element `first` on among values that stay as they are.
fn placed(old: &[f32], first: usize, new: Expected) -> Expected {
    let kept = |values: &[f32]| values.iter().map(|v| (f64::from(*v), 0.0)).collect();
    let end = first + new.value.len();
    join([kept(&old[..first]), new, kept(&old[end..])])
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
