//! Gate and up rows of one product and their activation.

use lathe_reference as reference;

use super::{Inputs, Outcomes, activation, gemv};

pub(super) fn fused_ffn(inputs: &Inputs<'_>) -> Outcomes {
    let s = inputs.shape();
    let weights = inputs.weights("weights");
    let product = if s.dim("NORM") == 1 {
        let (stream, weight) = (inputs.f32s("stream"), inputs.f32s("norm_weight"));
        let v = reference::rms_norm::rms_norm(stream, weight, s.float("EPS") as f32, 0.0);
        gemv(weights, &v.to_f32())
    } else {
        gemv(weights, inputs.f32s("x"))
    };
    inputs.real("y", reference::fused_ffn::fused_ffn(&product, activation(s)))
}
