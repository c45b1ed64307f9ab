//! A decode by operation: what each costs, what it should cost, and what the whole step costs
//! unprofiled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lathe_device::error::{Error, Result};
use lathe_device::execute::{Execute, GpuExecutor};
use lathe_device::plan::recording::{Op, Part};
use lathe_device::plan::run::{self, LeftOut};
use lathe_kernels::{Problem, State, StateWord};
use lathe_record::paired::median;
use lathe_record::record::{OpTotal, Profile, ProfiledOp, ProfiledStep, Unprofiled, Verified};
use lathe_record::steady::steady;
use serde::Serialize;

use super::graph::DecodeGraph;
use super::once::settle;
use super::prefix::Prefix;
use super::session::{self, Prompts, RunOptions};

/// What bounds an operation from below.
#[derive(Clone, Copy, Debug)]
pub struct Floors {
    /// Bandwidth of the memory, 10^9 bytes a second.
    pub gb_s: f64,
    /// Microseconds of a dispatch that waits for the one before, where they were measured.
    pub dispatch_us: Option<f64>,
}

/// Runs the decode twice: at full speed, then step by step with a timestamp around every operation.
/// Verifies the first positions before and the end of both, if told so. `on_step` hears each
/// profiled step.
pub fn profile(
    graph: &DecodeGraph,
    executor: &mut GpuExecutor,
    options: &RunOptions,
    about: (&str, &str),
    floors: Floors,
    verify: Option<usize>,
    on_step: &mut dyn FnMut(&ProfiledStep),
) -> Result<Profile> {
    let mut prefix = verify.map(|n| Prefix::verify(graph, executor, options, n)).transpose()?;
    // Until the clocks are up, then once to measure.
    let gpu = Arc::clone(&executor.gpu);
    settle(&gpu.adapter, graph, executor, options)?;
    let run = session::run(graph, executor, options, &mut |_| {})?;
    if let Some(prefix) = &mut prefix {
        prefix.check(&run.generated)?;
        prefix.check_end(graph, executor, options.prompt.len())?;
    }
    let milliseconds = |d: &Duration| (d.as_secs_f64() * 1e6).round() / 1e3;
    let wall: f64 = run.steps.iter().map(milliseconds).sum();
    let unprofiled = Unprofiled {
        decode_tok_s: if wall > 0.0 { run.steps.len() as f64 * 1e3 / wall } else { 0.0 },
        gpu_ms_per_token: run.gpu.map(|t| milliseconds(&t) / run.decode_steps.max(1) as f64),
        step_ms: run.steps.iter().map(milliseconds).collect(),
        steps_per_submit: options.steps_per_submit.unwrap_or(1),
    };

    // The prompt at full speed, then the same steps again, one by one.
    let prompt_only = RunOptions { generate: 1, ..options.clone() };
    session::run(graph, executor, &prompt_only, &mut |_| {})?;
    let timer = executor.op_timer(Part::Steps(1))?;
    let mut steps = Vec::with_capacity(run.decode_steps);
    for step in 0..run.decode_steps {
        let timed = executor.timed(Part::Steps(1), &timer)?;
        let profiled = ProfiledStep {
            position: options.prompt.len() + step,
            us: timed.us,
            record_ms: milliseconds(&timed.record),
            submit_ms: milliseconds(&timed.submit),
            wait_ms: milliseconds(&timed.wait),
        };
        on_step(&profiled);
        steps.push(profiled);
    }
    let tokens = executor.read_words(graph.tokens)?;
    let from = options.prompt.len();
    let again = &tokens[from..(from + run.generated.len()).min(tokens.len())];
    if again != run.generated {
        return Err(Error::CheckFailed(format!(
            "the profiled decode gave other tokens: {again:?} instead of {:?}",
            run.generated
        )));
    }
    if let Some(prefix) = &mut prefix {
        prefix.check_end(graph, executor, options.prompt.len())?;
    }

    let ops: Vec<_> = graph.recording.ops.iter().map(described).collect();
    let sums: Vec<f64> = steps.iter().map(|s| s.us.iter().sum::<f64>()).collect();
    let serialised_ms_per_token = sums.iter().sum::<f64>() / 1e3 / steps.len().max(1) as f64;
    let middle = options.prompt.len() + steps.len() / 2 + 1;
    let by_op = totals(&graph.recording.ops, &steps, middle, floors);
    let profile = Profile {
        model: about.0.to_owned(),
        kv: about.1.to_owned(),
        prompt_tokens: options.prompt.len(),
        unprofiled,
        ops,
        steps,
        by_op,
        serialised_ms_per_token,
        identity: None,
        selected: graph.selected.clone(),
        verified: prefix.map(|prefix| prefix.verified),
    };
    Ok(profile)
}

/// What the phases of the layers' dispatch cost.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseProfile {
    /// GPU time of a step, milliseconds: the median of several runs.
    pub ms_per_token: f64,
    /// Tokens of the sequence in the middle of a run, for which bytes are counted.
    pub n_kv: usize,
    /// By phase, in order.
    pub by_phase: Vec<PhaseTotal>,
    /// What was verified before; none where that was left out.
    pub verified: Option<Verified>,
}

/// A phase, over all layers, per token.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseTotal {
    /// Operation.
    pub op: String,
    /// Kernel and variant.
    pub kernel: String,
    /// Which dispatch of the operation, where it has several.
    pub stage: usize,
    /// Layers that have it.
    pub count: usize,
    /// By how much a step without it, its wait and what that prefetches is shorter, milliseconds
    /// of GPU time: of medians. They do not add up to the step.
    pub ms: f64,
    /// What its layers must move, at the bandwidth given, milliseconds; none for dispatches after
    /// the first of an operation, whose bytes are counted there.
    pub floor_ms: Option<f64>,
}

/// Times steps whose layers are one dispatch, and steps without each of its phases, in turns. Those
/// compute something else, and nobody looks at their tokens. `gb_s` is the memory's bandwidth.
///
/// # Errors
/// No layers are one dispatch of three phases and more, or the device has no timestamps.
pub fn phases(
    graph: &DecodeGraph,
    executor: &mut GpuExecutor,
    options: &RunOptions,
    gb_s: f64,
    rounds: usize,
    verify: Option<usize>,
) -> Result<PhaseProfile> {
    let gpu = Arc::clone(&executor.gpu);
    let left_out = run::without_each_phase(&graph.recording, &gpu.caps)?;
    if left_out.is_empty() {
        return Err(Error::Usage(
            "no layers of this step are one dispatch of three phases and more".into(),
        ));
    }
    let mut prefix = verify.map(|n| Prefix::verify(graph, executor, options, n)).transpose()?;
    let mut without = Vec::new();
    for phase in &left_out {
        let recording = Arc::clone(&phase.recording);
        let executor = executor.beside(Arc::clone(&recording))?;
        without.push((DecodeGraph { recording, ..graph.clone() }, executor));
    }
    // All are as long, wherever a text might end.
    let options = RunOptions { stop_at: Vec::new(), ..options.clone() };
    let step = |graph: &DecodeGraph, executor: &mut GpuExecutor| -> Result<f64> {
        let run = session::run(graph, executor, &options, &mut |_| {})?;
        let gpu = run.gpu.ok_or_else(|| Error::Usage("the device has no timestamps".into()))?;
        Ok(gpu.as_secs_f64() * 1e3 / run.decode_steps.max(1) as f64)
    };
    // What is compiled is compiled first; then until the clocks are up.
    for (graph, executor) in &mut without {
        step(graph, executor)?;
    }
    steady(&gpu.adapter, &mut || step(graph, executor))?;
    let mut whole = Vec::new();
    let mut times = vec![Vec::new(); without.len()];
    for _ in 0..rounds {
        whole.push(step(graph, executor)?);
        for ((graph, executor), times) in without.iter_mut().zip(&mut times) {
            times.push(step(graph, executor)?);
        }
    }
    // Once more, with all that the others left in the memory that they share.
    let last = session::run(graph, executor, &options, &mut |_| {})?;
    if let Some(prefix) = &mut prefix {
        prefix.check(&last.generated)?;
        prefix.check_end(graph, executor, options.prompt.len())?;
    }
    let ms_per_token = median(&whole);
    let n_kv = options.prompt.len() + options.generate.saturating_sub(1) / 2 + 1;
    let total = |(phase, times): (&LeftOut, &Vec<f64>)| {
        let ops: Vec<_> = phase.ops.iter().map(|op| &graph.recording.ops[*op]).collect();
        let state = State { n_kv, ..State::default() };
        let bytes = |op: &&Op| op.kernel().cost(&Problem { shape: op.shape.clone(), state }).bytes;
        // That of the layer in the middle: the first and the last are often others.
        let usual = ops[ops.len() / 2];
        PhaseTotal {
            op: usual.label.op.to_owned(),
            kernel: format!("{}/{}", usual.kernel().name, usual.plan.variant),
            stage: phase.stage,
            count: ops.len(),
            ms: ms_per_token - median(times),
            floor_ms: (phase.stage == 0).then(|| ops.iter().map(bytes).sum::<f64>() / gb_s / 1e6),
        }
    };
    let by_phase = left_out.iter().zip(&times).map(total).collect();
    Ok(PhaseProfile { ms_per_token, n_kv, by_phase, verified: prefix.map(|p| p.verified) })
}

/// What the operations of a prompt cost.
#[derive(Clone, Debug, Serialize)]
pub struct PromptProfile {
    /// Tokens.
    pub tokens: usize,
    /// Time to the first token at full speed, milliseconds: each of several runs.
    pub ttft_ms: Vec<f64>,
    /// Sums over all chunks by operation, slowest first.
    pub by_op: Vec<PromptOp>,
    /// What was verified before; none where that was left out.
    pub verified: Option<Verified>,
}

/// An operation of a prompt, over all layers and chunks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PromptOp {
    /// Operation.
    pub op: String,
    /// Kernel and variant.
    pub kernel: String,
    /// Invocations.
    pub count: usize,
    /// GPU time of all, one by one, milliseconds.
    pub ms: f64,
    /// What they declare to compute, floating-point operations.
    pub flops: f64,
    /// What they declare to move, bytes.
    pub bytes: f64,
}

/// Runs a prompt at full speed `runs` times, then once with every operation on its own between two
/// timestamps.
///
/// # Errors
/// The prompt does not fit, the adapter has no timestamps, or the device is lost.
pub fn prompt(
    graph: &DecodeGraph,
    executor: &mut GpuExecutor,
    options: &RunOptions,
    runs: usize,
    verify: Option<usize>,
) -> Result<PromptProfile> {
    let prefix = verify.map(|n| Prefix::verify(graph, executor, options, n)).transpose()?;
    let gpu = Arc::clone(&executor.gpu);
    let one = RunOptions { generate: 1, ..options.clone() };
    let mut ttft = || -> Result<f64> {
        let run = session::run(graph, executor, &one, &mut |_| {})?;
        if let Some(prefix) = &prefix {
            prefix.check(&run.generated)?;
        }
        Ok(run.ttft.as_secs_f64() * 1e3)
    };
    steady(&gpu.adapter, &mut ttft)?;
    let ttft_ms = (0..runs).map(|_| ttft()).collect::<Result<_>>()?;
    session::reset(graph, executor, options.seed)?;
    // Pipelines are there; what is timed starts from an empty cache.
    session::give(graph, executor, 0, &options.prompt)?;
    let parts = session::prompt_parts(graph, Prompts::Chunks, options.prompt.len());
    executor.prepare(&parts)?;
    let mut by_op: BTreeMap<(&str, String), PromptOp> = BTreeMap::new();
    let recording = Arc::clone(&executor.recording);
    for part in parts.iter().flat_map(|part| vec![part.one(); part.times()]) {
        let words = executor.read_words(graph.state)?;
        let [n_kv, prompt_len] =
            [StateWord::Position, StateWord::PromptLen].map(|w| words[w as usize]);
        let state = State { n_kv: n_kv as usize + 1, prompt_len: prompt_len as usize };
        let timer = executor.op_timer(part)?;
        let timed = executor.timed(part, &timer)?;
        for (op, us) in recording.part(part).iter().zip(&timed.us) {
            let kernel = format!("{}/{}", op.kernel().name, op.plan.variant);
            let total = by_op.entry((op.label.op, kernel.clone())).or_insert_with(|| PromptOp {
                op: op.label.op.to_owned(),
                kernel,
                ..PromptOp::default()
            });
            let cost = op.kernel().cost(&Problem { shape: op.shape.clone(), state });
            total.count += 1;
            total.ms += us / 1e3;
            total.flops += cost.flops;
            total.bytes += cost.bytes;
        }
    }
    let mut by_op: Vec<_> = by_op.into_values().collect();
    by_op.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let verified = prefix.map(|prefix| prefix.verified);
    Ok(PromptProfile { tokens: options.prompt.len(), ttft_ms, by_op, verified })
}

fn described(op: &Op) -> ProfiledOp {
    ProfiledOp {
        layer: op.label.layer,
        op: op.label.op.to_owned(),
        kernel: op.kernel().name.to_owned(),
        variant: op.plan.variant.clone(),
        shape: op.shape.show(op.kernel().params),
    }
}

/// Means over the steps by operation, slowest first. `n_kv` tokens are what attention covers in
/// the middle of the run; its bytes are counted there.
fn totals(ops: &[Op], steps: &[ProfiledStep], n_kv: usize, floors: Floors) -> Vec<OpTotal> {
    let mut by_op: BTreeMap<(&str, String), OpTotal> = BTreeMap::new();
    let count = steps.len().max(1) as f64;
    let mut all = 0.0;
    let state = State { n_kv, ..State::default() };
    for (i, op) in ops.iter().enumerate() {
        let ms = steps.iter().map(|s| s.us[i]).sum::<f64>() / 1e3 / count;
        all += ms;
        let problem = Problem { shape: op.shape.clone(), state };
        let kernel = format!("{}/{}", op.kernel().name, op.plan.variant);
        let total = by_op.entry((op.label.op, kernel.clone())).or_insert_with(|| OpTotal {
            op: op.label.op.to_owned(),
            kernel,
            ..OpTotal::default()
        });
        total.count += 1;
        total.dispatches += op.plan.stages.len();
        total.ms += ms;
        total.bytes += op.kernel().cost(&problem).bytes;
    }
    let mut totals: Vec<_> = by_op.into_values().collect();
    for total in &mut totals {
        total.percent = if all > 0.0 { 100.0 * total.ms / all } else { 0.0 };
        let floor = total.bytes / floors.gb_s / 1e6;
        let launches = floors.dispatch_us.map(|us| total.dispatches as f64 * us / 1e3);
        total.floor_ms = Some(floor);
        total.over_floor = (floor > 0.0).then_some(total.ms / floor);
        total.launch_floor_ms = launches.map(|launches| floor + launches);
    }
    totals.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    totals
}
