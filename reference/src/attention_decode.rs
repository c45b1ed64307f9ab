//! Attention of one new token over the cache, with grouped queries.
//!
//! For query head h with kv head g = ⌊h / (heads/kv_heads)⌋, over the filled slots i:
//!
//! ```text
//! sᵢ = scale · Σ_d q[h][d]·K[g][i][d]
//! pᵢ = exp(sᵢ − max s) / Σⱼ exp(sⱼ − max s)
//! o[h][d] = Σᵢ pᵢ·V[g][i][d]
//! ```
//!
//! `q` and `o` are heads × head_dim, the caches kv_heads × capacity × head_dim, `scale` is
//! 1/√head_dim in most models. The order of slots does not matter, so a ring is read as it lies.
//!
//! Magnitude of `o[h][d]`: Σᵢ pᵢ·|Vᵢd| · (1 + 2·maxᵢ Sᵢ), where Sᵢ = |scale|·Σd |qd·Kᵢd|. A
//! computed score is off by δᵢ ≤ c·ε·Sᵢ. Since ∂ ln pᵢ/∂sⱼ is 1 − pⱼ for j = i and −pⱼ otherwise, a
//! weight then moves by |δᵢ − Σⱼ pⱼ·δⱼ| ≤ 2·max δ of itself, and with it each term pᵢ·Vᵢd. The
//! difference sᵢ − max s and `exp`, whose error grows with its argument, add no more than the same
//! multiple of S; the last sum adds c·ε·Σ pᵢ·|Vᵢd|, the 1.
//!
//! A weight whose score is 88 or more below the largest, or its product with a value, is less than
//! the smallest normal `f32` and may be flushed to zero. The resulting loss of an output is allowed
//! absolutely: where the largest weight's value is 0 nothing else is left.
//!
//! One slot alone has all weight, whatever its score is: s − s is 0 to a compiler, which may assume
//! that no value is a NaN or an infinity. With such a score the output is the slot's value, or not
//! finite.
//!
//! Squared errors grow with S² while the values stay averages of V. Limits of NMSE assume scores of
//! normal queries and keys, whose S stays below 2·√head_dim; beyond, they grow with S².
//!
//! Sources: Vaswani et al., *Attention Is All You Need*, arXiv:1706.03762; Ainslie et al., *GQA*,
//! arXiv:2305.13245.

use std::ops::Range;

use crate::{Expected, gemv, kv_append::CacheShape};

/// Growth of squared errors beyond those of scores of normal queries and keys, given the largest
/// sum of a score's terms.
fn amplified(largest_sum: f64, head_dim: usize) -> f64 {
    largest_sum * largest_sum / (4.0 * head_dim as f64)
}

/// Absolute loss of an output when numbers below the smallest normal `f32` are flushed to zero,
/// given its slots' value: weights and products, of a slot and of all slots that a kernel sums
/// separately.
fn flushed(value: f32) -> f64 {
    2.0 * f64::from(f32::MIN_POSITIVE) * (1.0 + f64::from(value.abs()))
}

/// One decode step's queries against a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of the cache's kv_heads.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Tokens appended so far, this one included: min(seen, capacity) slots are filled.
    pub seen: usize,
}

/// The outputs (heads × head_dim) for `q` (heads × head_dim).
///
/// # Panics
/// When `q` or a cache has not the size that the shapes say, `heads` is no multiple of kv_heads,
/// or no slot is filled.
pub fn attention_decode(
    q: &[f32],
    k_cache: &[f32],
    v_cache: &[f32],
    cache: &CacheShape,
    attention: &Attention,
) -> Expected {
    let &Attention { heads, scale, seen } = attention;
    assert_eq!(q.len(), heads * cache.head_dim, "elements of q");
    attend(q, k_cache, v_cache, cache, scale, 0..seen.min(cache.capacity), Rounded::Nothing)
}

/// Operands that a kernel rounds to f16 for matrix units, each by up to 2⁻¹¹ of itself, which is in
/// the kernel's tolerance, and by up to half the distance of the smallest numbers, which is in an
/// absolute allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounded {
    /// None.
    Nothing,
    /// Queries and weights.
    Queries,
    /// Keys and values too.
    All,
}

/// Half the distance of the smallest numbers of f16.
pub(crate) const F16_HALF_STEP: f64 = 1.0 / (1 << 25) as f64;

impl Rounded {
    /// Loss of a weight. Errors of larger ones are relative.
    fn lost(self, weight: f64) -> f64 {
        let is_tiny = self != Self::Nothing && weight < 256.0 * F16_HALF_STEP;
        if is_tiny { weight.min(F16_HALF_STEP) } else { 0.0 }
    }

    /// Error of a value.
    fn of_value(self) -> f64 {
        if self == Self::All { F16_HALF_STEP } else { 0.0 }
    }

    /// Error of a product of a query and a key.
    fn of_product(self, q: &[f32], k: &[f32]) -> f64 {
        let size = |v: &[f32]| v.iter().map(|v| f64::from(v.abs())).sum::<f64>();
        let others = match self {
            Self::Nothing => 0.0,
            Self::Queries => size(k),
            Self::All => size(k) + size(q),
        };
        F16_HALF_STEP * others
    }
}

/// The outputs for the queries of one token over some slots.
pub(crate) fn attend(
    q: &[f32],
    k_cache: &[f32],
    v_cache: &[f32],
    cache: &CacheShape,
    scale: f32,
    slots: Range<usize>,
    rounded: Rounded,
) -> Expected {
    let heads = q.len() / cache.head_dim;
    assert_eq!(k_cache.len(), cache.elements(), "elements of the key cache");
    assert_eq!(v_cache.len(), cache.elements(), "elements of the value cache");
    assert!(heads.is_multiple_of(cache.kv_heads), "{heads} heads over {} kv heads", cache.kv_heads);
    assert!(!slots.is_empty(), "no token to attend to");
    Expected::join(q.chunks_exact(cache.head_dim).enumerate().map(|(head, q)| {
        let kv_head = head / (heads / cache.kv_heads);
        // A slot whose score is -inf has no weight, however large its sums are.
        let (mut largest_sum, mut largest_error) = (0.0f64, 0.0f64);
        let larger =
            |largest: f64, sum: f64| if sum.is_finite() { largest.max(sum) } else { largest };
        let mut scores = Vec::with_capacity(slots.len());
        for slot in slots.clone() {
            let k = &k_cache[cache.row(kv_head, slot)];
            let (dot, sum) = gemv::dot(q, k);
            let size = f64::from(scale.abs());
            scores.push(f64::from(scale) * dot);
            largest_sum = larger(largest_sum, size * sum);
            largest_error = larger(largest_error, size * rounded.of_product(q, k));
        }
        let values = slots.clone().map(|slot| &v_cache[cache.row(kv_head, slot)]);
        mixed(&scores, values, cache.head_dim, largest_sum, (rounded, largest_error))
    }))
}

/// The weights of scores.
pub(crate) fn softmax(scores: &[f64]) -> Vec<f64> {
    if let [_] = scores {
        return vec![1.0];
    }
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// The output of one head: the values of its slots averaged by the weights of their scores, given
/// the largest sum of a score's terms, and what rounding may move a score by.
pub(crate) fn mixed<'a>(
    scores: &[f64],
    values: impl Iterator<Item = &'a [f32]>,
    head_dim: usize,
    largest_sum: f64,
    (rounded, largest_error): (Rounded, f64),
) -> Expected {
    let mut out = Expected::zeros(head_dim);
    out.absolute = vec![0.0; head_dim];
    out.deviation = vec![0.0; head_dim];
    for (weight, row) in softmax(scores).into_iter().zip(values) {
        let lost = rounded.lost(weight);
        for (d, &v) in row.iter().enumerate() {
            let term = weight * f64::from(v);
            out.value[d] += term;
            out.magnitude[d] += term.abs();
            out.absolute[d] += flushed(v);
            out.deviation[d] += lost * f64::from(v.abs()) + weight * rounded.of_value();
        }
    }
    let moved = (2.0 * largest_error).min(1.0).exp_m1();
    for (d, size) in out.magnitude.iter_mut().enumerate() {
        out.deviation[d] += moved * *size;
        out.absolute[d] += out.deviation[d];
        *size *= 1.0 + 2.0 * largest_sum;
    }
    if let [score] = scores
        && !score.is_finite()
    {
        out.absolute.fill(f64::INFINITY);
    }
    out.amplified = amplified(largest_sum, head_dim);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tolerance, compare};
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    const SHAPE: CacheShape = CacheShape { kv_heads: 1, capacity: 2, head_dim: 1 };

    #[test]
    fn by_hand() {
        // Scores 0 and ln 3: weights 1/4 and 3/4, and 4/4 + 3·8/4 = 7. A query of 0 averages: 6.
        // The magnitudes are 7·(1 + 2·ln 3) and 6.
        let ln_3 = 3f32.ln();
        let attention = Attention { heads: 2, scale: 0.5, seen: 2 };
        let o = attention_decode(&[ln_3, 0.0], &[0.0, 2.0], &[4.0, 8.0], &SHAPE, &attention);
        assert_relative_eq!(o.value[..], [7.0, 6.0], max_relative = 1e-6);
        let magnitude = [7.0 * (1.0 + 2.0 * 3f64.ln()), 6.0];
        assert_relative_eq!(o.magnitude[..], magnitude, max_relative = 1e-6);
    }

    #[test]
    fn unfilled_slots_are_not_read() {
        let one = Attention { heads: 1, scale: 1.0, seen: 1 };
        let poisoned = [4.0, f32::NAN];
        assert_eq!(attention_decode(&[1.0], &poisoned, &poisoned, &SHAPE, &one).value, [4.0]);
    }

    #[test]
    fn a_full_ring_uses_every_slot() {
        let five = Attention { heads: 1, scale: 1.0, seen: 5 };
        assert_eq!(attention_decode(&[0.0], &[1.0, 1.0], &[4.0, 8.0], &SHAPE, &five).value, [6.0]);
    }

    #[test]
    fn query_heads_share_kv_heads_in_order() {
        // Four query heads over two kv heads whose only values are (1, 2) and (3, 4).
        let shape = CacheShape { kv_heads: 2, capacity: 1, head_dim: 2 };
        let attention = Attention { heads: 4, scale: 1.0, seen: 1 };
        let v = [1.0, 2.0, 3.0, 4.0];
        let o = attention_decode(&[1.0; 8], &[1.0; 4], &v, &shape, &attention);
        assert_eq!(o.value, [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
    }

    #[test]
    fn large_scores_widen_the_limit_of_nmse() {
        let attention = Attention { heads: 1, scale: 1.0, seen: 2 };
        let of = |q: f32| attention_decode(&[q], &[1.0, 2.0], &[4.0, 8.0], &SHAPE, &attention);
        // S is 2·q, and stays below 2 with q below 1.
        assert_relative_eq!(of(0.5).amplified, 0.25);
        assert_relative_eq!(of(64.0).amplified, 4096.0);
    }

    #[test]
    fn a_weight_beside_a_far_larger_one_may_be_flushed() {
        // The second slot has all of the weight and the value 0; exp(-100) is subnormal in f32.
        let attention = Attention { heads: 1, scale: 1.0, seen: 2 };
        let o = attention_decode(&[100.0], &[0.0, 1.0], &[4.0, 0.0], &SHAPE, &attention);
        assert!(o.value[0] > 0.0);
        let tolerance = Tolerance { k: 16.0, rounding: 0.0, nmse: 1e-9 };
        assert!(compare(&o, &[0.0], &tolerance).is_ok());
        assert!(compare(&o, &[1e-30], &tolerance).is_err());
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let attention = Attention { heads: 1, scale: 1.0, seen: 2 };
        let o = attention_decode(&[1e4], &[1.0, 2.0], &[4.0, 8.0], &SHAPE, &attention);
        assert_eq!(o.value, [8.0]);
    }

    proptest! {
        #[test]
        fn weights_sum_to_one(
            q in prop::collection::vec(-4.0f32..4.0, 4),
            k in prop::collection::vec(-4.0f32..4.0, 7 * 4),
            seen in 1usize..12,
        ) {
            let shape = CacheShape { kv_heads: 1, capacity: 7, head_dim: 4 };
            let attention = Attention { heads: 1, scale: 0.5, seen };
            let o = attention_decode(&q, &k, &[1.0; 28], &shape, &attention);
            assert_relative_eq!(o.value[..], [1.0; 4], max_relative = 1e-14);
        }

        #[test]
        fn outputs_lie_among_the_values_and_ignore_a_shift_of_the_keys(
            q in -4.0f32..4.0, k in prop::collection::vec(-64i16..64, 5), shift in -64i16..64,
            v in prop::collection::vec(-4.0f32..4.0, 5),
        ) {
            let shape = CacheShape { kv_heads: 1, capacity: 5, head_dim: 1 };
            let attention = Attention { heads: 1, scale: 0.125, seen: 5 };
            let over = |shift| {
                let k: Vec<f32> = k.iter().map(|k| f32::from(k + shift)).collect();
                attention_decode(&[q], &k, &v, &shape, &attention).value[0]
            };
            let least = v.iter().copied().fold(f32::MAX, f32::min);
            let most = v.iter().copied().fold(f32::MIN, f32::max);
            let o = over(0);
            prop_assert!(f64::from(least) - 1e-12 <= o && o <= f64::from(most) + 1e-12);
            assert_relative_eq!(o, over(shift), epsilon = 1e-11);
        }

        #[test]
        fn plain_f32_arithmetic_is_in_bound(
            q in prop::collection::vec(-4.0f32..4.0, 2),
            k in prop::collection::vec(-4.0f32..4.0, 6 * 2),
            v in prop::collection::vec(-4.0f32..4.0, 6 * 2),
        ) {
            // One pass without a running maximum: scores up to 32 stay far from overflow.
            let (mut total, mut sums) = (0.0, [0.0; 2]);
            for (k, v) in k.chunks(2).zip(v.chunks(2)) {
                let weight = (q[0] * k[0] + q[1] * k[1]).exp();
                total += weight;
                sums[0] += weight * v[0];
                sums[1] += weight * v[1];
            }
            let shape = CacheShape { kv_heads: 1, capacity: 6, head_dim: 2 };
            let attention = Attention { heads: 1, scale: 1.0, seen: 6 };
            let tolerance = Tolerance { k: 8.0, rounding: 0.0, nmse: f64::INFINITY };
            let expected = attention_decode(&q, &k, &v, &shape, &attention);
            let o = sums.map(|sum| sum / total);
            prop_assert!(compare(&expected, &o, &tolerance).is_ok());
        }
    }
}
