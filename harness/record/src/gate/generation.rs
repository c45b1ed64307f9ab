//! Whole generations (`bench decode`, `suite`) as cases of the gate: repetitions of seconds each by
//! the host's clock.

use super::HOST_RUNS;
use super::read::{Measured, build};
use crate::error::{Error, Result};
use crate::paired;
use crate::record::{
    Body, Environment, GenerationTest, GenerationTests, MeasuredModel, Selected, Suite,
    SuiteConfig, SuiteModel, SuiteRun, Verified, Watched,
};

/// Fewest repetitions of a median.
const FEWEST: usize = 3;

/// Refuses another model under the same name; warns of other prompts.
pub(super) fn same_subject(first: &Body, other: &Body, warnings: &mut Vec<String>) -> Result<()> {
    let (was, is) = (subject(first), subject(other));
    if was.0 != is.0 {
        warnings.push(format!("prompts differ: {} and {}", was.0, is.0));
    }
    for model in &is.1 {
        let same = was.1.iter().find(|other| other.file() == model.file());
        if let Some(other) = same.filter(|other| other.model_size != model.model_size) {
            return Err(Error::Usage(format!(
                "{} had {} bytes of tensors and has {}: not the same model",
                model.file(),
                other.model_size,
                model.model_size
            )));
        }
    }
    Ok(())
}

/// Prompts and models of a record.
fn subject(body: &Body) -> (&str, Vec<&MeasuredModel>) {
    match body {
        Body::GenerationTests(of) => (&of.prompts, of.tests.iter().map(|t| &t.model).collect()),
        Body::Suite(of) => (&of.prompts, of.models.iter().map(|m| &m.model).collect()),
        Body::Bench(_) | Body::Ab(_) | Body::Profile(_) => ("", Vec::new()),
    }
}

fn measured(
    environment: &Environment,
    key: String,
    us: Vec<f64>,
    steps_per_submit: Option<usize>,
    verified: Option<Verified>,
    tuned: &[Selected],
    watched: &Watched,
) -> Measured {
    let steps = steps_per_submit.map(|steps| format!(", {steps} steps a submission"));
    Measured {
        key,
        us,
        steps: Vec::new(),
        warm: Vec::new(),
        source: build(environment, tuned),
        kernels: String::new(),
        how: format!(
            "wgpu's run-time checks {}{}",
            environment.runtime_checks,
            steps.unwrap_or_default()
        ),
        verified: match verified {
            Some(Verified { worst_nmse, limit, .. }) if worst_nmse > limit => {
                Err(format!("verification failed: NMSE {worst_nmse:.1e} above {limit:.1e}"))
            }
            other => Ok(other.is_some()),
        },
        flags: watched.flags.iter().map(ToString::to_string).collect(),
        fewest: FEWEST,
        run_to_run: HOST_RUNS,
        floor: 0.0,
    }
}

/// Test by test, the times of the repetitions.
pub(super) fn tests(tests: &GenerationTests, environment: &Environment) -> Vec<Measured> {
    let models: Vec<_> = tests.tests.iter().map(|test| &test.model).collect();
    let of = |test: &GenerationTest| {
        let GenerationTest { samples_ns, steps_per_submit, verified, tuned, watched, .. } = test;
        let us = samples_ns.iter().map(|ns| *ns as f64 / 1e3).collect();
        let key = key(test, &models);
        measured(environment, key, us, *steps_per_submit, *verified, tuned, watched)
    };
    tests.tests.iter().map(of).collect()
}

/// Model by model and configuration by configuration: time to the first token and all of the run,
/// each at the faster setting, and the single steps by position.
pub(super) fn suite(suite: &Suite, environment: &Environment) -> Vec<Measured> {
    type Time = fn(&SuiteRun) -> f64;
    let parts: [(&str, Time); 2] =
        [("first token", |run| run.ttft_ms), ("end to end", |run| run.ttft_ms + run.decode_ms)];
    let configs = configs(suite);
    let case = |key, config: &SuiteConfig, us, steps_per_submit| {
        let SuiteConfig { verified, tuned, watched, .. } = config;
        measured(environment, key, us, steps_per_submit, *verified, tuned, watched)
    };
    let mut cases = Vec::new();
    for (name, ms) in parts {
        for (key, config) in &configs {
            let most = config.runs.iter().map(|run| run.steps_per_submit).max();
            let runs = config.runs.iter().filter(|run| Some(run.steps_per_submit) == most);
            let us = runs.map(|run| ms(run) * 1e3).collect();
            cases.push(case(format!("{key} {name}"), config, us, most));
        }
    }
    for (key, config) in &configs {
        let (steps, us) = steps(config);
        cases.push(Measured { steps, ..case(format!("{key} step"), config, us, None) });
    }
    cases
}

/// Median over the repetitions of each step that has a time of its own, microseconds.
fn steps(config: &SuiteConfig) -> (Vec<usize>, Vec<f64>) {
    let runs: Vec<&[f64]> =
        config.runs.iter().map(|run| &run.step_ms[..]).filter(|ms| !ms.is_empty()).collect();
    let count = runs.iter().map(|ms| ms.len()).min().unwrap_or(0);
    let at = |i: usize| paired::median(&runs.iter().map(|ms| ms[i] * 1e3).collect::<Vec<_>>());
    (0..count).map(|i| (config.prompt_tokens + i, at(i))).unzip()
}

fn configs(suite: &Suite) -> Vec<(String, &SuiteConfig)> {
    let models: Vec<_> = suite.models.iter().map(|model| &model.model).collect();
    let names = suite.config_names();
    let each = suite.models.iter().flat_map(|model| {
        let SuiteModel { kv, activations, .. } = model;
        let of = format!("{}, KV {kv}, activations {activations}", told(&model.model, &models));
        names.iter().filter_map(move |name| {
            let config = model.configs.get(*name)?;
            // The same name with other lengths is another case.
            let lengths = format!("{}/{}", config.prompt_tokens, config.generated_tokens);
            Some((format!("{of}: {name} {lengths}"), config))
        })
    });
    each.collect()
}

/// A model by what it is, so that a renamed file is the same one; where a record has two files that
/// are alike in that, by the file.
fn told(model: &MeasuredModel, all: &[&MeasuredModel]) -> String {
    let identity = model.identity();
    let alike =
        |other: &&&MeasuredModel| other.identity() == identity && other.file() != model.file();
    match all.iter().find(alike) {
        None => identity,
        Some(_) => model.file().to_owned(),
    }
}

fn key(test: &GenerationTest, models: &[&MeasuredModel]) -> String {
    let steps = match test.steps_per_submit {
        None => String::new(),
        Some(1) => ", 1 step a submission".into(),
        Some(n) => format!(", {n} steps a submission"),
    };
    let kv = match test.type_k == test.type_v {
        true => test.type_k.clone(),
        false => format!("{}/{}", test.type_k, test.type_v),
    };
    let (model, acts) = (told(&test.model, models), &test.activations);
    format!("{model}, KV {kv}, activations {acts}: {}{steps}", test.test)
}

#[cfg(test)]
mod tests;
