//! Quantised rows as plain values: `y[r][k] = W[r][k]`, tight and row-major.
//!
//! Magnitude: |y|. A decoded weight is the same in any order of evaluation (see
//! [`quant`](crate::quant)), so a kernel has no rounding error of its own.

use crate::{Expected, Format};

/// The weights of rows of `k` elements each.
///
/// # Panics
/// When `rows` is no whole number of rows.
pub fn dequant(format: Format, rows: &[u8], k: usize) -> Expected {
    let bytes = format.row_bytes(k);
    assert!(rows.len().is_multiple_of(bytes), "{} bytes are no rows of {bytes}", rows.len());
    let mut row = vec![0.0; k];
    let mut out = Expected::default();
    out.value.reserve(rows.len() / bytes * k);
    out.magnitude.reserve(rows.len() / bytes * k);
    for stored in rows.chunks_exact(bytes) {
        format.decode(stored, &mut row);
        out.value.extend(row.iter().map(|&w| f64::from(w)));
        out.magnitude.extend(row.iter().map(|&w| f64::from(w.abs())));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Two rows of 3 in a block of 32 each: d = 1.5 and −2 (f16 0x3e00, 0xc000), codes 1, −2, 3
        // and 9 beyond the row.
        let mut rows = [9u8; 68];
        rows[..5].copy_from_slice(&[0x00, 0x3e, 1, 0xfe, 3]);
        rows[34..39].copy_from_slice(&[0x00, 0xc0, 1, 0xfe, 3]);
        let y = dequant(Format::Q8_0, &rows, 3);
        assert_eq!(y.value, [1.5, -3.0, 4.5, -2.0, 4.0, -6.0]);
        assert_eq!(y.magnitude, [1.5, 3.0, 4.5, 2.0, 4.0, 6.0]);
    }

    #[test]
    #[should_panic(expected = "no rows of 34")]
    fn part_of_a_row_panics() {
        dequant(Format::Q8_0, &[0; 35], 32);
    }
}
