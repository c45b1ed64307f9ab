//! Scaled rope of Llama 3.

/// Llama 3's scaling of rope beyond the context of its first training: `rope_type` `llama3` in a
/// configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Rope {
    /// Divisor of the frequencies with long wavelengths.
    pub factor: f64,
    /// Fewer turns than this in the first training's context: divided by `factor`.
    pub low_freq_factor: f64,
    /// More turns than this: left alone.
    pub high_freq_factor: f64,
    /// Positions of the first training.
    pub original_context: f64,
}

impl Llama3Rope {
    /// The divisors of the rope frequencies, `head_dim / 2`: 1 for short wavelengths, `factor` for
    /// those longer than the first training's context, between them a blend (Llama 3.1 model card).
    pub fn divisors(&self, head_dim: usize, base: f64) -> Vec<f32> {
        let Self { factor, low_freq_factor: low, high_freq_factor: high, original_context } = *self;
        let divisor = |i: usize| {
            let exponent = (2 * i) as f64 / head_dim as f64;
            let wavelength = std::f64::consts::TAU * base.powf(exponent);
            let turns = original_context / wavelength;
            if turns > high {
                1.0
            } else if turns < low {
                factor
            } else {
                let smooth = (turns - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        (0..head_dim / 2).map(|i| divisor(i) as f32).collect()
    }
}
