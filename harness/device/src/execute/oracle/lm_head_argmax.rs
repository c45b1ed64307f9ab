//! The LM head with its greedy choice.

use std::sync::Arc;

use lathe_kernels::HeadPart;
use lathe_kernels::lm_head_argmax::LmHeadArgmax;

use super::rows::gemv;
use super::{Inputs, Oracle, Outcomes, choose};
use crate::execute::value::{Among, Logits, Outcome};

impl Oracle for LmHeadArgmax {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let weights = inputs.weights("weights");
        let mut logits = gemv(weights, inputs.f32s("x"));
        let rows = logits.value.len();
        let mut tokens: Vec<u32> = (0..rows).map(|row| (self.first_row + row) as u32).collect();
        // What earlier parts of the head left counts.
        if !matches!(self.part, HeadPart::Whole | HeadPart::First) {
            logits.value.push(f64::from(inputs.f32s("best_value")[0]));
            logits.magnitude.push(0.0);
            tokens.push(inputs.words("best_index")[0]);
        }
        let logits = Arc::new(Logits { logits, tokens, rows: weights.clone() });
        let among = Among::Largest(Arc::clone(&logits));
        let (words, choice) = (vec![among.own()], among.clone());
        let mut outcomes = vec![
            (inputs.op.tensor("best_value"), Outcome::Largest(logits)),
            (inputs.op.tensor("best_index"), Outcome::Choice { words, at: 0, among: choice }),
        ];
        if matches!(self.part, HeadPart::Whole | HeadPart::Last) {
            outcomes.extend(choose::end(inputs, &among));
        } else {
            for name in ["tokens", "state"] {
                let same = Outcome::Words(inputs.words(name).to_vec());
                outcomes.push((inputs.op.tensor(name), same));
            }
        }
        outcomes
    }
}
