//! Tensors on the host, and the expected results of operations.

use std::borrow::Cow;
use std::sync::Arc;

use lathe_kernels::RopeSpec;
use lathe_reference::lm_head_argmax::winners;
use lathe_reference::lm_head_topk::Row;
use lathe_reference::{Expected, Tolerance};

use crate::plan::memory::UPLOAD_BYTES;
use crate::plan::recording::{TensorId, TensorInit};
use crate::plan::weights::WeightRows;

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

/// Expected content of one tensor after an operation.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Real numbers with the scale of their rounding errors.
    Real(Expected),
    /// Exact words.
    Words(Vec<u32>),
    /// Exact words but for one, a choice that rounding may decide. All choices of an operation are
    /// the same.
    Choice {
        /// The words with the reference's own choice.
        words: Vec<u32>,
        /// Index of the choice among them.
        at: usize,
        /// The choices that count as correct.
        among: Among,
    },
    /// The largest of some logits.
    Largest(Arc<Logits>),
    /// Indices of the largest values, which another tensor holds.
    Ranking {
        /// The reference's own.
        indices: Vec<u32>,
        /// The tensor of values.
        values: TensorId,
        /// Everything ranked.
        rows: Vec<Row>,
    },
}

/// Choices of a token that count as correct.
#[derive(Clone, Debug)]
pub enum Among {
    /// This token.
    One(u32),
    /// Any token whose logit may be the largest, given how exact logits are.
    Largest(Arc<Logits>),
}

impl Among {
    /// The reference's own choice.
    pub fn own(&self) -> u32 {
        match self {
            Among::One(token) => *token,
            Among::Largest(logits) => logits.tokens[logits.largest()],
        }
    }

    /// All choices that logits of this exactness allow.
    pub fn allowed(&self, tolerance: &Tolerance) -> Vec<u32> {
        match self {
            Among::One(token) => vec![*token],
            Among::Largest(logits) => {
                logits.winners(tolerance).iter().map(|w| logits.tokens[*w]).collect()
            }
        }
    }
}

/// Logits that a choice is made among.
#[derive(Clone, Debug)]
pub struct Logits {
    /// The logits.
    pub logits: Expected,
    /// The token of each.
    pub tokens: Vec<u32>,
    /// The rows that made the first of them: logits of equal rows are equal.
    pub rows: WeightRows,
}

impl Logits {
    fn largest(&self) -> usize {
        let value = |i: &usize| self.logits.value[*i];
        // Of equal ones the first.
        (0..self.tokens.len()).rev().max_by(|a, b| value(a).total_cmp(&value(b))).unwrap_or(0)
    }

    fn winners(&self, tolerance: &Tolerance) -> Vec<usize> {
        let rows = self.rows.rows();
        let same =
            |a: usize, b: usize| a < rows && b < rows && self.rows.row(a) == self.rows.row(b);
        winners(&self.logits, tolerance, same)
    }

    /// The largest logit, off by as much as any that may be the largest.
    pub fn value(&self, tolerance: &Tolerance) -> Expected {
        let winners = self.winners(tolerance);
        let magnitude = winners.iter().map(|w| self.logits.magnitude[*w]).fold(0.0, f64::max);
        [(self.logits.value[winners[0]], magnitude)].into_iter().collect()
    }

    /// The reference's own largest logit.
    pub fn own(&self) -> f32 {
        self.logits.value[self.largest()] as f32
    }
}

impl Value {
    /// The host value of a tensor's initial content.
    pub fn of(content: &TensorInit) -> Self {
        match content {
            TensorInit::Activation { len, .. } | TensorInit::Kv { len, .. } => {
                Value::F32(vec![0.0; *len])
            }
            TensorInit::Words(len) | TensorInit::Counter(len) => Value::U32(vec![0; *len]),
            TensorInit::Values(values) => Value::F32(values.to_vec()),
            TensorInit::Weights(rows, _)
            | TensorInit::Apart(rows)
            | TensorInit::WeightPart(rows, _) => Value::Weights(rows.clone()),
            TensorInit::Rope(spec) => Value::Rope(spec.clone()),
            TensorInit::Uniform(bytes) => Value::U32(bytemuck::pod_collect_to_vec(bytes)),
        }
    }

    /// Bytes of a device's tensor of this content that holds the value; none where the content
    /// itself has them, such as a table of angles.
    pub(crate) fn device_bytes(&self, content: &TensorInit) -> Option<Cow<'_, [u8]>> {
        Some(match (self, content) {
            (Value::U32(words), _) => Cow::Borrowed(bytemuck::cast_slice(words)),
            (Value::F32(values), TensorInit::Kv { vectors, order, .. }) => {
                Cow::Owned(order.to_device(vectors.encode(values), vectors.bytes()))
            }
            (Value::F32(values), TensorInit::Activation { format, .. }) => {
                Cow::Owned(format.encode(values))
            }
            (Value::Weights(rows), TensorInit::WeightPart(_, layout)) => {
                Cow::Owned(layout.bytes(rows))
            }
            (Value::Weights(rows), TensorInit::Weights(_, packing)) => {
                let mut all = Vec::new();
                rows.pack(*packing, UPLOAD_BYTES as usize, |_, bytes| all.extend_from_slice(bytes));
                Cow::Owned(all)
            }
            (Value::F32(values), _) => Cow::Borrowed(bytemuck::cast_slice(values)),
            _ => return None,
        })
    }

    pub(super) fn f32s(&self) -> &[f32] {
        match self {
            Value::F32(v) => v,
            other => panic!("recording binds {other:?} where f32 values belong"),
        }
    }

    pub(super) fn words(&self) -> &[u32] {
        match self {
            Value::U32(v) => v,
            other => panic!("recording binds {other:?} where words belong"),
        }
    }

    pub(super) fn weights(&self) -> &WeightRows {
        match self {
            Value::Weights(w) => w,
            other => panic!("recording binds {other:?} where weights belong"),
        }
    }

    pub(super) fn rope(&self) -> &RopeSpec {
        match self {
            Value::Rope(r) => r,
            other => panic!("recording binds {other:?} where a rope table belongs"),
        }
    }
}
