//! Gate times up.

use lathe_kernels::glu::Glu;
use lathe_reference::Expected;
use lathe_reference::glu::glu;

use super::rows::activation;
use super::{Inputs, Oracle, Outcomes};

impl Oracle for Glu {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rows = inputs.f32s("gate_up").chunks(2 * self.n).map(|row| {
            let (gate, up) = row.split_at(self.n);
            glu(gate, up, activation(self.activation))
        });
        inputs.real("y", Expected::join(rows))
    }
}
