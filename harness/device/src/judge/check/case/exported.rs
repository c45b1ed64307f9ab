//! A case as plain data, for an executor in another program: the bytes of its inputs, and its
//! expected outcomes with the bounds that the judge here would apply.
//!
//! It is two invocations. The second has stress inputs over the outputs and scratch memory that the
//! first left, so a kernel that mistakes an earlier result for its own fails there. Tensors that are
//! both read and written begin anew, since no reference knows what the device left in them.

use std::borrow::Cow;

use lathe_kernels::{Capabilities, FloatFormat, Kernel, KvFormat, KvVectors, Problem, Role};
use lathe_reference::{Expected, Rule, Tolerance};

use super::{Case, Draw, STRESS, too_large};
use crate::error::Result;
use crate::execute::oracle::{self, Outcomes};
use crate::execute::value::{Outcome, Value};
use crate::judge::{bare, stored};
use crate::plan::layout::KvOrder;
use crate::plan::recording::{TensorId, TensorInit};

/// Two invocations of a kernel with all that is needed to run and judge them.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Tensors of the recording, in order.
    pub tensors: Vec<ExportedTensor>,
    /// Expected outcomes of the first and of the second invocation.
    pub runs: [Vec<ExportedOutcome>; 2],
}

/// A tensor of an exported case.
#[derive(Clone, Debug)]
pub struct ExportedTensor {
    /// Name of the binding.
    pub name: String,
    /// Use by the kernel; none for uniforms, which only users' files have.
    pub role: Option<Role>,
    /// Bytes on the device, before padding.
    pub bytes: u64,
    /// Storage of its elements.
    pub stored: Stored,
    /// Content before the first invocation; none for poison.
    pub first: Option<Vec<u8>>,
    /// Content before the second, where it is written anew.
    pub second: Option<Vec<u8>>,
}

/// Storage of a tensor's elements, as far as outcomes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Floats.
    Floats(FloatFormat),
    /// 32-bit words.
    Words,
    /// Vectors of 8-bit values with scales.
    Quantised(KvVectors),
}

/// Expected content of a tensor.
#[derive(Clone, Debug)]
pub struct ExportedOutcome {
    /// The tensor's index.
    pub tensor: usize,
    /// Its content, and the rule that judges it.
    pub judged: Judged,
}

/// Expected content, with the rule that judges it.
#[derive(Clone, Debug)]
pub enum Judged {
    /// Real numbers, as [`lathe_reference::compare`] judges them.
    Real {
        /// The values.
        value: Vec<f64>,
        /// The rule of each.
        rules: Vec<Rule>,
        /// The largest NMSE.
        nmse: f64,
        /// The largest value of the stored type.
        largest: f64,
    },
    /// Exact words.
    Words(Vec<u32>),
    /// Exact words but for one, which is one of some: the same in all tensors of the operation.
    Choice {
        /// The words.
        words: Vec<u32>,
        /// Index of the choice.
        at: usize,
        /// The words allowed there.
        allowed: Vec<u32>,
    },
    /// Indices of the largest values, which another tensor holds: see
    /// [`lathe_reference::lm_head_topk::judge`].
    Ranking {
        /// The tensor of values.
        values: usize,
        /// All that was ranked: index, value, and the largest difference allowed to it.
        rows: Vec<(u32, f64, f64)>,
    },
}

/// Fails with the reason if a problem's tensors exceed the largest binding of a device.
///
/// # Errors
/// The reason.
pub fn fits(kernel: &Kernel, problem: &Problem, caps: &Capabilities) -> Result<(), String> {
    too_large(kernel, problem, caps.binding_bytes).map_or(Ok(()), Err)
}

impl Case {
    /// The case as plain data.
    ///
    /// # Errors
    /// The operation has no reference.
    pub fn exported(&self) -> Result<Exported> {
        let stress = STRESS;
        let ids = (0..self.recording.tensors.len()).map(TensorId);
        let tensors = ids.map(|id| self.exported_tensor(id, stress)).collect();
        let problem = self.problem();
        let first = self.outcomes(&*self.expected(Draw::default())?, problem);
        let state = oracle::state(&self.recording.ops[0], &self.values(stress));
        let problem = Problem { state, ..problem.clone() };
        let second = self.outcomes(&*self.expected(stress)?, &problem);
        Ok(Exported { tensors, runs: [first, second] })
    }

    fn exported_tensor(&self, id: TensorId, stress: Draw) -> ExportedTensor {
        let (role, content) = (self.role(id), self.content(id));
        let drawn = |draw| {
            let value: Value = self.value(id, draw);
            value.device_bytes(content).map(Cow::into_owned)
        };
        let initial = || {
            let mut all = Vec::new();
            content.initial(|_, bytes| all.extend_from_slice(bytes));
            (!all.is_empty()).then_some(all)
        };
        let (first, second) = match role {
            Some(Role::Output | Role::Scratch) => (None, None),
            Some(Role::Counter) | None => (initial(), None),
            Some(Role::Input)
                if self.is_large(id)
                    && self.replaced(id, stress).is_none()
                    && !self.inputs.strains(self.whole(id)) =>
            {
                (drawn(Draw::default()), None)
            }
            Some(Role::Input | Role::InOut) => {
                (drawn(Draw::default()).or_else(initial), drawn(stress))
            }
        };
        let stored = match content {
            TensorInit::Words(_) | TensorInit::Counter(_) => Stored::Words,
            TensorInit::Activation { format, .. } => Stored::Floats(*format),
            TensorInit::Kv { vectors, .. } => match vectors.format {
                KvFormat::F32 => Stored::Floats(FloatFormat::F32),
                KvFormat::F16 => Stored::Floats(FloatFormat::F16),
                KvFormat::Q8_0 => Stored::Quantised(*vectors),
            },
            _ => Stored::Floats(FloatFormat::F32),
        };
        let name = self.recording.tensors[id.0].name.clone();
        ExportedTensor { name, role, bytes: content.device_bytes(), stored, first, second }
    }

    /// Returns true if a cache has another order on the device than here, as users' files may have
    /// it.
    pub fn is_reordered(&self) -> bool {
        let reordered = |content: &TensorInit| match content {
            TensorInit::Kv { order, .. } => *order != KvOrder::Heads,
            _ => false,
        };
        self.recording.tensors.iter().any(|tensor| reordered(&tensor.content))
    }

    fn outcomes(&self, outcomes: &Outcomes, problem: &Problem) -> Vec<ExportedOutcome> {
        let declared = self.recording.ops[0].plan.tolerance(problem);
        let bare = bare(&declared);
        let real = |expected: &Expected, tolerance: &Tolerance| Judged::Real {
            value: expected.value.clone(),
            rules: (0..expected.value.len()).map(|i| expected.rule(i, tolerance)).collect(),
            nmse: expected.nmse_limit(tolerance),
            largest: tolerance.largest(),
        };
        let outcome = |(tensor, outcome): &(TensorId, Outcome)| {
            let stored = |id: &TensorId| stored(declared, self.content(*id));
            let judged = match outcome {
                Outcome::Real(expected) => real(expected, &stored(tensor)),
                Outcome::Largest(logits) => real(&logits.value(&bare), &stored(tensor)),
                Outcome::Words(words) => Judged::Words(words.clone()),
                Outcome::Choice { words, at, among } => {
                    let (words, allowed) = (words.clone(), among.allowed(&bare));
                    Judged::Choice { words, at: *at, allowed }
                }
                Outcome::Ranking { values, rows, .. } => {
                    let tolerance = stored(values);
                    let bounded = rows.iter().map(|row| {
                        (row.index, row.value, tolerance.bound(row.value, row.magnitude))
                    });
                    Judged::Ranking { values: values.0, rows: bounded.collect() }
                }
            };
            ExportedOutcome { tensor: tensor.0, judged }
        };
        outcomes.iter().map(outcome).collect()
    }
}
