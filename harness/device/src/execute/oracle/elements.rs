//! Operations over elements and rows: conversions, norms, sums and lookups.

use lathe_kernels::cast::Cast;
use lathe_kernels::chunk_end::ChunkEnd;
use lathe_kernels::dequant::Dequant;
use lathe_kernels::embed::Embed;
use lathe_kernels::glu::Glu;
use lathe_kernels::residual_add::ResidualAdd;
use lathe_kernels::residual_rms_norm::ResidualRmsNorm;
use lathe_kernels::rms_norm::RmsNorm;
use lathe_kernels::{FloatFormat, Norm, StateWord, TablePart, TokensOf};
use lathe_reference::{self as reference, Expected};

use super::matvec::activation;
use super::{Inputs, Oracle, Outcomes};
use crate::execute::value::Outcome;
use crate::plan::weights::oracle_format;

impl Oracle for Cast {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let is_bf16 = self.to == FloatFormat::Bf16;
        inputs.real("y", reference::cast::cast(inputs.f32s("x"), is_bf16))
    }
}

impl Oracle for Dequant {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rows = inputs.weights("weights");
        let format = oracle_format(rows.format);
        let values = |part| reference::dequant::dequant(format, part, rows.k);
        inputs.real("y", Expected::join(rows.parts.iter().map(|part| values(part.get()))))
    }
}

impl Oracle for Embed {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let table = inputs.weights("table");
        let first = match self.part {
            TablePart::Part => self.first_row,
            TablePart::Whole => 0,
        };
        let before = inputs.f32s("x").chunks(self.hidden);
        let each = match self.tokens_of {
            TokensOf::One => 1,
            TokensOf::Each => self.n_tokens,
        };
        let tokens = &inputs.words("tokens")[inputs.position() as usize * each..];
        let row_of = |row| {
            let format = oracle_format(table.format);
            reference::embed::embed(format, table.row(row), table.k, 0, self.scale)
        };
        let rows = tokens.iter().zip(before).map(|(token, before)| {
            let row = match self.part {
                // A token beyond it reads the last row: a step after one without a choice.
                TablePart::Whole => Some((*token as usize).min(table.rows() - 1)),
                TablePart::Part => (*token as usize).checked_sub(first),
            };
            let row = row.filter(|row| *row < table.rows());
            // A part of the table that lacks the token leaves x as it was.
            row.map_or_else(|| Expected::exact(before), row_of)
        });
        inputs.real("x", Expected::join(rows))
    }
}

impl Oracle for Glu {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rows = inputs.f32s("gate_up").chunks(2 * self.n).map(|row| {
            let (gate, up) = row.split_at(self.n);
            reference::glu::glu(gate, up, activation(self.activation))
        });
        inputs.real("y", Expected::join(rows))
    }
}

impl Oracle for ResidualAdd {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (x, delta) = (inputs.f32s("x"), inputs.f32s("delta"));
        inputs.real("x", reference::residual_add::residual_add(x, delta))
    }
}

impl Oracle for RmsNorm {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (weight, offset) = (inputs.f32s("weight"), self.weight_offset.value());
        let rows = inputs.f32s("x").chunks(self.n);
        let norm = |row| reference::rms_norm::rms_norm(row, weight, self.eps, offset);
        inputs.real("y", Expected::join(rows.map(norm)))
    }
}

impl Oracle for ResidualRmsNorm {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let norm = |weight| inputs.norm(weight, self.eps, self.weight_offset);
        let post = (self.post == Norm::Rms).then(|| norm("post_weight"));
        let next = norm("next_weight");
        let streams = inputs.f32s("x").chunks(self.n);
        let rows = streams.zip(inputs.f32s("delta").chunks(self.n)).map(|(x, delta)| {
            let branch = Expected::exact(delta);
            let residual = reference::residual_rms_norm::residual_rms_norm;
            let (x, y) = residual(x, &branch, post.as_ref(), Some(&next));
            (x, y.expect("a next norm was given"))
        });
        let (x, y): (Vec<_>, Vec<_>) = rows.unzip();
        inputs.reals([("x", Expected::join(x)), ("y", Expected::join(y))])
    }
}

impl Oracle for ChunkEnd {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        use reference::chunk_end::{last_row, position_after};
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
