//! `lathe diff`: the first operation at which GPU and CPU disagree.

use std::sync::Arc;

use clap::Args;
use lathe_harness::decode::kv_cache;
use lathe_harness::decode::session::{Prompts, prompt_parts};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::Execute;
use lathe_harness::gpu::Pipelines;
use lathe_harness::judge::diff::{self, Divergence};
use lathe_harness::plan::recording::Part;
use lathe_harness::plan::run::Runs;
use lathe_kernels::StateWord;
use serde::Serialize;

use super::Global;
use super::decode::{ModelOpts, on_device};
use super::out;

#[derive(Debug, Args)]
pub(super) struct Opts {
    #[command(flatten)]
    model: ModelOpts,
    /// Generated steps to compare after the prompt
    #[arg(short = 'n', long = "tokens", default_value_t = 0, value_name = "N", value_parser = super::count)]
    generate: usize,
}

#[derive(Serialize)]
struct Report {
    adapter: String,
    steps: usize,
    operations: usize,
    divergence: Option<Divergence>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let mut loaded = opts.model.load()?;
    // Operations are compared one by one.
    loaded.options.runs = Runs::Off;
    let gpu = Arc::new(global.open()?);
    let steps = loaded.prompt.len() + opts.generate;
    let graph = loaded.graph(Some(&gpu), steps)?;
    graph.knows(&loaded.prompt, "")?;
    let mut executor = on_device(global, &gpu, &Pipelines::default(), &graph)?;
    kv_cache::reset(&mut executor, &graph.caches, graph.state, loaded.prompt.len() as u32)?;
    executor.write_words(graph.state, StateWord::Seed as usize, &[loaded.options.seed])?;
    executor.write_words(graph.tokens, 0, &loaded.prompt)?;
    let prompt = prompt_parts(&graph, Prompts::Chunks, loaded.prompt.len());
    let parts = prompt.into_iter().chain([Part::Steps(opts.generate)]);
    // One step after the other.
    let parts = parts.flat_map(|part| match part {
        Part::Steps(n) => vec![Part::Steps(1); n],
        other => vec![other],
    });
    let parts: Vec<Part> = parts.collect();
    let bar = global.progress(parts.len() as u64, "comparing", false);
    let (mut divergence, mut operations) = (None, 0);
    for part in &parts {
        let position = executor.read_words(graph.state)?[StateWord::Position as usize];
        divergence = diff::part(&mut executor, *part, position as usize)?;
        operations += graph.recording.part(*part).len();
        bar.inc(1);
        if divergence.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    let report = Report {
        adapter: gpu.adapter.name.clone(),
        steps: divergence.as_ref().map_or(steps, |d| d.step + 1),
        operations,
        divergence,
    };
    if global.json {
        out::json(&report);
    } else if report.divergence.is_none() {
        outln!(
            "{}: {} operations of {} positions agree with the CPU reference",
            report.adapter,
            report.operations,
            report.steps
        );
    }
    match report.divergence {
        None => Ok(()),
        Some(d) => Err(Error::CheckFailed(format!(
            "step {}: first difference at operation {} ({}), {}/{} {}: {}",
            d.step, d.op_index, d.label, d.kernel, d.variant, d.shape, d.reason
        ))),
    }
}
