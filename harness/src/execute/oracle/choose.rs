//! The choice of the next token, and the end of a step.

use lathe_kernels::StateWord;

use super::{Inputs, Outcomes};
use crate::execute::value::{Among, Outcome};

/// The end of a step that chose one of some tokens.
pub(super) fn end(inputs: &Inputs<'_>, among: &Among) -> Outcomes {
    let mut tokens = inputs.words("tokens").to_vec();
    let mut state = inputs.words("state").to_vec();
    let next = inputs.position() + 1;
    let given = state[StateWord::Given as usize];
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
