//! The greedy choice: the index of the largest logit.
//!
//! The lower index wins a tie, and +0 ties with −0. NaN and -inf never win: where there is
//! nothing else the answer is 0. Compared exactly, by [`compare_exact`](crate::compare_exact).

/// The index of the largest of `logits`.
///
/// # Panics
/// When `logits` is empty or longer than `u32` can index.
pub fn argmax(logits: &[f32]) -> u32 {
    assert!(!logits.is_empty(), "no logits");
    assert!(u32::try_from(logits.len()).is_ok(), "more logits than u32 can index");
    let mut best: Option<(usize, f32)> = None;
    for (i, &logit) in logits.iter().enumerate() {
        if logit > best.map_or(f32::NEG_INFINITY, |(_, largest)| largest) {
            best = Some((i, logit));
        }
    }
    best.map_or(0, |(i, _)| i as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAN: f32 = f32::NAN;

    #[test]
    fn by_hand() {
        assert_eq!(argmax(&[1.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[-3.0, -1.0, -2.0]), 1);
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
    }

    #[test]
    fn nan_never_wins() {
        assert_eq!(argmax(&[NAN, 1.0, NAN, 2.0]), 3);
        assert_eq!(argmax(&[NAN, f32::NEG_INFINITY]), 0);
        assert_eq!(argmax(&[f32::NEG_INFINITY, f32::MIN]), 1);
        assert_eq!(argmax(&[1.0, f32::INFINITY, NAN]), 1);
        assert_eq!(argmax(&[NAN, NAN]), 0);
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
