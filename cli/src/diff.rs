//! `lathe diff`: the first operation at which GPU and CPU disagree.

use std::sync::Arc;

use clap::Args;
use lathe_harness::decode::{Prompts, diff, memory, prompt_parts};
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::Pipelines;
use lathe_harness::judge::diff::Divergence;
use serde::Serialize;

use super::Global;
use super::decode::{ModelOpts, Shown};
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
    let (model, options, script) = opts.model.apart(opts.generate)?;
    let gpu = Arc::new(global.open()?);
    let (graph, steps) = (model.graph(Some(&gpu), &options)?, options.context);
    graph.knows(&script.prompt, "")?;
    let mut executor = memory::load(&gpu, &Pipelines::default(), &graph, &mut Shown::new(global))?;
    let parts = prompt_parts(&graph, Prompts::Chunks, script.prompt.len());
    let parts = parts.iter().map(|part| part.times()).sum::<usize>() + opts.generate;
    let bar = global.progress(parts as u64, "comparing", false);
    let (operations, divergence) = diff(&graph, &mut executor, &script, &mut || bar.inc(1))?;
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
