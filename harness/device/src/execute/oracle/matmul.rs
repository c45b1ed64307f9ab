//! The reference's product with rows of the matrix spread over threads, put in its place in y.

use lathe_kernels::Beta;
use lathe_kernels::matmul::Matmul;
use lathe_reference::Expected;
use lathe_reference::matmul::matmul_column;
use rayon::prelude::*;

use super::rows::{format_of, row_of};
use super::{Inputs, Oracle, Outcomes};

impl Oracle for Matmul {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (weights, x) = (inputs.weights("weights"), inputs.f32s("x"));
        let columns: Vec<_> = (0..self.rows)
            .into_par_iter()
            .map(|r| {
                let mut column = vec![(0.0, 0.0); self.n_tokens];
                let row = row_of(weights, r);
                matmul_column(format_of(weights), row, weights.k, x, &mut column);
                column
            })
            .collect();
        let mut expected = Expected::exact(inputs.f32s("y"));
        let (first, stride) = (self.y_offset, self.y_offset + self.rows + self.y_after);
        for (r, column) in columns.iter().enumerate() {
            for (m, (value, magnitude)) in column.iter().enumerate() {
                let at = m * stride + first + r;
                let before = match self.beta {
                    Beta::Zero => 0.0,
                    Beta::One => expected.value[at],
                };
                expected.value[at] = before + value;
                expected.magnitude[at] = before.abs() + magnitude;
            }
        }
        inputs.real("y", expected)
    }
}
