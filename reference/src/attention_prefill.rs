//! Attention of several consecutive tokens over a cache that already holds them.
//!
//! Query i of head h stands in slot p = min(first + i, last) and attends, with kv head
//! g = ⌊h / (heads/kv_heads)⌋, to the slots t from `oldest` to p, under a window w > 0 only to
//! t > p − w:
//!
//! ```text
//! sₜ = scale · Σ_d q[i][h][d]·K[g][t][d]
//! o[i][h][d] = Σₜ exp(sₜ − max s) / Σⱼ exp(sⱼ − max s) · V[g][t][d]
//! ```
//!
//! Slots hold tokens in order: nothing wraps. Queries past the last slot attend as if in it, so
//! that a chunk that is not full has an answer.
//!
//! Magnitude and limits of NMSE: same as [`crate::attention_decode`], of which each query is a
//! case. Matrix units take operands as f16 ([`Rounded`]). If all weights but one are next to nothing
//! and that one's value is 0, the loss of the others may be the whole output.
//!
//! Sources: Vaswani et al., *Attention Is All You Need*, arXiv:1706.03762; Dao et al.,
//! *FlashAttention*, arXiv:2205.14135.

use std::ops::Range;

use crate::attention_decode::{Rounded, attend};
use crate::{Expected, kv_append::CacheShape};

/// The queries of a prefill against a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefill {
    /// Query heads, a multiple of the cache's kv_heads.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Slot of the first query.
    pub first: usize,
    /// The last slot that a query attends to.
    pub last: usize,
    /// The first slot that holds a token; a query before it attends to its own slot alone.
    pub oldest: usize,
    /// Tokens a query sees, itself included; all before it when absent.
    pub window: Option<usize>,
    /// Operands that a kernel may round.
    pub rounded: Rounded,
}

impl Prefill {
    /// The slots that query `i` attends to.
    pub fn slots(&self, i: usize) -> Range<usize> {
        let last = (self.first + i).min(self.last);
        let windowed = self.window.map_or(0, |w| (last + 1).saturating_sub(w));
        windowed.max(self.oldest.min(last))..last + 1
    }
}

/// The outputs (queries × heads × head_dim) for `queries`, each heads × head_dim.
///
/// # Panics
/// When a query or a cache has not the size that the shapes say, `heads` is no multiple of
/// kv_heads, the cache has no slot or the window is empty.
pub fn attention_prefill(
    queries: &[&[f32]],
    k_cache: &[f32],
    v_cache: &[f32],
    cache: &CacheShape,
    prefill: &Prefill,
) -> Expected {
    Expected::join(queries.iter().enumerate().map(|(i, query)| {
        assert_eq!(query.len(), prefill.heads * cache.head_dim, "elements of query {i}");
        attend(query, k_cache, v_cache, cache, prefill.scale, prefill.slots(i), prefill.rounded)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention_decode::{Attention, attention_decode};
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    const SHAPE: CacheShape = CacheShape { kv_heads: 1, capacity: 3, head_dim: 1 };

    #[test]
    fn by_hand() {
        // Query 0 sees slot 0 alone. Query 1 has scores 0 and ln 3: weights 1/4 and 3/4, and
        // 4/4 + 3·8/4 = 7, magnitude 7·(1 + 2·ln 3).
        let ln_3 = 3f32.ln();
        let prefill = Prefill {
            heads: 1,
            scale: 0.5,
            first: 0,
            last: 2,
            oldest: 0,
            window: None,
            rounded: Rounded::Nothing,
        };
        let queries: [&[f32]; 2] = [&[ln_3], &[ln_3]];
        let (k, v) = ([0.0, 2.0, f32::NAN], [4.0, 8.0, f32::NAN]);
        let o = attention_prefill(&queries, &k, &v, &SHAPE, &prefill);
        assert_relative_eq!(o.value[..], [4.0, 7.0], max_relative = 1e-6);
        let magnitude = [4.0, 7.0 * (1.0 + 2.0 * 3f64.ln())];
        assert_relative_eq!(o.magnitude[..], magnitude, max_relative = 1e-6);
    }

    #[test]
    fn a_window_forgets_and_the_last_slot_holds_what_comes_after() {
        // A query of 0 averages what it sees: slots 0..=1, then 1..=2, then 1..=2 again.
        let prefill = Prefill {
            heads: 1,
            scale: 1.0,
            first: 1,
            last: 2,
            oldest: 0,
            window: Some(2),
            rounded: Rounded::Nothing,
        };
        let queries: [&[f32]; 3] = [&[0.0]; 3];
        let o = attention_prefill(&queries, &[1.0; 3], &[2.0, 4.0, 8.0], &SHAPE, &prefill);
        assert_eq!(o.value, [3.0, 6.0, 6.0]);
        // Slot 0 holds nothing.
        let prefill = Prefill { oldest: 1, ..prefill };
        let o = attention_prefill(&queries, &[1.0; 3], &[f32::NAN, 4.0, 8.0], &SHAPE, &prefill);
        assert_eq!(o.value, [4.0, 6.0, 6.0]);
    }

    proptest! {
        #[test]
        fn every_query_is_a_decode_step(
            q in prop::collection::vec(-4.0f32..4.0, 3 * 4 * 2),
            k in prop::collection::vec(-4.0f32..4.0, 2 * 7 * 2),
            v in prop::collection::vec(-4.0f32..4.0, 2 * 7 * 2),
            first in 0usize..5,
        ) {
            let shape = CacheShape { kv_heads: 2, capacity: 7, head_dim: 2 };
            let queries: Vec<&[f32]> = q.chunks(8).collect();
            let prefill = Prefill { heads: 4, scale: 0.5, first, last: 6, oldest: 0, window: None, rounded: Rounded::Nothing };
            let all = attention_prefill(&queries, &k, &v, &shape, &prefill);
            for (i, query) in queries.iter().enumerate() {
                let attention = Attention { heads: 4, scale: 0.5, seen: first + i + 1 };
                let one = attention_decode(query, &k, &v, &shape, &attention);
                assert_relative_eq!(all.value[8 * i..][..8], one.value[..], max_relative = 1e-12);
                let magnitude = &all.magnitude[8 * i..][..8];
                assert_relative_eq!(magnitude, &one.magnitude[..], max_relative = 1e-12);
            }
        }
    }
}
