//! Rows times a stored matrix, transposed: `y[m][r] = Σᵢ x[m][i] · W[r][i]`.
//!
//! `W` is rows × k, row-major in any storage format, each weight decoded to its exact `f32` value;
//! `x` is m × k, row-major; `y` is m × rows.
//!
//! Magnitude: `Σᵢ |W[r][i]·x[m][i]|`, the same as [`gemv`](crate::gemv), of which this is one for
//! every row of `x`.

use crate::gemv::dot;
use crate::{Expected, Format};

/// All rows of `x` times all rows of `weights`.
///
/// # Panics
/// When `weights` is no whole number of rows of `k` elements, or `x` none of `k`.
pub fn matmul(format: Format, weights: &[u8], k: usize, x: &[f32]) -> Expected {
    let row_bytes = format.row_bytes(k);
    assert_eq!(weights.len() % row_bytes, 0, "bytes of the rows");
    let rows = weights.len() / row_bytes;
    let m = x.len() / k;
    let mut y = Expected::zeros(m * rows);
    let mut column = vec![(0.0, 0.0); m];
    for (r, row) in weights.chunks_exact(row_bytes).enumerate() {
        matmul_column(format, row, k, x, &mut column);
        for (m, (value, magnitude)) in column.iter().enumerate() {
            y.value[m * rows + r] = *value;
            y.magnitude[m * rows + r] = *magnitude;
        }
    }
    y
}

/// A column of y, value and magnitude of each element: all rows of `x` times one row of a matrix,
/// so that a caller can spread the rows over threads.
///
/// # Panics
/// When the sizes of `row`, `x` and `column` do not fit `k` and each other.
pub fn matmul_column(format: Format, row: &[u8], k: usize, x: &[f32], column: &mut [(f64, f64)]) {
    assert_eq!(row.len(), format.row_bytes(k), "bytes of a row");
    assert_eq!(x.len(), column.len() * k, "elements of x");
    let mut decoded = vec![0.0; k];
    format.decode(row, &mut decoded);
    for (y, x) in column.iter_mut().zip(x.chunks_exact(k)) {
        *y = dot(&decoded, x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemv::{gemv, tests::bytes};

    #[test]
    fn by_hand() {
        // Rows (1, 2) and (3, −4) of W; (10, 1), (0, 1) and (−1, 2) of x.
        let w = bytes(&[1.0, 2.0, 3.0, -4.0]);
        let y = matmul(Format::F32, &w, 2, &[10.0, 1.0, 0.0, 1.0, -1.0, 2.0]);
        let expected =
            [(12.0, 12.0), (26.0, 34.0), (2.0, 2.0), (-4.0, 4.0), (3.0, 5.0), (-11.0, 11.0)];
        assert_eq!(y, expected.into_iter().collect());
    }

    #[test]
    fn q8_0_by_hand() {
        // Scale 0.5 (0x3800) and codes 0..32: 0.5·(31·32/2) = 248 against ones, −8 against signs.
        let row: Vec<u8> = [0x00, 0x38].into_iter().chain(0..32).collect();
        let signs = (0..32).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 });
        let x: Vec<f32> = [1.0; 32].into_iter().chain(signs).collect();
        let y = matmul(Format::Q8_0, &row, 32, &x);
        assert_eq!(y, [(248.0, 248.0), (-8.0, 248.0)].into_iter().collect());
    }

    #[test]
    fn is_a_gemv_for_every_row() {
        let w: Vec<f32> = (0..35).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let x: Vec<f32> = (0..21).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
        let w = bytes(&w);
        let y = matmul(Format::F32, &w, 7, &x);
        for (m, x) in x.chunks(7).enumerate() {
            let one = gemv(Format::F32, &w, 5, 7, x);
            assert_eq!(y.value[5 * m..][..5], one.value);
            assert_eq!(y.magnitude[5 * m..][..5], one.magnitude);
        }
    }

    #[test]
    #[should_panic(expected = "elements of x")]
    fn half_a_row_of_x_panics() {
        matmul_column(Format::F32, &[0; 8], 2, &[0.0; 3], &mut [(0.0, 0.0)]);
    }
}
