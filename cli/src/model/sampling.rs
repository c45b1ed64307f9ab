//! Options of sampling and their ranges.

use std::fmt;

use clap::Args;
use lathe_harness::decode::Sampling;
use lathe_harness::error::{Error, Result};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingOpts {
    /// Divides the logits; 0 is greedy
    #[arg(long, default_value_t = 0.0, value_name = "T", allow_negative_numbers = true)]
    temperature: f32,
    /// Sample from the K most likely tokens only [default: all]
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Sample from the fewest most likely tokens that hold this share of the probability
    /// [default: 1, all]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Divide positive and multiply negative logits of seen tokens by this [default: 1, none]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
    /// Tokens back that the penalty looks at [default: all]
    #[arg(long, value_name = "N", requires = "repeat_penalty")]
    repeat_last_n: Option<u32>,
}

/// The settings as reported.
#[derive(Debug, Serialize)]
pub(crate) struct Reported {
    #[serde(flatten)]
    settings: Sampling,
    seed: u32,
}

impl SamplingOpts {
    /// The settings, none for the greedy choice, with which a seed of the draws says nothing. An
    /// error names the option that makes no sense.
    pub(crate) fn settings(&self, seed: Option<u32>) -> Result<Option<Sampling>> {
        let refuse = |option: &str, value: String, why: &str| {
            Err(Error::Usage(format!("--{option} {value}: {why}")))
        };
        let t = self.temperature;
        if !t.is_finite() || t < 0.0 || (t > 0.0 && t < 1e-6) {
            let why = "a temperature is 0 (greedy) or a finite number from 0.000001 on";
            return refuse("temperature", t.to_string(), why);
        }
        if let Some(p) = self.top_p.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            return refuse("top-p", p.to_string(), "a share lies above 0 and is at most 1");
        }
        if let Some(r) = self.repeat_penalty.filter(|r| !(0.01..=100.0).contains(r)) {
            return refuse("repeat-penalty", r.to_string(), "it divides logits: 0.01 to 100");
        }
        let set = [("top-k", self.top_k.is_some()), ("top-p", self.top_p.is_some())];
        for (option, given) in set.into_iter().chain([("seed", seed.is_some())]) {
            if t == 0.0 && given {
                return Err(Error::Usage(format!(
                    "--{option} says nothing at temperature 0, which takes the largest logit; give \
                     --temperature T"
                )));
            }
        }
        let repeat_penalty = self.repeat_penalty.unwrap_or(1.0);
        Ok((t > 0.0 || repeat_penalty != 1.0).then(|| Sampling {
            temperature: t,
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            repeat_penalty,
            repeat_last_n: self.repeat_last_n.unwrap_or(0),
        }))
    }
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, seed {}", self.settings, self.seed)
    }
}

impl Reported {
    pub(crate) fn of(settings: Sampling, seed: u32) -> Self {
        Self { settings, seed }
    }
}
