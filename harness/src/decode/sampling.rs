//! How a decode chooses tokens: greedily, or by the definition in [`lathe_reference::sample`].

use lathe_kernels::sample::Sample;
use lathe_reference::sample;

/// Settings of sampling, as records have them: temperature 0 takes the largest logit, `top_k` 0 and
/// `top_p` 1 keep all tokens. The seed is no part of them: it lies in the step state, so that one
/// recording serves all seeds.
pub use crate::data::record::SamplingSettings as Sampling;

impl Sampling {
    /// The parameters of operation `sample`.
    pub(crate) fn params(&self, vocab: usize) -> Sample {
        Sample {
            n: vocab,
            temperature: self.temperature,
            top_k: self.top_k as usize,
            top_p: self.top_p,
            repeat_penalty: self.repeat_penalty,
            last_n: self.repeat_last_n as usize,
        }
    }

    /// What the reference draws at a position. `tokens` holds all up to it.
    pub fn draw(&self, logits: &[f32], tokens: &[u32], position: usize, seed: u32) -> u32 {
        let seen = sample::window(tokens, position, self.repeat_last_n as usize);
        let settings = sample::Sampling {
            temperature: self.temperature,
            top_k: self.top_k as usize,
            top_p: self.top_p,
            repeat_penalty: self.repeat_penalty,
        };
        let draw = sample::Draw { seed, position: position as u32 };
        sample::sample(logits, seen, &settings, draw)
    }
}
