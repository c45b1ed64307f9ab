//! A given branch into the residual stream.

use lathe_kernels::residual_rms_norm::ResidualRmsNorm;
use lathe_kernels::{Norm, NormOffset};
use lathe_reference::Expected;
use lathe_reference::residual_rms_norm::residual_rms_norm;
use lathe_reference::rms_norm::RmsNorm;

use super::{Inputs, Oracle, Outcomes};
use crate::execute::value::Outcome;

/// The norm of a weight.
pub(super) fn norm<'a>(
    inputs: &Inputs<'a>,
    weight: &str,
    eps: f32,
    offset: NormOffset,
) -> RmsNorm<'a> {
    RmsNorm { weight: inputs.f32s(weight), eps, offset: offset.value() }
}

impl Oracle for ResidualRmsNorm {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let norm = |weight| norm(inputs, weight, self.eps, self.weight_offset);
        let post = (self.post == Norm::Rms).then(|| norm("post_weight"));
        let next = norm("next_weight");
        let branch = Expected::exact(inputs.f32s("delta"));
        let (x, y) = residual_rms_norm(inputs.f32s("x"), &branch, post.as_ref(), Some(&next));
        [("x", Some(x)), ("y", y)]
            .into_iter()
            .filter_map(|(name, values)| Some((inputs.op.tensor(name), Outcome::Real(values?))))
            .collect()
    }
}
