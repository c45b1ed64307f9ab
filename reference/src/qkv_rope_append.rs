//! The steps between the QKV product and attention: queries and keys are normed (if the model does
//! so) and rotated by their position, keys and values go into the cache.
//!
//! `qkv` is query heads, key heads, value heads. Everything is [`qk_norm_rope()`] and the slot of
//! [`kv_append`](crate::kv_append); values are stored as they are.
//!
//! Magnitudes: those of the rotation; 0 for values that are only copied. A bias is added to all
//! heads first: its sum is rounded to f32, as kernels do, and a value's magnitude is that sum.

use crate::Expected;
use crate::kv_append::{BLOCK, CacheShape, KvFormat};
use crate::qk_norm_rope::qk_norm_rope;
use crate::rope::Rope;

/// One token's queries, and its keys and values for the cache, unrounded.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// heads × head_dim.
    pub q: Expected,
    /// kv_heads × head_dim.
    pub k: Expected,
    /// kv_heads × head_dim.
    pub v: Expected,
}

/// Adds a bias to `qkv`, norms (`[q, k]` weights of head_dim, eps) and rotates its heads.
///
/// # Panics
/// When `qkv` is shorter than two sets of KV heads or the bias than `qkv`; same as
/// [`qk_norm_rope()`].
pub fn qkv_rope_append(
    qkv: &[f32],
    bias: Option<&[f32]>,
    cache: &CacheShape,
    norm: Option<([&[f32]; 2], f32)>,
    rope: &Rope<'_>,
) -> Token {
    let sums: Vec<f32>;
    let qkv = match bias {
        None => qkv,
        Some(bias) => {
            assert!(bias.len() >= qkv.len(), "{} biases of {}", bias.len(), qkv.len());
            sums = qkv.iter().zip(bias).map(|(product, bias)| product + bias).collect();
            &sums
        }
    };
    let stored = cache.kv_heads * cache.head_dim;
    let (q, rest) = qkv.split_at(qkv.len() - 2 * stored);
    let (k, v) = rest.split_at(stored);
    let rotated = |heads: &[f32], which: usize| {
        let norm = norm.map(|(weights, eps)| (weights[which], eps));
        qk_norm_rope(heads, cache.head_dim, norm, rope)
    };
    let v = match bias {
        None => Expected::exact(v),
        Some(_) => v.iter().map(|v| (f64::from(*v), f64::from(v.abs()))).collect(),
    };
    Token { q: rotated(q, 0), k: rotated(k, 1), v }
}

/// Puts `new` (kv_heads × head_dim) into the slot of `position` of a cache. If its format has
/// blocks, the largest error of storing is the absolute allowance.
///
/// # Panics
/// When the size of `cache` or `new` is not that of `shape`.
pub fn store(
    cache: &mut Expected,
    new: &Expected,
    shape: &CacheShape,
    position: u32,
    format: KvFormat,
) {
    assert_eq!(cache.value.len(), shape.elements(), "elements of the cache");
    assert_eq!(new.value.len(), shape.kv_heads * shape.head_dim, "elements of the token");
    let slot = position as usize % shape.capacity;
    for head in 0..shape.kv_heads {
        let (row, from) = (shape.row(head, slot), head * shape.head_dim);
        let token = from..from + shape.head_dim;
        cache.value[row.clone()].copy_from_slice(&new.value[token.clone()]);
        cache.magnitude[row.clone()].copy_from_slice(&new.magnitude[token.clone()]);
        if format == KvFormat::Q8_0 {
            let vector: Vec<f32> = new.value[token].iter().map(|v| *v as f32).collect();
            cache.absolute.resize(cache.value.len(), 0.0);
            cache.absolute[row.clone()].copy_from_slice(&format.error(&vector));
            // A scale among the subnormals of f16 is rounded by up to half their spacing.
            let spacing = 2f64.powi(-24);
            cache.deviation.resize(cache.value.len(), 0.0);
            cache.deviation[row.clone()].fill(127.0 * spacing / 12f64.sqrt());
            let blocks = cache.value[row.clone()].chunks_mut(BLOCK);
            for (block, size) in blocks.zip(cache.magnitude[row].chunks_mut(BLOCK)) {
                if block.iter().any(|v| !v.is_finite()) {
                    block.fill(f64::NAN);
                    size.fill(f64::NAN);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::RopeStyle;
    use approx::assert_relative_eq;

    #[test]
    fn by_hand() {
        // Base 1 and factor 2/pi: a quarter turn at position 1, (a, b) -> (-b, a). One query head,
        // one key head normed by its rms 5, one value head.
        let factor = [2.0 / std::f32::consts::PI];
        let rope = Rope {
            style: RopeStyle::Neox,
            base: 1.0,
            freq_factors: Some(&factor),
            amplitude: 1.0,
            position: 1,
        };
        let cache = CacheShape { kv_heads: 1, capacity: 3, head_dim: 2 };
        let qkv = [2.0, 2.0, 1.0, 7.0, 5.0, 6.0];
        let norm = Some(([&[1.0, 3.0][..], &[10.0, 5.0][..]], 0.0));
        let token = qkv_rope_append(&qkv, None, &cache, norm, &rope);
        assert_relative_eq!(token.q.value[..], [-3.0, 1.0], epsilon = 1e-6);
        assert_relative_eq!(token.k.value[..], [-7.0, 2.0], epsilon = 1e-6);
        assert_eq!(token.v, Expected::exact(&[5.0, 6.0]));
        // The same heads as sums.
        let (products, bias) = ([1.0, 0.0, 1.0, 9.0, 4.5, 8.0], [1.0, 2.0, 0.0, -2.0, 0.5, -2.0]);
        let sum = qkv_rope_append(&products, Some(&bias), &cache, norm, &rope);
        assert_eq!((&sum.q, &sum.k, &sum.v.value), (&token.q, &token.k, &token.v.value));
        assert_eq!(sum.v.magnitude, [5.0, 6.0]);
        // Position 4 of 3 slots is slot 1.
        let mut after = Expected::exact(&[1.0; 6]);
        store(&mut after, &token.v, &cache, 4, KvFormat::F16);
        assert_eq!(after, Expected::exact(&[1.0, 1.0, 5.0, 6.0, 1.0, 1.0]));
    }
}
