//! The greedy choice, of each sequence.

use lathe_kernels::argmax::Argmax;
use lathe_reference::argmax::argmax;

use super::{Inputs, Oracle, Outcomes, choose};
use crate::execute::value::Among;

impl Oracle for Argmax {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rows = inputs.f32s("logits").chunks(self.n).take(self.sequences);
        let chosen: Vec<u32> = rows.map(argmax).collect();
        match chosen[..] {
            [token] => choose::end(inputs, &Among::One(token)),
            _ => choose::end_each(inputs, &chosen),
        }
    }
}
