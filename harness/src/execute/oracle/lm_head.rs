//! The LM head with its choice or its largest logits.

use lathe_reference as reference;
use lathe_reference::lm_head_topk::{NONE, Row};
use lathe_reference::{Expected, Tolerance};

use super::{Inputs, Outcomes, choose, gemv, row_of};
use crate::execute::value::Outcome;

/// Values of parameter `PART`.
const WHOLE: usize = 0;
const FIRST: usize = 1;
const LAST: usize = 3;

fn logits(inputs: &Inputs<'_>) -> Expected {
    gemv(inputs.weights("weights"), inputs.f32s("x"))
}

/// What earlier parts of the head left counts.
fn goes_on(inputs: &Inputs<'_>) -> bool {
    !matches!(inputs.shape().dim("PART"), WHOLE | FIRST)
}

pub(super) fn argmax(inputs: &Inputs<'_>) -> Outcomes {
    let s = inputs.shape();
    let t = (inputs.op.kernel().tolerance)(s);
    let tolerance = Tolerance { k: t.k, rounding: t.rounding, nmse: t.nmse };
    let mut logits = logits(inputs);
    let rows = logits.value.len();
    if goes_on(inputs) {
        logits.value.push(f64::from(inputs.f32s("best_value")[0]));
        logits.magnitude.push(0.0);
    }
    let weights = inputs.weights("weights");
    let same =
        |a: usize, b: usize| a < rows && b < rows && row_of(weights, a) == row_of(weights, b);
    let winners = reference::lm_head_argmax::winners(&logits, &tolerance, same);
    let token = |w: &usize| match *w {
        row if row < rows => (s.dim("FIRST") + row) as u32,
        _ => inputs.words("best_index")[0],
    };
    let among: Vec<u32> = winners.iter().map(token).collect();
    let magnitude = winners.iter().map(|w| logits.magnitude[*w]).fold(0.0, f64::max);
    let value: Expected = [(logits.value[winners[0]], magnitude)].into_iter().collect();
    let words = vec![among[0]];
    let mut outcomes = vec![
        (inputs.op.tensor("best_value"), Outcome::Real(value)),
        (inputs.op.tensor("best_index"), Outcome::Choice { words, at: 0, among: among.clone() }),
    ];
    if matches!(s.dim("PART"), WHOLE | LAST) {
        outcomes.extend(choose::end_among(inputs, among));
    } else {
        for name in ["tokens", "state"] {
            outcomes.push((inputs.op.tensor(name), Outcome::Words(inputs.words(name).to_vec())));
        }
    }
    outcomes
}

pub(super) fn top_k(inputs: &Inputs<'_>) -> Outcomes {
    let s = inputs.shape();
    let logits = logits(inputs);
    let ranked = logits.value.iter().zip(&logits.magnitude).enumerate();
    let mut rows: Vec<Row> = ranked
        .map(|(row, (value, magnitude))| Row {
            index: (s.dim("FIRST") + row) as u32,
            value: *value,
            magnitude: *magnitude,
        })
        .collect();
    if goes_on(inputs) {
        let before = inputs.words("top_indices").iter().zip(inputs.f32s("top_values"));
        rows.extend(before.filter(|(index, _)| **index != NONE).map(|(index, value)| Row {
            index: *index,
            value: f64::from(*value),
            magnitude: 0.0,
        }));
    }
    let (expected, indices) = reference::lm_head_topk::top_k(&rows, s.dim("TOP_K"));
    let values = inputs.op.tensor("top_values");
    vec![
        (values, Outcome::Real(expected)),
        (inputs.op.tensor("top_indices"), Outcome::Ranking { indices, values, rows }),
    ]
}
