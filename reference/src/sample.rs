//! Sampling the next token: repetition penalty, temperature, top-k, top-p and one draw.
//!
//! 1. penalty r over the distinct tokens of `seen`: l ← l > 0 ? l · (1/r) : l · r;
//! 2. temperature T: weight wᵢ = 2^(−(max − lᵢ) · log₂e / T), so that wᵢ / Σw is the softmax of
//!    l/T;
//! 3. top-k: the k tokens of largest l stay, of equal l those of lower index;
//! 4. top-p: of these the shortest run in that order whose Σw reaches p · Σ of all k, at least one;
//! 5. draw: of the run the token of largest l + T · ln 2 · g, of equal sums the lower index. g is
//!    the token's own noise of this position, −log₂(−log₂ u) with u in (0, 1).
//!
//! Noise of this distribution (Gumbel's) makes every token the largest with the probability
//! softmax(l/T), and no token's noise depends on another's: drawing needs neither a sum over all
//! tokens nor an order of them. T = 0 takes the largest l after the penalty.
//!
//! **The arithmetic is part of the definition**, so that every device draws the very same token.
//! A few steps round in f32, to nearest: the product of the penalty, the product
//! t = (max − l) · (log₂e / T), and in the draw the product and the sum, each by itself; 1/r,
//! log₂e/T and T · ln 2 (at most 1e29, 0 where T is below 1e-30) are rounded once. All else is
//! integers:
//!
//! - t is cut to 26 fractional bits; [`weight`] is 2^(−t) in units of 2⁻⁴⁰, by a polynomial of
//!   degree six on 32-bit words, within 1e-8 of the power relatively, and 0 from t = 63 on;
//! - sums are exact 64-bit integers, whatever their order, for up to 2²⁴ tokens;
//! - p is cut to 32 fractional bits (an f32 below 1 loses none above 2⁻⁸);
//! - [`noise`] has 16 fractional bits, from polynomials on 16-bit words, within 1.13e-4 of the
//!   logarithms; u = (word | 1) / 2³² for word i mod 4 of Philox4x32-10 at counter (position,
//!   ⌊i/4⌋, 0, 0) and key (seed, 0). It is at most 31.5, so that a token of less than 2⁻³³ of all
//!   weight is drawn more seldom than it should, or never.
//!
//! The product of the draw loses its last bit: a compiler that joins a product and a sum in one
//! rounding has to round the product first.
//!
//! Subnormals count as 0. A logit that is not finite counts as the largest float, whatever the
//! penalty; so great a sum wins every draw, and there is no choice:
//! [`NO_TOKEN`](crate::argmax::NO_TOKEN).
//!
//! Compared exactly, by [`compare_exact`](crate::compare_exact). [`probabilities`] computes the
//! same in plain f64 without any of the above; the tests compare the two.
//!
//! Source: Keskar et al., *CTRL*, arXiv:1909.05858 (penalty); Fan et al., arXiv:1805.04833 (top-k);
//! Holtzman et al., arXiv:1904.09751 (top-p); Maddison et al., *A\* sampling*, arXiv:1411.0030
//! (noise); Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, SC11 (Philox).

use std::collections::BTreeSet;

use crate::argmax::NO_TOKEN;

/// Parameters of sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the largest.
    pub temperature: f32,
    /// Tokens that stay; 0 keeps all.
    pub top_k: usize,
    /// Share of the probability that stays; 1 keeps all.
    pub top_p: f32,
    /// Divides positive and multiplies negative logits of seen tokens; 1 changes nothing.
    pub repeat_penalty: f32,
}

/// The weight of the most likely token.
pub const UNIT: u64 = 1 << 40;

/// 2^(−f) = 1 − f·(c₁ − f·(c₂ − …)) on [0, 1), in units of 2⁻³².
const EXP2: [u32; 6] =
    [0xb172_15b2, 0x3d7f_577e, 0x0e34_a75b, 0x0273_d361, 0x0053_9803, 0x0007_2a3c];

/// Four random words for a counter and a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let (p, q) = (u64::from(a) * 0xd251_1f53, u64::from(c) * 0xcd9e_8d57);
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ k0, q as u32, (p >> 32) as u32 ^ d ^ k1, p as u32);
        (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
    }
    [a, b, c, d]
}

/// Seed and position of one drawn token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Chosen by the user.
    pub seed: u32,
    /// Position of the last token seen.
    pub position: u32,
}

impl Draw {
    /// A token's random word.
    pub fn word(&self, token: u32) -> u32 {
        philox4x32_10([self.position, token / 4, 0, 0], [self.seed, 0])[token as usize % 4]
    }
}

/// (log₂(1+x) − x) / (x·(1−x)) = c₀ − x·(c₁ − x·(c₂ − …)) on [0, 1), in units of 2⁻¹⁷.
const BULGE: [u32; 5] = [58020, 36251, 24130, 12740, 3367];

/// Bulge of log₂(1+x) beyond its chord, divided by x·(1−x); x in units of 2⁻¹⁶.
fn bulge(x: u32) -> u32 {
    BULGE.into_iter().rev().reduce(|tail, c| c - ((x * tail) >> 16)).unwrap_or(0)
}

/// The first 16 fractional bits of a word whose highest bit is one.
const fn fraction(mantissa: u32) -> u32 {
    (mantissa >> 15) & 0xffff
}

/// g = −log₂(−log₂ u), u = (word | 1) / 2³², cut to 16 fractional bits: −5 to 31.5.
pub fn noise(word: u32) -> f32 {
    // −log₂ u = halvings + rest · share, with rest = 1 − (mantissa / 2³¹ − 1) in units of 2⁻³¹,
    // which keeps all its bits where u is near one, and share in units of 2⁻¹⁶.
    let halvings = (word | 1).leading_zeros();
    let mantissa = (word | 1) << halvings;
    let rest = mantissa.wrapping_neg();
    let x = fraction(mantissa);
    let share = (1 << 16) - ((x * bulge(x)) >> 17);
    let (value, exponent) = match halvings {
        0 => {
            let shift = rest.leading_zeros();
            (((rest << shift) >> 16) * share, -31 - shift as i32)
        }
        _ => ((halvings << 26) + (((rest >> 16) * share) >> 5), -26),
    };
    let lead = value.leading_zeros();
    let x = fraction(value << lead);
    let log2 = x + ((((x * ((1 << 16) - x)) >> 16) * bulge(x)) >> 17);
    let whole = (31 - lead as i32 + exponent) << 16;
    // Below 2²²: exact.
    -(whole + log2 as i32) as f32 / 65536.0
}

/// The noisy score l + T · ln 2 · g; the token with the largest is drawn.
pub fn noisy(score: f32, temperature: f32, word: u32) -> f32 {
    // Neither a subnormal, which devices flush, nor one that makes infinity of the largest float.
    let scale = match temperature {
        t if t < 1e-30 => 0.0,
        t => (t * std::f32::consts::LN_2).min(1e29),
    };
    let product = noise(word) * scale;
    canonical(score + f32::from_bits(product.to_bits() & !1))
}

/// The part of `tokens[0..=position]` that the penalty applies to: the last `last_n`, or all for 0.
pub fn window(tokens: &[u32], position: usize, last_n: usize) -> &[u32] {
    let seen = &tokens[..=position];
    match last_n {
        0 => seen,
        n => &seen[seen.len().saturating_sub(n)..],
    }
}

/// The token of a draw. Tokens of `seen` that `logits` lacks are ignored.
///
/// # Panics
/// When `logits` is empty or longer than 2²⁴.
pub fn sample(logits: &[f32], seen: &[u32], sampling: &Sampling, draw: Draw) -> u32 {
    assert!(!logits.is_empty(), "no logits");
    assert!(logits.len() < 1 << 24, "sums of more weights leave 64 bits");
    let scores = scores(logits, seen, sampling.repeat_penalty);
    let noisy = |i: usize| (noisy(scores[i], sampling.temperature, draw.word(i as u32)), i);
    let all = stay(&scores, sampling).into_iter().map(noisy);
    match all.min_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))) {
        Some((sum, i)) if sum < f32::MAX => i as u32,
        _ => NO_TOKEN,
    }
}

/// The tokens that may be drawn.
fn stay(scores: &[f32], sampling: &Sampling) -> Vec<usize> {
    if sampling.top_k == 0 && sampling.top_p >= 1.0 {
        return (0..scores.len()).collect();
    }
    let mut order = order(scores, sampling.top_k);
    if sampling.top_p < 1.0 {
        let weight = |i: usize| weight(scores[order[0]], scores[i], sampling.temperature);
        let total: u64 = order.iter().map(|&i| weight(i)).sum();
        // p · total in units of 2^-32; every f32 of [0, 1) times 2^32 is below 2^32.
        let reached = u128::from((sampling.top_p * 2f32.powi(32)) as u32) * u128::from(total);
        let mut sum = 0u64;
        let short = order.iter().position(|&i| {
            sum += weight(i);
            u128::from(sum) << 32 >= reached && sum > 0
        });
        order.truncate(short.map_or(order.len(), |last| last + 1));
    }
    order
}

/// The probability of every token, in f64 and from the formulas alone.
pub fn probabilities(logits: &[f32], seen: &[u32], sampling: &Sampling) -> Vec<f64> {
    let penalised: BTreeSet<u32> = seen.iter().copied().collect();
    let penalty = f64::from(sampling.repeat_penalty);
    let score = |(i, l): (usize, &f32)| match f64::from(*l) {
        l if !penalised.contains(&(i as u32)) => l,
        l if l > 0.0 => l / penalty,
        l => l * penalty,
    };
    let scores: Vec<f64> = logits.iter().enumerate().map(score).collect();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    if sampling.temperature == 0.0 {
        order.truncate(1);
    } else if sampling.top_k > 0 {
        order.truncate(sampling.top_k);
    }
    let exp = |i: usize| ((scores[i] - scores[order[0]]) / f64::from(sampling.temperature)).exp();
    let weight = |i: usize| if i == order[0] { 1.0 } else { exp(i) };
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let mut kept = Vec::new();
    let mut sum = 0.0;
    for &i in &order {
        kept.push(i);
        sum += weight(i);
        if sampling.top_p < 1.0 && sum >= f64::from(sampling.top_p) * total {
            break;
        }
    }
    let mut probabilities = vec![0.0; logits.len()];
    for i in kept {
        probabilities[i] = weight(i) / sum;
    }
    probabilities
}

/// Logits after the penalty, without NaN, subnormals and −0; the largest float for what is not
/// finite.
fn scores(logits: &[f32], seen: &[u32], penalty: f32) -> Vec<f32> {
    let score = |l: &f32| if l.is_finite() { canonical(*l) } else { f32::MAX };
    let mut scores: Vec<f32> = logits.iter().map(score).collect();
    let seen: BTreeSet<u32> = seen.iter().copied().collect();
    for token in seen {
        let at = token as usize;
        if let Some(l) = scores.get_mut(at).filter(|_| logits[at].is_finite()) {
            *l = canonical(*l * if *l > 0.0 { 1.0 / penalty } else { penalty });
        }
    }
    scores
}

fn canonical(l: f32) -> f32 {
    if l.is_nan() {
        f32::NEG_INFINITY
    } else if l.abs() < f32::MIN_POSITIVE {
        0.0
    } else {
        l
    }
}

/// The `keep` tokens of largest score, or all for 0, best first.
fn order(scores: &[f32], keep: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // Scores hold neither NaN nor −0, so the total order is that of the numbers.
    order.sort_unstable_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    if keep > 0 {
        order.truncate(keep);
    }
    order
}

/// 2^(−(max − score) · log₂e / T) in units of 2⁻⁴⁰.
pub fn weight(max: f32, score: f32, temperature: f32) -> u64 {
    if score == max {
        return UNIT;
    }
    let t = (max - score) * (std::f32::consts::LOG2_E / temperature.max(1e-37));
    if t.is_nan() || t >= 63.0 {
        return 0;
    }
    let fixed = (t * 2f32.powi(26)) as u32;
    let (whole, fraction) = (fixed >> 26, u64::from(fixed << 6));
    let times = |a: u32| ((u64::from(a) * fraction) >> 32) as u32;
    let tail = EXP2[1..].iter().rev().copied().reduce(|tail, c| c - times(tail)).unwrap_or(0);
    let power = (1 << 31) - (times(EXP2[0] - times(tail)) >> 1);
    u64::from(power) << 9 >> whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Sampling =
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, repeat_penalty: 1.0 };

    const FIRST: Draw = Draw { seed: 0, position: 0 };

    #[test]
    fn philox_has_the_published_answers() {
        // Random123's kat_vectors: zeros, ones, digits of pi.
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
        let draw = Draw { seed: 0, position: 0 };
        assert_eq!([0, 1, 2, 3].map(|i| draw.word(i)), cases[0].2);
        let pi = Draw { seed: 0xa409_3822, position: 0x243f_6a88 };
        assert_eq!(pi.word(9), philox4x32_10([0x243f_6a88, 2, 0, 0], [0xa409_3822, 0])[1]);
    }

    #[test]
    fn weights_are_powers() {
        // A whole number of halvings is exact: log2(e) rounds, so t is given by the difference.
        assert_eq!(weight(3.0, 3.0, 0.7), UNIT);
        let mut worst = 0f64;
        for step in 1..200_000 {
            let score = -(step as f32) / 8192.0;
            let t = f64::from(-score * std::f32::consts::LOG2_E);
            let exact = (-t).exp2() * UNIT as f64;
            let error = (weight(0.0, score, 1.0) as f64 - exact).abs();
            worst = worst.max((error - 1.0) / exact);
        }
        assert!(worst < 1.5e-8, "{worst}");
        assert_eq!(weight(0.0, -100.0, 1.0), 0);
        assert_eq!(weight(0.0, f32::NEG_INFINITY, 1.0), 0);
        assert_eq!(weight(f32::INFINITY, 1.0, 1.0), 0);
        assert_eq!(weight(1.0, 0.999_999_94, 0.0), 0);
    }

    #[test]
    fn noise_is_the_logarithm_of_a_logarithm() {
        let near = |word: u32| {
            let u = f64::from(word | 1) / 2f64.powi(32);
            let exact = -(-(u - 1.0).ln_1p() / std::f64::consts::LN_2).log2();
            let got = f64::from(noise(word));
            assert!((got - exact).abs() < 1.13e-4, "{word}: {got} for {exact}");
        };
        (0..5000).chain((0..60_000).map(|i| u32::MAX - i * i)).for_each(near);
        (0..200_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)).for_each(near);
        // The worst of all words.
        near(4_293_852_065);
        assert_eq!((noise(0), noise(1)), (-5.0, -5.0));
        assert!((31.4..31.5).contains(&noise(u32::MAX)));
    }

    #[test]
    fn those_that_stay_by_hand() {
        // Weights 1, 1/2, 1/4, 1/4 of a total of 2, in the order of tokens 2, 0, 1, 3.
        let ln2 = std::f32::consts::LN_2;
        let logits = [-ln2, -2.0 * ln2, 0.0, -2.0 * ln2];
        let kept = |s: &Sampling| stay(&logits, s);
        assert_eq!(kept(&PLAIN), [0, 1, 2, 3]);
        // Of equal logits the lower index stays.
        let top_k = |k| kept(&Sampling { top_k: k, ..PLAIN });
        assert_eq!((top_k(2), top_k(3), top_k(9)), (vec![2, 0], vec![2, 0, 1], vec![2, 0, 1, 3]));
        // Top-p 0.6 needs the second token, 0.49 does not, 0 keeps one.
        for (p, tokens) in [
            (0.6, &[2, 0][..]),
            (0.49, &[2]),
            (0.0, &[2]),
            (0.8, &[2, 0, 1]),
            (0.99, &[2, 0, 1, 3]),
        ] {
            assert_eq!(kept(&Sampling { top_p: p, ..PLAIN }), tokens, "{p}");
        }
        // A share of what top-k leaves: 2/3 and 1/3.
        assert_eq!(kept(&Sampling { top_k: 2, top_p: 0.66, ..PLAIN }), [2]);
        assert_eq!(kept(&Sampling { top_k: 2, top_p: 0.67, ..PLAIN }), [2, 0]);
    }

    #[test]
    fn the_largest_sum_of_logit_and_noise_is_drawn() {
        let logits = [0.5, -0.25, 1.0, 0.75, -3.0, 0.0];
        for position in 0..200 {
            let draw = Draw { seed: 7, position };
            let sum = |i: u32| {
                let u = f64::from(draw.word(i) | 1) / 2f64.powi(32);
                f64::from(logits[i as usize]) - 0.8 * (-u.ln()).ln()
            };
            let mut order: Vec<u32> = (0..6).collect();
            order.sort_by(|a, b| sum(*b).total_cmp(&sum(*a)));
            if sum(order[0]) - sum(order[1]) > 1e-3 {
                let own = sample(&logits, &[], &Sampling { temperature: 0.8, ..PLAIN }, draw);
                assert_eq!(own, order[0], "{position}");
            }
        }
        // Any temperature: 0 takes the largest, and what drowns all logits leaves the noise.
        let at = |temperature, position| {
            let sampling = Sampling { temperature, ..PLAIN };
            sample(&logits, &[], &sampling, Draw { seed: 1, position })
        };
        assert!((0..50).all(|p| at(0.0, p) == 2 && at(1e-6, p) == 2));
        assert!((0..50).all(|p| at(1e30, p) == at(f32::MAX, p)));
        assert!((0..6).all(|token| (0..50).any(|p| at(f32::MAX, p) == token)));
    }

    #[test]
    fn the_penalty_divides_positive_and_multiplies_negative_logits() {
        let greedy = Sampling { temperature: 0.0, repeat_penalty: 2.0, ..PLAIN };
        let choose = |logits: &[f32], seen: &[u32]| sample(logits, seen, &greedy, FIRST);
        assert_eq!(choose(&[3.0, 2.0, -1.0], &[]), 0);
        assert_eq!(choose(&[3.0, 2.0, -1.0], &[0]), 1);
        // Once a token, however often it was seen; tokens beyond the logits do nothing.
        assert_eq!(choose(&[3.0, 1.4, -1.0], &[0, 0, 0, 99]), 0);
        assert_eq!(choose(&[-1.0, -1.5], &[0]), 1);
    }

    #[test]
    fn odd_logits() {
        let greedy = Sampling { temperature: 0.0, ..PLAIN };
        assert_eq!(sample(&[-0.0, 0.0, 1e-40], &[], &greedy, FIRST), 0);
        // Not finite: no choice, however small its share or far down the cuts, penalised or not.
        let cut = Sampling { top_k: 1, top_p: 0.5, repeat_penalty: 2.0, ..PLAIN };
        let hot = Sampling { temperature: f32::MAX, ..cut };
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            for settings in [greedy, PLAIN, cut, hot] {
                for seen in [&[] as &[u32], &[1, 2]] {
                    let logits = [7.0, -80.0, 3.0].map(|l| if l == 3.0 { wrong } else { l });
                    let penalised = wrong == f32::MAX && settings.repeat_penalty > 1.0;
                    let draws = (0..20).map(|position| Draw { seed: 3, position });
                    let all = draws.map(|draw| sample(&logits, seen, &settings, draw));
                    let none = Vec::from_iter(all).iter().all(|token| *token == NO_TOKEN);
                    assert!(none || (penalised && !seen.is_empty()), "{wrong} {settings:?}");
                }
            }
        }
    }

    #[test]
    fn windows() {
        assert_eq!(window(&[1, 2, 3, 4, 9, 9], 3, 0), [1, 2, 3, 4]);
        assert_eq!(window(&[1, 2, 3, 4, 9, 9], 3, 2), [3, 4]);
        assert_eq!(window(&[1, 2, 3, 4], 1, 7), [1, 2]);
    }

    /// χ² of `draws` positions against the f64 probabilities, and its degrees of freedom.
    fn chi_square(logits: &[f32], sampling: &Sampling, seed: u32, draws: u32) -> (f64, f64) {
        let seen = [3, 7];
        let mut counts = vec![0u32; logits.len()];
        for position in 0..draws {
            counts[sample(logits, &seen, sampling, Draw { seed, position }) as usize] += 1;
        }
        let (mut chi, mut cells) = (0.0, 0.0);
        for (count, p) in counts.iter().zip(probabilities(logits, &seen, sampling)) {
            let expected = p * f64::from(draws);
            if p == 0.0 {
                assert_eq!(*count, 0, "a token that should not stay was drawn");
            } else {
                chi += (f64::from(*count) - expected).powi(2) / expected;
                cells += 1.0;
            }
        }
        (chi, cells - 1.0)
    }

    #[test]
    fn twenty_thousand_draws_fit_the_distribution() {
        let logits: Vec<f32> = (0..50u32).map(|i| ((i * 29) % 50) as f32 / 16.0 - 1.0).collect();
        let settings = [
            PLAIN,
            Sampling { temperature: 0.7, top_p: 0.9, repeat_penalty: 1.3, ..PLAIN },
            Sampling { temperature: 1.4, top_k: 20, top_p: 0.95, ..PLAIN },
        ];
        for (seed, sampling) in settings.iter().enumerate() {
            let (chi, freedom) = chi_square(&logits, sampling, seed as u32, 20_000);
            // Mean f, variance 2f: five deviations above is below 1e-5 for a true distribution.
            assert!(
                chi < freedom + 5.0 * (2.0 * freedom).sqrt(),
                "{sampling:?}: {chi} of {freedom}"
            );
            assert!(chi > freedom - 5.0 * (2.0 * freedom).sqrt(), "{sampling:?}: too good, {chi}");
        }
    }

    /// Neighbours share a counter of Philox, and positions the key: neither may predict the other.
    #[test]
    fn draws_of_two_positions_are_independent() {
        let mut counts = [[0u32; 6]; 6];
        let logits = [0.0; 6];
        let draw = |position| sample(&logits, &[], &PLAIN, Draw { seed: 11, position }) as usize;
        (0..36_000).for_each(|i| counts[draw(2 * i)][draw(2 * i + 1)] += 1);
        let chi: f64 =
            counts.iter().flatten().map(|c| (f64::from(*c) - 1000.0).powi(2) / 1000.0).sum();
        assert!((chi - 35.0).abs() < 5.0 * 70f64.sqrt(), "{chi} of 35");
    }

    #[test]
    fn seldom_tokens_are_drawn_as_often_as_they_should() {
        // Of 1 / (1 + 4 e^9): 3.1e-5.
        let logits = [9.0, 9.0, 0.0, 9.0, 9.0];
        let draws = 2_000_000;
        let drawn = (0..draws)
            .filter(|&position| sample(&logits, &[], &PLAIN, Draw { seed: 2, position }) == 2)
            .count() as f64;
        let expected = f64::from(draws) / (1.0 + 4.0 * 9f64.exp());
        assert!((drawn - expected).abs() < 5.0 * expected.sqrt(), "{drawn} for {expected}");
    }

    #[test]
    fn a_wrong_distribution_does_not_fit() {
        let logits: Vec<f32> = (0..50u32).map(|i| ((i * 29) % 50) as f32 / 16.0 - 1.0).collect();
        let warm = Sampling { temperature: 1.1, ..PLAIN };
        let mut counts = [0u32; 50];
        for position in 0..20_000 {
            counts[sample(&logits, &[], &warm, Draw { seed: 1, position }) as usize] += 1;
        }
        let expected = probabilities(&logits, &[], &PLAIN);
        let cells = counts.iter().zip(expected).map(|(c, p)| (f64::from(*c), p * 20_000.0));
        let chi: f64 = cells.map(|(c, e)| (c - e).powi(2) / e).sum();
        assert!(chi > 49.0 + 5.0 * 98f64.sqrt(), "{chi}");
    }

    proptest! {
        #[test]
        fn integer_and_real_probabilities_agree(
            logits in prop::collection::vec(-12f32..12.0, 1..60),
            seen in prop::collection::vec(0u32..80, 0..6),
            temperature in 0.2f32..2.0,
            top_k in 0usize..70,
            penalty in 1f32..2.0,
        ) {
            let sampling =
                Sampling { temperature, top_k, top_p: 1.0, repeat_penalty: penalty };
            let exact = probabilities(&logits, &seen, &sampling);
            let scores = scores(&logits, &seen, penalty);
            let order = order(&scores, top_k);
            let weights: Vec<u64> =
                order.iter().map(|i| weight(scores[order[0]], scores[*i], temperature)).collect();
            let total: u64 = weights.iter().sum();
            for (i, w) in order.iter().zip(weights) {
                // f32 rounds the exponent, at most 63, to 2^-24 relatively, a few times.
                let got = w as f64 / total as f64;
                prop_assert!((got - exact[*i]).abs() <= 4e-5 * exact[*i] + 1e-11, "{got} {}", exact[*i]);
            }
        }

        #[test]
        fn draws_are_tokens_that_stay(
            logits in prop::collection::vec(-6i8..6, 1..40),
            top_k in 0usize..50,
            top_p in 0f32..1.0,
            seed in any::<u32>(),
        ) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let sampling = Sampling { top_k, top_p, ..PLAIN };
            let draw = Draw { seed, position: 5 };
            let token = sample(&logits, &[], &sampling, draw) as usize;
            // Without the threshold's own rounding: a token more or less may stay in f64.
            let wider = Sampling { top_p: (top_p + 1e-6).min(1.0), ..sampling };
            prop_assert!(probabilities(&logits, &[], &wider)[token] > 0.0);
        }
    }
}
