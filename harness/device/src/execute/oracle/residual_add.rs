//! A branch added to the residual stream.

use lathe_kernels::residual_add::ResidualAdd;
use lathe_reference::residual_add::residual_add;

use super::{Inputs, Oracle, Outcomes};

impl Oracle for ResidualAdd {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        inputs.real("x", residual_add(inputs.f32s("x"), inputs.f32s("delta")))
    }
}
