//! The choice of the next token, and the end of a step.

use lathe_kernels::{Shape, StateWord};
use lathe_reference::sample::{self, Sampling};

use super::{Inputs, Outcomes};
use crate::execute::cpu::Outcome;

/// The end of a step that chose `token`.
pub(super) fn end(inputs: &Inputs<'_>, token: u32) -> Outcomes {
    let mut tokens = inputs.words("tokens").to_vec();
    let mut state = inputs.words("state").to_vec();
    let next = inputs.position() + 1;
    if next >= state[StateWord::Given as usize] && (next as usize) < tokens.len() {
        tokens[next as usize] = token;
    }
    state[StateWord::Position as usize] = next;
    state[StateWord::Choice as usize] = token;
    vec![
        (inputs.op.tensor("tokens"), Outcome::Words(tokens)),
        (inputs.op.tensor("state"), Outcome::Words(state)),
    ]
}

pub(super) fn sample(inputs: &Inputs<'_>) -> Outcomes {
    let s = inputs.shape();
    let position = inputs.position();
    let seen = sample::window(inputs.words("tokens"), position as usize, s.dim("LAST_N"));
    let uniform = sample::uniform(inputs.words("state")[StateWord::Seed as usize], position);
    end(inputs, sample::sample(inputs.f32s("logits"), seen, &sampling(s), uniform))
}

fn sampling(s: &Shape) -> Sampling {
    Sampling {
        temperature: s.float("TEMPERATURE") as f32,
        top_k: s.dim("TOP_K"),
        top_p: s.float("TOP_P") as f32,
        repeat_penalty: s.float("REPEAT_PENALTY") as f32,
    }
}
