//! Tensors on the host, and what operations should leave in them.

use lathe_kernels::RopeSpec;
use lathe_reference::lm_head_topk::Row;
use lathe_reference::{Expected, compare_exact};

use crate::recording::{Content, TensorId};
use crate::weights::WeightRows;

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
    /// Exact words but for one, a choice that rounding decides. All choices of an operation are the
    /// same.
    Choice {
        /// The words with the reference's own choice.
        words: Vec<u32>,
        /// Which of them is the choice.
        at: usize,
        /// What it may be.
        among: Vec<u32>,
    },
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

impl Outcome {
    /// What is wrong with the words a device left, if they are a choice that this allows. `chosen`
    /// is what other tensors of the operation hold of the same choice.
    pub fn choice(&self, got: &[u32], chosen: &mut Option<u32>) -> Result<(), String> {
        let Outcome::Choice { words, at, among } = self else { return Ok(()) };
        let mut expected = words.clone();
        let word = got.get(*at).copied().unwrap_or_default();
        if among.contains(&word) && chosen.is_none_or(|c| c == word) {
            expected[*at] = word;
            *chosen = Some(word);
        }
        compare_exact(&expected, got).map_err(|m| match among.len() {
            1 => m.to_string(),
            n => format!("{m}, and {n} choices lie within rounding of each other"),
        })
    }
}

impl Value {
    /// The host value of a tensor's initial content.
    pub fn of(content: &Content) -> Self {
        match content {
            Content::Activation { len, .. } | Content::Kv { len, .. } => {
                Value::F32(vec![0.0; *len])
            }
            Content::Words(len) | Content::Counter(len) => Value::U32(vec![0; *len]),
            Content::Values(values) => Value::F32(values.to_vec()),
            Content::Weights(rows, _) => Value::Weights(rows.clone()),
            Content::Rope(spec) => Value::Rope(spec.clone()),
            Content::Uniform(bytes) => Value::U32(bytemuck::pod_collect_to_vec(bytes)),
        }
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
