//! Looks up one token's embedding: `y[d] = scale · table[token][d]`.
//!
//! `table` is row-major, vocab × hidden, in any storage format; `scale` is 1 for most models and
//! √hidden for Gemma.
//!
//! Magnitude: |y|. A decoded weight is the same in any order of evaluation (see
//! [`quant`](crate::quant)), so one product is rounded.

use crate::{Expected, Format};

/// The scaled embedding of `token`, `hidden` long.
///
/// # Panics
/// When `token` lies outside the table or `hidden` is no whole number of blocks.
pub fn embed(format: Format, table: &[u8], hidden: usize, token: u32, scale: f32) -> Expected {
    let bytes = format.row_bytes(hidden);
    let mut row = vec![0.0; hidden];
    format.decode(&table[token as usize * bytes..][..bytes], &mut row);
    row.iter()
        .map(|&w| {
            let y = f64::from(scale) * f64::from(w);
            (y, y.abs())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Two tokens of two f16: 0x3c00 = 1, 0x4000 = 2, 0x4200 = 3, 0xc400 = −4; times 0.5.
        let table = [0x00, 0x3c, 0x00, 0x40, 0x00, 0x42, 0x00, 0xc4];
        let row = embed(Format::F16, &table, 2, 1, 0.5);
        assert_eq!(row, [(1.5, 1.5), (-2.0, 2.0)].into_iter().collect());
        assert_eq!(embed(Format::F16, &table, 2, 0, 1.0).value, [1.0, 2.0]);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_token_outside_the_table_panics() {
        embed(Format::F32, &[0; 8], 2, 1, 1.0);
    }
}
