//! Matrix times the RMS norm of a vector:
//! `y[r] = Σᵢ W[r][i] · n[i]`, `n[i] = x[i] / √(mean(x²) + eps) · (offset + weight[i])`.
//!
//! `W` is rows × k in any storage format; `x` and `weight` have `k` elements. The composition of
//! [`crate::rms_norm`] and [`crate::gemv`] without rounding `n` between them.
//!
//! Magnitude: `Σᵢ |W[r][i] · n[i]|`, as for a product with `n`. A kernel rounds each `x · weight`
//! once more, and the root's relative error, a few ε, scales the whole row: both lie within the
//! same sum.

/// Rows times the normed vector.
pub use crate::gemv::gemv_of as norm_rows;
use crate::rms_norm::rms_norm;
use crate::{Expected, Format};

/// All rows of `weights` (rows × k) times the normed and weighted `x` (k).
///
/// # Panics
/// When sizes do not fit, or when `k` is no whole number of blocks.
pub fn norm_gemv(
    format: Format,
    weights: &[u8],
    rows: usize,
    (x, weight): (&[f32], &[f32]),
    eps: f32,
    weight_offset: f32,
) -> Expected {
    let n = rms_norm(x, weight, eps, weight_offset).value;
    let mut y = Expected::zeros(rows);
    norm_rows(format, weights, &n, &mut y.value, &mut y.magnitude);
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemv::tests::bytes;
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        // mean(1, 49) = 25, so x/rms = (0.2, 1.4) and n = (2, −0.7).
        let w = bytes(&[1.0, 10.0, 3.0, 0.0]);
        let y = norm_gemv(Format::F32, &w, 2, (&[1.0, 7.0], &[10.0, -0.5]), 0.0, 0.0);
        assert_relative_eq!(y.value[..], [-5.0, 6.0], max_relative = 1e-15);
        assert_relative_eq!(y.magnitude[..], [9.0, 6.0], max_relative = 1e-15);
        // Weights (11, 0.5) with the offset: n = (2.2, 0.7).
        let y = norm_gemv(Format::F32, &w, 2, (&[1.0, 7.0], &[10.0, -0.5]), 0.0, 1.0);
        assert_relative_eq!(y.value[..], [9.2, 6.6], max_relative = 1e-14);
        // 25 + 11 = 36, so rms = 6 and n = (1, 7) with weights of 6.
        let y = norm_gemv(Format::F32, &w, 2, (&[1.0, 7.0], &[6.0, 6.0]), 11.0, 0.0);
        assert_relative_eq!(y.value[..], [71.0, 3.0], max_relative = 1e-15);
    }

    proptest! {
        #[test]
        fn the_scale_of_x_does_not_matter(
            x in prop::collection::vec(0.1f32..9.0, 19),
            w in prop::collection::vec(-4.0f32..4.0, 57),
            exponent in -20i32..20,
        ) {
            let g: Vec<f32> = (0..19).map(|i| 0.5 + i as f32 / 16.0).collect();
            let product = |x: &[f32]| norm_gemv(Format::F32, &bytes(&w), 3, (x, &g), 0.0, 0.0);
            let scaled: Vec<_> = x.iter().map(|x| x * 2f32.powi(exponent)).collect();
            let (a, b) = (product(&x), product(&scaled));
            for (a, b) in a.value.iter().zip(&b.value) {
                assert_relative_eq!(a, b, max_relative = 1e-10, epsilon = 1e-12);
            }
        }

        #[test]
        fn a_matrix_of_ones_sums_the_norm(x in prop::collection::vec(-9.0f32..9.0, 1..40)) {
            let g = vec![0.75; x.len()];
            let y = norm_gemv(Format::F32, &bytes(&vec![1.0; x.len()]), 1, (&x, &g), 1e-6, 1.0);
            let n = rms_norm(&x, &g, 1e-6, 1.0);
            assert_relative_eq!(y.value[0], n.value.iter().sum::<f64>(), epsilon = 1e-12);
            assert_relative_eq!(
                y.magnitude[0], n.magnitude.iter().sum::<f64>(), epsilon = 1e-12
            );
        }
    }
}
