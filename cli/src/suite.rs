//! `lathe suite`: generation by seven configurations, all models side by side.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::bytes;
use lathe_harness::data::record::{Body, Environment, Record, Suite, SuiteModel};
use lathe_harness::decode::Model;
use lathe_harness::decode::bench::{Bench, Settings, Test, Tier};
use lathe_harness::decode::prompts::drawn;
use lathe_harness::error::Result;
use lathe_harness::measure::RunWatch;
use lathe_harness::report::{generation, html};

use super::Global;
use super::decode::{ModelPaths, Shown};
use super::generation::{RunOpts, told_apart};
use super::out;

const TABLE: &str = "\
Configurations (prompt / generated tokens):
  quick     short 64/64, medium 256/256
  standard  and prefill 1024/64, decode 64/1024,
            sampled 256/256 (temperature 0.8, top-k 50, top-p 0.9)
  full      and long 1024/1024,
            full-pipe 256/256 (as sampled, and repetition penalty 1.1)
Two warm-ups, median of three runs, no stop at the end-of-sequence token.";

#[derive(Debug, Args)]
#[command(after_help = TABLE)]
pub(super) struct Opts {
    /// Set of configurations: quick has 2, standard 5, full all 7
    #[arg(long, default_value = "quick")]
    tier: Tier,
    #[command(flatten)]
    models: ModelPaths,
    /// Decode steps in a submission of the faster setting; per-step times come from runs of one
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = super::within::<1, 4096>)]
    steps_per_submit: usize,
    /// Only these configurations of the tier
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Untimed runs of a configuration before those that count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = super::count)]
    warm_ups: usize,
    /// Timed runs of a configuration and setting, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = super::within::<1, 4096>)]
    repetitions: usize,
    #[command(flatten)]
    run: RunOpts,
    /// Write the report as one offline HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Save the run as a record; an existing file is not overwritten
    #[arg(short, long, value_name = "RECORD.json")]
    output: Option<PathBuf>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let configs = opts.tier.configs(&opts.only)?;
    let gpu = Arc::new(global.open()?);
    opts.run.refuse(&gpu, opts.output.as_ref())?;
    let models = opts.models.get().map(Model::open).collect::<Result<Vec<_>>>()?;
    told_apart(models.iter().map(|m| m.file.path.as_path()))?;
    let mut watch = RunWatch::begin(&gpu)?;
    let mut suite = Suite {
        tier: opts.tier.to_string(),
        prompts: opts.run.prompts(),
        seed: opts.run.seed,
        warm_ups: opts.warm_ups,
        repetitions: opts.repetitions,
        steps_per_submit: opts.steps_per_submit,
        models: Vec::new(),
    };
    let faster = opts.steps_per_submit;
    let settings = Settings {
        steps_per_submit: if faster == 1 { vec![1] } else { vec![faster, 1] },
        warm_ups: opts.warm_ups,
        repetitions: opts.repetitions,
        verify: opts.run.verified(),
    };
    let tests: Vec<Test> = configs.iter().map(|config| config.test).collect();
    let most = tests.iter().map(Test::given).max().unwrap_or(0);
    let (options, mut shown) = (opts.run.options()?, Shown::new(global));
    for model in &models {
        let tokens = drawn(model, opts.run.seed, most)?;
        let mut bench = Bench::new(&gpu, model, &options, &settings, &tests)?;
        suite.models.push(SuiteModel {
            model: bench.facts.clone(),
            kv: options.kv.name().into(),
            activations: options.acts.name().into(),
            configs: Default::default(),
        });
        for (config, test) in configs.iter().zip(&tests) {
            let f = bench.measure(*test, &tokens, &mut shown)?.config();
            eprintln!(
                "{:>9.1} tok/s  first token {:.1} ms, decode {:.1} tok/s, step P50 {:.3} ms, device \
                 memory {} of {} predicted  {} {}",
                f.e2e_tok_s,
                f.ttft_ms,
                f.decode_tok_s,
                f.p50_ms,
                bytes(f.of.gpu_memory_bytes),
                bytes(f.of.gpu_memory_predicted_bytes),
                bench.facts.file(),
                config.name
            );
            // A run that is cut short leaves what it had.
            if let Some(last) = suite.models.last_mut() {
                last.configs.insert(config.name.into(), f);
            }
            let Some(path) = &opts.output else { continue };
            let record = Record::new(watch.environment.clone(), Body::Suite(suite.clone()));
            if path.exists() { record.rewrite(path)? } else { record.write(path)? }
        }
    }
    watch.end()?;
    finish(global, opts, watch.environment, suite)
}

/// Writes and prints the results.
fn finish(global: &Global, opts: &Opts, environment: Environment, suite: Suite) -> Result<()> {
    let markdown = generation::suite_markdown(&suite, &environment);
    let record = Record::new(environment, Body::Suite(suite));
    if let Some(path) = &opts.output {
        record.rewrite(path)?;
        eprintln!("saved {}", path.display());
    }
    let name = opts.output.as_deref().map_or("suite".into(), |path| {
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    });
    let records = [(name, record)];
    if let Some(path) = &opts.html {
        super::write_page(path, &html::page(&records, &[]))?;
        eprintln!("wrote {}", path.display());
    }
    if global.json {
        out::document(&records[0].1);
    } else {
        out::text(&markdown);
    }
    Ok(())
}
