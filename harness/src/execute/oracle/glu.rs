//! Gate times up.

use lathe_kernels::glu::Glu;
use lathe_reference::glu::glu;

use super::rows::activation;
use super::{Inputs, Oracle, Outcomes};

impl Oracle for Glu {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (gate, up) = inputs.f32s("gate_up").split_at(self.n);
        inputs.real("y", glu(gate, up, activation(self.activation)))
    }
}
