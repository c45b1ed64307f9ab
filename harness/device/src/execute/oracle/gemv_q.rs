//! `gemv_q`: several vectors of activations, and blocks that run in any order.

use lathe_kernels::Order;
use lathe_kernels::gemv_q::GemvQ;
use lathe_reference as reference;
use lathe_reference::Expected;
use rayon::prelude::*;

use super::rows::{format_of, gemv, onto, placed};
use super::{Inputs, Oracle, Outcomes};
use crate::plan::weights::WeightRows;

impl Oracle for GemvQ {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (rows, first) = (self.rows, self.y_offset);
        let weights = inputs.weights("weights");
        let y = inputs.f32s("y");
        // The one vector may end before y does: other matrices fill the rest.
        let stride = if self.n_vectors == 1 { y.len() } else { first + rows + self.y_after };
        let vectors = inputs.f32s("x").chunks(self.k).zip(y.chunks(stride));
        let products = vectors.map(|(x, y)| {
            let product = match weights.order {
                Order::RowWise => gemv(weights, x),
                Order::Flat | Order::ColumnWise => reordered(weights, rows, x),
            };
            placed(y, first, onto(y, first, self.beta, product))
        });
        inputs.real("y", Expected::join(products))
    }
}

/// The product of a matrix whose rows are not runs of whole blocks: a tile of rows at a time is
/// decoded and multiplied as f32. The magnitude uses each block's largest weight: a weight is a sum
/// of terms that large, even where the row itself holds only small ones.
fn reordered(weights: &WeightRows, rows: usize, x: &[f32]) -> Expected {
    let (format, k) = (format_of(weights), x.len());
    // As many rows as a block has values, so that a column's block is decoded once.
    let tile = format.block_len();
    let block = format.block_bytes();
    let bytes = weights.joined();
    let (mut value, mut magnitude) = (vec![0.0; rows], vec![0.0; rows]);
    let tiles = value.par_chunks_mut(tile).zip(magnitude.par_chunks_mut(tile));
    tiles.enumerate().for_each(|(t, (value, magnitude))| {
        let mut decoded = vec![0.0f32; value.len() * k];
        let mut largest = vec![0.0f32; value.len() * k];
        if weights.order == Order::Flat {
            // A tile begins at a multiple of block_len values and so at a block.
            let from = t * k * block;
            let end = (from + decoded.len().div_ceil(tile) * block).min(bytes.len());
            format.decode(&bytes[from..end], &mut decoded);
            for (block, largest) in decoded.chunks(tile).zip(largest.chunks_mut(tile)) {
                largest.fill(largest_of(block));
            }
        } else {
            let mut column = vec![0.0; value.len()];
            for i in 0..k {
                let from = i * weights.row_bytes() + t * block;
                format.decode(&bytes[from..from + block], &mut column);
                let most = largest_of(&column);
                for (r, v) in column.iter().enumerate() {
                    decoded[r * k + i] = *v;
                    largest[r * k + i] = most;
                }
            }
        }
        let rows: Vec<u8> = decoded.iter().flat_map(|v| v.to_le_bytes()).collect();
        reference::gemv::gemv_rows(reference::Format::F32, &rows, k, x, value, magnitude);
        for (magnitude, largest) in magnitude.iter_mut().zip(largest.chunks(k)) {
            let terms = largest.iter().zip(x).map(|(w, x)| f64::from(w * x).abs());
            *magnitude = terms.sum();
        }
    });
    Expected::new(value, magnitude)
}

fn largest_of(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, v| most.max(v.abs()))
}

#[cfg(test)]
mod tests {
    use lathe_kernels::Format;

    use super::*;

    #[test]
    fn turned_columns_are_columns_of_a_turned_vector() {
        let (rows, k, by) = (64, 40, 7);
        let values: Vec<f32> = (0..rows * k).map(|i| (i % 13) as f32 - 6.0).collect();
        let weights = WeightRows::from_f32(Format::Q8_0, Order::ColumnWise, k, &values);
        let mut x: Vec<f32> = (0..k).map(|i| (i % 5) as f32 - 2.0).collect();
        let turned = reordered(&weights.turned(by), rows, &x);
        x.rotate_left(by);
        let plain = reordered(&weights, rows, &x);
        for (turned, plain) in turned.value.iter().zip(&plain.value) {
            assert!((turned - plain).abs() < 1e-9, "{turned} {plain}");
        }
    }
}
