//! A given branch into the residual stream.

use lathe_kernels::residual_rms_norm::ResidualRmsNorm;
use lathe_kernels::{Norm, NormOffset};
use lathe_reference::Expected;
use lathe_reference::residual_rms_norm::residual_rms_norm;
use lathe_reference::rms_norm::RmsNorm;

use super::{Inputs, Oracle, Outcomes};

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
        let streams = inputs.f32s("x").chunks(self.n);
        let rows = streams.zip(inputs.f32s("delta").chunks(self.n)).map(|(x, delta)| {
            let branch = Expected::exact(delta);
            let (x, y) = residual_rms_norm(x, &branch, post.as_ref(), Some(&next));
            (x, y.expect("a next norm was given"))
        });
        let (x, y): (Vec<_>, Vec<_>) = rows.unzip();
        inputs.reals([("x", Expected::join(x)), ("y", Expected::join(y))])
    }
}
