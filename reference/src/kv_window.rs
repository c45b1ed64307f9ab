//! Copies of keys or values between the ring of a sliding window and the rows that a chunk of a
//! prompt attends to.
//!
//! The ring holds the token at position t in slot t mod `capacity`. Rows hold the window before the
//! chunk, then the chunk: the token at position p − j in row capacity − j, the chunk's token i in
//! row capacity + i, when p tokens came before.

use crate::kv_append::CacheShape;

/// The rows after the ring's tokens were copied there; rows before the start of the sequence are
/// unchanged.
///
/// # Panics
/// When `ring` or `rows` is smaller than required by `shape` and a chunk of `n_tokens`.
pub fn to_rows(
    ring: &[f32],
    rows: &mut [f32],
    shape: &CacheShape,
    n_tokens: usize,
    position: usize,
) {
    let all = CacheShape { capacity: shape.capacity + n_tokens, ..*shape };
    for head in 0..shape.kv_heads {
        for back in 1..=shape.capacity.min(position) {
            let slot = shape.row(head, (position - back) % shape.capacity);
            rows[all.row(head, shape.capacity - back)].copy_from_slice(&ring[slot]);
        }
    }
}

/// The ring after `count` of the chunk's tokens were copied there, in order.
///
/// # Panics
/// Same as [`to_rows`], and when the chunk has fewer than `count` tokens.
pub fn to_ring(
    rows: &[f32],
    ring: &mut [f32],
    shape: &CacheShape,
    n_tokens: usize,
    position: usize,
    count: usize,
) {
    assert!(count <= n_tokens, "{count} tokens of a chunk of {n_tokens}");
    let all = CacheShape { capacity: shape.capacity + n_tokens, ..*shape };
    for head in 0..shape.kv_heads {
        for i in 0..count {
            let slot = shape.row(head, (position + i) % shape.capacity);
            ring[slot].copy_from_slice(&rows[all.row(head, shape.capacity + i)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: CacheShape = CacheShape { kv_heads: 1, capacity: 3, head_dim: 1 };

    #[test]
    fn by_hand() {
        // Tokens 2, 3, 4 in slots 2, 0, 1; the chunk's are 5 and 6.
        let mut rows = [0.0, 0.0, 0.0, 5.0, 6.0];
        to_rows(&[3.0, 4.0, 2.0], &mut rows, &SHAPE, 2, 5);
        assert_eq!(rows, [2.0, 3.0, 4.0, 5.0, 6.0]);
        let mut ring = [3.0, 4.0, 2.0];
        to_ring(&rows, &mut ring, &SHAPE, 2, 5, 2);
        assert_eq!(ring, [6.0, 4.0, 5.0]);
    }

    #[test]
    fn a_window_that_is_not_full_leaves_the_first_rows() {
        let mut rows = [9.0; 4];
        to_rows(&[1.0, 0.0, 0.0], &mut rows, &SHAPE, 1, 1);
        assert_eq!(rows, [9.0, 9.0, 1.0, 9.0]);
    }
}
