//! `lathe diff`: the first operation at which GPU and CPU disagree.

use std::sync::Arc;

use clap::Args;
use lathe_harness::decode::{Prompts, diff, memory, prompt_parts};
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::Pipelines;
use lathe_harness::judge::diff::Divergence;
use serde::Serialize;

use crate::args;
use crate::global::Global;
use crate::model::{ModelOpts, Shown};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    #[command(flatten)]
    model: ModelOpts,
    /// Generated steps to compare after the prompt
    #[arg(short = 'n', long = "tokens", default_value_t = 0, value_name = "N", value_parser = args::count)]
    generate: usize,
}

#[derive(Serialize)]
struct Report {
    adapter: String,
    steps: usize,
    operations: usize,
    divergence: Option<Divergence>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
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
    global.print(&report, || {
        if report.divergence.is_none() {
            let Report { adapter, operations, steps, .. } = &report;
            outln!(
                "{adapter}: {operations} operations of {steps} positions agree with the CPU reference"
            );
        }
    });
    match report.divergence {
        None => Ok(()),
        Some(d) => Err(Error::CheckFailed(format!(
            "step {}: first difference at operation {} ({}), {}/{} {}: {}",
            d.step, d.op_index, d.label, d.kernel, d.variant, d.shape, d.reason
        ))),
    }
}
