//! A normed branch into the residual stream, and gate and up of the stream's norm.

use lathe_kernels::NormOffset;
use lathe_kernels::residual_norm_ffn::ResidualNormFfn;
use lathe_reference::residual_norm_ffn::residual_norm_ffn;

use super::residual_norm_gemv::product;
use super::residual_rms_norm::norm;
use super::rows::activation;
use super::{Inputs, Oracle, Outcomes};

impl Oracle for ResidualNormFfn {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let norm = |weight| norm(inputs, weight, self.eps, NormOffset::Standard);
        let (stream, y) = residual_norm_ffn(
            inputs.f32s("x"),
            inputs.f32s("delta"),
            &norm("post_weight"),
            &norm("norm_weight"),
            activation(self.activation),
            |n| product(inputs, n),
        );
        inputs.reals([("next_x", stream), ("y", y)])
    }
}
