//! Heads rotated in place.

use lathe_kernels::rope::Rope;
use lathe_reference::rope::rope;

use super::{Inputs, Oracle, Outcomes};

impl Oracle for Rope {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rotation = inputs.rotation(self.rope_style);
        inputs.real("x", rope(inputs.f32s("x"), self.head_dim, self.stride(), &rotation))
    }
}
