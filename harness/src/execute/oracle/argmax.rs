//! The greedy choice.

use lathe_kernels::argmax::Argmax;
use lathe_reference::argmax::argmax;

use super::{Inputs, Oracle, Outcomes, choose};
use crate::execute::value::Among;

impl Oracle for Argmax {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        choose::end(inputs, &Among::One(argmax(inputs.f32s("logits"))))
    }
}
