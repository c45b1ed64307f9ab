//! Gate and up rows of one product and their activation.

use lathe_kernels::Norm;
use lathe_kernels::fused_ffn::FusedFfn;
use lathe_reference::fused_ffn::fused_ffn;
use lathe_reference::rms_norm::rms_norm;

use super::rows::{activation, gemv};
use super::{Inputs, Oracle, Outcomes};

impl Oracle for FusedFfn {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let weights = inputs.weights("weights");
        let product = match self.input_norm {
            Norm::Rms => {
                let (stream, weight) = (inputs.f32s("stream"), inputs.f32s("norm_weight"));
                gemv(weights, &rms_norm(stream, weight, self.eps, 0.0).to_f32())
            }
            Norm::None => gemv(weights, inputs.f32s("x")),
        };
        inputs.real("y", fused_ffn(&product, activation(self.activation)))
    }
}
