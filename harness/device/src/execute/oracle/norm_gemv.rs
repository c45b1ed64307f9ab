//! Rows times a normed vector.

use lathe_kernels::norm_gemv::NormGemv;
use lathe_reference::norm_gemv as reference;
use lathe_reference::rms_norm::rms_norm;

use super::rows::{over_rows, placed};
use super::{Inputs, Oracle, Outcomes};

impl Oracle for NormGemv {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (x, weight) = (inputs.f32s("x"), inputs.f32s("norm_weight"));
        let normed = rms_norm(x, weight, self.eps, self.weight_offset.value()).value;
        let product = over_rows(inputs.weights("weights"), |format, rows, v, m| {
            reference::norm_rows(format, rows, &normed, v, m);
        });
        inputs.real("y", placed(inputs.f32s("y"), self.y_offset, product))
    }
}
