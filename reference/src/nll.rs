//! Negative log-likelihood of a given token in each row of logits, in nats:
//! `y[r] = ln(Σᵢ exp(logits[r][i])) − logits[r][tokens[r]]`.
//!
//! A token outside the row has probability 0: [`IMPOSSIBLE`].
//!
//! Magnitude: with l the row, m its largest logit, dᵢ = lᵢ − m and pᵢ the probabilities, |m| + |lₜ|
//! for two rounded differences, 1 + Σ pᵢ·|dᵢ| for the sum, whose terms err in proportion to their
//! exponent, and the sum's logarithm.

use crate::Expected;

/// The answer for a token outside the row: the largest f32, since an infinity would hide faults.
pub const IMPOSSIBLE: f32 = f32::MAX;

/// One value for each of `tokens`; `logits` holds as many rows.
///
/// # Panics
/// When `logits` is no whole number of rows, or a row is empty.
pub fn nll(logits: &[f32], tokens: &[u32]) -> Expected {
    let n = logits.len() / tokens.len().max(1);
    assert!(n > 0 && logits.len() == n * tokens.len(), "one row of logits for each token");
    let row = |(row, token): (&[f32], &u32)| {
        let Some(logit) = row.get(*token as usize).map(|l| f64::from(*l)) else {
            return (f64::from(IMPOSSIBLE), 0.0);
        };
        let largest = row.iter().fold(f64::NEG_INFINITY, |m, l| m.max(f64::from(*l)));
        let (mut sum, mut moved) = (0.0, 0.0);
        for l in row {
            let d = f64::from(*l) - largest;
            sum += d.exp();
            // An infinity below the largest adds nothing.
            moved += if d == f64::NEG_INFINITY { 0.0 } else { d.exp() * d.abs() };
        }
        let magnitude = largest.abs() + logit.abs() + 1.0 + moved / sum + sum.ln();
        (largest + sum.ln() - logit, magnitude)
    };
    logits.chunks_exact(n).zip(tokens).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        // Of logits 0 and ln 3 the probabilities are 1/4 and 3/4: -ln(1/4) and -ln(3/4).
        let row = [0.0, 3f32.ln()];
        let y = nll(&[row, row].concat(), &[0, 1]);
        assert_relative_eq!(y.value[0], 4f64.ln(), epsilon = 1e-7);
        assert_relative_eq!(y.value[1], (4.0 / 3f64).ln(), epsilon = 1e-7);
    }

    #[test]
    fn a_token_outside_the_row_is_impossible() {
        assert_eq!(nll(&[1.0, 2.0], &[2]).value, [f64::from(f32::MAX)]);
    }

    proptest! {
        #[test]
        fn probabilities_sum_to_one(row in prop::collection::vec(-30f32..30.0, 1..40)) {
            let all: Vec<f32> = row.iter().map(|_| row.clone()).collect::<Vec<_>>().concat();
            let tokens: Vec<u32> = (0..row.len() as u32).collect();
            let sum: f64 = nll(&all, &tokens).value.iter().map(|y| (-y).exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-12);
        }

        #[test]
        fn a_constant_added_to_all_logits_changes_nothing(
            row in prop::collection::vec(-8i8..8, 2..40),
            by in -8i8..8,
        ) {
            let logits = |by: i8| row.iter().map(|l| f32::from(*l) + f32::from(by)).collect::<Vec<_>>();
            let (a, b) = (nll(&logits(0), &[1]).value[0], nll(&logits(by), &[1]).value[0]);
            prop_assert!((a - b).abs() < 1e-12);
        }
    }
}
