//! Cases of a golden file as inputs and outcomes: what is drawn and computed for operations that
//! have a reference.

use lathe_kernels::{KernelBinding, Problem};

use crate::error::{Error, Result};
use crate::execute::oracle::Outcomes;
use crate::execute::value::{Outcome, Value};
use crate::plan::recording::{Op, TensorInit};
use crate::plan::user::{Found, Golden, Integer, Stored, Wanted};

/// Content and value of one binding in the first case of a shape.
pub(super) fn first(
    golden: &Golden,
    binding: &KernelBinding,
    problem: &Problem,
) -> Result<(TensorInit, Value)> {
    let stored = golden.stored(&problem.shape, binding.name);
    let (stored, len) = stored.ok_or_else(|| {
        let (file, shape) = (golden.path().display(), &problem.shape);
        Error::Usage(format!("{file}: no case has the parameters {shape}"))
    })?;
    let found = found(golden, binding.name, problem, 0);
    Ok(match stored {
        Stored::Floats(format) => {
            let unwritten = || Value::F32(vec![f32::NAN; len]);
            (TensorInit::Activation { len, format }, found.unwrap_or_else(unwritten))
        }
        Stored::Integers(integer) => {
            let words = (len * Integer::bytes(integer)).div_ceil(4);
            (TensorInit::Words(words), found.unwrap_or_else(|| Value::U32(vec![0; words])))
        }
    })
}

/// What an invocation of a draw finds in a binding; nothing in what it only writes.
pub(super) fn found(
    golden: &Golden,
    binding: &str,
    problem: &Problem,
    draw: usize,
) -> Option<Value> {
    golden.found(&problem.shape, draw, binding).map(|found| match found {
        Found::Floats(values) => Value::F32(values),
        Found::Words(words) => Value::U32(words),
    })
}

/// What an invocation of a draw should leave.
pub(super) fn expected(golden: &Golden, op: &Op, draw: usize) -> Outcomes {
    let wanted = |(binding, tensor): &(&'static str, _)| {
        let outcome = match golden.wanted(&op.shape, draw, binding)? {
            Wanted::Floats(expected) => Outcome::Real(expected),
            Wanted::Integers { integer, len, words } => Outcome::Integers { integer, len, words },
        };
        Some((*tensor, outcome))
    };
    op.bindings.iter().filter_map(wanted).collect()
}
