//! The greedy choice among the rows of an LM head: the token whose logit, a row times x, is
//! largest.
//!
//! Logits are rounded, so the choice is certain only if the largest stands out: [`winners`] lists
//! every row whose logit could be the largest within the bounds of a [`Tolerance`], the largest in
//! f64 first. Usually that is one row. Ties go to the lower index.

use crate::{Expected, Tolerance};

/// Rows that may be chosen, the reference's own choice first.
///
/// `same(a, b)` returns true if two rows hold the same weights: their logits are equal under any
/// rounding, and the higher of them is never chosen.
///
/// # Panics
/// When there are no logits.
pub fn winners(
    logits: &Expected,
    tolerance: &Tolerance,
    same: impl Fn(usize, usize) -> bool,
) -> Vec<usize> {
    let bound = |r: usize| tolerance.bound(logits.value[r], logits.magnitude[r]);
    let own = (0..logits.value.len())
        .reduce(|best, r| if logits.value[r] > logits.value[best] { r } else { best })
        .expect("no logits");
    let least = logits.value[own] - bound(own);
    let mut winners = vec![own];
    for r in (0..logits.value.len()).filter(|r| logits.value[*r] + bound(*r) >= least) {
        if !winners.iter().any(|w| *w == r || (*w < r && same(*w, r))) {
            winners.push(r);
        }
    }
    winners
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { k: 4.0, rounding: 0.0, nmse: 1e-6 };

    #[test]
    fn by_hand() {
        let logits: Expected = [(1.0, 1.0), (3.0, 3.0), (2.0, 2.0)].into_iter().collect();
        assert_eq!(winners(&logits, &TOLERANCE, |_, _| false), [1]);
    }

    #[test]
    fn near_ties_are_all_listed_and_exact_ones_only_once() {
        // 4 eps of 8 is 3.8e-6, on both sides.
        let logits: Expected =
            [(8.0, 8.0), (8.000_001, 8.0), (7.999, 8.0), (8.000_001, 8.0)].into_iter().collect();
        assert_eq!(winners(&logits, &TOLERANCE, |_, _| false), [1, 0, 3]);
        assert_eq!(winners(&logits, &TOLERANCE, |a, b| (a, b) == (1, 3)), [1, 0]);
    }
}
