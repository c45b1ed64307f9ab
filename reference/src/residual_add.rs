//! Adds a branch to the residual stream: `y[i] = a[i] + b[i]`, all of one length.
//!
//! Magnitude: |y|. One sum of two `f32` is rounded once, to half a unit of its result, however
//! much the two cancel.

use crate::Expected;

/// The sums.
///
/// # Panics
/// When `a` and `b` differ in length.
pub fn residual_add(a: &[f32], b: &[f32]) -> Expected {
    assert_eq!(a.len(), b.len(), "two vectors of one length");
    a.iter()
        .zip(b)
        .map(|(&a, &b)| {
            let y = f64::from(a) + f64::from(b);
            (y, y.abs())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tolerance, compare};
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        let y = residual_add(&[1.0, -3.0, 0.5], &[2.0, 1.0, -0.5]);
        assert_eq!(y, [(3.0, 3.0), (-2.0, 2.0), (0.0, 0.0)].into_iter().collect());
    }

    proptest! {
        #[test]
        fn f32_sums_are_within_half_an_epsilon(a in -1e6f32..1e6, b in -1e6f32..1e6) {
            let tolerance = Tolerance { k: 0.5, rounding: 0.0, nmse: 1e-12 };
            prop_assert!(compare(&residual_add(&[a], &[b]), &[a + b], &tolerance).is_ok());
        }
    }
}
