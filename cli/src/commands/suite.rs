//! `lathe suite`: generation by seven configurations, all models side by side.

use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::data::bytes;
use lathe_harness::data::record::{Body, Suite, SuiteModel};
use lathe_harness::decode::bench::{Bench, Measured, Settings, Test, Tier};
use lathe_harness::error::Result;
use lathe_harness::report::{generation, html};

use crate::global::Global;
use crate::model::RunOpts;
use crate::saved::write_page;
use crate::{args, out};

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
pub(crate) struct Opts {
    /// Set of configurations: quick has 2, standard 5, full all 7
    #[arg(long, default_value = "quick")]
    tier: Tier,
    /// Decode steps in a submission of the faster setting; per-step times come from runs of one
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = args::within::<1, 4096>)]
    steps_per_submit: usize,
    /// Only these configurations of the tier
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Untimed runs of a configuration before those that count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = args::count)]
    warm_ups: usize,
    /// Timed runs of a configuration and setting, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = args::within::<1, 4096>)]
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

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let configs = opts.tier.configs(&opts.only)?;
    let suite = Suite {
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
    let (path, kind) = (opts.output.as_deref(), (suite, Body::Suite as fn(Suite) -> Body));
    let on_test = |suite: &mut Suite, bench: &Bench<'_>, nth: usize, measured: Measured| {
        let (f, name) = (measured.config(), configs[nth].name);
        eprintln!(
            "{:>9.1} tok/s  first token {:.1} ms, decode {:.1} tok/s, step P50 {:.3} ms, device \
             memory {} of {} predicted  {} {name}",
            f.e2e_tok_s,
            f.ttft_ms,
            f.decode_tok_s,
            f.p50_ms,
            bytes(f.of.gpu_memory_bytes),
            bytes(f.of.gpu_memory_predicted_bytes),
            bench.facts.file(),
        );
        if nth == 0 {
            suite.models.push(SuiteModel {
                model: bench.facts.clone(),
                kv: opts.run.step.kv.name().into(),
                activations: opts.run.step.activations.name().into(),
                configs: Default::default(),
            });
        }
        if let Some(last) = suite.models.last_mut() {
            last.configs.insert(name.into(), f);
        }
    };
    let (saved, record) = opts.run.measure(global, path, (&settings, &tests), kind, on_test)?;
    if let Some(page) = &opts.html {
        let name = path.and_then(Path::file_name).unwrap_or("suite".as_ref());
        let records = [(name.to_string_lossy().into_owned(), record.clone())];
        write_page(page, &html::page(&records, &[]))?;
        eprintln!("wrote {}", page.display());
    }
    saved.end(global, &record, || {
        let Body::Suite(suite) = &record.body else { return };
        out::text(&generation::suite_markdown(suite, &record.environment));
    })
}
