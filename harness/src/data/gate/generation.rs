//! The gate for whole generations: few repetitions of seconds each, so means and Student's t in
//! the place of medians and the bootstrap, which needs more samples than a suite can afford.

use super::{Gate, GateCase, Series, judge, keyed, matched};
use crate::data::Ratio;
use crate::data::paired;
use crate::data::record::{GenerationTest, GenerationTests, Suite, SuiteConfig, SuiteModel};
use crate::error::{Error, Result};

/// Fewest repetitions of each side: with three the interval is wide, with two it is useless.
const FEWEST: usize = 3;

/// Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom; beyond, that for 10 is
/// a little too wide.
const T95: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

impl Gate {
    /// Test by test, on the times of the repetitions.
    pub(super) fn tests(
        &self,
        base: &GenerationTests,
        new: &GenerationTests,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<GateCase>> {
        prompts(&base.prompts, &new.prompts, warnings);
        for test in &new.tests {
            let other = base.tests.iter().find(|t| t.model.file() == test.model.file());
            if let Some(other) = other.filter(|t| t.model.model_size != test.model.model_size) {
                return Err(other_model(
                    test.model.file(),
                    [other.model.model_size, test.model.model_size],
                ));
            }
        }
        let (base, new) = (keyed(&base.tests, key)?, keyed(&new.tests, key)?);
        let us = |test: &GenerationTest| -> Vec<f64> {
            test.samples_ns.iter().map(|ns| *ns as f64 / 1e3).collect()
        };
        Ok(matched(
            &base,
            &new,
            |test| mean(&us(test)),
            |key, base, new| {
                let verified = [base, new].map(|test| test.verified.is_some());
                self.repeated(key, &us(base), &us(new), verified)
            },
        ))
    }

    /// Model by model and configuration by configuration: time to the first token, all of the
    /// run, and the single steps by position.
    pub(super) fn suites(
        &self,
        base: &Suite,
        new: &Suite,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<GateCase>> {
        prompts(&base.prompts, &new.prompts, warnings);
        if base.steps_per_submit != new.steps_per_submit {
            let [was, is] = [base, new].map(|suite| suite.steps_per_submit);
            warnings.push(format!("steps in a submission differ: {was} and {is}"));
        }
        for model in &new.models {
            let other = base.models.iter().find(|m| m.model.file() == model.model.file());
            if let Some(other) = other.filter(|m| m.model.model_size != model.model.model_size) {
                let sizes = [other.model.model_size, model.model.model_size];
                return Err(other_model(model.model.file(), sizes));
            }
        }
        let (base_configs, new_configs) = (configs(base), configs(new));
        let base_configs = keyed(&base_configs, |(key, _)| key.clone())?;
        let new_configs = keyed(&new_configs, |(key, _)| key.clone())?;
        let mut cases = Vec::new();
        for (name, part) in PARTS {
            let pick = |configs: &[(String, &(String, &SuiteConfig))]| -> Vec<(String, Part)> {
                configs
                    .iter()
                    .map(|(key, (_, config))| (format!("{key} {name}"), part(config)))
                    .collect()
            };
            cases.extend(matched(
                &pick(&base_configs),
                &pick(&new_configs),
                |part| mean(&part.us),
                |key, base, new| {
                    self.repeated(key, &base.us, &new.us, [base.verified, new.verified])
                },
            ));
        }
        let steps: [Vec<(String, Series)>; 2] = [&base_configs, &new_configs].map(|configs| {
            let series = |(key, (_, config)): &(String, &(String, &SuiteConfig))| {
                (format!("{key} step"), steps(config))
            };
            configs.iter().map(series).collect()
        });
        cases.extend(matched(
            &steps[0],
            &steps[1],
            |series| {
                super::median(&series.by_position.iter().map(|(_, us)| *us).collect::<Vec<_>>())
            },
            |key, base, new| self.series_case(key, base, new),
        ));
        Ok(cases)
    }

    fn repeated(&self, key: &str, base: &[f64], new: &[f64], verified: [bool; 2]) -> GateCase {
        let ratio = welch(base, new);
        let mut notes = Vec::new();
        if ratio.is_none() {
            notes.push(format!(
                "fewer than {FEWEST} repetitions, or a time that is not a positive number"
            ));
        }
        for (which, verified) in ["earlier", "new"].into_iter().zip(verified) {
            if !verified {
                notes.push(format!("{which} run: not verified"));
            }
        }
        GateCase {
            key: key.into(),
            base_us: mean(base),
            new_us: mean(new),
            ratio,
            threshold: Some(self.common),
            verdict: judge(ratio, self.common),
            warm: None,
            note: notes.join("; "),
        }
    }
}

/// Times of one part of a configuration's runs at the faster setting.
struct Part {
    us: Vec<f64>,
    verified: bool,
}

type PartOf = fn(&SuiteConfig) -> Part;

const PARTS: [(&str, PartOf); 2] = [
    ("first token", |config| part(config, |run| run.ttft_ms)),
    ("end to end", |config| part(config, |run| run.ttft_ms + run.decode_ms)),
];

fn part(config: &SuiteConfig, ms: fn(&crate::data::record::SuiteRun) -> f64) -> Part {
    let most = config.runs.iter().map(|run| run.steps_per_submit).max();
    let runs = config.runs.iter().filter(|run| Some(run.steps_per_submit) == most);
    Part { us: runs.map(|run| ms(run) * 1e3).collect(), verified: config.verified.is_some() }
}

/// Median over the repetitions of each step that has a time of its own.
fn steps(config: &SuiteConfig) -> Series {
    let runs: Vec<&[f64]> =
        config.runs.iter().map(|run| &run.step_ms[..]).filter(|ms| !ms.is_empty()).collect();
    let count = runs.iter().map(|ms| ms.len()).min().unwrap_or(0);
    let at = |i: usize| paired::median(&runs.iter().map(|ms| ms[i] * 1e3).collect::<Vec<_>>());
    Series {
        kernel: String::new(),
        timestamps: 0,
        by_position: (0..count).map(|i| (config.prompt_tokens + i, at(i))).collect(),
    }
}

fn configs(suite: &Suite) -> Vec<(String, &SuiteConfig)> {
    let of = |model: &SuiteModel, name: &str| {
        format!(
            "{}, KV {}, activations {}: {name}",
            model.model.file(),
            model.kv,
            model.activations
        )
    };
    let names = suite.config_names();
    let each = suite.models.iter().flat_map(|model| {
        names.iter().filter_map(move |name| {
            let config = model.configs.get(*name)?;
            // The same name with other lengths is another case.
            let lengths = format!("{}/{}", config.prompt_tokens, config.generated_tokens);
            Some((format!("{} {lengths}", of(model, name)), config))
        })
    });
    each.collect()
}

fn key(test: &GenerationTest) -> String {
    let steps = match test.steps_per_submit {
        None => String::new(),
        Some(1) => ", 1 step a submission".into(),
        Some(n) => format!(", {n} steps a submission"),
    };
    let kv = match test.type_k == test.type_v {
        true => test.type_k.clone(),
        false => format!("{}/{}", test.type_k, test.type_v),
    };
    let (file, acts) = (test.model.file(), &test.activations);
    format!("{file}, KV {kv}, activations {acts}: {}{steps}", test.test)
}

fn prompts(base: &str, new: &str, warnings: &mut Vec<String>) {
    if base != new {
        warnings.push(format!("prompts differ: {base} and {new}"));
    }
}

fn other_model(file: &str, [was, is]: [u64; 2]) -> Error {
    Error::Usage(format!("{file} had {was} bytes of tensors and has {is}: not the same model"))
}

/// Mean of times that are positive numbers.
fn mean(us: &[f64]) -> Option<f64> {
    (!us.is_empty() && us.iter().all(paired::usable))
        .then(|| us.iter().sum::<f64>() / us.len() as f64)
}

/// New over base by the means of the logarithms, with Welch's interval: the two sides need not
/// vary alike.
fn welch(base: &[f64], new: &[f64]) -> Option<Ratio> {
    mean(base).and(mean(new))?;
    if base.len().min(new.len()) < FEWEST {
        return None;
    }
    let side = |us: &[f64]| {
        let logs: Vec<f64> = us.iter().map(|us| us.ln()).collect();
        let (mean, sd) = crate::data::stats::mean_sd(&logs);
        (mean, sd * sd / logs.len() as f64, logs.len() as f64 - 1.0)
    };
    let ((b, b_var, b_df), (n, n_var, n_df)) = (side(base), side(new));
    let (difference, variance) = (n - b, b_var + n_var);
    // Welch and Satterthwaite's degrees of freedom, rounded down. Equal repetitions leave 0/0.
    let df = variance * variance / (b_var * b_var / b_df + n_var * n_var / n_df);
    let df = if df.is_finite() { df } else { b_df.min(n_df) };
    let t = T95[(df.floor() as usize).clamp(1, T95.len()) - 1];
    let reach = t * variance.sqrt();
    Some(Ratio::exp(difference, (difference - reach, difference + reach)))
}

#[cfg(test)]
mod tests;
