//! A product into the residual stream.

use lathe_reference::matmul_rmsnorm_fused as reference;
use lathe_reference::residual_rms_norm::exact;

use super::residual_rms_norm::norm;
use super::{Inputs, Outcome, Outcomes, gemv};

pub(super) fn matmul_rmsnorm_fused(inputs: &Inputs<'_>) -> Outcomes {
    let wanted =
        |param: &str, weight: &str| (inputs.shape().dim(param) == 1).then(|| norm(inputs, weight));
    let (post, next) = (wanted("POST", "post_weight"), wanted("NEXT", "next_weight"));
    let product = gemv(inputs.weights("weights"), inputs.f32s("x"));
    let (stream, y) = reference::matmul_rmsnorm_fused(
        &product,
        inputs.f32s("stream"),
        post.as_ref(),
        next.as_ref(),
    );
    // Without a next norm y stays as it is.
    let y = y.unwrap_or_else(|| exact(inputs.f32s("y")));
    [("stream", stream), ("y", y)]
        .map(|(name, values)| (inputs.op.tensor(name), Outcome::Real(values)))
        .into()
}
