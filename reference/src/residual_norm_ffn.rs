//! A normed branch into the residual stream, and gate and up of the stream's norm with their
//! activation: the composition of [`crate::residual_norm_gemv`](mod@crate::residual_norm_gemv),
//! over rows of gate and then of up, and [`crate::fused_ffn`](mod@crate::fused_ffn).
//!
//! Magnitudes: those of the two.

use crate::Expected;
use crate::fused_ffn::fused_ffn;
use crate::glu::Activation;
use crate::residual_norm_gemv::residual_norm_gemv;
use crate::rms_norm::RmsNorm;

/// The stream `x` after the branch `delta`, normed with `post`, and the gated outputs. `product`
/// multiplies gate rows, then up rows, by the stream's norm with `norm`.
///
/// # Panics
/// When lengths differ, or when the products are odd in number.
pub fn residual_norm_ffn(
    x: &[f32],
    delta: &[f32],
    post: &RmsNorm<'_>,
    norm: &RmsNorm<'_>,
    activation: Activation,
    product: impl FnOnce(&Expected) -> Expected,
) -> (Expected, Expected) {
    let gated = |n: &Expected| fused_ffn(&product(n), activation);
    residual_norm_gemv(x, delta, post, norm, gated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::gemv::tests::bytes;
    use crate::residual_norm_gemv::norm_rows;
    use approx::assert_relative_eq;

    #[test]
    fn by_hand() {
        let norm = |weight| RmsNorm { weight, eps: 0.0, offset: 0.0 };
        // As residual_norm_gemv's: x' = (1, 7) and n = (2, 7). Gate ln 3, up 4.
        let l = 3f32.ln();
        let weights = bytes(&[l / 2.0, 0.0, 2.0, 0.0]);
        let (x, y) = residual_norm_ffn(
            &[0.0, -14.0],
            &[1.0, 7.0],
            &norm(&[5.0, 15.0]),
            &norm(&[10.0, 5.0]),
            Activation::Silu,
            |n| {
                let mut y = Expected::zeros(2);
                norm_rows(Format::F32, &weights, n, &mut y.value, &mut y.magnitude);
                y
            },
        );
        assert_relative_eq!(x.value[..], [1.0, 7.0], max_relative = 1e-15);
        // silu(ln 3) = 3/4 ln 3.
        assert_relative_eq!(y.value[..], [3.0 * 3f64.ln()], max_relative = 1e-6);
    }
}
