//! Configurations of the suite, and their figures.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lathe_device::error::{Error, Result};
use lathe_record::record::{SuiteConfig, SuiteRun};

use super::{Measured, Run, Test};
use crate::sampling::Sampling;

/// Set of configurations that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// short, medium
    Quick,
    /// and prefill, decode, sampled
    Standard,
    /// and long, full-pipe
    Full,
}

impl Tier {
    const ALL: [(Tier, &'static str); 3] =
        [(Tier::Quick, "quick"), (Tier::Standard, "standard"), (Tier::Full, "full")];
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL[*self as usize].1)
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(tier, _)| *tier).ok_or_else(|| "expected quick, standard or full".into())
    }
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Name in tables and records.
    pub name: &'static str,
    /// Its test: the prompt's last step makes the first token, so there is one step less.
    pub test: Test,
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
    let (depth, sequences, spare, generate) = (0, 1, 1, generate - 1);
    Config { name, test: Test { depth, prompt, generate, sequences, sampling, spare }, tier }
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
    /// Configurations in the order of the tables; of these `only` the named ones, if any are.
    ///
    /// # Errors
    /// A name that the tier lacks.
    pub fn configs(self, only: &[String]) -> Result<Vec<Config>> {
        let all = CONFIGS.into_iter().filter(|config| config.tier as u8 <= self as u8);
        let all: Vec<Config> = all.collect();
        if let Some(unknown) = only.iter().find(|name| !all.iter().any(|c| c.name == **name)) {
            let names: Vec<_> = all.iter().map(|config| config.name).collect();
            let names = names.join(", ");
            return Err(Error::Usage(format!("--only {unknown}: tier {self} has {names}")));
        }
        let named = |config: &Config| only.is_empty() || only.iter().any(|n| n == config.name);
        Ok(all.into_iter().filter(named).collect())
    }
}

impl Measured {
    /// Figures of a configuration of the suite.
    pub fn config(self) -> SuiteConfig {
        let Self { runs, figures } = self;
        let faster = runs.iter().map(|(steps, _)| *steps).max().unwrap_or(1);
        let config = SuiteConfig {
            prompt_tokens: figures.n_prompt,
            generated_tokens: figures.n_gen + 1,
            runs: runs.iter().map(suite_run).collect(),
            of: figures.of,
            ..SuiteConfig::default()
        };
        config.settled(faster)
    }
}

fn suite_run((steps_per_submit, run): &(usize, Run)) -> SuiteRun {
    // A tenth of a microsecond is less than the clock's noise, and a third of the digits.
    let ms = |time: Duration| (time.as_secs_f64() * 1e7).round() / 1e4;
    let own_times = if *steps_per_submit == 1 { &run.steps[..] } else { &[] };
    SuiteRun {
        steps_per_submit: *steps_per_submit,
        ttft_ms: ms(run.ttft),
        decode_ms: ms(run.step_time()),
        step_ms: own_times.iter().map(|step| ms(*step)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_record::record::SUITE_ORDER;

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
