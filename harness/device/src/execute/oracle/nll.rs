//! The likelihood of given tokens.

use lathe_kernels::nll::Nll;
use lathe_reference::nll::nll;

use super::{Inputs, Oracle, Outcomes};

impl Oracle for Nll {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        inputs.real("y", nll(inputs.f32s("logits"), inputs.words("tokens")))
    }
}
