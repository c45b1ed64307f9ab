//! `lathe suite`: generation by seven configurations, all models side by side.

mod configs;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_kernels::Format;

use super::Global;
use super::decode::ModelPaths;
use super::generation::{OnDevice, RunOpts, measured, run_memory, told_apart};
use super::out;
use super::synth::synthetic;

use configs::{Config, Tier};
use lathe_harness::data::bytes;
use lathe_harness::data::record::{
    Body, Environment, Record, Suite, SuiteConfig, SuiteModel, SuiteRun, Verified,
};
use lathe_harness::decode::{Model, Timed, Trial};
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::gpu::Gpu;
use lathe_harness::measure::{Repetitions, RunWatch};
use lathe_harness::model::synth::{SynthArch, SynthSpec, weight_type};
use lathe_harness::report::{generation, html};

#[derive(Debug, Args)]
#[command(after_help = configs::TABLE)]
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
    for model in &models {
        of_model(global, opts, &gpu, (model, &configs), &mut |result| {
            // A run that is cut short leaves what it had.
            match suite.models.last_mut() {
                Some(last) if last.model == result.model => *last = result,
                _ => suite.models.push(result),
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

/// Runs all configurations of a model; `on_config` hears of each with those before it.
fn of_model(
    global: &Global,
    opts: &Opts,
    gpu: &Arc<Gpu>,
    (model, configs): (&Model, &[Config]),
    on_config: &mut dyn FnMut(SuiteModel) -> Result<()>,
) -> Result<()> {
    let most = configs.iter().map(|config| config.prompt).max().unwrap_or(0);
    let tokens = opts.run.source().tokens(model, most)?;
    let contexts = configs.iter().map(|config| (config.prompt + config.generate, config.sampling));
    let mut on_device = OnDevice::new(gpu, model, &opts.run, contexts)?;
    let mut result = SuiteModel {
        model: measured(model),
        kv: opts.run.step.kv.name().into(),
        activations: opts.run.step.activations.name().into(),
        configs: Default::default(),
    };
    for config in configs {
        let named = format!("{} {}", result.model.file(), config.name);
        let context = config.prompt + config.generate;
        let (graph, executor) = on_device.graph(global, context, 1, config.sampling)?;
        let held = executor.device_bytes();
        let script = config.script(&tokens, opts.run.seed);
        let mut trial = Trial::new(&graph, executor, script)?;
        let verified = opts.run.verify(&graph, &mut trial)?;
        // Both settings in turn, so that what drifts drifts for both.
        let settings: &[usize] = match opts.steps_per_submit {
            1 => &[1],
            n => &[n, 1],
        };
        let bar = global.progress(
            (opts.warm_ups + opts.repetitions * settings.len()) as u64,
            &named,
            false,
        );
        for _ in 0..opts.warm_ups {
            trial.run(opts.steps_per_submit)?;
            bar.inc(1);
        }
        let settled = trial.settle(&gpu.adapter)?;
        let mut repetitions = Repetitions::new(opts.repetitions);
        while repetitions.wanted().is_some() {
            let (mut runs, mut held_down) = (Vec::new(), false);
            for steps_per_submit in settings {
                runs.push(suite_run(*steps_per_submit, &trial.run(*steps_per_submit)?));
                held_down |= gpu.is_throttled();
                bar.inc(1);
            }
            repetitions.push(runs, held_down);
        }
        bar.finish_and_clear();
        let (runs, watched) = repetitions.end(settled);
        let runs = runs.into_iter().flatten().collect();
        let lengths = [config.prompt, config.generate];
        let mut figures = SuiteConfig::of(lengths, config.sampling, opts.steps_per_submit, runs);
        figures.verified = verified.map(|v| Verified { end_nmse: trial.end_nmse(), ..v });
        figures.kv_cache_bytes = graph.kv_bytes();
        figures.tuned = graph.tuned();
        figures.run_grid = graph.run_grid();
        figures.watched = watched;
        let (memory, predicted) = run_memory(gpu, &graph, held);
        figures.gpu_memory_bytes = memory;
        figures.gpu_memory_predicted_bytes = predicted;
        eprintln!(
            "{:>9.1} tok/s  first token {:.1} ms, decode {:.1} tok/s, step P50 {:.3} ms, device \
             memory {} of {} predicted  {named}",
            figures.e2e_tok_s,
            figures.ttft_ms,
            figures.decode_tok_s,
            figures.p50_ms,
            bytes(memory),
            bytes(predicted),
        );
        result.configs.insert(config.name.into(), figures);
        on_config(result.clone())?;
    }
    Ok(())
}

fn suite_run(steps_per_submit: usize, run: &Timed) -> SuiteRun {
    // A tenth of a microsecond is less than the clock's noise, and a third of the digits.
    let ms = |seconds: f64| (seconds * 1e7).round() / 1e4;
    let decode: std::time::Duration = run.steps.iter().sum();
    SuiteRun {
        steps_per_submit,
        ttft_ms: ms(run.prompt.as_secs_f64()),
        decode_ms: ms(decode.as_secs_f64()),
        step_ms: match steps_per_submit {
            1 => run.steps.iter().map(|step| ms(step.as_secs_f64())).collect(),
            _ => Vec::new(),
        },
    }
}
