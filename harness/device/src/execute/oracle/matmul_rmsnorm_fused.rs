//! A product into the residual stream.

use lathe_kernels::Norm;
use lathe_kernels::matmul_rmsnorm_fused::MatmulRmsnormFused;
use lathe_reference::Expected;
use lathe_reference::matmul_rmsnorm_fused::matmul_rmsnorm_fused;

use super::residual_rms_norm::norm;
use super::rows::gemv;
use super::{Inputs, Oracle, Outcomes};

impl Oracle for MatmulRmsnormFused {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let wanted = |asked: Norm, weight: &str| {
            (asked == Norm::Rms).then(|| norm(inputs, weight, self.eps, self.weight_offset))
        };
        let (post, next) = (wanted(self.post, "post_weight"), wanted(self.next, "next_weight"));
        let product = gemv(inputs.weights("weights"), inputs.f32s("x"));
        let stream = inputs.f32s("stream");
        let (stream, y) = matmul_rmsnorm_fused(stream, &product, post.as_ref(), next.as_ref());
        // Without a next norm y stays as it is.
        let y = y.unwrap_or_else(|| Expected::exact(inputs.f32s("y")));
        inputs.reals([("stream", stream), ("y", y)])
    }
}
