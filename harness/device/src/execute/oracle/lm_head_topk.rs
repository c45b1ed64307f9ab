//! The LM head with its largest logits.

use lathe_kernels::HeadPart;
use lathe_kernels::lm_head_topk::LmHeadTopk;
use lathe_reference::lm_head_topk::{NONE, Row, top_k};

use super::rows::gemv;
use super::{Inputs, Oracle, Outcomes};
use crate::execute::value::Outcome;

impl Oracle for LmHeadTopk {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let logits = gemv(inputs.weights("weights"), inputs.f32s("x"));
        let ranked = logits.value.iter().zip(&logits.magnitude).enumerate();
        let mut rows: Vec<Row> = ranked
            .map(|(row, (value, magnitude))| Row {
                index: (self.first_row + row) as u32,
                value: *value,
                magnitude: *magnitude,
            })
            .collect();
        // What earlier parts of the head left counts.
        if !matches!(self.part, HeadPart::Whole | HeadPart::First) {
            let before = inputs.words("top_indices").iter().zip(inputs.f32s("top_values"));
            rows.extend(before.filter(|(index, _)| **index != NONE).map(|(index, value)| Row {
                index: *index,
                value: f64::from(*value),
                magnitude: 0.0,
            }));
        }
        let (expected, indices) = top_k(&rows, self.top_k);
        let values = inputs.op.tensor("top_values");
        vec![
            (values, Outcome::Real(expected)),
            (inputs.op.tensor("top_indices"), Outcome::Ranking { indices, values, rows }),
        ]
    }
}
