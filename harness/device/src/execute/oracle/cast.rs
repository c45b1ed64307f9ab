//! Values in another format.

use lathe_kernels::FloatFormat;
use lathe_kernels::cast::Cast;
use lathe_reference::cast::cast;

use super::{Inputs, Oracle, Outcomes};

impl Oracle for Cast {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        inputs.real("y", cast(inputs.f32s("x"), self.to == FloatFormat::Bf16))
    }
}
