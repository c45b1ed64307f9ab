//! A row out of several, and the state's position.

use lathe_kernels::StateWord;
use lathe_kernels::chunk_end::ChunkEnd;
use lathe_reference::Expected;
use lathe_reference::chunk_end::{last_row, position_after};

use super::{Inputs, Oracle, Outcomes};
use crate::execute::value::Outcome;

impl Oracle for ChunkEnd {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let mut state = inputs.words("state").to_vec();
        let [position, given] =
            [StateWord::Position, StateWord::PromptLen].map(|word| state[word as usize] as usize);
        let row = last_row(inputs.f32s("x"), position, given, self.n_tokens);
        state[StateWord::Position as usize] = position_after(position, given, self.n_tokens) as u32;
        let mut outcomes = inputs.real("y", Expected::exact(row));
        outcomes.push((inputs.op.tensor("state"), Outcome::Words(state)));
        outcomes
    }
}
