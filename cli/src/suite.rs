//! `lathe suite`: generation by seven configurations, all models side by side.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::bytes;
use lathe_harness::data::record::{Body, Environment, Record, Suite};
use lathe_harness::decode::Model;
use lathe_harness::decode::bench::{self, Settings, Tier};
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::measure::RunWatch;
use lathe_harness::model::synth::{SynthArch, SynthSpec, weight_type};
use lathe_harness::report::{generation, html};
use lathe_kernels::Format;

use super::Global;
use super::decode::{ModelPaths, Shown};
use super::generation::{RunOpts, told_apart};
use super::out;
use super::synth::synthetic;

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
    /// Which configurations: quick has 2, standard 5, full all 7
    #[arg(long, default_value = "quick")]
    tier: Tier,
    #[command(flatten)]
    models: ModelPaths,
    /// Architectures of synthetic checkpoints, in the place of files: written to the temporary
    /// folder and removed again
    #[arg(long, value_name = "ARCH", value_delimiter = ',', conflicts_with = "model")]
    arch: Vec<SynthArch>,
    /// With --arch: storage of the matrices
    #[arg(long, default_value = "bf16", requires = "arch", value_parser = weight_type)]
    quant: Format,
    /// With --arch: storage of the embedding, if another
    #[arg(long, requires = "arch", value_parser = weight_type)]
    embed_quant: Option<Format>,
    /// Decode steps in a submission of the faster setting; per-step times come from runs of one
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = super::within::<1, 4096>)]
    steps_per_submit: usize,
    /// Of the tier only these configurations
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
    /// Write the tables as Markdown; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the report as one offline HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Save the run as a record; an existing file is not overwritten
    #[arg(short, long, value_name = "RECORD.json")]
    output: Option<PathBuf>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    if let Some(path) = opts.markdown.as_ref().filter(|path| path.exists()) {
        return Err(Error::Usage(format!("{} exists and is not overwritten", path.display())));
    }
    let configs = opts.tier.configs(&opts.only)?;
    let gpu = Arc::new(global.open()?);
    opts.run.refuse(&gpu, opts.output.as_ref())?;
    // Removed when the run ends, however it does.
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let mut models = opts.models.get().map(Model::open).collect::<Result<Vec<_>>>()?;
    let Opts { quant, embed_quant, .. } = *opts;
    for arch in &opts.arch {
        let spec = SynthSpec { arch: *arch, quant, embed_quant, seed: 42 };
        models.push(synthetic(global, &spec, folder.path())?);
    }
    told_apart(models.iter().map(|m| m.file.path.as_path()))?;
    let mut watch = RunWatch::begin(&gpu)?;
    let mut suite = Suite {
        tier: opts.tier.to_string(),
        prompts: opts.run.source().name(),
        seed: opts.run.seed,
        warm_ups: opts.warm_ups,
        repetitions: opts.repetitions,
        steps_per_submit: opts.steps_per_submit,
        models: Vec::new(),
    };
    let settings = Settings {
        warm_ups: opts.warm_ups,
        repetitions: opts.repetitions,
        steps_per_submit: opts.steps_per_submit,
        verify: opts.run.verified(),
    };
    let (options, mut shown) = (opts.run.options()?, Shown::new(global));
    for model in &models {
        let what = (&configs[..], opts.run.source());
        bench::suite(&gpu, model, &options, what, settings, &mut shown, &mut |result, config| {
            let f = &result.configs[config];
            eprintln!(
                "{:>9.1} tok/s  first token {:.1} ms, decode {:.1} tok/s, step P50 {:.3} ms, device \
                 memory {} of {} predicted  {} {config}",
                f.e2e_tok_s,
                f.ttft_ms,
                f.decode_tok_s,
                f.p50_ms,
                bytes(f.gpu_memory_bytes),
                bytes(f.gpu_memory_predicted_bytes),
                result.model.file(),
            );
            // A run that is cut short leaves what it had.
            match suite.models.last_mut() {
                Some(last) if last.model == result.model => *last = result.clone(),
                _ => suite.models.push(result.clone()),
            }
            let Some(path) = &opts.output else { return Ok(()) };
            let record = Record::new(watch.environment.clone(), Body::Suite(suite.clone()));
            let saved = if path.exists() { record.rewrite(path) } else { record.write(path) };
            Ok(saved?)
        })?;
    }
    watch.end()?;
    finish(global, opts, watch.environment, suite)
}

/// Writes and prints what was measured.
fn finish(global: &Global, opts: &Opts, environment: Environment, suite: Suite) -> Result<()> {
    let markdown = generation::suite_markdown(&suite, &environment);
    let record = Record::new(environment, Body::Suite(suite));
    if let Some(path) = &opts.output {
        record.rewrite(path)?;
        eprintln!("saved {}", path.display());
    }
    if let Some(path) = &opts.markdown {
        files::write_new(path, markdown.as_bytes()).map_err(Error::io(path))?;
        eprintln!("wrote {}", path.display());
    }
    let name = opts.output.as_deref().map_or("suite".into(), |path| {
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    });
    let records = [(name, record)];
    if let Some(path) = &opts.html {
        super::write_page(path, &html::render(&records))?;
        eprintln!("wrote {}", path.display());
    }
    if global.json {
        out::document(&records[0].1);
    } else {
        out::text(&markdown);
    }
    Ok(())
}
