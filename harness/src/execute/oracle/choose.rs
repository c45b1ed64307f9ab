//! The choice of the next token, and the end of a step.

use lathe_kernels::{Shape, StateWord};
use lathe_reference::sample::{self, Sampling};

use super::{Inputs, Outcomes};
use crate::execute::value::Outcome;

/// The end of a step that chose `token`.
pub(super) fn end(inputs: &Inputs<'_>, token: u32) -> Outcomes {
    end_among(inputs, vec![token])
}

/// The end of a step that chose one of some tokens, the reference the first.
pub(super) fn end_among(inputs: &Inputs<'_>, among: Vec<u32>) -> Outcomes {
    let mut tokens = inputs.words("tokens").to_vec();
    let mut state = inputs.words("state").to_vec();
    let next = inputs.position() + 1;
    let given = state[StateWord::Given as usize];
    let (choice, at) = (StateWord::Choice as usize, next as usize);
    state[StateWord::Position as usize] = next;
    state[choice] = among[0];
    let tokens = match tokens.get_mut(at) {
        Some(token) if next >= given => {
            *token = among[0];
            Outcome::Choice { words: tokens, at, among: among.clone() }
        }
        _ => Outcome::Words(tokens),
    };
    let state = Outcome::Choice { words: state, at: choice, among };
    vec![(inputs.op.tensor("tokens"), tokens), (inputs.op.tensor("state"), state)]
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
