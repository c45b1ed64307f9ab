//! The choice of the next token, and the end of a step.

use std::sync::Arc;

use lathe_kernels::argmax::Argmax;
use lathe_kernels::lm_head_argmax::LmHeadArgmax;
use lathe_kernels::lm_head_topk::LmHeadTopk;
use lathe_kernels::sample::Sample;
use lathe_kernels::{HeadPart, STATE_WORDS, StateWord};
use lathe_reference::Expected;
use lathe_reference::argmax::NO_TOKEN;
use lathe_reference::lm_head_topk::{NONE, Row, top_k};
use lathe_reference::sample::{self, Draw, Sampling};

use super::matvec::gemv;
use super::{Inputs, Oracle, Outcomes};
use crate::execute::value::{Among, Logits, Outcome};

/// Tokens and state after a step in which each sequence chose a token. Given tokens are never
/// replaced.
fn ended(inputs: &Inputs<'_>, chosen: &[u32]) -> [Vec<u32>; 2] {
    let [mut tokens, mut state] = ["tokens", "state"].map(|name| inputs.words(name).to_vec());
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
    [tokens, state]
}

fn outcomes(inputs: &Inputs<'_>, outcomes: [Outcome; 2]) -> Outcomes {
    let tensors = ["tokens", "state"].map(|name| inputs.op.tensor(name));
    tensors.into_iter().zip(outcomes).collect()
}

/// The end of a step that chose one of some tokens.
fn end(inputs: &Inputs<'_>, among: &Among) -> Outcomes {
    let [tokens, state] = ended(inputs, &[among.own()]);
    let choice = |words, at| Outcome::Choice { words, at, among: among.clone() };
    let next = inputs.position() + 1;
    let is_given = next < state[StateWord::PromptLen as usize];
    let tokens = match next as usize {
        at if at < tokens.len() && !is_given => choice(tokens, at),
        _ => Outcome::Words(tokens),
    };
    outcomes(inputs, [tokens, choice(state, StateWord::Choice as usize)])
}

impl Oracle for Argmax {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rows = inputs.f32s("logits").chunks(self.n).take(self.sequences);
        let chosen: Vec<u32> = rows.map(lathe_reference::argmax::argmax).collect();
        match chosen[..] {
            [token] => end(inputs, &Among::One(token)),
            _ => outcomes(inputs, ended(inputs, &chosen).map(Outcome::Words)),
        }
    }
}

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
        end(inputs, &Among::One(token))
    }
}

impl Oracle for LmHeadArgmax {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let weights = inputs.weights("weights");
        let mut logits = gemv(inputs, weights, inputs.f32s("x"));
        let rows = logits.value.len();
        let mut tokens: Vec<u32> = (0..rows).map(|row| (self.first_row + row) as u32).collect();
        // What earlier parts of the head left counts.
        if !matches!(self.part, HeadPart::Whole | HeadPart::First) {
            logits.value.push(f64::from(inputs.f32s("best_value")[0]));
            logits.magnitude.push(0.0);
            logits.deviation.clear();
            tokens.push(inputs.words("best_index")[0]);
        }
        let wrong = |value: &f64| !value.is_finite() || *value >= f64::from(f32::MAX);
        if let Some(first) = logits.value.iter().position(wrong) {
            let best = Expected::exact(&[f32::MAX]);
            let named = vec![
                (inputs.op.tensor("best_value"), Outcome::Real(best)),
                (inputs.op.tensor("best_index"), Outcome::Words(vec![tokens[first]])),
            ];
            let end = ended_with(self.part, inputs, &Among::One(NO_TOKEN));
            return [named, end].concat();
        }
        let logits = Arc::new(Logits { logits, tokens, rows: weights.clone() });
        let among = Among::Largest(Arc::clone(&logits));
        let (words, choice) = (vec![among.own()], among.clone());
        let mut all = vec![
            (inputs.op.tensor("best_value"), Outcome::Largest(logits)),
            (inputs.op.tensor("best_index"), Outcome::Choice { words, at: 0, among: choice }),
        ];
        all.extend(ended_with(self.part, inputs, &among));
        all
    }
}

/// The end of a step with the last part of a head; the parts before leave tokens and state.
fn ended_with(part: HeadPart, inputs: &Inputs<'_>, among: &Among) -> Outcomes {
    match part {
        HeadPart::Whole | HeadPart::Last => end(inputs, among),
        _ => {
            let same = ["tokens", "state"].map(|name| inputs.words(name).to_vec());
            outcomes(inputs, same.map(Outcome::Words))
        }
    }
}

impl Oracle for LmHeadTopk {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let logits = gemv(inputs, inputs.weights("weights"), inputs.f32s("x"));
        let ranked = logits.value.iter().zip(&logits.magnitude).zip(self.first_row as u32..);
        let row = |((&value, &magnitude), index)| Row { index, value, magnitude };
        let mut rows: Vec<Row> = ranked.map(row).collect();
        // What earlier parts of the head left counts.
        if !matches!(self.part, HeadPart::Whole | HeadPart::First) {
            let before = inputs.words("top_indices").iter().zip(inputs.f32s("top_values"));
            rows.extend(before.filter(|(index, _)| **index != NONE).map(|(index, value)| Row {
                index: *index,
                value: f64::from(*value),
                magnitude: 0.0,
            }));
        }
        let (mut expected, indices) = top_k(&rows, self.top_k);
        // Sorting moves no value farther than the farthest of them.
        let deviation = logits.deviation.iter().fold(0.0, |most: f64, d| most.max(*d));
        expected.deviation = vec![deviation; self.top_k];
        let values = inputs.op.tensor("top_values");
        vec![
            (values, Outcome::Real(expected)),
            (inputs.op.tensor("top_indices"), Outcome::Ranking { indices, values, rows }),
        ]
    }
}
