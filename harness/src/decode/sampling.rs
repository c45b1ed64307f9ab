//! How a decode chooses tokens: greedily, or by the definition in [`lathe_reference::sample`].

use lathe_kernels::sample::Sample;
use lathe_reference::sample;
use serde::Serialize;

use crate::data::record::SamplingSettings;

/// Settings of sampling. The seed is no part of them: it lies in the step state, so that one
/// recording serves all seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// Divides the logits; 0 takes the largest.
    pub temperature: f32,
    /// Tokens that stay; 0 keeps all.
    pub top_k: u32,
    /// Share of the probability that stays; 1 keeps all.
    pub top_p: f32,
    /// Divides positive and multiplies negative logits of seen tokens; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Last tokens the penalty looks at; 0 for all.
    pub repeat_last_n: u32,
}

impl From<Sampling> for SamplingSettings {
    fn from(s: Sampling) -> Self {
        let Sampling { temperature, top_k, top_p, repeat_penalty, repeat_last_n } = s;
        Self { temperature, top_k, top_p, repeat_penalty, repeat_last_n }
    }
}

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
