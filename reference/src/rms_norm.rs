//! Root-mean-square norm: `y[i] = x[i] / √(mean(x²) + eps) · (offset + weight[i])`.
//!
//! `x` and `weight` have one length. `offset` is 0 in the standard form and 1 where a model stores
//! its weight less one (Gemma's safetensors; GGUF files hold the sum).
//!
//! Magnitude: |y|. The squares are all positive, so their sum has a relative error of a few ε
//! however it is ordered, and the root halves it; all other steps are products.
//!
//! Source: Zhang and Sennrich, *Root Mean Square Layer Normalization*, arXiv:1910.07467.

use crate::Expected;

/// The normed and weighted `x`.
///
/// # Panics
/// When `x` and `weight` differ in length.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, weight_offset: f32) -> Expected {
    RmsNorm { weight, eps, offset: weight_offset }.of(&Expected::exact(x))
}

/// A norm with its weight, also for vectors that carry errors of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm<'a> {
    /// One weight per element.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub eps: f32,
    /// Added to the weight.
    pub offset: f32,
}

impl RmsNorm<'_> {
    /// The normed and weighted `x`, whose elements err by their magnitudes (in units of ε).
    ///
    /// Magnitude: |y| as in [`rms_norm`], plus the effect of the errors m of x: one reaches its own
    /// element through the factor w/rms, and all reach the root, whose relative error is at most
    /// Σ|x·m| / Σx² ≤ rms(m)/rms(x) by Cauchy's inequality.
    ///
    /// # Panics
    /// When `x` and the weight differ in length.
    pub fn of(&self, x: &Expected) -> Expected {
        assert_eq!(x.value.len(), self.weight.len(), "one weight per element");
        let mean = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>() / v.len() as f64;
        let inverse = 1.0 / (mean(&x.value) + f64::from(self.eps)).sqrt();
        // Beside an infinity all others are 0, whatever their errors.
        let spread = if inverse == 0.0 { 0.0 } else { mean(&x.magnitude).sqrt() * inverse };
        let factor = |w: &f32| inverse * (f64::from(self.offset) + f64::from(*w));
        let mut y: Expected = x
            .value
            .iter()
            .zip(&x.magnitude)
            .zip(self.weight)
            .map(|((x, magnitude), w)| {
                let y = x * factor(w);
                (y, y.abs() * (1.0 + spread) + magnitude * factor(w).abs())
            })
            .collect();
        // The same of deviations, in the two ways.
        let spread = mean(&x.deviation).sqrt() * inverse;
        let parts = x.deviation.iter().zip(self.weight).zip(&y.value);
        y.deviation = parts.map(|((x, w), y)| (x * factor(w)).hypot(y * spread)).collect();
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tolerance, compare};
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        // mean(1, 49) = 25, so x/rms = (0.2, 1.4).
        let y = rms_norm(&[1.0, 7.0], &[10.0, -0.5], 0.0, 0.0);
        assert_relative_eq!(y.value[..], [2.0, -0.7]);
        assert_relative_eq!(y.magnitude[..], [2.0, 0.7]);
        // Weights (11, 0.5) with the offset.
        let y = rms_norm(&[1.0, 7.0], &[10.0, -0.5], 0.0, 1.0);
        assert_relative_eq!(y.value[..], [2.2, 0.7], max_relative = 1e-15);
        // 25 + 11 = 36, so rms = 6.
        let y = rms_norm(&[1.0, 7.0], &[6.0, 6.0], 11.0, 0.0);
        assert_relative_eq!(y.value[..], [1.0, 7.0]);
        assert_eq!(rms_norm(&[0.0; 2], &[1.0; 2], 1e-6, 0.0).value, [0.0; 2]);
    }

    #[test]
    fn errors_of_the_input_by_hand() {
        // rms 5. Errors (0, 5*sqrt 2) have rms 5, which the root passes on whole: spread 1.
        let x = [(1.0, 0.0), (7.0, 5.0 * 2f64.sqrt())].into_iter().collect();
        let y = RmsNorm { weight: &[10.0, 4.0], eps: 0.0, offset: 1.0 }.of(&x);
        assert_relative_eq!(y.value[..], [2.2, 7.0], max_relative = 1e-15);
        assert_relative_eq!(y.magnitude[..], [4.4, 14.0 + 5.0 * 2f64.sqrt()], max_relative = 1e-15);
    }

    proptest! {
        #[test]
        fn has_unit_mean_square_at_any_scale(
            x in prop::collection::vec(0.1f32..9.0, 1..40), exponent in -20i32..20,
        ) {
            let ones = vec![1.0; x.len()];
            let normed = |x: &[f32]| rms_norm(x, &ones, 0.0, 0.0).value;
            let y = normed(&x);
            let energy: f64 = y.iter().map(|y| y * y).sum();
            assert_relative_eq!(energy, x.len() as f64, max_relative = 1e-12);
            let scaled: Vec<_> = x.iter().map(|x| x * 2f32.powi(exponent)).collect();
            assert_relative_eq!(normed(&scaled)[..], y[..], max_relative = 1e-12);
        }

        #[test]
        fn plain_f32_arithmetic_is_in_bound(x in prop::collection::vec(-9.0f32..9.0, 1..40)) {
            let tolerance = Tolerance { k: 16.0, rounding: 0.0, nmse: f64::INFINITY };
            let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
            let y: Vec<_> = x.iter().map(|x| x / (mean + 1e-6).sqrt() * (1.0 + 0.3)).collect();
            let weight = vec![0.3; x.len()];
            prop_assert!(compare(&rms_norm(&x, &weight, 1e-6, 1.0), &y, &tolerance).is_ok());
        }
    }
}
