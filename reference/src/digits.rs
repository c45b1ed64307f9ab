//! Rounding of activations to integers before they meet the codes of quantised weights.
//!
//! The largest in size of 32 activations, `top`, becomes the largest integer that `bytes` digits
//! hold, so the step between integers is `top / LARGEST` and every activation is off by up to half
//! of it. Where all activations are of one size that is less than adding `f32` products rounds
//! away; beside a massive one the others are lost in its step, and no multiple of Σ|w·x| says so.
//!
//! An error is uniform in ± step/2 and has the variance step²/12. It reaches a product through
//! what the activation is multiplied with:
//!
//! - up to two digits: the weight w, since zero points and minimums meet rounded activations too;
//! - three digits: the share of the code, c = w − w₀ with w₀ the weight of code 0, since zero
//!   points and minimums meet activations that are not rounded;
//! - three digits and codes of four bits: those of two neighbours a and b meet activations
//!   as `c_a · (x_a − x_b/16) + (c_a + 16·(c_b − 8d)) · (x_b/16)` with d the step of codes, so
//!   that the two roundings have these factors, of up to 15 d and 128 d.
//!
//! With three digits terms of f32 are of the same size. Joining the digits' sums, scaling them and
//! adding what they lack rounds six times, each by a variance of (ε·c·x)²/12; sums of
//! activations in five additions, each by (ε·x)²/12 times what they meet, w₀ and 8d. By
//! (ε·top)² = 0.25·step² that is (1.5·c² + 1.25·(w₀² + (8d)²)) · (x/top)² beside the factors
//! squared. They matter where a massive x meets a w near 0, which Σ|w·x| does not see.
//!
//! Activations that stay `f32` have no digits. Kernels that apply a block's scale d to sums round
//! there too: they add up (q + o)·x, take o·Σx off, add m·Σx, and with a massive x where w is near
//! 0 these all but cancel. Quants of four bits carry an o of up to 16, those of five 32, and their
//! zero point. With c = d·q that is a term of a = |c| + 2·o·d + 2·|w₀|, which goes through some
//! [`ROUNDINGS`], each of a variance of (ε·a·x)²/12. Quants of six and eight bits are floats less
//! their zero point before they meet x.
//!
//! Errors of different activations are independent, so their variances add up over a row. Rows
//! share the errors, so a row's is bounded by [`DEVIATIONS`] of it, and their mean square, which
//! one activation may dominate, by [`MEAN_DEVIATIONS`] squared.

use std::ops::Range;

use crate::{Expected, Format};

/// Standard deviations of the rounding allowed to an element: a sum of uniform errors exceeds them
/// less often than a normal one, which does in 2 of 10⁹.
pub const DEVIATIONS: f64 = 6.0;

/// Standard deviations allowed in the mean square over an output, one row in the worst case: 6 of
/// 10⁵ normal ones exceed them.
pub const MEAN_DEVIATIONS: f64 = 4.0;

/// Additions that a term of `f32` activations goes through until its block's sum is complete: eight
/// in a lane, two over four lanes, one that takes the offset off, and its product.
const ROUNDINGS: f64 = 12.0;

/// Activations with one step.
const BLOCK: usize = 32;

/// Digits of a rounded activation, in bytes: 1 to 3, or 0 for `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits(pub u32);

impl Digits {
    /// The largest integer: all digits 127, of three what a rounding by addition to 1.5·2²³ holds.
    fn largest(self) -> f64 {
        match self.0 {
            1 => 127.0,
            2 => 32_639.0,
            _ => 4_161_400.0,
        }
    }

    /// Standard deviation of the product of one row with `x`. `row` holds its weights, `zero` and
    /// `full` the weights that it has with all bits of its codes clear and set.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn deviation(self, format: Format, [row, zero, full]: [&[f32]; 3], x: &[f64]) -> f64 {
        if self.0 == 0 {
            return apart(format, [row, zero, full], x);
        }
        let folds = matches!(format, Format::Q4_0 | Format::Q4_1 | Format::Q4K);
        let mut all = 0.0;
        for (i, x) in x.chunks(BLOCK).enumerate() {
            let top = x.iter().fold(0.0, |top: f64, x| top.max(x.abs()));
            if top == 0.0 {
                continue;
            }
            let block = i * BLOCK..i * BLOCK + x.len();
            let wide =
                |v: &[f32]| -> Vec<f64> { v[block.clone()].iter().map(|v| (*v).into()).collect() };
            let (w, zero, full) = (wide(row), wide(zero), wide(full));
            let mut squares = 0.0;
            for e in 0..x.len() {
                if self.0 < 3 {
                    squares += w[e].powi(2);
                    continue;
                }
                let share = w[e] - zero[e];
                let d = if folds { (full[e] - zero[e]) / 15.0 } else { 0.0 };
                let factor = match e % 2 {
                    1 if folds => w[e - 1] - zero[e - 1] + 16.0 * (share - 8.0 * d),
                    _ => share,
                };
                let apart = 1.5 * share.powi(2) + 1.25 * (zero[e].powi(2) + (8.0 * d).powi(2));
                squares += factor.powi(2) + apart * (x[e] / top).powi(2);
            }
            all += (top / self.largest()).powi(2) / 12.0 * squares;
        }
        all.sqrt()
    }

    /// Standard deviations of the products of rows with `x`, one per element of `deviations`.
    ///
    /// # Panics
    /// When sizes do not fit, or when weights are no codes and activations are rounded.
    pub fn deviations(self, format: Format, weights: &[u8], x: &[f64], deviations: &mut [f64]) {
        if self.0 == 0 && matches!(format, Format::Q8_0 | Format::Q6K) {
            return;
        }
        let bytes = format.row_bytes(x.len());
        let mut rows = [vec![0.0; x.len()], vec![0.0; x.len()], vec![0.0; x.len()]];
        for (row, deviation) in weights.chunks(bytes).zip(deviations) {
            for (decoded, bits) in rows.iter_mut().zip([None, Some(0), Some(0xff)]) {
                format.decode(&with_codes(format, row, bits), decoded);
            }
            *deviation = self.deviation(format, rows.each_ref().map(|row| &row[..]), x);
        }
    }
}

/// Standard deviation of a product whose codes, zero points and minimums meet `f32` apart.
fn apart(format: Format, [row, zero, full]: [&[f32]; 3], x: &[f64]) -> f64 {
    let (most, offset) = match format {
        Format::Q4_0 | Format::Q4_1 | Format::Q4K => (15.0, 16.0),
        Format::Q5_0 | Format::Q5_1 | Format::Q5K => (31.0, 32.0),
        _ => return 0.0,
    };
    let terms = row.iter().zip(zero).zip(full).zip(x).map(|(((w, zero), full), x)| {
        let [w, zero, full] = [w, zero, full].map(|v| f64::from(*v));
        let step = (full - zero).abs() / most;
        let term = (w - zero).abs() + 2.0 * offset * step + 2.0 * zero.abs();
        (term * x).powi(2)
    });
    f64::from(f32::EPSILON) * (ROUNDINGS / 12.0 * terms.sum::<f64>()).sqrt()
}

/// Blocks with all bytes of their codes replaced, where some are given.
///
/// # Panics
/// When weights are no codes.
pub fn with_codes(format: Format, blocks: &[u8], bits: Option<u8>) -> Vec<u8> {
    let mut blocks = blocks.to_vec();
    if let Some(bits) = bits {
        for block in blocks.chunks_mut(format.block_bytes()) {
            block[codes(format)].fill(bits);
        }
    }
    blocks
}

/// Bytes of a block that hold codes.
fn codes(format: Format) -> Range<usize> {
    match format {
        Format::Q8_0 | Format::Q4_0 | Format::Q5_0 => 2..format.block_bytes(),
        Format::Q4_1 | Format::Q5_1 => 4..format.block_bytes(),
        Format::Q4K | Format::Q5K => 16..format.block_bytes(),
        Format::Q6K => 0..192,
        Format::F32 | Format::F16 | Format::Bf16 => panic!("{} has no codes", format.name()),
    }
}

/// Products with the allowance for deviations of theirs. Magnitudes count `k` ε each.
pub fn allowed(mut product: Expected, deviations: Vec<f64>, k: f64) -> Expected {
    let unit = k * f64::from(f32::EPSILON);
    for (magnitude, deviation) in product.magnitude.iter_mut().zip(&deviations) {
        *magnitude += DEVIATIONS * deviation / unit;
    }
    product.deviation = deviations;
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    /// A q8_0 row of scale 1 and codes 0..32.
    fn row() -> Vec<u8> {
        [0x00, 0x3c].into_iter().chain(0..32).collect()
    }

    fn deviation(bytes: u32, x: &[f64]) -> f64 {
        let mut deviations = [0.0];
        Digits(bytes).deviations(Format::Q8_0, &row(), x, &mut deviations);
        deviations[0]
    }

    #[test]
    fn by_hand() {
        // The sum of the squares of 0..32 is 31·32·63/6 = 10416; a step is 254/127 = 2.
        let mut x = [1.0; 32];
        x[0] = 254.0;
        assert_relative_eq!(
            deviation(1, &x),
            (4.0 / 12.0 * 10416.0f64).sqrt(),
            max_relative = 1e-12
        );
        assert_eq!(deviation(1, &[0.0; 32]), 0.0);
        // Only the step counts, and the weight 0 of the massive one rounds nothing of its own.
        let (one, massive) = (deviation(3, &[1.0; 32]), deviation(3, &x));
        assert_relative_eq!(massive / one, 254.0 / 2.5f64.sqrt(), max_relative = 1e-3);
    }

    #[test]
    fn floats_by_hand() {
        // q4_1 of scale 2 and minimum -1, all codes 0: a = 0 + 2·16·2 + 2·1 = 66, of 32 ones
        // ε·√(32·66²). q8_0 has nothing apart.
        let row: Vec<u8> = [0x00, 0x40, 0x00, 0xbc].into_iter().chain([0; 16]).collect();
        let mut deviations = [0.0];
        Digits(0).deviations(Format::Q4_1, &row, &[1.0; 32], &mut deviations);
        let expected = f64::from(f32::EPSILON) * 66.0 * 32f64.sqrt();
        assert_relative_eq!(deviations[0], expected, max_relative = 1e-12);
        assert_eq!(deviation(0, &[1.0; 32]), 0.0);
    }

    #[test]
    fn integers_are_within_it() {
        for seed in 0..50 {
            let x: Vec<f64> = (0..32)
                .map(|i| f64::from(i * i % 29 + seed) * if i == 9 { 2e4 } else { 0.37 })
                .collect();
            let top = x.iter().fold(0.0, |top: f64, x| top.max(*x));
            for (digits, largest) in [(1, 127.0), (2, 32_639.0)] {
                let step = top / largest;
                let error: f64 = (0..32)
                    .zip(&x)
                    .map(|(w, x)| f64::from(w) * ((x / step).round() * step - x))
                    .sum();
                assert!(error.abs() <= DEVIATIONS * deviation(digits, &x), "{seed} {digits}");
            }
        }
    }
}
