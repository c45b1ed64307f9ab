//! The greedy choice: the index of the largest logit.
//!
//! The lower index wins a tie, and +0 ties with −0. Where a logit is NaN or infinite, there is no
//! choice. Compared exactly, by [`compare_exact`](crate::compare_exact).

/// The choice where some logit is not finite: beyond every vocabulary.
pub const NO_TOKEN: u32 = u32::MAX;

/// True for a logit that there is no choice with: NaN, an infinity, or the largest float, which
/// stands for them.
pub fn is_not_finite(logit: f32) -> bool {
    !logit.is_finite() || logit == f32::MAX
}

/// The index of the largest of `logits`; [`NO_TOKEN`] where one is not finite.
///
/// # Panics
/// When `logits` is empty or longer than `u32` can index.
pub fn argmax(logits: &[f32]) -> u32 {
    assert!(!logits.is_empty(), "no logits");
    assert!(u32::try_from(logits.len()).is_ok(), "more logits than u32 can index");
    let mut best: Option<(usize, f32)> = None;
    for (i, &logit) in logits.iter().enumerate() {
        if is_not_finite(logit) {
            return NO_TOKEN;
        }
        if best.is_none_or(|(_, largest)| logit > largest) {
            best = Some((i, logit));
        }
    }
    best.map_or(0, |(i, _)| i as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        assert_eq!(argmax(&[1.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[-3.0, -1.0, -2.0]), 1);
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
    }

    #[test]
    fn a_logit_that_is_not_finite_leaves_no_choice() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            for at in 0..3 {
                let mut logits = [0.5, f32::MIN, 2.0];
                logits[at] = wrong;
                assert_eq!(argmax(&logits), NO_TOKEN);
            }
            assert_eq!(argmax(&[wrong; 2]), NO_TOKEN);
        }
        assert_eq!(argmax(&[f32::MIN, f32::MIN]), 0);
    }

    #[test]
    #[should_panic(expected = "no logits")]
    fn nothing_to_choose_from_panics() {
        argmax(&[]);
    }

    proptest! {
        #[test]
        fn is_the_first_that_none_exceeds(logits in prop::collection::vec(-3i8..3, 1..40)) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let best = argmax(&logits) as usize;
            prop_assert!(logits.iter().all(|&l| l <= logits[best]));
            prop_assert!(logits[..best].iter().all(|&l| l < logits[best]));
        }
    }
}
