//! The first half of a gated feed-forward block: `y[i] = act(Wg[i]·v) · (Wu[i]·v)`.
//!
//! The product of the stacked rows, gate then up, comes from [`gemv()`](crate::gemv::gemv()) with
//! its magnitudes G and U; the activation is that of [`glu()`](crate::glu::glu()).
//!
//! Magnitude: that of `glu` plus the effect of the products' errors, 1.13·G·|up| + |act(gate)|·U,
//! since neither activation is steeper than 1.13.

use crate::Expected;
use crate::glu::{Activation, gated};

/// The largest slope of either activation: SiLU 1.0998, GELU 1.1290.
const SLOPE: f64 = 1.13;

/// The gated outputs, half as many as products.
///
/// # Panics
/// When the products are odd in number.
pub fn fused_ffn(product: &Expected, activation: Activation) -> Expected {
    let n = product.value.len() / 2;
    assert_eq!(product.value.len(), 2 * n, "gate and up rows in equal number");
    let mut y: Expected = (0..n)
        .map(|i| {
            let (gate, up) = (product.value[i], product.value[n + i]);
            let (y, own) = gated(gate, up, activation);
            let (act, _) = gated(gate, 1.0, activation);
            let from_gate = SLOPE * product.magnitude[i] * up.abs();
            (y, own + from_gate + act.abs() * product.magnitude[n + i])
        })
        .collect();
    if let Some((gates, ups)) = product.deviation.split_at_checked(n) {
        // Errors of the two are those of different rows.
        y.deviation = (0..n)
            .map(|i| {
                let (act, _) = gated(product.value[i], 1.0, activation);
                (SLOPE * gates[i] * product.value[n + i]).hypot(act * ups[i])
            })
            .collect();
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use Activation::{GeluTanh, Silu};
    use approx::assert_relative_eq;

    #[test]
    fn by_hand() {
        // sigma(ln 3) = 3/4: silu is 3/4 ln 3, times up 4 is 3 ln 3. gelu(0) = 0.
        let l = 3f64.ln();
        let product: Expected =
            [(l, 2.0), (0.0, 1.0), (4.0, 5.0), (7.0, 9.0)].into_iter().collect();
        let y = fused_ffn(&product, Silu);
        assert_relative_eq!(y.value[..], [3.0 * l, 0.0], max_relative = 1e-12);
        // glu's own 3l(1 + l/4), then 1.13 * 2 * 4 and 3/4 l * 5; for the other 1.13 * 1 * 7.
        let first = 3.0 * l * (1.0 + l / 4.0) + 9.04 + 3.75 * l;
        assert_relative_eq!(y.magnitude[..], [first, 7.91], max_relative = 1e-12);
        assert_eq!(fused_ffn(&product, GeluTanh).value[1], 0.0);
    }

    #[test]
    fn no_activation_is_steeper() {
        for activation in [Silu, GeluTanh] {
            let steepest = (-8000..8000)
                .map(|i| {
                    let (a, b) = (f64::from(i) / 1000.0, f64::from(i + 1) / 1000.0);
                    let act = |g| gated(g, 1.0, activation).0;
                    ((act(b) - act(a)) * 1000.0).abs()
                })
                .fold(0.0, f64::max);
            assert!(steepest < SLOPE && steepest > 1.09, "{activation:?}: {steepest}");
        }
    }
}
