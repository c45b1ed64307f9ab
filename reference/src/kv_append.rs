//! Stores one token's keys or values in the cache.
//!
//! `cache[h][position mod capacity][d] = round(new[h][d])`, the cache being
//! kv_heads × capacity × head_dim. A capacity that covers the context never wraps; a smaller one,
//! a sliding window, is a ring.
//!
//! The rounding, to nearest even, is that of the `f16` store itself, so an f16 cache is compared
//! exactly; here its values are widened to `f32` again.
//!
//! A cache of q8_0 stores, for every 32 neighbours of a vector, a scale s, their largest magnitude
//! over 127 rounded to f16, and quants, the values in units of the unrounded scale rounded to
//! integers. A NaN or an infinity becomes the scale, and all 32 are lost.

use half::f16;

/// Storage format of the cache's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// Integers of 8 bits, a scale in f16 for every 32 of a vector.
    Q8_0,
}

impl KvFormat {
    /// Rounds a vector.
    pub fn round(self, vector: &mut [f32]) {
        match self {
            KvFormat::F32 => {}
            KvFormat::F16 => vector.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32()),
            KvFormat::Q8_0 => {
                for block in vector.chunks_mut(BLOCK) {
                    let scale = largest(block) / 127.0;
                    let stored = f16::from_f32(scale).to_f32();
                    for v in block {
                        let quant = if scale > 0.0 { (*v / scale).round_ties_even() } else { 0.0 };
                        *v = stored * quant;
                    }
                }
            }
        }
    }

    /// Largest error of a vector's stored values under any rounding that WGSL allows: a step of
    /// f16; for q8_0 half a quant, and a step of f16 of the scale.
    pub fn error(self, vector: &[f32]) -> Vec<f64> {
        let step = |v: &f32| f64::from(v.abs()) / 1024.0;
        match self {
            KvFormat::F32 => vec![0.0; vector.len()],
            KvFormat::F16 => vector.iter().map(step).collect(),
            KvFormat::Q8_0 => {
                let blocks = vector.chunks(BLOCK);
                blocks
                    .flat_map(|block| block.iter().map(|v| 0.51 * quant(block) + step(v)))
                    .collect()
            }
        }
    }

    /// Largest difference between two correct ways to store a vector: in q8_0 a value half way
    /// between two quants becomes either.
    pub fn ambiguity(self, vector: &[f32]) -> Vec<f64> {
        let mut error = self.error(vector);
        if self == KvFormat::Q8_0 {
            for (error, block) in error.chunks_mut(BLOCK).zip(vector.chunks(BLOCK)) {
                error.iter_mut().for_each(|e| *e += 0.51 * quant(block));
            }
        }
        error
    }
}

/// Values that share a scale.
pub(crate) const BLOCK: usize = 32;

/// The largest magnitude; NaN where one of the values is.
fn largest(block: &[f32]) -> f32 {
    let larger = |most: f32, v: &f32| if v.is_nan() || v.abs() > most { v.abs() } else { most };
    block.iter().fold(0.0, larger)
}

/// Value of one quant, plus the effect on 127 quants of the scale's smallest step in f16.
fn quant(block: &[f32]) -> f64 {
    let smallest = 127.0 * 2f64.powi(-24);
    f64::from(largest(block)) / 127.0 + smallest
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
/// When the size of `cache` or `new` is not that of `shape`, or when `shape` has no slot.
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
        let stored = &mut cache[shape.row(head, slot)];
        stored.copy_from_slice(new);
        format.round(stored);
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

    #[test]
    fn blocks_by_hand() {
        // 33 values: the first block's scale is 254 / 127 = 2, the second's 1 / 127 in f16.
        let mut vector = vec![0.0; 33];
        (vector[0], vector[1], vector[2], vector[32]) = (254.0, -3.0, 4.9, -1.0);
        KvFormat::Q8_0.round(&mut vector);
        // -1.5 quants are a tie and become -2, 2.45 become 2.
        assert_eq!(vector[..4], [254.0, -4.0, 4.0, 0.0]);
        assert_eq!(vector[32], -127.0 * f16::from_f32(1.0 / 127.0).to_f32());
        for wrong in [f32::NAN, f32::INFINITY] {
            (vector[4], vector[5]) = (wrong, 1.0);
            KvFormat::Q8_0.round(&mut vector);
            assert!(vector[..32].iter().all(|v| !v.is_finite()) && vector[32].is_finite());
        }
        let mut nothing = [0.0, -0.0];
        KvFormat::Q8_0.round(&mut nothing);
        assert_eq!(nothing, [0.0; 2]);
    }

    proptest! {
        #[test]
        fn what_is_stored_is_near_and_stays(
            values in prop::collection::vec(-9.0f32..9.0, 1..80),
            exponent in -30i32..12,
        ) {
            let values: Vec<f32> = values.iter().map(|v| v * 2f32.powi(exponent)).collect();
            for format in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
                let mut stored = values.clone();
                format.round(&mut stored);
                for ((stored, v), error) in stored.iter().zip(&values).zip(format.error(&values)) {
                    let off = (f64::from(*stored) - f64::from(*v)).abs();
                    // What f16 loses below its normal numbers is said for q8_0 alone.
                    let most = if format == KvFormat::F16 { error + 2f64.powi(-24) } else { error };
                    prop_assert!(off <= most, "{off} > {most} of {v} in {format:?}");
                }
                let mut again = stored.clone();
                format.round(&mut again);
                prop_assert_eq!(again, stored);
            }
        }

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
