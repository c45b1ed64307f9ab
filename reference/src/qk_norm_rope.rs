//! Optional norm of each head, then rotary position embedding.
//!
//! Per head of `head_dim` elements: `x ← x / √(mean(x²) + eps) · weight` where a norm is given,
//! then each pair `(a, b)`, i in 0..head_dim/2, rotates by its angle in radians:
//!
//! ```text
//! θᵢ = position · base^(−2i/head_dim) / freq_factors[i]
//! a' = a·cos θᵢ − b·sin θᵢ        b' = a·sin θᵢ + b·cos θᵢ
//! ```
//!
//! Magnitude, for both of a pair: |a| + |b|. The norm errs relatively, the products err by ε of
//! |a| and |b|, and so do sine and cosine read from a table rounded once. A kernel that computes
//! its angle in `f32` is off by another ε·|θ| of it and fails here at far positions, as it should.
//!
//! Sources: Su et al., *RoFormer*, arXiv:2104.09864; Henry et al., *Query-Key Normalization for
//! Transformers*, arXiv:2010.04245; frequency factors as in Llama 3's `rope_freqs.weight`.

use crate::Expected;
use crate::rms_norm::RmsNorm;
use crate::rope::Rope;

/// Norms (`weight` of head_dim, `eps`) and rotates each of `heads` (n × head_dim). Called once for
/// the queries and once for the keys.
///
/// # Panics
/// When `head_dim` is zero or odd, `heads` is no whole number of heads, `weight` is not head_dim
/// long or `freq_factors` not head_dim/2.
pub fn qk_norm_rope(
    heads: &[f32],
    head_dim: usize,
    norm: Option<(&[f32], f32)>,
    rope: &Rope<'_>,
) -> Expected {
    assert!(head_dim > 0 && head_dim.is_multiple_of(2), "head_dim {head_dim} is not in pairs");
    assert!(heads.len().is_multiple_of(head_dim), "{} elements are no heads", heads.len());

    let mut out = Expected::zeros(heads.len());
    for (n, head) in heads.chunks_exact(head_dim).enumerate() {
        let head = Expected::exact(head);
        let normed = match norm {
            None => head.value,
            Some((weight, eps)) => RmsNorm { weight, eps, offset: 0.0 }.of(&head).value,
        };
        let value = &mut out.value[n * head_dim..][..head_dim];
        let magnitude = &mut out.magnitude[n * head_dim..][..head_dim];
        rope.turn(&normed, value, magnitude);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::RopeStyle::{self, Interleaved, Neox};
    use crate::{Tolerance, compare};
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    fn rope(style: RopeStyle, base: f32, position: u32) -> Rope<'static> {
        Rope { style, base, freq_factors: None, amplitude: 1.0, position }
    }

    #[test]
    fn frequencies_by_hand() {
        // Base 4 and head_dim 4: frequencies 1 and 4^(−1/2) = 0.5, so angles 2 and 1 at position 2.
        // cos 2 = −0.41614684, sin 2 = 0.90929743, cos 1 = 0.54030231, sin 1 = 0.84147098.
        let y = qk_norm_rope(&[1.0, 0.0, 0.0, 1.0], 4, None, &rope(Interleaved, 4.0, 2));
        let expected = [-0.41614684, 0.90929743, -0.84147098, 0.54030231];
        assert_relative_eq!(y.value[..], expected, epsilon = 1e-8);
    }

    #[test]
    fn the_norm_by_hand() {
        // Position 0 rotates nothing. Head (1, 7) has rms 5 and head (−3, 3) rms 3; weights (10,
        // 5).
        let norm = Some((&[10.0, 5.0][..], 0.0));
        let y = qk_norm_rope(&[1.0, 7.0, -3.0, 3.0], 2, norm, &rope(Neox, 1e4, 0));
        assert_relative_eq!(y.value[..], [2.0, 7.0, -10.0, 5.0], max_relative = 1e-15);
        assert_relative_eq!(y.magnitude[..], [9.0, 9.0, 15.0, 15.0], max_relative = 1e-15);
    }

    fn head() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-4.0f32..4.0, 8)
    }

    fn dot(a: &Expected, b: &Expected) -> f64 {
        a.value.iter().zip(&b.value).map(|(a, b)| a * b).sum()
    }

    proptest! {
        #[test]
        fn preserves_the_length(
            x in head(),
            position in 0u32..100_000,
            style in prop::sample::select(&[Interleaved, Neox][..]),
        ) {
            let y = qk_norm_rope(&x, 8, None, &rope(style, 1e4, position));
            let before: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
            assert_relative_eq!(dot(&y, &y), before, max_relative = 1e-12);
        }

        #[test]
        fn scores_depend_on_the_distance_alone(
            q in head(), k in head(), at in 0u32..1000, distance in 0u32..100, by in 0u32..1000,
        ) {
            let turned = |x: &[f32], position| qk_norm_rope(x, 8, None, &rope(Neox, 1e4, position));
            let here = dot(&turned(&q, at + distance), &turned(&k, at));
            let there = dot(&turned(&q, at + distance + by), &turned(&k, at + by));
            assert_relative_eq!(here, there, epsilon = 1e-9);
        }

        #[test]
        fn styles_differ_by_a_permutation(x in head(), position in 0u32..1000) {
            // Element 2i of the one is element i of the other, and 2i+1 is i+4.
            let permuted: Vec<_> = [0, 2, 4, 6, 1, 3, 5, 7].iter().map(|&i| x[i]).collect();
            let y = qk_norm_rope(&x, 8, None, &rope(Interleaved, 1e4, position)).value;
            let z = qk_norm_rope(&permuted, 8, None, &rope(Neox, 1e4, position)).value;
            for i in 0..4 {
                prop_assert_eq!((y[2 * i], y[2 * i + 1]), (z[i], z[i + 4]));
            }
        }

        #[test]
        fn plain_f32_arithmetic_is_in_bound(x in head(), position in 0u32..100_000) {
            let y: Vec<f32> = (0..4)
                .flat_map(|i| {
                    let angle = f64::from(position) * 1e4f64.powf(-2.0 * i as f64 / 8.0);
                    let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
                    let (a, b) = (x[2 * i], x[2 * i + 1]);
                    [a * cos - b * sin, a * sin + b * cos]
                })
                .collect();
            let tolerance = Tolerance { k: 4.0, rounding: 0.0, nmse: f64::INFINITY };
            let expected = qk_norm_rope(&x, 8, None, &rope(Interleaved, 1e4, position));
            prop_assert!(compare(&expected, &y, &tolerance).is_ok());
        }
    }
}
