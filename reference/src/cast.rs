//! Values in another storage format: `y[i] = x[i]`, rounded by the store.
//!
//! f32 and f16 hold or round the value itself, so the oracle returns it unrounded and the
//! comparator's bound is that of the stored type: WGSL leaves it to the driver in which direction
//! an f16 is rounded. bf16 is made by integer arithmetic, the same everywhere: it has one right
//! answer, the nearest, ties to even.
//!
//! Magnitude: |y|; no rounding error in proportion to it is allowed.

use crate::Expected;
use half::bf16;

/// The result of a cast: `x` itself, or `x` rounded to bf16.
pub fn cast(x: &[f32], to_bf16: bool) -> Expected {
    x.iter()
        .map(|&x| {
            let y = if to_bf16 { bf16::from_f32(x).to_f64() } else { f64::from(x) };
            (y, y.abs())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // bf16 has 8 bits: between 1 and 2 it steps by 2^-7. A tie goes to the even neighbour.
        let x = [1.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -1.0 - 0.6 / 128.0];
        assert_eq!(cast(&x, true).value, [1.0, 1.0, 1.0 + 2.0 / 128.0, -1.0 - 1.0 / 128.0]);
        assert_eq!(cast(&x, false).value[1], 1.0 + 1.0 / 256.0);
        assert_eq!(cast(&x, true).magnitude[3], 1.0 + 1.0 / 128.0);
    }
}
