//! Adds a branch to the residual stream and norms the sum for the next operation:
//!
//! ```text
//! b = branch, or rms_norm(branch) where a norm follows the branch (Gemma)
//! x' = x + b        y = rms_norm(x')
//! ```
//!
//! The branch is an [`Expected`]: exact where it is an input (magnitude 0), else with its own scale
//! of errors, so that the same function serves a branch that the kernel itself computes.
//!
//! Magnitudes: |x'| + that of b, the sum being rounded once; y as [`RmsNorm::of`] derives it.

use crate::{Expected, rms_norm::RmsNorm};

/// The stream after the branch, and its norm if `next` is given.
///
/// # Panics
/// When lengths differ.
pub fn residual_rms_norm(
    x: &[f32],
    branch: &Expected,
    post: Option<&RmsNorm<'_>>,
    next: Option<&RmsNorm<'_>>,
) -> (Expected, Option<Expected>) {
    assert_eq!(x.len(), branch.value.len(), "two vectors of one length");
    let normed = post.map(|norm| norm.of(branch));
    let b = normed.as_ref().unwrap_or(branch);
    let mut stream: Expected = x
        .iter()
        .zip(b.value.iter().zip(&b.magnitude))
        .map(|(&x, (b, magnitude))| {
            let sum = f64::from(x) + b;
            (sum, sum.abs() + magnitude)
        })
        .collect();
    stream.deviation.clone_from(&b.deviation);
    if post.is_some() {
        // A sum of n squares, one after another, has a standard deviation of ε·√n/6 of itself, and
        // its root half of that, which all elements share. It shows where the branch and x cancel.
        let common = f64::from(f32::EPSILON) * (x.len() as f64).sqrt() / 12.0;
        stream.deviation.resize(x.len(), 0.0);
        for (deviation, b) in stream.deviation.iter_mut().zip(&b.value) {
            *deviation = deviation.hypot(common * b);
        }
    }
    let y = next.map(|norm| norm.of(&stream));
    (stream, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tolerance, compare};
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    fn norm(weight: &[f32]) -> RmsNorm<'_> {
        RmsNorm { weight, eps: 0.0, offset: 0.0 }
    }

    #[test]
    fn by_hand() {
        // (1, 1) + (0, 6) = (1, 7), whose rms is 5: (0.2, 1.4), weights (10, 5).
        let (x, y) = residual_rms_norm(
            &[1.0; 2],
            &Expected::exact(&[0.0, 6.0]),
            None,
            Some(&norm(&[10.0, 5.0])),
        );
        assert_eq!(x, [(1.0, 1.0), (7.0, 7.0)].into_iter().collect());
        assert_relative_eq!(y.unwrap().value[..], [2.0, 7.0], max_relative = 1e-15);
    }

    #[test]
    fn a_normed_branch_by_hand() {
        // (1, 7) over its rms 5, weights (5, 5): (1, 7). With x = (2, -6): (3, 1), rms sqrt 5.
        let (x, y) = residual_rms_norm(
            &[2.0, -6.0],
            &Expected::exact(&[1.0, 7.0]),
            Some(&norm(&[5.0; 2])),
            Some(&norm(&[1.0; 2])),
        );
        assert_relative_eq!(x.value[..], [3.0, 1.0], max_relative = 1e-15);
        // |sum| + |branch|.
        assert_relative_eq!(x.magnitude[..], [4.0, 8.0], max_relative = 1e-15);
        let root = 5f64.sqrt();
        assert_relative_eq!(y.unwrap().value[..], [3.0 / root, 1.0 / root], max_relative = 1e-15);
    }

    proptest! {
        #[test]
        fn plain_f32_arithmetic_is_in_bound(
            pairs in prop::collection::vec((-9.0f32..9.0, -9.0f32..9.0), 1..40),
        ) {
            let (x, delta): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let weight = vec![0.7; x.len()];
            let normed = |v: &[f32]| -> Vec<f32> {
                let mean = v.iter().map(|v| v * v).sum::<f32>() / v.len() as f32;
                v.iter().map(|v| v / (mean + 1e-6).sqrt() * 0.7).collect()
            };
            let stream: Vec<f32> = x.iter().zip(normed(&delta)).map(|(x, b)| x + b).collect();
            let tolerance = Tolerance { k: 16.0, rounding: 0.0, nmse: f64::INFINITY };
            let norm = RmsNorm { weight: &weight, eps: 1e-6, offset: 0.0 };
            let (x, y) = residual_rms_norm(&x, &Expected::exact(&delta), Some(&norm), Some(&norm));
            prop_assert!(compare(&x, &stream, &tolerance).is_ok());
            prop_assert!(compare(&y.unwrap(), &normed(&stream), &tolerance).is_ok());
        }
    }
}
