//! Whole decode steps of two selections, compared in one run.

use std::path::Path;
use std::sync::Arc;

use super::decoder::Decoder;
use super::graph::DecodeGraph;
use super::model::Model;
use super::options::{DecodeOptions, Script};
use super::prompts;
use super::verify::{Checked, VERIFIED};
use lathe_device::error::{Error, Result};
use lathe_device::execute::GpuExecutor;
use lathe_device::gpu::{Gpu, Pipelines, Policy};
use lathe_device::measure::ab::{self, AbOptions, Outcome};
use lathe_device::measure::canary;
use lathe_device::plan::persistent::Persistent;
use lathe_device::plan::select::{Hints, parse_hints};
use lathe_model::synth::weight_type;
use lathe_record::record::Verified;
use lathe_record::rng::Rng;
use lathe_record::steady::steady;

/// Timed steps of a sample.
const STEPS: usize = 32;

/// Tokens before them, and the seed they are drawn from: every run has the same.
const PROMPT: usize = 4;
const PROMPT_SEED: u32 = 1;

/// One side on the device.
struct Side {
    graph: DecodeGraph,
    executor: GpuExecutor,
    checked: Checked,
}

impl Side {
    /// Microseconds per step of a run.
    fn time(&mut self) -> Result<f64> {
        let run = self.checked.run(&mut Decoder::new(&self.graph, &mut self.executor))?;
        Ok(run.step_seconds() * 1e6)
    }
}

/// The step of a side: `KERNEL=VARIANT`, `weights=TYPE` or `persistent=GRID`. Tuned choices take no part,
/// and variants are compared as dispatches of their own.
fn built(gpu: &Gpu, model: &Path, side: &str, context: usize) -> Result<DecodeGraph> {
    let usage = |e: &dyn std::fmt::Display| Error::Usage(format!("{side}: {e}"));
    let (mut hints, mut quantise, mut persistent) = (Hints::new(), None, Persistent::Off);
    match side.split_once('=') {
        Some(("persistent", text)) => persistent = text.parse().map_err(|e: String| usage(&e))?,
        Some(("weights", "as_stored")) => {}
        Some(("weights", ty)) => quantise = Some(weight_type(ty).map_err(|e| usage(&e))?),
        _ => hints = parse_hints(&[side.to_owned()])?,
    }
    let options =
        DecodeOptions { context, hints, store: None, persistent, ..DecodeOptions::default() };
    Model::open_as(model, quantise)?.graph(Some(gpu), &options)
}

/// Compares whole decode steps of two sides, in microseconds per step. Returns the outcome, and the
/// worse of the comparisons with the reference where `verify` asks for them.
///
/// # Errors
/// A side that cannot be built, an output that is wrong, or the device is lost.
pub fn decode(
    gpu: &Arc<Gpu>,
    model: &Path,
    sides: [&str; 2],
    options: &AbOptions,
    verify: bool,
) -> Result<(Outcome, Option<Verified>)> {
    // Text: rows of control tokens lose most of their digits to any storage.
    let prompt = prompts::drawn(&Model::open(model)?, PROMPT_SEED, PROMPT)?;
    let script =
        Script { prompt, generate: STEPS + 1, steps_per_submit: Some(8), ..Script::default() };
    // Each side has pipelines of its own, and a coin says which is compiled and laid out first.
    let mut b_first = Rng::fresh().below(2) == 1;
    let context = script.positions();
    let [mut first, mut second] = [usize::from(b_first), usize::from(!b_first)]
        .map(|side| built(gpu, model, sides[side], context));
    // Unless one has more layers in a buffer: then the other, of dispatches a stage, finds its
    // tensors there.
    let together = |graph: &DecodeGraph| {
        graph.recording.stacks.iter().map(|stack| stack.tensors.len()).max().unwrap_or(0)
    };
    if let (Ok(a), Ok(b)) = (&first, &second)
        && together(a) < together(b)
    {
        (first, second, b_first) = (second, first, !b_first);
    }
    let (first, second) = (first?, second?);
    let (recording, other) = (Arc::clone(&first.recording), Arc::clone(&second.recording));
    let (own, policy) = (Pipelines::default(), Policy::Plain);
    let executor = GpuExecutor::new(Arc::clone(gpu), &own, recording, policy, &mut |_, _| {})?;
    let beside = executor.sharing(&Pipelines::default(), other, policy)?;
    // Checked before it is timed, and every timed run against what was checked.
    let checked = |graph: DecodeGraph, mut executor: GpuExecutor| -> Result<Side> {
        let mut decoder = Decoder::new(&graph, &mut executor);
        let verify = verify.then_some(VERIFIED);
        let checked = Checked::begin(&mut decoder, script.clone(), verify)?;
        Ok(Side { graph, executor, checked })
    };
    let (first, second) = (checked(first, executor)?, checked(second, beside)?);
    let (mut a, mut b) = if b_first { (second, first) } else { (first, second) };
    steady::<Error>(&gpu.adapter, &mut || Ok(a.time()? + b.time()?))?;
    let outcome = ab::run(options, &mut canary(gpu)?, &mut |is_a, _| {
        let took = if is_a { a.time() } else { b.time() };
        Ok((took?, gpu.is_throttled()))
    })?;
    // Both sides share the caches: one more run of each, and its end.
    for side in [&mut a, &mut b].into_iter().filter(|_| verify) {
        side.time()?;
        let mut decoder = Decoder::new(&side.graph, &mut side.executor);
        side.checked.check_end(&mut decoder)?;
    }
    let verified = [a, b].into_iter().filter_map(|side| side.checked.verified());
    Ok((outcome, verified.reduce(Verified::worse)))
}
