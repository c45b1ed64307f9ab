//! A given branch into the residual stream.

use lathe_reference::residual_rms_norm as reference;
use lathe_reference::rms_norm::RmsNorm;

use super::{Inputs, Outcome, Outcomes};

/// The norm of a weight with the parameters of the operation at hand.
pub(super) fn norm<'a>(inputs: &Inputs<'a>, weight: &str) -> RmsNorm<'a> {
    let s = inputs.shape();
    RmsNorm {
        weight: inputs.f32s(weight),
        eps: s.float("EPS") as f32,
        offset: s.float("OFFSET") as f32,
    }
}

pub(super) fn residual_rms_norm(inputs: &Inputs<'_>) -> Outcomes {
    let post = (inputs.shape().dim("POST") == 1).then(|| norm(inputs, "post_weight"));
    let next = norm(inputs, "next_weight");
    let branch = reference::exact(inputs.f32s("delta"));
    let (x, y) =
        reference::residual_rms_norm(inputs.f32s("x"), &branch, post.as_ref(), Some(&next));
    [("x", Some(x)), ("y", y)]
        .into_iter()
        .filter_map(|(name, values)| Some((inputs.op.tensor(name), Outcome::Real(values?))))
        .collect()
}
