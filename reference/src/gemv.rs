//! Matrix times vector over stored weights: `y[r] = Σᵢ W[r][i] · x[i]`.
//!
//! `W` is rows × k, row-major in any storage format, each weight decoded to its exact `f32` value;
//! `x` has `k` elements.
//!
//! Magnitude: `Σᵢ |W[r][i]·x[i]|`. Any order of summing n terms in `f32` errs by at most
//! (n − 1)·ε/2 of that sum, and a tree or per-lane partial sums by about log₂ n of it: the reason
//! for a kernel's `k`. A kernel that takes zero points or minimums out of the sum rounds terms
//! larger than W·x and needs a larger one.
//!
//! Source of the bound: Higham, *Accuracy and Stability of Numerical Algorithms*, § 3.1 and 4.2.

use std::array::from_fn;

use crate::{Expected, Format};

/// Independent partial sums, so that additions need not wait for each other.
const LANES: usize = 8;

/// All rows of `weights` (rows × k) times `x` (k).
///
/// # Panics
/// When the sizes of `weights` and `x` are not those of `rows` and `k`, or when `k` is no whole
/// number of blocks.
pub fn gemv(format: Format, weights: &[u8], rows: usize, k: usize, x: &[f32]) -> Expected {
    let mut y = Expected::zeros(rows);
    gemv_rows(format, weights, k, x, &mut y.value, &mut y.magnitude);
    y
}

/// Same as [`gemv`] for the rows in `weights`, one per element of `value` and `magnitude`, so that
/// a caller can split a matrix over threads.
///
/// # Panics
/// Same as [`gemv`], and when `value` and `magnitude` differ in length.
pub fn gemv_rows(
    format: Format,
    weights: &[u8],
    k: usize,
    x: &[f32],
    value: &mut [f64],
    magnitude: &mut [f64],
) {
    assert_eq!(x.len(), k, "elements of x");
    let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    gemv_of(format, weights, &x, value, magnitude);
}

/// Same as [`gemv_rows`] for an `x` that need not be `f32`.
///
/// # Panics
/// Same as [`gemv_rows`].
pub fn gemv_of(
    format: Format,
    weights: &[u8],
    x: &[f64],
    value: &mut [f64],
    magnitude: &mut [f64],
) {
    let k = x.len();
    let row_bytes = format.row_bytes(k);
    assert_eq!(value.len(), magnitude.len(), "one magnitude per value");
    assert_eq!(weights.len(), value.len() * row_bytes, "bytes of the rows");
    let mut row = vec![0.0; k];
    for (r, (value, magnitude)) in value.iter_mut().zip(magnitude).enumerate() {
        format.decode(&weights[r * row_bytes..][..row_bytes], &mut row);
        (*value, *magnitude) = dot(&row, x);
    }
}

/// Σ aᵢ·bᵢ and Σ |aᵢ·bᵢ|. A product of two `f32` is exact in `f64`.
pub(crate) fn dot<T: Copy + Into<f64>>(a: &[f32], b: &[T]) -> (f64, f64) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: this machine has AVX2.
        return unsafe { dot_avx2(a, b) };
    }
    dot_anywhere(a, b)
}

/// Same sums as [`dot_anywhere`], bit for bit: lanes stay separate, and no product is fused with an
/// addition.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2<T: Copy + Into<f64>>(a: &[f32], b: &[T]) -> (f64, f64) {
    dot_anywhere(a, b)
}

#[inline(always)]
fn dot_anywhere<T: Copy + Into<f64>>(a: &[f32], b: &[T]) -> (f64, f64) {
    let (mut sums, mut magnitudes) = ([0.0; LANES], [0.0; LANES]);
    // Of chunks whose length the compiler knows the sums stay in registers.
    let ((a, last_a), (b, last_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        let products: [f64; LANES] = from_fn(|lane| f64::from(a[lane]) * b[lane].into());
        for (lane, product) in products.into_iter().enumerate() {
            sums[lane] += product;
            magnitudes[lane] += product.abs();
        }
    }
    for (lane, (&a, &b)) in last_a.iter().zip(last_b).enumerate() {
        let product = f64::from(a) * b.into();
        sums[lane] += product;
        magnitudes[lane] += product.abs();
    }
    (sums.iter().sum(), magnitudes.iter().sum())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Tolerance, compare};
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    pub(crate) fn bytes(weights: &[f32]) -> Vec<u8> {
        weights.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn by_hand() {
        // (1, 2)·(10, 1) = 12 and (3, −4)·(10, 1) = 30 − 4.
        let y = gemv(Format::F32, &bytes(&[1.0, 2.0, 3.0, -4.0]), 2, 2, &[10.0, 1.0]);
        assert_eq!(y, [(12.0, 12.0), (26.0, 34.0)].into_iter().collect());
    }

    #[test]
    fn wide_registers_make_the_same_sums() {
        let numbers: Vec<f32> = (1..=77u16).map(|i| 1e5 / f32::from(i * i % 19 + 1)).collect();
        let signed: Vec<f64> = numbers.iter().map(|v| f64::from(v.sin() * v)).collect();
        for len in 0..numbers.len() {
            let (a, b) = (&numbers[..len], &signed[..len]);
            assert_eq!(dot(a, b), dot_anywhere(a, b), "{len}");
        }
    }

    #[test]
    fn q8_0_by_hand() {
        // Scale 0.5 (0x3800) and codes 0..32: 0.5·(31·32/2) = 248 against ones.
        let row: Vec<u8> = [0x00, 0x38].into_iter().chain(0..32).collect();
        assert_eq!(gemv(Format::Q8_0, &row, 1, 32, &[1.0; 32]).value, [248.0]);
        // Alternating signs: 0.5·16·(0 − 1) = −8, and the magnitude stays.
        let x: Vec<f32> = (0..32).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let y = gemv(Format::Q8_0, &row, 1, 32, &x);
        assert_eq!(y, [(-8.0, 248.0)].into_iter().collect());
    }

    #[test]
    fn cancellation_keeps_its_magnitude() {
        let x = [1e8, 1.0, -1e8];
        let y = gemv(Format::F32, &bytes(&[1.0; 3]), 1, 3, &x);
        assert_eq!(y, [(1.0, 200_000_001.0)].into_iter().collect());
    }

    #[test]
    #[should_panic(expected = "bytes of the rows")]
    fn a_missing_row_panics() {
        gemv(Format::F32, &[0; 8], 2, 2, &[0.0; 2]);
    }

    fn values(n: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-4.0f32..4.0, n)
    }

    proptest! {
        #[test]
        fn is_linear(w in values(57), x in values(19), z in values(19), a in -4i8..5) {
            let w = bytes(&w);
            let product = |x: &[f32]| gemv(Format::F32, &w, 3, 19, x);
            // x and z on a grid of 2^-10, so that a·x + z is exact.
            let grid = |v: &[f32]| v.iter().map(|v| (v * 1024.0).round() / 1024.0).collect();
            let (x, z): (Vec<f32>, Vec<f32>) = (grid(&x), grid(&z));
            let sum: Vec<_> = x.iter().zip(&z).map(|(x, z)| f32::from(a) * x + z).collect();
            let (of_sum, of_x, of_z) = (product(&sum), product(&x), product(&z));
            for r in 0..3 {
                let split = f64::from(a) * of_x.value[r] + of_z.value[r];
                assert_relative_eq!(of_sum.value[r], split, epsilon = 1e-11);
                prop_assert!(of_sum.magnitude[r] >= of_sum.value[r].abs());
            }
        }

        #[test]
        fn rows_may_be_split(w in prop::collection::vec(any::<i8>(), 5 * 34), at in 0usize..6) {
            // i8 bytes below 0x7c keep every f16 scale finite.
            let w: Vec<u8> = w.iter().map(|b| b.unsigned_abs() % 0x7c).collect();
            let x: Vec<f32> = (0..32).map(|i| i as f32 - 15.5).collect();
            let whole = gemv(Format::Q8_0, &w, 5, 32, &x);
            let (first, second) = w.split_at(at * 34);
            let mut parts = gemv(Format::Q8_0, first, at, 32, &x);
            let rest = gemv(Format::Q8_0, second, 5 - at, 32, &x);
            parts.value.extend(rest.value);
            parts.magnitude.extend(rest.magnitude);
            prop_assert_eq!(whole, parts);
        }

        #[test]
        fn plain_f32_sums_are_in_bound(w in values(64), x in values(64)) {
            let y: f32 = w.iter().zip(&x).map(|(w, x)| w * x).sum();
            // 64 roundings of ε/2 each.
            let tolerance = Tolerance { k: 32.0, rounding: 0.0, nmse: f64::INFINITY };
            let expected = gemv(Format::F32, &bytes(&w), 1, 64, &x);
            prop_assert!(compare(&expected, &[y], &tolerance).is_ok());
        }
    }
}
