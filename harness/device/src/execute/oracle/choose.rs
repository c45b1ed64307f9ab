//! The choice of the next token, and the end of a step.

use lathe_kernels::{STATE_WORDS, StateWord};

use super::{Inputs, Outcomes};
use crate::execute::value::{Among, Outcome};

/// The end of a step of several sequences, each with its choice.
pub(super) fn end_each(inputs: &Inputs<'_>, chosen: &[u32]) -> Outcomes {
    let mut tokens = inputs.words("tokens").to_vec();
    let mut state = inputs.words("state").to_vec();
    for (i, (token, state)) in chosen.iter().zip(state.chunks_mut(STATE_WORDS)).enumerate() {
        let next = state[StateWord::Position as usize] + 1;
        if next >= state[StateWord::PromptLen as usize]
            && let Some(place) = tokens.get_mut(next as usize * chosen.len() + i)
        {
            *place = *token;
        }
        state[StateWord::Position as usize] = next;
        state[StateWord::Choice as usize] = *token;
    }
    vec![
        (inputs.op.tensor("tokens"), Outcome::Words(tokens)),
        (inputs.op.tensor("state"), Outcome::Words(state)),
    ]
}

/// The end of a step that chose one of some tokens.
pub(super) fn end(inputs: &Inputs<'_>, among: &Among) -> Outcomes {
    let mut tokens = inputs.words("tokens").to_vec();
    let mut state = inputs.words("state").to_vec();
    let next = inputs.position() + 1;
    let given = state[StateWord::PromptLen as usize];
    let (choice, at) = (StateWord::Choice as usize, next as usize);
    state[StateWord::Position as usize] = next;
    state[choice] = among.own();
    let tokens = match tokens.get_mut(at) {
        Some(token) if next >= given => {
            *token = among.own();
            Outcome::Choice { words: tokens, at, among: among.clone() }
        }
        _ => Outcome::Words(tokens),
    };
    let state = Outcome::Choice { words: state, at: choice, among: among.clone() };
    vec![(inputs.op.tensor("tokens"), tokens), (inputs.op.tensor("state"), state)]
}
