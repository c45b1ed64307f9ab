//! Scaled rope: divisors of the frequencies, and yarn's factor on sines and cosines.

use serde::Serialize;

/// A scaling of rope beyond the context of the first training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// All positions are divided by a number.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// `llama3`: a GGUF has its divisors as a tensor.
    Llama3(Llama3Rope),
    /// `yarn`.
    Yarn(YarnRope),
}

impl RopeScaling {
    /// The divisors of the rope frequencies, `head_dim / 2`.
    pub fn divisors(&self, head_dim: usize, base: f64) -> Vec<f32> {
        let dims = 0..head_dim / 2;
        match self {
            Self::Linear { factor } => dims.map(|_| *factor as f32).collect(),
            Self::Llama3(rope) => rope.divisors(head_dim, base),
            Self::Yarn(rope) => rope.divisors(head_dim, base),
        }
    }

    /// Factor on sines and cosines.
    pub fn amplitude(&self) -> f32 {
        match self {
            Self::Linear { .. } | Self::Llama3(_) => 1.0,
            Self::Yarn(rope) => rope.attention_factor as f32,
        }
    }
}

/// Llama 3's scaling of rope beyond the context of its first training: `rope_type` `llama3` in a
/// configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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

/// Yarn (Peng et al., arXiv:2309.00071) as transformers and llama.cpp compute it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct YarnRope {
    /// Divisor of the frequencies with long wavelengths.
    pub factor: f64,
    /// Positions of the first training.
    pub original_context: f64,
    /// More turns than this in the first training's context: left alone.
    pub beta_fast: f64,
    /// Fewer turns than this: divided by `factor`.
    pub beta_slow: f64,
    /// Factor on sines and cosines.
    pub attention_factor: f64,
}

impl YarnRope {
    /// The betas where a file names none.
    pub const BETAS: [f64; 2] = [32.0, 1.0];

    /// Growth of the attention factor with a divisor; `weight` is 1 but where `mscale` is given.
    pub fn mscale(factor: f64, weight: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
    }

    /// Refuses what leaves no table.
    pub(crate) fn check(&self, base: f64) -> Result<(), String> {
        if !(self.attention_factor as f32).is_normal() {
            return Err(format!("its attention factor would be {}", self.attention_factor));
        }
        if self.beta_fast <= self.beta_slow {
            let Self { beta_fast, beta_slow, .. } = self;
            return Err(format!("its fast beta, {beta_fast}, is not above the slow, {beta_slow}"));
        }
        if base <= 1.0 {
            return Err(format!("it needs a base of rope above 1, not {base}"));
        }
        Ok(())
    }

    /// The divisors of the rope frequencies, `head_dim / 2`. Between the pairs that turn
    /// `beta_fast` and `beta_slow` times, rounded outwards, frequencies are blended linearly.
    fn divisors(&self, head_dim: usize, base: f64) -> Vec<f32> {
        let pair_of = |turns: f64| {
            let wavelength = self.original_context / (turns * std::f64::consts::TAU);
            head_dim as f64 * wavelength.ln() / (2.0 * base.ln())
        };
        let low = pair_of(self.beta_fast).floor().max(0.0);
        let high = pair_of(self.beta_slow).ceil().min(head_dim as f64 - 1.0);
        // Equal edges would be a division by zero.
        let width = if low == high { 0.001 } else { high - low };
        let divisor = |i: usize| {
            let divided = ((i as f64 - low) / width).clamp(0.0, 1.0);
            1.0 / (divided / self.factor + (1.0 - divided))
        };
        (0..head_dim / 2).map(|i| divisor(i) as f32).collect()
    }
}
