//! Rows of the table, or x as it was where a part of the table lacks the token.

use lathe_kernels::embed::Embed;
use lathe_kernels::{TablePart, TokensOf};
use lathe_reference::Expected;
use lathe_reference::embed::embed;

use super::rows::{format_of, row_of};
use super::{Inputs, Oracle, Outcomes};

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
        let rows = tokens.iter().zip(before).map(|(token, before)| {
            match (*token as usize).checked_sub(first).filter(|row| *row < table.rows()) {
                Some(row) => embed(format_of(table), row_of(table, row), table.k, 0, self.scale),
                None => Expected::exact(before),
            }
        });
        inputs.real("x", Expected::join(rows))
    }
}
