//! One draw.

use lathe_kernels::StateWord;
use lathe_kernels::sample::Sample;
use lathe_reference::sample::{self, Draw, Sampling};

use super::{Inputs, Oracle, Outcomes, choose};
use crate::execute::value::Among;

impl Oracle for Sample {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let position = inputs.position();
        let recent = sample::window(inputs.words("tokens"), position as usize, self.last_n);
        let draw = Draw { seed: inputs.words("state")[StateWord::Seed as usize], position };
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            repeat_penalty: self.repeat_penalty,
        };
        let token = sample::sample(inputs.f32s("logits"), recent, &sampling, draw);
        choose::end(inputs, &Among::One(token))
    }
}
