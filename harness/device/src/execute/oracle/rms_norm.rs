//! Rows, each by its own root mean square.

use lathe_kernels::rms_norm::RmsNorm;
use lathe_reference::Expected;
use lathe_reference::rms_norm::rms_norm;

use super::{Inputs, Oracle, Outcomes};

impl Oracle for RmsNorm {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let weight = inputs.f32s("weight");
        let rows = inputs.f32s("x").chunks(self.n);
        let normed = rows.map(|row| rms_norm(row, weight, self.eps, self.weight_offset.value()));
        inputs.real("y", Expected::join(normed))
    }
}
