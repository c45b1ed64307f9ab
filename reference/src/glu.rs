//! Gated linear unit: `y[i] = act(gate[i]) · up[i]`.
//!
//! ```text
//! silu(g) = g·σ(g),  σ(g) = 1 / (1 + e^−g)
//! gelu(g) = g/2 · (1 + tanh(√(2/π)·(g + 0.044715·g³)))
//! ```
//!
//! Magnitudes, from how the error of `exp` and `tanh` reaches the output:
//! - **Silu**: |y|·(1 + |g|·(1 − σ(g))) + |g·up|·2⁻¹⁰¹. `exp` has a relative error of about
//!   (1 + |g|)·ε and the share 1 − σ of it reaches σ. The last term, 2⁻¹²⁴/ε, covers a σ near and
//!   below the end of `f32`'s normal range, where `exp(−g)` leaves what WGSL divides by exactly and
//!   a kernel rightly returns 0 or what it has at the end of that.
//! - **Gelu**: |g·up|. `tanh` has an absolute error of a few ε, since that of its argument z, about
//!   ε·|z|, is damped by 1 − tanh² z. For negative g it does not shrink with 1 + tanh, which
//!   cancels.
//!
//! Sources: Shazeer, *GLU Variants Improve Transformer*, arXiv:2002.05202; Hendrycks and Gimpel,
//! *Gaussian Error Linear Units*, arXiv:1606.08415.

use crate::Expected;

/// Function applied to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// g·σ(g).
    Silu,
    /// GELU by its `tanh` formula.
    GeluTanh,
}

/// The gated `up`, as long as both inputs.
///
/// # Panics
/// When `gate` and `up` differ in length.
pub fn glu(gate: &[f32], up: &[f32], activation: Activation) -> Expected {
    assert_eq!(gate.len(), up.len(), "one gate per element");
    gate.iter().zip(up).map(|(&g, &up)| gated(f64::from(g), f64::from(up), activation)).collect()
}

/// One output with its magnitude.
pub(crate) fn gated(g: f64, up: f64, activation: Activation) -> (f64, f64) {
    match activation {
        Activation::Silu => {
            let sigmoid = 1.0 / (1.0 + (-g).exp());
            let y = g * sigmoid * up;
            let flushed = (g * up).abs() * 2f64.powi(-101);
            (y, y.abs() * (1.0 + g.abs() * (1.0 - sigmoid)) + flushed)
        }
        Activation::GeluTanh => {
            let z = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
            (0.5 * g * (1.0 + z.tanh()) * up, (g * up).abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tolerance, compare};
    use Activation::{GeluTanh, Silu};
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    #[test]
    fn silu_by_hand() {
        // σ(ln 3) = 1/(1 + 1/3) = 3/4 and σ(−ln 3) = 1/4, so with up 4: 3·ln 3 and −ln 3.
        let l = 3f64.ln();
        let y = glu(&[l as f32, -l as f32, 0.0], &[4.0; 3], Silu);
        assert_relative_eq!(y.value[..], [3.0 * l, -l, 0.0], max_relative = 1e-6);
        // 3l·(1 + l/4) and l·(1 + 3l/4).
        let magnitude = [3.0 * l * (1.0 + l / 4.0), l * (1.0 + 0.75 * l), 0.0];
        assert_relative_eq!(y.magnitude[..], magnitude, max_relative = 1e-6);
    }

    #[test]
    fn gelu_by_hand() {
        // √(2/π)·1.044715 = 0.83356203, tanh of it 0.68238424: 0.84119212; for −1 less 1.
        let y = glu(&[1.0, -1.0, 0.0], &[1.0, 2.0, 5.0], GeluTanh);
        assert_relative_eq!(y.value[..], [0.8411921, -0.3176158, 0.0], epsilon = 1e-6);
        assert_eq!(y.magnitude, [1.0, 2.0, 0.0]);
    }

    #[test]
    fn an_overflowing_exp_is_in_bound() {
        // e^95 and e^89 are beyond f32, so f32 arithmetic gives g/∞ = −0, where −95·e^−95·1000 ≈
        // −5e−37 and −89·e^−89·1000 ≈ −2e−34 are due.
        let (gate, up) = ([-95.0f32, -89.0, 1.0], [1e3f32, 1e3, 1.0]);
        let got: Vec<f32> =
            gate.iter().zip(up).map(|(g, up)| g / (1.0 + (-g).exp()) * up).collect();
        assert_eq!(got[..2], [0.0, 0.0]);
        let tolerance = Tolerance { k: 4.0, rounding: 0.0, nmse: 1e-12 };
        assert!(compare(&glu(&gate, &up, Silu), &got, &tolerance).is_ok());
    }

    proptest! {
        #[test]
        fn act_of_g_less_act_of_minus_g_is_g(g in -30.0f32..30.0) {
            for activation in [Silu, GeluTanh] {
                let y = glu(&[g, -g], &[1.0, 1.0], activation).value;
                assert_relative_eq!(y[0] - y[1], f64::from(g), epsilon = 1e-13);
            }
        }

        #[test]
        fn plain_f32_arithmetic_is_in_bound(g in -30.0f32..30.0, up in -4.0f32..4.0) {
            let tolerance = Tolerance { k: 8.0, rounding: 0.0, nmse: f64::INFINITY };
            let silu = g / (1.0 + (-g).exp()) * up;
            let z = 0.797_884_6 * (g + 0.044715 * g * g * g);
            let gelu = 0.5 * g * (1.0 + z.tanh()) * up;
            prop_assert!(compare(&glu(&[g], &[up], Silu), &[silu], &tolerance).is_ok());
            prop_assert!(compare(&glu(&[g], &[up], GeluTanh), &[gelu], &tolerance).is_ok());
        }
    }
}
