//! Configurations of the suite, and how each is timed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::{Bench, Lengths, Timed, Trial};
use crate::decoder::Decoder;
use crate::memory::Predicted;
use crate::prompts::Source;
use crate::sampling::Sampling;
use crate::{DecodeOptions, Model, Observer};
use lathe_device::error::{Error, Result};
use lathe_device::gpu::Gpu;
use lathe_device::measure::Repetitions;
use lathe_record::record::{SuiteConfig, SuiteModel, SuiteRun};

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
    /// Prompt tokens.
    pub prompt: usize,
    /// Generated tokens, the one after the prompt included.
    pub generate: usize,
    /// None for the greedy choice.
    pub sampling: Option<Sampling>,
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

/// How configurations are timed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Untimed runs before those that count.
    pub warm_ups: usize,
    /// Timed runs at each number of steps per submission.
    pub repetitions: usize,
    /// Decode steps per submission of the faster setting; the other is one.
    pub steps_per_submit: usize,
    /// Positions that are verified; none to leave that out.
    pub verify: Option<usize>,
}

/// Times all configurations of a model; `on_config` hears after each of those that there are.
///
/// # Errors
/// The longest does not fit the device, outputs are wrong or not repeated, or the device is lost.
pub fn model(
    gpu: &Arc<Gpu>,
    model: &Model,
    options: &DecodeOptions,
    (configs, source): (&[Config], Source<'_>),
    settings: Settings,
    on: &mut dyn Observer,
    on_config: &mut dyn FnMut(&SuiteModel, &str) -> Result<()>,
) -> Result<()> {
    let most = configs.iter().map(|config| config.prompt).max().unwrap_or(0);
    let tokens = source.tokens(model, most)?;
    let contexts = configs.iter().map(|config| (config.prompt + config.generate, config.sampling));
    let mut bench = Bench::new(gpu, model, options.clone(), settings.verify, contexts)?;
    let mut result = SuiteModel {
        model: bench.facts.clone(),
        kv: options.kv.name().into(),
        activations: options.acts.name().into(),
        configs: Default::default(),
    };
    for config in configs {
        let figures = bench.config(config, &tokens, settings, on)?;
        result.configs.insert(config.name.into(), figures);
        on_config(&result, config.name)?;
    }
    Ok(())
}

impl Bench<'_> {
    fn config(
        &mut self,
        config: &Config,
        tokens: &[u32],
        settings: Settings,
        on: &mut dyn Observer,
    ) -> Result<SuiteConfig> {
        let gpu = Arc::clone(&self.gpu);
        let (named, seed) = (format!("{} {}", self.facts.file(), config.name), self.options.seed);
        let context = config.prompt + config.generate;
        let (graph, executor) = self.graph(context, 1, config.sampling, on)?;
        let held = executor.device_bytes();
        // The prompt's last step makes the first token, so there is one step less.
        let lengths = Lengths { depth: 0, prompt: config.prompt, generate: config.generate - 1 };
        let decoder = Decoder::new(&graph, executor);
        let mut trial = Trial::new(decoder, &tokens[..config.prompt], lengths, seed)?;
        settings.verify.map_or(Ok(()), |positions| trial.verify(positions))?;
        // Both settings in turn, so that what drifts drifts for both.
        let faster = settings.steps_per_submit;
        let each: &[usize] = if faster == 1 { &[1] } else { &[faster, 1] };
        on.begins(&named, settings.warm_ups + settings.repetitions * each.len());
        for _ in 0..settings.warm_ups {
            trial.run(faster)?;
            on.ran();
        }
        let settled = trial.settle(&gpu.adapter)?;
        let mut repetitions = Repetitions::new(settings.repetitions);
        while repetitions.wanted().is_some() {
            let (mut runs, mut held_down) = (Vec::new(), false);
            for steps_per_submit in each {
                runs.push(suite_run(*steps_per_submit, &trial.run(*steps_per_submit)?));
                held_down |= gpu.is_throttled();
                on.ran();
            }
            repetitions.push(runs, held_down);
        }
        on.ended();
        let (runs, watched) = repetitions.end(settled);
        let runs = runs.into_iter().flatten().collect();
        let tokens = [config.prompt, config.generate];
        let verified = trial.verified();
        let (predicted, _) = Predicted::of(&gpu, &graph);
        Ok(SuiteConfig {
            verified,
            kv_cache_bytes: graph.kv_bytes(),
            tuned: graph.tuned(),
            run_grid: graph.run_grid(),
            watched,
            gpu_memory_bytes: predicted.measured(&gpu, held).bytes(),
            gpu_memory_predicted_bytes: predicted.predicted_bytes,
            ..SuiteConfig::of(tokens, config.sampling, faster, runs)
        })
    }
}

fn suite_run(steps_per_submit: usize, run: &Timed) -> SuiteRun {
    // A tenth of a microsecond is less than the clock's noise, and a third of the digits.
    let ms = |time: Duration| (time.as_secs_f64() * 1e7).round() / 1e4;
    SuiteRun {
        steps_per_submit,
        ttft_ms: ms(run.prompt),
        decode_ms: ms(run.steps.iter().sum()),
        step_ms: match steps_per_submit {
            1 => run.steps.iter().map(|step| ms(*step)).collect(),
            _ => Vec::new(),
        },
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
