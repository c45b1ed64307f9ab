//! Stores one token's keys or values in the cache.
//!
//! `cache[h][position mod capacity][d] = round(new[h][d])`, the cache being
//! kv_heads × capacity × head_dim. A capacity that covers the context never wraps; a smaller one,
//! a sliding window, is a ring.
//!
//! The rounding, to nearest even, is the one `f16` store itself, so an f16 cache is compared
//! exactly, and here it is held widened to `f32` again.

use half::f16;

/// How the cache stores its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
}

/// A cache of kv_heads × capacity × head_dim elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheShape {
    /// Heads of keys or values.
    pub kv_heads: usize,
    /// Slots per head, in tokens.
    pub capacity: usize,
    /// Elements per head and token.
    pub head_dim: usize,
}

impl CacheShape {
    /// Elements of the whole cache.
    pub fn elements(&self) -> usize {
        self.kv_heads * self.capacity * self.head_dim
    }

    /// The head_dim elements of one head at one slot.
    pub(crate) fn row(&self, head: usize, slot: usize) -> std::ops::Range<usize> {
        let start = (head * self.capacity + slot) * self.head_dim;
        start..start + self.head_dim
    }
}

/// Writes `new` (kv_heads × head_dim) into the slot of `position`.
///
/// # Panics
/// When `cache` or `new` has not the size that `shape` says, or when `shape` has no slot.
pub fn kv_append(
    cache: &mut [f32],
    new: &[f32],
    shape: &CacheShape,
    position: u32,
    format: KvFormat,
) {
    assert_eq!(cache.len(), shape.elements(), "elements of the cache");
    assert_eq!(new.len(), shape.kv_heads * shape.head_dim, "elements of the token");
    let slot = position as usize % shape.capacity;
    for head in 0..shape.kv_heads {
        let new = &new[head * shape.head_dim..][..shape.head_dim];
        for (stored, &x) in cache[shape.row(head, slot)].iter_mut().zip(new) {
            *stored = match format {
                KvFormat::F32 => x,
                KvFormat::F16 => f16::from_f32(x).to_f32(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ring_by_hand() {
        // Position 4 of 3 slots is slot 1: elements 2, 3 of head 0 and, 3·2 further, of head 1.
        let shape = CacheShape { kv_heads: 2, capacity: 3, head_dim: 2 };
        let mut cache = [0.0; 12];
        kv_append(&mut cache, &[1.0, 2.0, 3.0, 4.0], &shape, 4, KvFormat::F32);
        assert_eq!(cache, [0., 0., 1., 2., 0., 0., 0., 0., 3., 4., 0., 0.]);
    }

    #[test]
    fn f16_ties_go_to_even() {
        // f16 steps by 2^-10 above 1: half a step goes down to 1, one and a half up to two steps.
        // 65520 is half way past the largest f16, 65504, and becomes infinite.
        let step = 2f32.powi(-10);
        let shape = CacheShape { kv_heads: 1, capacity: 1, head_dim: 3 };
        let mut cache = [f32::NAN; 3];
        let new = [1.0 + 0.5 * step, 1.0 + 1.5 * step, 65520.0];
        kv_append(&mut cache, &new, &shape, 9, KvFormat::F16);
        assert_eq!(cache, [1.0, 1.0 + 2.0 * step, f32::INFINITY]);
    }

    proptest! {
        #[test]
        fn keeps_the_last_capacity_tokens(capacity in 1usize..6, tokens in 1u32..20) {
            let shape = CacheShape { kv_heads: 1, capacity, head_dim: 1 };
            let mut cache = vec![-1.0; capacity];
            for token in 0..tokens {
                kv_append(&mut cache, &[token as f32], &shape, token, KvFormat::F16);
            }
            cache.retain(|&x| x >= 0.0);
            cache.sort_by(f32::total_cmp);
            let first = tokens.saturating_sub(capacity as u32);
            prop_assert_eq!(cache, (first..tokens).map(|t| t as f32).collect::<Vec<_>>());
        }
    }
}
