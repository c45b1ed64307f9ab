//! A normed branch into the residual stream, and rows times the stream's norm.

use lathe_kernels::NormOffset;
use lathe_kernels::residual_norm_gemv::ResidualNormGemv;
use lathe_reference::Expected;
use lathe_reference::residual_norm_gemv as reference;

use super::residual_rms_norm::norm;
use super::rows::{over_rows, placed};
use super::{Inputs, Oracle, Outcomes};

/// The rows of `weights` times a normed stream.
pub(super) fn product(inputs: &Inputs<'_>, n: &Expected) -> Expected {
    over_rows(inputs.weights("weights"), |format, rows, v, m| {
        reference::norm_rows(format, rows, n, v, m);
    })
}

impl Oracle for ResidualNormGemv {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let norm = |weight| norm(inputs, weight, self.eps, NormOffset::Standard);
        let (stream, y) = reference::residual_norm_gemv(
            inputs.f32s("x"),
            inputs.f32s("delta"),
            &norm("post_weight"),
            &norm("norm_weight"),
            |n| product(inputs, n),
        );
        let y = placed(inputs.f32s("y"), self.y_offset, y);
        inputs.reals([("next_x", stream), ("y", y)])
    }
}
