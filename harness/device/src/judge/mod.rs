//! The one judge: does an operation's result on the device agree with its oracle? `check`, `diff`,
//! `verify` and the validation before and after a benchmark all use it.

pub mod check;
pub mod diff;
pub mod finite;
pub mod sanitize;

use std::collections::BTreeMap;

use lathe_kernels::{Elem, Problem, State, Tolerance};
use lathe_reference as reference;
use lathe_reference::{Expected, compare_exact};
use serde::Serialize;

use crate::execute::oracle::Outcomes;
use crate::execute::value::{Among, Outcome};
use crate::plan::recording::{Op, Recording, TensorId, TensorInit};

/// The element closest to (or farthest past) its bound.
#[derive(Clone, Debug, Serialize)]
pub struct WorstElement {
    /// Binding.
    pub tensor: String,
    /// Element.
    pub index: usize,
    /// Value on the device.
    pub got: f64,
    /// Value of the reference.
    pub expected: f64,
    /// Largest allowed difference.
    pub bound: f64,
}

impl WorstElement {
    fn of(tensor: &str, worst: &reference::Worst) -> Self {
        Self {
            tensor: tensor.to_owned(),
            index: worst.index,
            got: worst.got,
            expected: worst.expected,
            bound: worst.bound,
        }
    }

    /// The difference over the largest allowed one.
    pub fn ratio(&self) -> f64 {
        (self.got - self.expected).abs() / self.bound
    }
}

/// Verdict on one case.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Verdict {
    /// Every element is within its bound, and nothing else was written.
    Passed {
        /// Largest normalised mean squared error of the outputs.
        nmse: f64,
        /// The element closest to its bound.
        worst: Option<WorstElement>,
    },
    /// The result is wrong.
    Failed {
        /// The fault.
        reason: String,
        /// NMSE of the output that is off, where it could be computed.
        nmse: Option<f64>,
        /// The element farthest past its bound.
        worst: Option<WorstElement>,
    },
    /// The case cannot run here, which is not a pass.
    Unavailable {
        /// The reason.
        reason: String,
    },
}

impl Verdict {
    /// Verdict over this and a further one: the first failure, or the element closest to its bound.
    pub(crate) fn and(self, next: Self) -> Self {
        match (self, next) {
            (Self::Passed { nmse, worst }, Self::Passed { nmse: other, worst: next }) => {
                let closer = |worst: &WorstElement| {
                    next.as_ref().is_some_and(|next| next.ratio() > worst.ratio())
                };
                let worst = worst.filter(|worst| !closer(worst)).or(next);
                Self::Passed { nmse: nmse.max(other), worst }
            }
            (Self::Passed { .. }, other) | (other, _) => other,
        }
    }

    /// A pass of exact words.
    fn exact() -> Self {
        Self::Passed { nmse: 0.0, worst: None }
    }

    /// A failure that is not of one element.
    pub fn broken(reason: String) -> Self {
        Verdict::Failed { reason, nmse: None, worst: None }
    }
}

/// Compares an operation's results with `outcomes`. `left` holds the bytes of each tensor that they
/// name; `state` is the state that the operation read.
pub fn judge(
    recording: &Recording,
    op: &Op,
    state: State,
    outcomes: &Outcomes,
    left: &BTreeMap<TensorId, Vec<u8>>,
) -> Verdict {
    let problem = Problem { shape: op.shape.clone(), state };
    let declared = op.plan.tolerance(&problem);
    let bare = bare(&declared);
    let (mut all, mut chosen) = (Verdict::exact(), None);
    for (tensor, outcome) in outcomes {
        let name = &recording.tensors[tensor.0].name;
        let content = |id: &TensorId| &recording.tensors[id.0].content;
        let words = || -> Vec<u32> { bytemuck::pod_collect_to_vec(&left[tensor]) };
        let exact = |compared: Result<(), String>| match compared {
            Ok(()) => Verdict::exact(),
            Err(reason) => Verdict::broken(format!("{name}: {reason}")),
        };
        let real = |expected: &Expected| {
            let got = content(tensor).values(&left[tensor]);
            let len = op.declared_len(*tensor, &problem).unwrap_or(got.len());
            let got = &got[..len.min(got.len())];
            compare(name, expected, got, &stored(declared, content(tensor)))
        };
        all = all.and(match outcome {
            Outcome::Words(expected) => {
                exact(compare_exact(expected, &words()).map_err(|m| m.to_string()))
            }
            Outcome::Choice { words: expected, at, among } => {
                exact(choice(expected, *at, among, &bare, &words(), &mut chosen))
            }
            Outcome::Ranking { values, rows, .. } => {
                let tolerance = stored(declared, content(values));
                let got = content(values).values(&left[values]);
                exact(reference::lm_head_topk::judge(rows, &tolerance, &got, &words()))
            }
            Outcome::Largest(logits) => real(&logits.value(&bare)),
            Outcome::Real(expected) => real(expected),
        });
    }
    all
}

pub(crate) fn bare(declared: &Tolerance) -> reference::Tolerance {
    reference::Tolerance { k: declared.k, rounding: declared.rounding, nmse: declared.nmse }
}

fn compare(
    name: &str,
    expected: &Expected,
    got: &[f32],
    tolerance: &reference::Tolerance,
) -> Verdict {
    let worst = |worst| WorstElement::of(name, worst);
    match reference::compare(expected, got, tolerance) {
        Ok(within) => Verdict::Passed { nmse: within.nmse, worst: Some(worst(&within.worst)) },
        Err(mismatch) => {
            let same_length = expected.value.len() == got.len();
            let nmse = same_length.then(|| {
                let got = got.iter().map(|v| f64::from(*v));
                reference::nmse(expected.value.iter().copied(), got)
            });
            let reason = format!("{name}: {mismatch}");
            Verdict::Failed { reason, nmse, worst: mismatch.worst().map(worst) }
        }
    }
}

/// Compares words of which one is a choice. `chosen` is the same choice as found in the operation's
/// other tensors.
fn choice(
    words: &[u32],
    at: usize,
    among: &Among,
    tolerance: &reference::Tolerance,
    got: &[u32],
    chosen: &mut Option<u32>,
) -> Result<(), String> {
    let allowed = among.allowed(tolerance);
    let mut expected = words.to_vec();
    let word = got.get(at).copied().unwrap_or_default();
    if allowed.contains(&word) && chosen.is_none_or(|c| c == word) {
        expected[at] = word;
        *chosen = Some(word);
    }
    compare_exact(&expected, got).map_err(|m| match allowed.len() {
        1 => m.to_string(),
        n => format!("{m}, and {n} choices lie within rounding of each other"),
    })
}

/// The bounds of a tensor: those declared, and the rounding of its type.
pub(crate) fn stored(declared: Tolerance, content: &TensorInit) -> reference::Tolerance {
    bare(&match content {
        TensorInit::Activation { format, .. } => declared.stored(&Elem::Floats(*format)),
        TensorInit::Kv { vectors, .. } => declared.stored(&Elem::Kv(*vectors)),
        _ => declared,
    })
}
