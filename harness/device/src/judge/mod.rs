//! The one judge: does an operation's result on the device agree with its oracle? `check`, `diff`,
//! `verify` and the validation before and after a benchmark all use it.

pub mod check;
pub mod diff;

use std::collections::BTreeMap;

use lathe_kernels::{Elem, Problem, State, Tolerance};
use lathe_reference as reference;
use lathe_reference::{Agreement, Expected, Mismatch, compare_exact};
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

/// Distance of an operation's result from its oracle, all within bounds.
#[derive(Clone, Debug, Default)]
pub struct Within {
    /// Largest normalised mean squared error of the outputs.
    pub nmse: f64,
    /// The element closest to its bound.
    pub worst: Option<WorstElement>,
}

/// A fault in one tensor.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{tensor}: {reason}")]
pub struct Fault {
    /// The tensor.
    pub tensor: String,
    /// The fault.
    pub reason: String,
    /// NMSE of the output that is off, where it could be computed.
    pub nmse: Option<f64>,
    /// The element farthest past its bound.
    pub worst: Option<WorstElement>,
}

impl Fault {
    fn new(tensor: &str, reason: String) -> Self {
        Self { tensor: tensor.to_owned(), reason, nmse: None, worst: None }
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
) -> Result<Within, Fault> {
    let problem = Problem { shape: op.shape.clone(), state };
    let declared = op.plan.tolerance(&problem);
    let bare = bare(&declared);
    let mut within = Within::default();
    let mut closest = 0.0;
    let mut chosen = None;
    for (tensor, outcome) in outcomes {
        let name = &recording.tensors[tensor.0].name;
        let content = |id: &TensorId| &recording.tensors[id.0].content;
        let words = || -> Vec<u32> { bytemuck::pod_collect_to_vec(&left[tensor]) };
        let fault = |reason: String| Fault::new(name, reason);
        let real = |expected: &Expected| {
            let got = content(tensor).values(&left[tensor]);
            let len = op.declared_len(*tensor, &problem).unwrap_or(got.len());
            let got = &got[..len.min(got.len())];
            compare(name, expected, got, &stored(declared, content(tensor)))
        };
        let agreement = match outcome {
            Outcome::Words(expected) => {
                compare_exact(expected, &words()).map_err(|m| fault(m.to_string()))?;
                continue;
            }
            Outcome::Choice { words: expected, at, among } => {
                choice(expected, *at, among, &bare, &words(), &mut chosen).map_err(fault)?;
                continue;
            }
            Outcome::Ranking { values, rows, .. } => {
                let tolerance = stored(declared, content(values));
                let got = content(values).values(&left[values]);
                reference::lm_head_topk::judge(rows, &tolerance, &got, &words()).map_err(fault)?;
                continue;
            }
            Outcome::Largest(logits) => real(&logits.value(&bare))?,
            Outcome::Real(expected) => real(expected)?,
        };
        within.nmse = within.nmse.max(agreement.nmse);
        if within.worst.is_none() || agreement.worst.ratio() > closest {
            closest = agreement.worst.ratio();
            within.worst = Some(WorstElement::of(name, &agreement.worst));
        }
    }
    Ok(within)
}

fn bare(declared: &Tolerance) -> reference::Tolerance {
    reference::Tolerance { k: declared.k, rounding: declared.rounding, nmse: declared.nmse }
}

fn compare(
    name: &str,
    expected: &Expected,
    got: &[f32],
    tolerance: &reference::Tolerance,
) -> Result<Agreement, Fault> {
    reference::compare(expected, got, tolerance).map_err(|m: Mismatch| {
        let same_length = expected.value.len() == got.len();
        let nmse = same_length.then(|| {
            let got = got.iter().map(|v| f64::from(*v));
            reference::nmse(expected.value.iter().copied(), got)
        });
        let worst = m.worst().map(|w| WorstElement::of(name, w));
        Fault { nmse, worst, ..Fault::new(name, m.to_string()) }
    })
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
fn stored(declared: Tolerance, content: &TensorInit) -> reference::Tolerance {
    bare(&match content {
        TensorInit::Activation { format, .. } => declared.stored(&Elem::Floats(*format)),
        TensorInit::Kv { vectors, .. } => declared.stored(&Elem::Kv(*vectors)),
        _ => declared,
    })
}
