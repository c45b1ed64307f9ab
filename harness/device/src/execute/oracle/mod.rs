//! The one place where an operation's parameters and bindings meet its reference: they implement
//! [`Oracle`], in files by family.

mod attention;
mod choice;
mod elements;
mod matvec;
mod nll;

use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError, RwLock};

use lathe_kernels::{
    Declaration, Kernel, NormOffset, Params, Problem, Role, RopeStyle, State, StateWord, Text,
    Tolerance,
};
use lathe_reference as reference;
use lathe_reference::Expected;
use lathe_reference::digits::Digits;

use super::value::{Outcome, Value};
use crate::error::{Error, Result};
use crate::plan::recording::{Op, TensorId};
use crate::plan::weights::WeightRows;

/// Expected content of the tensors that an operation writes.
pub type Outcomes = Vec<(TensorId, Outcome)>;

/// The reference of an operation: expected outcomes of invocations with these parameters.
pub trait Oracle: Params {
    /// Expected content of each written tensor, given the contents of all tensors before.
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes;

    /// Runs an operation that changes little of a large tensor without copying it: a cache is far
    /// larger than one step's rows. Returns false where [`Oracle::expected`] is to be used.
    fn in_place(&self, _op: &Op, _values: &mut [Value]) -> bool {
        false
    }
}

/// An operation's inputs: the values of its bindings.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The operation.
    pub op: &'a Op,
    /// One value per tensor of the recording.
    pub values: &'a [Value],
    /// Rounding of activations that outcomes allow for. None where nothing is compared with them.
    pub rounding: Option<Rounding>,
}

/// Rounding by the variant that is judged: of activations to digits, or with no digits of codes,
/// zero points and minimums that meet them apart.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    digits: Digits,
    /// The declared multiples of ε per magnitude.
    k: f64,
    /// Operands of each product that are rounded to f16.
    f16_operands: u32,
    /// True if activations pass through f16.
    f16_range: bool,
}

impl<'a> Inputs<'a> {
    fn value(&self, name: &str) -> &'a Value {
        &self.values[self.op.tensor(name).0]
    }

    /// Floats bound to a name: as many as the operation declares, where a tensor has room for more.
    pub fn f32s(&self, name: &str) -> &'a [f32] {
        let values = self.value(name).f32s();
        let Some(declared) = self.op.kernel().binding(name) else { return values };
        let problem = Problem { shape: self.op.shape.clone(), state: state(self.op, self.values) };
        &values[..declared.len(&problem).min(values.len())]
    }

    /// Words bound to a name.
    pub fn words(&self, name: &str) -> &'a [u32] {
        self.value(name).words()
    }

    /// Weight rows bound to a name.
    pub fn weights(&self, name: &str) -> &'a WeightRows {
        self.value(name).weights()
    }

    /// The position in `state`: tokens of the sequence before the current one.
    pub fn position(&self) -> u32 {
        self.words("state")[StateWord::Position as usize]
    }

    /// The rotation of the current position.
    fn rotation(&self, style: RopeStyle) -> reference::rope::Rope<'a> {
        let spec = self.value("rope").rope();
        reference::rope::Rope {
            style: match style {
                RopeStyle::Interleaved => reference::rope::RopeStyle::Interleaved,
                RopeStyle::Neox => reference::rope::RopeStyle::Neox,
            },
            base: spec.base,
            freq_factors: spec.freq_factors.as_deref(),
            amplitude: spec.amplitude,
            position: self.position(),
        }
    }

    /// The norm of a weight bound to a name.
    fn norm(&self, name: &str, eps: f32, offset: NormOffset) -> reference::rms_norm::RmsNorm<'a> {
        reference::rms_norm::RmsNorm { weight: self.f32s(name), eps, offset: offset.value() }
    }

    /// One output of real numbers.
    pub fn real(&self, name: &str, expected: Expected) -> Outcomes {
        self.reals([(name, expected)])
    }

    /// Outputs of real numbers.
    pub fn reals<const N: usize>(&self, outputs: [(&str, Expected); N]) -> Outcomes {
        outputs.map(|(name, values)| (self.op.tensor(name), Outcome::Real(values))).into()
    }
}

/// The state that an operation reads, or that of a first token where it reads none.
pub(crate) fn state(op: &Op, values: &[Value]) -> State {
    let Some(binding) = op.kernel().state_binding(&op.shape) else { return State::default() };
    let words = values[op.tensor(binding.name).0].words();
    State {
        n_kv: words[StateWord::Position as usize] as usize + 1,
        prompt_len: words[StateWord::PromptLen as usize] as usize,
    }
}

/// An [`Oracle`] without its type.
#[derive(Clone, Copy)]
struct AnyOracle {
    expected: fn(&Inputs<'_>) -> Outcomes,
    in_place: fn(&Op, &mut [Value]) -> bool,
}

fn of<P: Oracle>(_: &'static Declaration<P>) -> AnyOracle {
    AnyOracle {
        expected: |inputs| P::read(&inputs.op.shape).expected(inputs),
        in_place: |op, values| P::read(&op.shape).in_place(op, values),
    }
}

type Oracles = BTreeMap<&'static str, AnyOracle>;

/// The table of all operations' oracles.
macro_rules! oracles {
    ($($name:ident)*) => {
        fn built_in() -> Oracles {
            [$((stringify!($name), of(&lathe_kernels::$name::OPERATION))),*].into()
        }
    };
}
lathe_kernels::for_each_operation!(oracles);

/// Oracles of operations from other crates.
static REGISTERED: RwLock<Oracles> = RwLock::new(BTreeMap::new());

/// Adds an operation of another crate, with one text per variant and the reference that its
/// parameters implement. Call it at the start of `main`: see [`lathe_kernels::registry`].
///
/// # Errors
/// Same as [`lathe_kernels::register`].
pub fn register<P: Oracle>(declaration: &'static Declaration<P>, texts: &[Text]) -> Result<()> {
    lathe_kernels::register(declaration, texts)?;
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    registered.insert(declaration.name, of(declaration));
    Ok(())
}

/// The reference of an operation. One that was registered with `lathe_kernels` alone has none.
fn oracle(kernel: &Kernel) -> Result<AnyOracle> {
    static BUILT_IN: OnceLock<Oracles> = OnceLock::new();
    let name = kernel.name;
    if let Some(oracle) = BUILT_IN.get_or_init(built_in).get(name) {
        return Ok(*oracle);
    }
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    registered.get(name).copied().ok_or(Error::NoReference { kernel: name })
}

/// Fails if an operation has no reference.
pub(crate) fn exists(kernel: &Kernel) -> Result<()> {
    oracle(kernel).map(|_| ())
}

/// Expected content of the tensors that an operation writes, given the contents of all tensors
/// before.
pub(crate) fn expected(op: &Op, values: &[Value]) -> Result<Outcomes> {
    Ok((oracle(op.kernel())?.expected)(&Inputs { op, values, rounding: None }))
}

/// Same as [`expected`], with what the arithmetic of the operation's variant is allowed in addition.
pub(crate) fn judged(op: &Op, values: &[Value]) -> Result<Outcomes> {
    let problem = Problem { shape: op.shape.clone(), state: state(op, values) };
    let Tolerance { digits, apart, k, f16_operands, f16_range, .. } = op.plan.tolerance(&problem);
    let rounding = Rounding { digits: Digits(digits), k, f16_operands, f16_range };
    let rounding = (digits > 0 || apart || f16_range || f16_operands > 0).then_some(rounding);
    let mut outcomes = (oracle(op.kernel())?.expected)(&Inputs { op, values, rounding });
    let mut off: Vec<&mut Expected> = outcomes
        .iter_mut()
        .filter_map(|(_, outcome)| match outcome {
            Outcome::Real(expected) => Some(expected),
            _ => None,
        })
        .filter(|expected| expected.value.iter().any(|v| !v.is_finite()))
        .collect();
    if !off.is_empty() && reads_not_finite(op, values) {
        off.iter_mut().for_each(|expected| expected.spreads = true);
    }
    Ok(outcomes)
}

/// Returns true if an input holds a NaN or an infinity.
pub(crate) fn reads_not_finite(op: &Op, values: &[Value]) -> bool {
    op.bindings.iter().any(|(name, tensor)| {
        let role = op.kernel().binding(name).map(|b| b.role);
        let is_read = matches!(role, Some(Role::Input | Role::InOut));
        is_read
            && match &values[tensor.0] {
                Value::F32(values) => values.iter().any(|v| !v.is_finite()),
                Value::Weights(rows) => !rows.is_finite(),
                Value::U32(_) | Value::Rope(_) => false,
            }
    })
}

/// See [`Oracle::in_place`].
pub(super) fn in_place(op: &Op, values: &mut [Value]) -> Result<bool> {
    Ok((oracle(op.kernel())?.in_place)(op, values))
}
