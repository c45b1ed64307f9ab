//! Choice of tokens in a decode: greedy, or by the definition in [`lathe_reference::sample`].

use lathe_kernels::sample::Sample;
use lathe_reference::sample;

/// Settings of sampling, as records have them: temperature 0 takes the largest logit, `top_k` 0 and
/// `top_p` 1 keep all tokens. The seed is no part of them: it lies in the step state, so that one
/// recording serves all seeds.
pub use lathe_record::record::SamplingSettings as Sampling;

/// The parameters of operation `sample` for a vocabulary of `vocab` tokens.
pub(crate) fn params(sampling: &Sampling, vocab: usize) -> Sample {
    Sample {
        n: vocab,
        temperature: sampling.temperature,
        top_k: sampling.top_k as usize,
        top_p: sampling.top_p,
        repeat_penalty: sampling.repeat_penalty,
        last_n: sampling.repeat_last_n as usize,
    }
}

/// The token that the reference draws at `position`. `tokens` holds all up to it.
pub fn sample_token(
    sampling: &Sampling,
    logits: &[f32],
    tokens: &[u32],
    position: usize,
    seed: u32,
) -> u32 {
    let seen = sample::window(tokens, position, sampling.repeat_last_n as usize);
    let settings = sample::Sampling {
        temperature: sampling.temperature,
        top_k: sampling.top_k as usize,
        top_p: sampling.top_p,
        repeat_penalty: sampling.repeat_penalty,
    };
    let draw = sample::Draw { seed, position: position as u32 };
    sample::sample(logits, seen, &settings, draw)
}
