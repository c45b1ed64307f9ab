//! Rotary position embedding of heads at a constant stride.
//!
//! Each pair `(a, b)`, i in 0..head_dim/2, of each head rotates by its angle in radians:
//!
//! ```text
//! θᵢ = position · base^(−2i/head_dim) / freq_factors[i]
//! a' = m·(a·cos θᵢ − b·sin θᵢ)    b' = m·(a·sin θᵢ + b·cos θᵢ)
//! ```
//!
//! The amplitude m is 1 but for yarn. Magnitude, for both of a pair: |m|·(|a| + |b|), of which the products and a sine and cosine read from
//! a table rounded once err by ε; 0 between heads. A kernel that computes its angle in `f32` is off
//! by another ε·|θ| of it and fails here at far positions, as it should.
//!
//! Sources: Su et al., *RoFormer*, arXiv:2104.09864; frequency factors as in Llama 3's
//! `rope_freqs.weight`; amplitude as in Peng et al., *YaRN*, arXiv:2309.00071.

use crate::Expected;

/// Pairing of the elements of a head that are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Pairs (2i, 2i+1).
    Interleaved,
    /// Pairs (i, i + head_dim/2).
    Neox,
}

/// The rotation of one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope<'a> {
    /// Pairing of the elements.
    pub style: RopeStyle,
    /// Base of the frequencies, such as 10 000.
    pub base: f32,
    /// Divisors of the angles, head_dim/2 of them; none means 1.
    pub freq_factors: Option<&'a [f32]>,
    /// Factor on both of a rotated pair.
    pub amplitude: f32,
    /// Index of the token, from 0.
    pub position: u32,
}

impl Rope<'_> {
    fn angle(&self, i: usize, head_dim: usize) -> f64 {
        let frequency = f64::from(self.base).powf(-2.0 * i as f64 / head_dim as f64);
        let factor = self.freq_factors.map_or(1.0, |f| f64::from(f[i]));
        f64::from(self.position) * frequency / factor
    }

    /// Rotates the pairs of one head, and writes the scale of each element's rounding errors.
    ///
    /// # Panics
    /// When the lengths of the three differ or are zero or odd, or `freq_factors` has not half that
    /// length.
    pub(crate) fn turn(&self, head: &[f64], value: &mut [f64], magnitude: &mut [f64]) {
        let head_dim = head.len();
        assert!(head_dim > 0 && head_dim.is_multiple_of(2), "head_dim {head_dim} is not in pairs");
        if let Some(factors) = self.freq_factors {
            assert_eq!(factors.len(), head_dim / 2, "one frequency factor per pair");
        }
        for i in 0..head_dim / 2 {
            let (first, second) = self.pair(i, head_dim);
            let (a, b) = (head[first], head[second]);
            let (sin, cos) = self.angle(i, head_dim).sin_cos();
            let m = f64::from(self.amplitude);
            value[first] = m * (a * cos - b * sin);
            value[second] = m * (a * sin + b * cos);
            magnitude[first] = m.abs() * (a.abs() + b.abs());
            magnitude[second] = magnitude[first];
        }
    }

    fn pair(&self, i: usize, head_dim: usize) -> (usize, usize) {
        match self.style {
            RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            RopeStyle::Neox => (i, i + head_dim / 2),
        }
    }
}

/// Rotates every head of `x`: `head_dim` elements, `stride` from one head to the next. Elements
/// between heads are unchanged.
///
/// # Panics
/// When `head_dim` is zero or odd or larger than `stride`, `x` does not end with a head, or
/// `freq_factors` is not head_dim/2 long.
pub fn rope(x: &[f32], head_dim: usize, stride: usize, rope: &Rope<'_>) -> Expected {
    assert!(head_dim <= stride, "heads of {head_dim} overlap at a stride of {stride}");
    assert_eq!(x.len() % stride, head_dim % stride, "{} elements do not end in a head", x.len());
    let mut value: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    let mut magnitude = vec![0.0; x.len()];
    for (value, magnitude) in value.chunks_mut(stride).zip(magnitude.chunks_mut(stride)) {
        let head = value[..head_dim].to_vec();
        rope.turn(&head, &mut value[..head_dim], &mut magnitude[..head_dim]);
    }
    Expected::new(value, magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;
    use RopeStyle::{Interleaved, Neox};
    use approx::assert_relative_eq;

    #[test]
    fn a_quarter_turn_by_hand() {
        // Base 1 makes every frequency 1; position 1 over 2/π is π/2: (a, b) → (−b, a).
        let factors = [2.0 / std::f32::consts::PI; 2];
        let turn = |style| Rope {
            style,
            base: 1.0,
            freq_factors: Some(&factors),
            amplitude: 1.0,
            position: 1,
        };
        // Two heads of four, one element between them.
        let x = [1.0, 2.0, 3.0, 4.0, 9.0, 5.0, 6.0, 7.0, 8.0];
        let y = rope(&x, 4, 5, &turn(Interleaved));
        let expected = [-2.0, 1.0, -4.0, 3.0, 9.0, -6.0, 5.0, -8.0, 7.0];
        assert_relative_eq!(y.value[..], expected, epsilon = 1e-6);
        assert_eq!(y.magnitude, [3.0, 3.0, 7.0, 7.0, 0.0, 11.0, 11.0, 15.0, 15.0]);
        let y = rope(&x, 4, 5, &turn(Neox));
        let expected = [-3.0, -4.0, 1.0, 2.0, 9.0, -7.0, -8.0, 5.0, 6.0];
        assert_relative_eq!(y.value[..], expected, epsilon = 1e-6);
        let y = rope(&x[..4], 4, 4, &Rope { amplitude: 2.0, ..turn(Neox) });
        assert_relative_eq!(y.value[..], [-6.0, -8.0, 2.0, 4.0], epsilon = 1e-6);
        assert_eq!(y.magnitude, [8.0, 12.0, 8.0, 12.0]);
    }

    #[test]
    #[should_panic(expected = "do not end in a head")]
    fn part_of_a_head_panics() {
        let turn = Rope { style: Neox, base: 1.0, freq_factors: None, amplitude: 1.0, position: 0 };
        rope(&[0.0; 7], 4, 5, &turn);
    }
}
