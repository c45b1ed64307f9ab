//! The configurations of the suite.

use std::fmt;

use clap::ValueEnum;
use lathe_harness::decode::{Sampling, Script};
use lathe_harness::error::{Error, Result};

/// Which configurations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Tier {
    /// short, medium
    Quick,
    /// and prefill, decode, sampled
    Standard,
    /// and long, full-pipe
    Full,
}

pub(super) const TABLE: &str = "\
Configurations (prompt / generated tokens):
  quick     short 64/64, medium 256/256
  standard  and prefill 1024/64, decode 64/1024,
            sampled 256/256 (temperature 0.8, top-k 50, top-p 0.9)
  full      and long 1024/1024,
            full-pipe 256/256 (as sampled, and repetition penalty 1.1)
Two warm-ups, median of three runs, no stop at the end-of-sequence token.";

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) prompt: usize,
    /// The token after the prompt included.
    pub(super) generate: usize,
    /// None for the greedy choice.
    pub(super) sampling: Option<Sampling>,
    /// Smallest tier that has it.
    tier: Tier,
}

const SAMPLED: Sampling =
    Sampling { temperature: 0.8, top_k: 50, top_p: 0.9, repeat_penalty: 1.0, repeat_last_n: 0 };

const PENALISED: Sampling = Sampling { repeat_penalty: 1.1, ..SAMPLED };

const fn config(
    name: &'static str,
    (prompt, generate): (usize, usize),
    sampling: Option<Sampling>,
    tier: Tier,
) -> Config {
    Config { name, prompt, generate, sampling, tier }
}

const CONFIGS: [Config; 7] = [
    config("short", (64, 64), None, Tier::Quick),
    config("medium", (256, 256), None, Tier::Quick),
    config("prefill", (1024, 64), None, Tier::Standard),
    config("decode", (64, 1024), None, Tier::Standard),
    config("long", (1024, 1024), None, Tier::Full),
    config("sampled", (256, 256), Some(SAMPLED), Tier::Standard),
    config("full-pipe", (256, 256), Some(PENALISED), Tier::Full),
];

impl Tier {
    /// What runs, in the order of the tables; of these `only` the named ones, if any are.
    pub(super) fn configs(self, only: &[String]) -> Result<Vec<Config>> {
        let all = CONFIGS.into_iter().filter(|config| config.tier as u8 <= self as u8);
        let all: Vec<Config> = all.collect();
        if let Some(unknown) = only.iter().find(|name| !all.iter().any(|c| c.name == **name)) {
            let names: Vec<_> = all.iter().map(|config| config.name).collect();
            return Err(Error::Usage(format!(
                "--only {unknown}: tier {self} has {}",
                names.join(", ")
            )));
        }
        let named = |config: &Config| only.is_empty() || only.iter().any(|n| n == config.name);
        Ok(all.into_iter().filter(named).collect())
    }
}

impl Config {
    /// The run: the prompt's last step makes the first token, so there is one step less.
    pub(super) fn script(&self, tokens: &[u32], seed: u32) -> Script {
        Script {
            tokens: tokens[..self.prompt].to_vec(),
            depth: 0,
            prompt: self.prompt,
            generate: self.generate - 1,
            seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_harness::data::record::SUITE_ORDER;

    #[test]
    fn tiers_hold_what_they_say() {
        let names =
            |tier: Tier| tier.configs(&[]).unwrap().iter().map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(names(Tier::Quick), ["short", "medium"]);
        assert_eq!(names(Tier::Standard), ["short", "medium", "prefill", "decode", "sampled"]);
        assert_eq!(names(Tier::Full), SUITE_ORDER);
        let only = ["medium".to_owned()];
        assert_eq!(Tier::Full.configs(&only).unwrap()[0].name, "medium");
        let error = Tier::Quick.configs(&["long".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("long") && error.contains("short, medium"), "{error}");
    }
}
