//! A token from the product of its QKV matrix to its attention output:
//! [`qkv_rope_append`](crate::qkv_rope_append), then
//! [`attention_decode`](crate::attention_decode) over the caches that hold it.
//!
//! Magnitude: Σᵢ pᵢ·|Vᵢd| · (1 + 2·maxᵢ Sᵢ) as there, with Sᵢ = |scale|·Σd |q|d·|K|id over the
//! magnitudes of the rotated query and, in its slot, the rotated key: a rotation rounds its terms
//! before they cancel.
//!
//! A cache of f16 rounds the new key and value by up to a step, in a direction that WGSL leaves
//! open; in q8_0 a value half way between two quants becomes either. Errors of up to εd in the key
//! and δd in the value move the new slot's score by at most E = |scale|·Σd |q|d·εd, and its value
//! by δd. With o = p·V + (1 − p)·R, R the weighted mean of all other slots, a score moved by ±E
//! makes the weight p·e^±E / (1 − p + p·e^±E), and so moves o, with X = e^E − 1, by at most
//!
//! ```text
//! |V − o| · p·X / (1 + min(p, 1 − p)·X)
//! ```
//!
//! The absolute allowance is this plus min(1, p·e^E)·δd, however large the scores are, plus the
//! allowance of `attention_decode`.

use crate::Expected;
use crate::attention_decode::{Attention, Rounded, mixed, softmax};
use crate::kv_append::CacheShape;
use crate::qkv_rope_append::Token;

/// Attention of `token` over caches (kv_heads × capacity × head_dim) that hold it already, as the
/// last of `attention.seen`. `errors` are the errors of the new key and value, kv_heads × head_dim
/// each.
///
/// # Panics
/// When the token or a cache has not the size that `cache` and `attention` say.
pub fn attention_append(
    token: &Token,
    k_cache: &[f32],
    v_cache: &[f32],
    cache: &CacheShape,
    attention: &Attention,
    errors: [&[f64]; 2],
) -> Expected {
    let &Attention { heads, scale, seen } = attention;
    let d = cache.head_dim;
    assert_eq!(token.q.value.len(), heads * d, "elements of the queries");
    assert_eq!(token.k.value.len(), cache.kv_heads * d, "elements of the keys");
    assert_eq!(k_cache.len(), cache.elements(), "elements of the key cache");
    assert_eq!(v_cache.len(), cache.elements(), "elements of the value cache");
    assert!(errors.iter().all(|of| of.len() == cache.kv_heads * d), "errors of the new row");
    assert!(heads.is_multiple_of(cache.kv_heads), "{heads} heads over {} kv heads", cache.kv_heads);
    assert!(seen > 0, "no token to attend to");
    let slots = seen.min(cache.capacity);
    let new = (seen - 1) % cache.capacity;
    let scale = f64::from(scale);

    Expected::join((0..heads).map(|head| {
        let kv_head = head / (heads / cache.kv_heads);
        let own = head * d..(head + 1) * d;
        let (q, q_size) = (&token.q.value[own.clone()], &token.q.magnitude[own]);
        let new_size = &token.k.magnitude[kv_head * d..][..d];

        let (mut scores, mut largest_size) = (Vec::with_capacity(slots), 0.0f64);
        for slot in 0..slots {
            let k = &k_cache[cache.row(kv_head, slot)];
            let size = |i: usize| match slot == new {
                true => new_size[i].max(f64::from(k[i]).abs()),
                false => f64::from(k[i]).abs(),
            };
            scores.push((0..d).map(|i| scale * q[i] * f64::from(k[i])).sum::<f64>());
            let terms = (0..d).map(|i| q_size[i].max(q[i].abs()) * size(i));
            let size = scale.abs() * terms.sum::<f64>();
            largest_size = if size.is_finite() { largest_size.max(size) } else { largest_size };
        }
        let weights = softmax(&scores);
        let values = (0..slots).map(|slot| &v_cache[cache.row(kv_head, slot)]);
        let mut y = mixed(&scores, values, d, largest_size, (Rounded::Nothing, 0.0));

        let p = weights[new];
        let [k_error, v_error] = errors.map(|all| &all[kv_head * d..][..d]);
        let terms = (0..d).map(|i| q_size[i].max(q[i].abs()) * k_error[i]);
        // Far from overflow: beyond, the new slot has all of the weight or none.
        let moved = (scale.abs() * terms.sum::<f64>()).min(300.0);
        let grown = moved.exp_m1();
        let weight = p * grown / (1.0 + p.min(1.0 - p) * grown);
        let most = (p * moved.exp()).min(1.0);
        let row = &v_cache[cache.row(kv_head, new)];
        let outputs = y.value.iter().zip(row).zip(v_error);
        for (absolute, ((output, v), error)) in y.absolute.iter_mut().zip(outputs) {
            *absolute += most * error + weight * (f64::from(*v) - output).abs();
        }
        y
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention_decode::attention_decode;
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    /// Relative step of f16, rounded in any direction.
    const STEP: f64 = 1.0 / 1024.0;
    const SHAPE: CacheShape = CacheShape { kv_heads: 1, capacity: 2, head_dim: 1 };

    fn errors(values: &[f32]) -> Vec<f64> {
        values.iter().map(|v| STEP * f64::from(v.abs())).collect()
    }

    fn token(q: &[f32], k: &[f32]) -> Token {
        let with_size =
            |v: &[f32]| v.iter().map(|v| (f64::from(*v), f64::from(v.abs()))).collect::<Expected>();
        Token { q: with_size(q), k: with_size(k), v: Expected::exact(k) }
    }

    #[test]
    fn by_hand() {
        // Scores 0 and ln 3 weigh 1/4 and 3/4: 4/4 + 3·8/4 = 7. The new slot is the second: p =
        // 3/4, S = ln 3, E = a step of it; V lies 1 from the output.
        let ln_3 = 3f32.ln();
        let attention = Attention { heads: 1, scale: 1.0, seen: 2 };
        let y = attention_append(
            &token(&[1.0], &[ln_3]),
            &[0.0, ln_3],
            &[4.0, 8.0],
            &SHAPE,
            &attention,
            [&errors(&[ln_3]), &errors(&[8.0])],
        );
        assert_relative_eq!(y.value[0], 7.0, epsilon = 1e-6);
        assert_relative_eq!(y.magnitude[0], 7.0 * (1.0 + 2.0 * f64::from(ln_3)), epsilon = 1e-5);
        let grown = (STEP * f64::from(ln_3)).exp() - 1.0;
        let moved = 0.75 * (1.0 + grown) * 8.0 * STEP + 0.75 * grown / (1.0 + 0.25 * grown);
        assert_relative_eq!(y.absolute[0], moved, epsilon = 1e-6);
    }

    #[test]
    fn a_ring_begins_anew() {
        // The third token of a cache of two lies in slot 0.
        let attention = Attention { heads: 1, scale: 1.0, seen: 3 };
        let k = [100.0, 0.0];
        let errors = [&errors(&[100.0])[..], &errors(&[4.0])];
        let token = token(&[1.0], &[100.0]);
        let y = attention_append(&token, &k, &[4.0, 8.0], &SHAPE, &attention, errors);
        assert_relative_eq!(y.value[0], 4.0, epsilon = 1e-12);
        // The weight is all slot 0's, and what its key is off by moves nothing.
        assert_relative_eq!(y.absolute[0], STEP * 4.0, epsilon = 1e-12);
    }

    proptest! {
        #[test]
        fn agrees_with_attention_decode(
            q in prop::collection::vec(-2.0f32..2.0, 4 * 6),
            k in prop::collection::vec(-2.0f32..2.0, 2 * 5 * 6),
            v in prop::collection::vec(-2.0f32..2.0, 2 * 5 * 6),
            seen in 1usize..12,
        ) {
            let shape = CacheShape { kv_heads: 2, capacity: 5, head_dim: 6 };
            let attention = Attention { heads: 4, scale: 0.4, seen };
            let new = (seen - 1) % 5;
            let keys: Vec<f32> = (0..2).flat_map(|h| k[shape.row(h, new)].to_vec()).collect();
            let none = vec![0.0; keys.len()];
            let token = token(&q, &keys);
            let y = attention_append(&token, &k, &v, &shape, &attention, [&none, &none]);
            let decode = attention_decode(&q, &k, &v, &shape, &attention);
            for (a, b) in y.value.iter().zip(&decode.value) {
                assert_relative_eq!(*a, *b, epsilon = 1e-12);
            }
            for (a, b) in y.magnitude.iter().zip(&decode.magnitude) {
                assert_relative_eq!(*a, *b, epsilon = 1e-9);
            }
        }

        #[test]
        fn an_error_of_the_new_row_moves_no_more_than_said(
            q in prop::collection::vec(-2.0f32..2.0, 6),
            k in prop::collection::vec(-2.0f32..2.0, 5 * 6),
            v in prop::collection::vec(-2.0f32..2.0, 5 * 6),
            signs in prop::collection::vec(any::<bool>(), 12),
            // Scores of thousands, moved by some.
            times in prop_oneof![Just(1.0f32), Just(64.0), Just(1024.0)],
        ) {
            let shape = CacheShape { kv_heads: 1, capacity: 5, head_dim: 6 };
            let attention = Attention { heads: 1, scale: 0.4, seen: 5 };
            let q: Vec<f32> = q.iter().map(|q| times * q).collect();
            let step = STEP as f32;
            let new = shape.row(0, 4);
            let off = [&k, &v].map(|of| errors(&of[new.clone()]));
            let token = token(&q, &k[new.clone()]);
            let off = [&off[0][..], &off[1]];
            let y = attention_append(&token, &k, &v, &shape, &attention, off);
            let (mut near_k, mut near_v) = (k.clone(), v.clone());
            for (i, at) in new.enumerate() {
                near_k[at] *= if signs[i] { 1.0 + step } else { 1.0 - step };
                near_v[at] *= if signs[6 + i] { 1.0 + step } else { 1.0 - step };
            }
            let other = attention_decode(&q, &near_k, &near_v, &shape, &attention);
            for i in 0..6 {
                let moved = (other.value[i] - y.value[i]).abs();
                // Products with a step are rounded to f32, and scores move with them.
                let rounding = f64::from(f32::EPSILON) * (4.0 + 8.0 * f64::from(times));
                let most = y.absolute[i] * (1.0 + rounding) + rounding;
                prop_assert!(moved <= most, "{moved} > {most}");
            }
        }
    }
}
