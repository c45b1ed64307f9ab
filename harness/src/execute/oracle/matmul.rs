//! Expected outcome of `matmul`.

use lathe_reference as reference;
use lathe_reference::Expected;
use rayon::prelude::*;

use super::{Inputs, Outcomes, format_of, row_of};

/// The reference's product with rows of the matrix spread over threads, put in its place in y.
pub(super) fn matmul(inputs: &Inputs<'_>) -> Outcomes {
    let s = inputs.shape();
    let (weights, x, y) = (inputs.weights("weights"), inputs.f32s("x"), inputs.f32s("y"));
    let (m, rows, first) = (s.dim("M"), s.dim("ROWS"), s.dim("FIRST"));
    let columns: Vec<_> = (0..rows)
        .into_par_iter()
        .map(|r| {
            let mut column = vec![(0.0, 0.0); m];
            let row = row_of(weights, r);
            let format = format_of(weights);
            reference::matmul::matmul_column(format, row, weights.k, x, &mut column);
            column
        })
        .collect();
    let mut expected: Expected = y.iter().map(|v| (f64::from(*v), 0.0)).collect();
    let stride = first + rows + s.dim("AFTER");
    for (r, column) in columns.iter().enumerate() {
        for (m, (value, magnitude)) in column.iter().enumerate() {
            expected.value[m * stride + first + r] = *value;
            expected.magnitude[m * stride + first + r] = *magnitude;
        }
    }
    inputs.real("y", expected)
}
