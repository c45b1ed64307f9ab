//! The end of a chunk of a prompt.

/// Number of the chunk's tokens that belong to the prompt: at least one.
pub fn count(position: usize, prompt_len: usize, n_tokens: usize) -> usize {
    prompt_len.saturating_sub(position).clamp(1, n_tokens)
}

/// The position after the chunk. If the prompt ends with it, the head's step counts the last token.
pub fn position_after(position: usize, prompt_len: usize, n_tokens: usize) -> usize {
    let ends = prompt_len.saturating_sub(position) <= n_tokens;
    position + count(position, prompt_len, n_tokens) - usize::from(ends)
}

/// The row of the chunk's last token.
///
/// # Panics
/// When `x` has not `n_tokens` rows.
pub fn last_row(x: &[f32], position: usize, prompt_len: usize, n_tokens: usize) -> &[f32] {
    assert!(x.len().is_multiple_of(n_tokens), "elements of {n_tokens} rows");
    let n = x.len() / n_tokens;
    &x[(count(position, prompt_len, n_tokens) - 1) * n..][..n]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let x = [1.0, 2.0, 3.0, 4.0];
        // In the middle of a prompt of 9, at its end, with room to spare.
        assert_eq!((last_row(&x, 0, 9, 4), position_after(0, 9, 4)), (&[4.0][..], 4));
        assert_eq!((last_row(&x, 5, 9, 4), position_after(5, 9, 4)), (&[4.0][..], 8));
        assert_eq!((last_row(&x, 7, 9, 4), position_after(7, 9, 4)), (&[2.0][..], 8));
    }
}
