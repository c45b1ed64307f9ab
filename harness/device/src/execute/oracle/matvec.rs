//! Products of matrices and vectors, alone and fused with norms and activations.

use lathe_kernels::fused_ffn::FusedFfn;
use lathe_kernels::gemv::Gemv;
use lathe_kernels::gemv_q::GemvQ;
use lathe_kernels::matmul::Matmul;
use lathe_kernels::matmul_rmsnorm_fused::MatmulRmsnormFused;
use lathe_kernels::norm_gemv::NormGemv;
use lathe_kernels::residual_norm_ffn::ResidualNormFfn;
use lathe_kernels::residual_norm_gemv::ResidualNormGemv;
use lathe_kernels::{Activation, Beta, Format, Norm, NormOffset, Order};
use lathe_reference::digits::{DEVIATIONS, allowed, with_codes};
use lathe_reference::fused_ffn::fused_ffn;
use lathe_reference::matmul::matmul_column;
use lathe_reference::matmul_rmsnorm_fused::matmul_rmsnorm_fused;
use lathe_reference::residual_norm_ffn::residual_norm_ffn;
use lathe_reference::residual_norm_gemv::residual_norm_gemv;
use lathe_reference::rms_norm::rms_norm;
use lathe_reference::{self as reference, Expected, quant};
use rayon::prelude::*;

use super::{Inputs, Oracle, Outcomes, Rounding};
use crate::plan::weights::{WeightRows, oracle_format};

/// The reference's GEMV.
pub(super) fn gemv(inputs: &Inputs<'_>, rows: &WeightRows, x: &[f32]) -> Expected {
    let product = over_rows(rows, |format, bytes, v, m| {
        reference::gemv::gemv_rows(format, bytes, rows.k, x, v, m);
    });
    rounded(inputs, rows, x.iter().map(|x| f64::from(*x)), product)
}

/// A product with what the rounding of `x` to integers, or of operands to f16, is allowed, where the
/// variant does that.
fn rounded(
    inputs: &Inputs<'_>,
    rows: &WeightRows,
    x: impl Iterator<Item = f64>,
    product: Expected,
) -> Expected {
    let Some(of @ Rounding { digits, k, .. }) = inputs.rounding else { return product };
    let x: Vec<f64> = x.collect();
    if of.f16_range || of.f16_operands > 0 {
        let deviations = over_rows(rows, |format, bytes, deviations, _| {
            let mut row = vec![0.0; rows.k];
            for (bytes, deviation) in bytes.chunks(rows.row_bytes().max(1)).zip(deviations) {
                format.decode(bytes, &mut row);
                *deviation = f16_deviation(of, rows.format, &row, &x);
            }
        });
        let absolute = vec![absolute_in_f16(of, &x); product.value.len()];
        return Expected { absolute, ..allowed(product, deviations.value, k) };
    }
    let deviations = over_rows(rows, |format, bytes, deviations, _| {
        digits.deviations(format, bytes, &x, deviations);
    });
    allowed(product, deviations.value, k)
}

/// Values and magnitudes of all rows, computed by `product` for blocks of rows spread over threads.
pub(super) fn over_rows(
    rows: &WeightRows,
    product: impl Fn(quant::Format, &[u8], &mut [f64], &mut [f64]) + Sync,
) -> Expected {
    const ROWS_A_TASK: usize = 64;
    let format = oracle_format(rows.format);
    let count = rows.rows();
    let (mut value, mut magnitude) = (vec![0.0; count], vec![0.0; count]);
    let (mut values, mut magnitudes) = (&mut value[..], &mut magnitude[..]);
    for part in &rows.parts {
        let n = rows.rows_of(part);
        let (v, m);
        (v, values) = values.split_at_mut(n);
        (m, magnitudes) = magnitudes.split_at_mut(n);
        v.par_chunks_mut(ROWS_A_TASK)
            .zip(m.par_chunks_mut(ROWS_A_TASK))
            .zip(part.get().par_chunks((ROWS_A_TASK * rows.row_bytes()).max(1)))
            .for_each(|((v, m), bytes)| product(format, bytes, v, m));
    }
    Expected::new(value, magnitude)
}

/// `new` from element `first` on, between the old values around it.
pub(super) fn placed(old: &[f32], first: usize, new: Expected) -> Expected {
    let end = first + new.value.len();
    Expected::join([Expected::exact(&old[..first]), new, Expected::exact(&old[end..])])
}

/// A product plus `beta` times the old elements of `y` from `first` on.
pub(super) fn onto(y: &[f32], first: usize, beta: Beta, mut product: Expected) -> Expected {
    if beta == Beta::Zero {
        return product;
    }
    let sums = product.value.iter_mut().zip(&mut product.magnitude);
    for ((value, magnitude), before) in sums.zip(&y[first..]) {
        *value += f64::from(*before);
        *magnitude += f64::from(before.abs());
    }
    product
}

pub(super) fn activation(of: Activation) -> reference::glu::Activation {
    match of {
        Activation::Silu => reference::glu::Activation::Silu,
        Activation::GeluTanh => reference::glu::Activation::GeluTanh,
    }
}

impl Oracle for Gemv {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (weights, first) = (inputs.weights("weights"), self.y_offset);
        let ys = inputs.f32s("y").chunks(first + self.rows + self.y_after);
        let vectors = inputs.f32s("x").chunks(self.k).zip(ys).take(self.n_vectors);
        let product =
            |(x, y)| placed(y, first, onto(y, first, self.beta, gemv(inputs, weights, x)));
        inputs.real("y", Expected::join(vectors.map(product)))
    }
}

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
                Order::RowWise => gemv(inputs, weights, x),
                Order::Flat | Order::ColumnWise => reordered(inputs.rounding, weights, rows, x),
            };
            placed(y, first, onto(y, first, self.beta, product))
        });
        inputs.real("y", Expected::join(products))
    }
}

/// The product of a matrix whose rows are not runs of whole blocks: a tile of rows at a time is
/// decoded and multiplied as f32. The magnitude uses each block's largest weight: a weight is a sum
/// of terms that large, even where the row itself holds only small ones.
fn reordered(rounding: Option<Rounding>, weights: &WeightRows, rows: usize, x: &[f32]) -> Expected {
    let (format, k) = (oracle_format(weights.format), x.len());
    // As many rows as a block has values, so that a column's block is decoded once.
    let tile = format.block_len();
    let block = format.block_bytes();
    let bytes = weights.joined();
    let (mut value, mut magnitude) = (vec![0.0; rows], vec![0.0; rows]);
    let mut deviation = vec![0.0; rows];
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let tiles = value.par_chunks_mut(tile).zip(magnitude.par_chunks_mut(tile));
    let tiles = tiles.zip(deviation.par_chunks_mut(tile));
    tiles.enumerate().for_each(|(t, ((value, magnitude), deviation))| {
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
            // Without digits the magnitude below is large enough.
            if let Some(Rounding { digits, .. }) = rounding.filter(|r| r.digits.0 > 0) {
                let of_codes = |bits| {
                    let mut values = vec![0.0; decoded.len()];
                    format.decode(&with_codes(format, &bytes[from..end], Some(bits)), &mut values);
                    values
                };
                let (zero, full) = (of_codes(0), of_codes(0xff));
                for (r, deviation) in deviation.iter_mut().enumerate() {
                    let row = [&decoded, &zero, &full].map(|v| &v[r * k..(r + 1) * k]);
                    *deviation = digits.deviation(format, row, &wide);
                }
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
    let product = Expected::new(value, magnitude);
    match rounding {
        Some(Rounding { k, .. }) => allowed(product, deviation, k),
        None => product,
    }
}

fn largest_of(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, v| most.max(v.abs()))
}

impl Oracle for Matmul {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (weights, x) = (inputs.weights("weights"), inputs.f32s("x"));
        let columns: Vec<_> = (0..self.rows)
            .into_par_iter()
            .map(|r| {
                let mut column = vec![(0.0, 0.0); self.n_tokens];
                let format = oracle_format(weights.format);
                matmul_column(format, weights.row(r), weights.k, x, &mut column);
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
        if let Some(of) = inputs.rounding {
            through_f16(self, of, weights, x, &mut expected);
        }
        inputs.real("y", expected)
    }
}

/// Allows for operands that a variant rounds to f16. A vector with an activation that f16 does not
/// hold has results that may not be finite.
fn through_f16(p: &Matmul, of: Rounding, weights: &WeightRows, x: &[f32], expected: &mut Expected) {
    let (first, stride) = (p.y_offset, p.y_offset + p.rows + p.y_after);
    let format = oracle_format(weights.format);
    expected.deviation.resize(expected.value.len(), 0.0);
    expected.absolute.resize(expected.value.len(), 0.0);
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let deviations: Vec<Vec<f64>> = (0..p.rows)
        .into_par_iter()
        .map(|r| {
            let mut row = vec![0.0; weights.k];
            format.decode(weights.row(r), &mut row);
            wide.chunks(p.k).map(|x| f16_deviation(of, weights.format, &row, x)).collect()
        })
        .collect();
    for (r, of_row) in deviations.iter().enumerate() {
        for (m, deviation) in of_row.iter().enumerate() {
            let at = m * stride + first + r;
            expected.deviation[at] = *deviation;
            expected.magnitude[at] += DEVIATIONS * deviation / (of.k * f64::from(f32::EPSILON));
        }
    }
    for (m, x) in wide.chunks(p.k).enumerate() {
        let at = m * stride + first;
        let absolute = absolute_in_f16(of, x);
        expected.absolute[at..at + p.rows].fill(absolute);
    }
}

/// Standard deviation of what rounding to f16 adds to a product with weights of a format: an error is
/// uniform in ± 2⁻¹¹ of w·x, or in ± 2⁻²⁵ of one of them where the other is next to nothing, and those
/// of different products are independent. Weights of f16 are kept.
fn f16_deviation(of: Rounding, format: Format, row: &[f32], x: &[f64]) -> f64 {
    let relative = f64::from(of.f16_operands) * 2f64.powi(-22) / 3.0;
    let least = |is_rounded: bool| if is_rounded { 2f64.powi(-50) / 3.0 } else { 0.0 };
    let (of_x, of_weight) = (least(of.f16_range), least(format != Format::F16));
    let variance = |(w, x): (&f32, &f64)| {
        let (w, x) = (f64::from(*w).powi(2), x.powi(2));
        relative * w * x + of_x * w + of_weight * x
    };
    row.iter().zip(x).map(variance).sum::<f64>().sqrt()
}

/// Absolute error of results of a vector: an infinity where it holds an activation that f16 does not.
fn absolute_in_f16(of: Rounding, x: &[f64]) -> f64 {
    const F16_LARGEST: f64 = 65_504.0;
    if of.f16_range && x.iter().any(|x| x.abs() > F16_LARGEST) { f64::INFINITY } else { 0.0 }
}

impl Oracle for NormGemv {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (x, weight) = (inputs.f32s("x"), inputs.f32s("norm_weight"));
        let normed = rms_norm(x, weight, self.eps, self.weight_offset.value()).value;
        let weights = inputs.weights("weights");
        let product = over_rows(weights, |format, rows, v, m| {
            reference::norm_gemv::norm_rows(format, rows, &normed, v, m);
        });
        let product = rounded(inputs, weights, normed.into_iter(), product);
        inputs.real("y", placed(inputs.f32s("y"), self.y_offset, product))
    }
}

impl Oracle for FusedFfn {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let weights = inputs.weights("weights");
        let product = match self.input_norm {
            Norm::Rms => {
                let (stream, weight) = (inputs.f32s("stream"), inputs.f32s("norm_weight"));
                gemv(inputs, weights, &rms_norm(stream, weight, self.eps, 0.0).to_f32())
            }
            Norm::None => gemv(inputs, weights, inputs.f32s("x")),
        };
        inputs.real("y", fused_ffn(&product, activation(self.activation)))
    }
}

/// The rows of `weights` times a normed stream.
fn product(inputs: &Inputs<'_>, n: &Expected) -> Expected {
    let weights = inputs.weights("weights");
    let product = over_rows(weights, |format, rows, v, m| {
        reference::residual_norm_gemv::norm_rows(format, rows, n, v, m);
    });
    rounded(inputs, weights, n.value.iter().copied(), product)
}

impl Oracle for ResidualNormGemv {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let norm = |weight| inputs.norm(weight, self.eps, NormOffset::Standard);
        let (stream, y) = residual_norm_gemv(
            inputs.f32s("x"),
            inputs.f32s("delta"),
            &norm("post_weight"),
            &norm("norm_weight"),
            |n| product(inputs, n),
        );
        let y = placed(inputs.f32s("y"), self.y_offset, y);
        inputs.reals([("next_x", stream), ("y", y)])
    }
}

impl Oracle for ResidualNormFfn {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let norm = |weight| inputs.norm(weight, self.eps, NormOffset::Standard);
        let (stream, y) = residual_norm_ffn(
            inputs.f32s("x"),
            inputs.f32s("delta"),
            &norm("post_weight"),
            &norm("norm_weight"),
            activation(self.activation),
            |n| product(inputs, n),
        );
        inputs.reals([("next_x", stream), ("y", y)])
    }
}

impl Oracle for MatmulRmsnormFused {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let wanted = |asked: Norm, weight: &str| {
            (asked == Norm::Rms).then(|| inputs.norm(weight, self.eps, self.weight_offset))
        };
        let (post, next) = (wanted(self.post, "post_weight"), wanted(self.next, "next_weight"));
        let product = gemv(inputs, inputs.weights("weights"), inputs.f32s("x"));
        let stream = inputs.f32s("stream");
        let (stream, y) = matmul_rmsnorm_fused(stream, &product, post.as_ref(), next.as_ref());
        // Without a next norm y stays as it is.
        let y = y.unwrap_or_else(|| Expected::exact(inputs.f32s("y")));
        inputs.reals([("stream", stream), ("y", y)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turned_columns_are_columns_of_a_turned_vector() {
        let (rows, k, by) = (64, 40, 7);
        let values: Vec<f32> = (0..rows * k).map(|i| (i % 13) as f32 - 6.0).collect();
        let weights = WeightRows::from_f32(Format::Q8_0, Order::ColumnWise, k, &values);
        let mut x: Vec<f32> = (0..k).map(|i| (i % 5) as f32 - 2.0).collect();
        let turned = reordered(None, &weights.turned(by), rows, &x);
        x.rotate_left(by);
        let plain = reordered(None, &weights, rows, &x);
        for (turned, plain) in turned.value.iter().zip(&plain.value) {
            assert!((turned - plain).abs() < 1e-9, "{turned} {plain}");
        }
    }
}
