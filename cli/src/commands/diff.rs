//! `lathe diff`: the first operation at which the kernels and the CPU reference disagree.

use std::sync::Arc;

use clap::Args;
use lathe_harness::decode::{Prompts, diff, memory, prompt_parts};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::Kernels;
use lathe_harness::execute::interpreter::{Found, Interpreter, Options};
use lathe_harness::gpu::Pipelines;
use lathe_harness::judge::diff::Divergence;
use lathe_harness::judge::sanitize::capabilities;
use serde::Serialize;

use super::decode::INTERPRETED_SUBGROUP;
use crate::global::Global;
use crate::model::{ExecutorName, ModelOpts, Shown};
use crate::{args, out};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    #[command(flatten)]
    model: ModelOpts,
    /// Generated steps to compare after the prompt
    #[arg(short = 'n', long = "tokens", default_value_t = 0, value_name = "N", value_parser = args::count)]
    generate: usize,
    /// Executor of the kernels: gpu, or interpret for the interpreter of `sanitize`
    #[arg(long, default_value = "gpu")]
    executor: ExecutorName,
}

#[derive(Serialize)]
struct Report {
    adapter: String,
    steps: usize,
    operations: usize,
    divergence: Option<Divergence>,
    /// Faults of kernels that the interpreter saw.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Found>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let (model, options, script) = opts.model.apart(opts.generate)?;
    let (mut gpu, mut interpreter) = (None, None);
    let (graph, steps, adapter);
    let executor: &mut dyn Kernels = match opts.executor {
        ExecutorName::Interpret => {
            (graph, steps) =
                (model.graph_for(&capabilities(INTERPRETED_SUBGROUP), &options)?, options.context);
            adapter = "the interpreter".to_owned();
            let seed = u64::from(options.seed);
            let settings = Options { width: INTERPRETED_SUBGROUP, seed, ..Options::default() };
            interpreter.insert(Interpreter::new(Arc::clone(&graph.recording), settings))
        }
        ExecutorName::Gpu => {
            let device = Arc::new(global.open()?);
            (graph, steps) = (model.graph(Some(&device), &options)?, options.context);
            adapter = device.adapter.name.clone();
            gpu.insert(memory::load(
                &device,
                &Pipelines::default(),
                &graph,
                &mut Shown::new(global),
            )?)
        }
        ExecutorName::Cpu => {
            let why = "the CPU executor is the reference that `diff` compares with";
            return Err(Error::Usage(why.into()));
        }
    };
    graph.knows(&script.prompt, "")?;
    let parts = prompt_parts(&graph, Prompts::Chunks, script.prompt.len());
    let parts = parts.iter().map(|part| part.times()).sum::<usize>() + opts.generate;
    let bar = global.progress(parts as u64, "comparing", false);
    let (operations, divergence) = diff(&graph, executor, &script, &mut || bar.inc(1))?;
    bar.finish_and_clear();
    let report = Report {
        adapter,
        steps: divergence.as_ref().map_or(steps, |d| d.step + 1),
        operations,
        divergence,
        findings: interpreter.map_or_else(Vec::new, |interpreter| interpreter.found),
    };
    global.print(&report, || {
        for found in &report.findings {
            out::verdict(out::Tone::Bad, &found.to_string());
        }
        if report.divergence.is_none() {
            let Report { adapter, operations, steps, .. } = &report;
            outln!(
                "{adapter}: {operations} operations of {steps} positions agree with the CPU reference"
            );
        }
    });
    match report.divergence {
        None if !report.findings.is_empty() => {
            Err(Error::CheckFailed(format!("{} faults of kernels", report.findings.len())))
        }
        None => Ok(()),
        Some(d) => Err(Error::CheckFailed(format!(
            "step {}: first difference at operation {} ({}), {}/{} {}: {}",
            d.step, d.op_index, d.label, d.kernel, d.variant, d.shape, d.reason
        ))),
    }
}
