//! A product, its norm and the residual stream, the second half of a feed-forward block:
//!
//! ```text
//! b = W·x, or rms_norm(W·x) where a norm follows the block (Gemma)
//! stream' = stream + b        y = rms_norm(stream'), where the next norm is made here too
//! ```
//!
//! The product comes from [`gemv()`](crate::gemv::gemv()) with its magnitudes, which
//! [`residual_rms_norm`](crate::residual_rms_norm::residual_rms_norm) carries through the norms and
//! the sum.

/// The stream after the block, whose branch is the product.
pub use crate::residual_rms_norm::residual_rms_norm as matmul_rmsnorm_fused;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::gemv::{gemv, tests::bytes};
    use crate::rms_norm::RmsNorm;
    use approx::assert_relative_eq;

    #[test]
    fn by_hand() {
        // (1, 2)·(1, 1) = 3 and (20, 1)·(1, 1) = 21, rms 15: (0.2, 1.4), weights (10, 5): (2, 7).
        // On the stream (1, -7): (3, 0), whose rms is 3/sqrt 2.
        let weights = bytes(&[1.0, 2.0, 20.0, 1.0]);
        let product = gemv(Format::F32, &weights, 2, 2, &[1.0, 1.0]);
        let norm = |weight| RmsNorm { weight, eps: 0.0, offset: 0.0 };
        let (stream, y) = matmul_rmsnorm_fused(
            &[1.0, -7.0],
            &product,
            Some(&norm(&[10.0, 5.0])),
            Some(&norm(&[1.0, 1.0])),
        );
        assert_relative_eq!(stream.value[..], [3.0, 0.0], epsilon = 1e-14);
        assert_relative_eq!(y.unwrap().value[..], [2f64.sqrt(), 0.0], epsilon = 1e-14);
        // The error of the second sum, which all but vanishes, is that of the branch it had.
        assert!(stream.magnitude[1] > 7.0);
        let (stream, y) = matmul_rmsnorm_fused(&[1.0, -7.0], &product, None, None);
        assert_eq!((stream.value, y), (vec![4.0, 14.0], None));
    }
}
