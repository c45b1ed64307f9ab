//! A normed branch into the residual stream, and a matrix times the stream's norm:
//!
//! ```text
//! x'[i] = x[i] + rms_norm(delta)[i]        y[r] = Σᵢ W[r][i] · n[i],  n = rms_norm(x')
//! ```
//!
//! The composition of [`crate::residual_rms_norm`](mod@crate::residual_rms_norm) and
//! [`crate::gemv`](mod@crate::gemv) without rounding between them.
//!
//! Magnitudes: those of `residual_rms_norm` for x'; `Σᵢ |W[r][i]| · mᵢ` for y with mᵢ ≥ |nᵢ| those
//! of its norm, so that both the errors of n and those of the sum lie within it.

use crate::gemv::dot;
use crate::residual_rms_norm::residual_rms_norm;
use crate::rms_norm::RmsNorm;
use crate::{Expected, Format};

/// Rows of weights times the normed stream `n`, one per element of `value` and `magnitude`, so that
/// a caller can split a matrix over threads.
///
/// # Panics
/// When sizes do not fit, or when the length of `n` is no whole number of blocks.
pub fn norm_rows(
    format: Format,
    weights: &[u8],
    n: &Expected,
    value: &mut [f64],
    magnitude: &mut [f64],
) {
    let row_bytes = format.row_bytes(n.value.len());
    assert_eq!(value.len(), magnitude.len(), "one magnitude per value");
    assert_eq!(weights.len(), value.len() * row_bytes, "bytes of the rows");
    let mut row = vec![0.0; n.value.len()];
    for (r, (value, magnitude)) in value.iter_mut().zip(magnitude).enumerate() {
        format.decode(&weights[r * row_bytes..][..row_bytes], &mut row);
        *value = dot(&row, &n.value).0;
        *magnitude = dot(&row, &n.magnitude).1;
    }
}

/// The stream `x` after the branch `delta`, normed with `post`, and the result of `product` for its
/// norm with `norm`, such as [`norm_rows`] of a matrix.
///
/// # Panics
/// When lengths differ.
pub fn residual_norm_gemv(
    x: &[f32],
    delta: &[f32],
    post: &RmsNorm<'_>,
    norm: &RmsNorm<'_>,
    product: impl FnOnce(&Expected) -> Expected,
) -> (Expected, Expected) {
    let (stream, _) = residual_rms_norm(x, &Expected::exact(delta), Some(post), None);
    let y = product(&norm.of(&stream));
    (stream, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemv::tests::bytes;
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    fn norm(weight: &[f32]) -> RmsNorm<'_> {
        RmsNorm { weight, eps: 0.0, offset: 0.0 }
    }

    /// Rows of f32 weights.
    fn times(weights: &[f32], rows: usize) -> impl Fn(&Expected) -> Expected + use<> {
        let weights = bytes(weights);
        move |n| {
            let mut y = Expected::zeros(rows);
            norm_rows(Format::F32, &weights, n, &mut y.value, &mut y.magnitude);
            y
        }
    }

    #[test]
    fn by_hand() {
        // (1, 7) over its rms 5, weights (5, 15): (1, 21). With x = (0, -14): (1, 7), rms 5 again,
        // and weights (10, 5) make n = (2, 7).
        let (x, y) = residual_norm_gemv(
            &[0.0, -14.0],
            &[1.0, 7.0],
            &norm(&[5.0, 15.0]),
            &norm(&[10.0, 5.0]),
            times(&[1.0, 1.0, 3.0, -1.0], 2),
        );
        assert_relative_eq!(x.value[..], [1.0, 7.0], max_relative = 1e-15);
        // |sum| + |branch|.
        assert_relative_eq!(x.magnitude[..], [2.0, 28.0], max_relative = 1e-15);
        assert_relative_eq!(y.value[..], [9.0, -1.0], max_relative = 1e-14);
        // The magnitudes' rms is sqrt 394, over 5 the spread s: 2 (1 + s) + 2 * 2, 7 (1 + s) + 28.
        let s = 394f64.sqrt() / 5.0;
        let (a, b) = (2.0 * (1.0 + s) + 4.0, 7.0 * (1.0 + s) + 28.0);
        assert_relative_eq!(y.magnitude[..], [a + b, 3.0 * a + b], max_relative = 1e-14);
    }

    proptest! {
        #[test]
        fn no_branch_leaves_the_norm_of_the_stream(
            x in prop::collection::vec(-9.0f32..9.0, 1..40), eps in 1e-6f32..1e-2,
        ) {
            let weight: Vec<f32> = (0..x.len()).map(|i| 0.5 + i as f32 / 16.0).collect();
            let own = RmsNorm { weight: &weight, eps, offset: 0.0 };
            let product = times(&vec![1.0; x.len()], 1);
            let zeros = vec![0.0; x.len()];
            let (stream, y) = residual_norm_gemv(&x, &zeros, &own, &own, product);
            let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            prop_assert_eq!(&stream.value, &wide);
            let alone = crate::rms_norm::rms_norm(&x, &weight, eps, 0.0);
            let sum: f64 = alone.value.iter().sum();
            assert_relative_eq!(y.value[0], sum, epsilon = 1e-12);
            prop_assert!(y.magnitude[0] >= alone.magnitude.iter().sum::<f64>());
        }
    }
}
