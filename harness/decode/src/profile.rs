//! A decode by operation, by stage of its layers' dispatch, or a prompt by operation: the time of
//! each, its floor, and the time of the whole unprofiled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lathe_kernels::{Cost, Problem, State, StateWord};
use serde::Serialize;

use super::decoder::{Decoder, Run, prompt_parts};
use super::graph::DecodeGraph;
use super::options::{Prompts, Script};
use super::session::settle;
use super::verify::Checked;
use lathe_device::error::{Error, Result};
use lathe_device::execute::{Execute, GpuExecutor};
use lathe_device::plan::persistent::{self, LeftOut};
use lathe_device::plan::recording::{Op, Part};
use lathe_record::paired::median;
use lathe_record::record::{OpTotal, Profile, ProfiledOp, ProfiledStep, Unprofiled, Verified};
use lathe_record::steady::steady;

/// Lower bounds of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Floors {
    /// Bandwidth of the memory, 10^9 bytes per second.
    pub gb_s: f64,
    /// Microseconds of a dispatch that waits for the one before, where they were measured.
    pub dispatch_us: Option<f64>,
}

/// A model on a device whose decode is profiled.
pub struct Profiler<'a> {
    graph: &'a DecodeGraph,
    executor: &'a mut GpuExecutor,
    checked: Checked,
}

fn ms(time: &Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn cost(op: &Op, state: State) -> Cost {
    op.kernel().cost(&Problem { shape: op.shape.clone(), state })
}

fn variant(op: &Op) -> String {
    format!("{}/{}", op.kernel().name, op.plan.variant)
}

impl<'a> Profiler<'a> {
    /// Verifies the first positions of a script, if told so.
    ///
    /// # Errors
    /// Errors of [`Checked::begin`].
    pub fn new(
        graph: &'a DecodeGraph,
        executor: &'a mut GpuExecutor,
        script: &Script,
        verify: Option<usize>,
    ) -> Result<Self> {
        let mut decoder = Decoder::new(graph, executor);
        let checked = Checked::begin(&mut decoder, script.clone(), verify)?;
        Ok(Self { graph, executor, checked })
    }

    fn decoder(&mut self) -> Decoder<'_> {
        Decoder::new(self.graph, self.executor)
    }

    /// Runs the script, which must choose the tokens that were verified.
    fn run(&mut self) -> Result<Run> {
        self.checked.run(&mut Decoder::new(self.graph, self.executor))
    }

    /// Compares the end of the last run with the result of another path.
    fn check_end(&mut self) -> Result<()> {
        self.checked.check_end(&mut Decoder::new(self.graph, self.executor))
    }

    /// Runs the decode twice: at full speed, then step by step with a timestamp around every
    /// operation. `on_step` hears each profiled step.
    ///
    /// # Errors
    /// Runs choose other tokens or end otherwise, the adapter has no timestamps, or the device is
    /// lost.
    pub fn steps(
        mut self,
        (model, kv): (&str, &str),
        floors: Floors,
        on_step: &mut dyn FnMut(&ProfiledStep),
    ) -> Result<Profile> {
        // Until the clocks are up, then once to measure.
        let (gpu, script) = (Arc::clone(&self.executor.gpu), self.checked.script.clone());
        settle(&gpu.adapter, &mut self.decoder(), &script)?;
        let run = self.run()?;
        self.check_end()?;
        let step_ms: Vec<f64> = run.steps.iter().map(ms).collect();
        let unprofiled = Unprofiled {
            gpu_ms_per_token: run.gpu.map(|t| ms(&t) / run.decode_steps.max(1) as f64),
            step_ms,
            steps_per_submit: script.steps_per_submit.unwrap_or(1),
            ..Unprofiled::default()
        };

        // The prompt at full speed, then the same steps again, one by one.
        self.decoder().run(&Script { generate: 1, ..script.clone() }, &mut |_| {})?;
        let timer = self.executor.op_timer(Part::Steps(1))?;
        let from = script.prompt.len();
        let mut steps = Vec::with_capacity(run.decode_steps);
        for step in 0..run.decode_steps {
            let timed = self.executor.timed(Part::Steps(1), &timer)?;
            let profiled = ProfiledStep {
                position: from + step,
                us: timed.us,
                record_ms: ms(&timed.record),
                submit_ms: ms(&timed.submit),
                wait_ms: ms(&timed.wait),
            };
            on_step(&profiled);
            steps.push(profiled);
        }
        let tokens = self.executor.read_words(self.graph.tokens)?;
        self.checked.check(&tokens[from..(from + run.generated.len()).min(tokens.len())])?;
        self.check_end()?;

        let ops = &self.graph.recording.ops;
        let described = |op: &Op| ProfiledOp {
            layer: op.label.layer,
            op: op.label.op.to_owned(),
            kernel: op.kernel().name.to_owned(),
            variant: op.plan.variant.clone(),
            shape: op.shape.show(op.kernel().params),
        };
        let profile = Profile {
            model: model.to_owned(),
            kv: kv.to_owned(),
            prompt_tokens: from,
            unprofiled,
            ops: ops.iter().map(described).collect(),
            by_op: totals(ops, &steps, from + steps.len() / 2 + 1, floors),
            steps,
            selected: self.graph.selected.clone(),
            verified: self.checked.verified(),
            ..Profile::default()
        };
        Ok(profile.settled())
    }

    /// Times steps whose layers are one dispatch, in turns with steps that leave out one of its
    /// stages. The latter compute something else, so their tokens are ignored. `gb_s` is the
    /// memory's bandwidth.
    ///
    /// # Errors
    /// No layers are one dispatch of three stages and more, or the device has no timestamps.
    pub fn stages(mut self, gb_s: f64, rounds: usize) -> Result<StageProfile> {
        let gpu = Arc::clone(&self.executor.gpu);
        let left_out = persistent::without_each_stage(&self.graph.recording, &gpu.caps)?;
        if left_out.is_empty() {
            return Err(Error::Usage(
                "no layers of this step are one dispatch of three stages and more".into(),
            ));
        }
        let mut without = Vec::new();
        for stage in &left_out {
            let recording = Arc::clone(&stage.recording);
            let executor = self.executor.beside(Arc::clone(&recording))?;
            without.push((DecodeGraph { recording, ..self.graph.clone() }, executor));
        }
        // All are as long, wherever a text might end.
        self.checked.script.stop_at.clear();
        let script = self.checked.script.clone();
        let step = |graph: &DecodeGraph, executor: &mut GpuExecutor| -> Result<f64> {
            let run = Decoder::new(graph, executor).run(&script, &mut |_| {})?;
            let gpu = run.gpu.ok_or_else(|| Error::Usage("the device has no timestamps".into()))?;
            Ok(gpu.as_secs_f64() * 1e3 / run.decode_steps.max(1) as f64)
        };
        // Pipelines are compiled first; then until the clocks are up.
        for (graph, executor) in &mut without {
            step(graph, executor)?;
        }
        steady::<Error>(&gpu.adapter, &mut || step(self.graph, self.executor))?;
        let mut whole = Vec::new();
        let mut times = vec![Vec::new(); without.len()];
        for _ in 0..rounds {
            whole.push(step(self.graph, self.executor)?);
            for ((graph, executor), times) in without.iter_mut().zip(&mut times) {
                times.push(step(graph, executor)?);
            }
        }
        // Once more, with all that the others left in the memory that they share.
        self.run()?;
        self.check_end()?;
        let ms_per_token = median(&whole);
        let n_kv = script.prompt.len() + script.generate.saturating_sub(1) / 2 + 1;
        let state = State { n_kv, ..State::default() };
        let total = |(stage, times): (&LeftOut, &Vec<f64>)| {
            let ops: Vec<_> = stage.ops.iter().map(|op| &self.graph.recording.ops[*op]).collect();
            // The layer in the middle: the first and the last are often others.
            let usual = ops[ops.len() / 2];
            let bytes: f64 = ops.iter().map(|op| cost(op, state).bytes).sum();
            StageTotal {
                op: usual.label.op.to_owned(),
                kernel: variant(usual),
                stage: stage.stage,
                count: ops.len(),
                ms: ms_per_token - median(times),
                floor_ms: (stage.stage == 0).then_some(bytes / gb_s / 1e6),
            }
        };
        let by_stage = left_out.iter().zip(&times).map(total).collect();
        Ok(StageProfile { ms_per_token, n_kv, by_stage, verified: self.checked.verified() })
    }

    /// Runs a prompt at full speed `runs` times, then once with every operation on its own between
    /// two timestamps.
    ///
    /// # Errors
    /// The prompt does not fit, the adapter has no timestamps, or the device is lost.
    pub fn prompt(mut self, runs: usize) -> Result<PromptProfile> {
        let gpu = Arc::clone(&self.executor.gpu);
        self.checked.script.generate = 1;
        let script = self.checked.script.clone();
        let mut ttft = || Ok(self.run()?.ttft.as_secs_f64() * 1e3);
        steady::<Error>(&gpu.adapter, &mut ttft)?;
        let ttft_ms = (0..runs).map(|_| ttft()).collect::<Result<_>>()?;
        // Pipelines are there; what is timed starts from an empty cache.
        self.decoder().reset(script.seed)?;
        self.decoder().give(0, &script.prompt)?;
        let parts = prompt_parts(self.graph, Prompts::Chunks, script.prompt.len());
        self.executor.prepare(&parts)?;
        let (graph, mut timed) = (self.graph, Vec::new());
        for part in parts.iter().flat_map(|part| vec![part.one(); part.times()]) {
            let n_kv = self.decoder().state(StateWord::Position)? as usize + 1;
            let prompt_len = self.decoder().state(StateWord::PromptLen)? as usize;
            let timer = self.executor.op_timer(part)?;
            let us = self.executor.timed(part, &timer)?.us.into_iter();
            let state = State { n_kv, prompt_len };
            timed.extend(graph.recording.part(part).iter().zip(us).map(|(op, us)| (op, us, state)));
        }
        let by_op = sums(timed);
        let (tokens, verified) = (script.prompt.len(), self.checked.verified());
        Ok(PromptProfile { tokens, ttft_ms, by_op, verified })
    }
}

/// Cost of the stages of the layers' dispatch.
#[derive(Clone, Debug, Serialize)]
pub struct StageProfile {
    /// GPU time of a step, milliseconds: the median of several runs.
    pub ms_per_token: f64,
    /// Tokens of the sequence in the middle of a run, for which bytes are counted.
    pub n_kv: usize,
    /// Cost of each stage, in order.
    pub by_stage: Vec<StageTotal>,
    /// The comparison with the reference; none where that was left out.
    pub verified: Option<Verified>,
}

/// A stage, over all layers, per token.
#[derive(Clone, Debug, Serialize)]
pub struct StageTotal {
    /// Operation.
    pub op: String,
    /// Kernel and variant.
    pub kernel: String,
    /// Number of its dispatch, where the operation has several.
    pub stage: usize,
    /// Layers that have it.
    pub count: usize,
    /// Milliseconds of GPU time by which a step without it, its wait and its prefetches is
    /// shorter, of medians. They do not add up to the step.
    pub ms: f64,
    /// Milliseconds of its layers' bytes at the bandwidth given; none for dispatches after the
    /// first of an operation, whose bytes are counted there.
    pub floor_ms: Option<f64>,
}

/// Cost of the operations of a prompt.
#[derive(Clone, Debug, Serialize)]
pub struct PromptProfile {
    /// Tokens.
    pub tokens: usize,
    /// Time to the first token at full speed, milliseconds: each of several runs.
    pub ttft_ms: Vec<f64>,
    /// Sums over all chunks by operation, slowest first.
    pub by_op: Vec<PromptOp>,
    /// The comparison with the reference; none where that was left out.
    pub verified: Option<Verified>,
}

/// An operation over all layers, and all chunks of a prompt.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PromptOp {
    /// Operation.
    pub op: String,
    /// Kernel and variant.
    pub kernel: String,
    /// Invocations.
    pub count: usize,
    /// Dispatches of these.
    #[serde(skip)]
    dispatches: usize,
    /// GPU time of all, one by one, milliseconds.
    pub ms: f64,
    /// Floating-point operations, as declared.
    pub flops: f64,
    /// Bytes moved, as declared.
    pub bytes: f64,
}

/// Sums of operations, each with its microseconds and its state, slowest first.
fn sums<'a>(timed: impl IntoIterator<Item = (&'a Op, f64, State)>) -> Vec<PromptOp> {
    let mut sums: BTreeMap<(&str, String), PromptOp> = BTreeMap::new();
    for (op, us, state) in timed {
        let sum = sums.entry((op.label.op, variant(op))).or_default();
        let cost = cost(op, state);
        sum.count += 1;
        sum.dispatches += op.plan.stages.len();
        sum.ms += us / 1e3;
        sum.flops += cost.flops;
        sum.bytes += cost.bytes;
    }
    let named =
        sums.into_iter().map(|((op, kernel), sum)| PromptOp { op: op.into(), kernel, ..sum });
    let mut sums: Vec<_> = named.collect();
    sums.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    sums
}

/// Means over the steps by operation, slowest first. Attention covers `n_kv` tokens in the middle
/// of the run, for which its bytes are counted.
fn totals(ops: &[Op], steps: &[ProfiledStep], n_kv: usize, floors: Floors) -> Vec<OpTotal> {
    let count = steps.len().max(1) as f64;
    let state = State { n_kv, ..State::default() };
    let mean = |i: usize| steps.iter().map(|step| step.us[i]).sum::<f64>() / count;
    let sums = sums(ops.iter().enumerate().map(|(i, op)| (op, mean(i), state)));
    let all: f64 = sums.iter().map(|sum| sum.ms).sum();
    let total = |sum: PromptOp| {
        let floor = sum.bytes / floors.gb_s / 1e6;
        let launches = floors.dispatch_us.map(|us| sum.dispatches as f64 * us / 1e3);
        OpTotal {
            percent: if all > 0.0 { 100.0 * sum.ms / all } else { 0.0 },
            floor_ms: Some(floor),
            over_floor: (floor > 0.0).then_some(sum.ms / floor),
            launch_floor_ms: launches.map(|launches| floor + launches),
            op: sum.op,
            kernel: sum.kernel,
            count: sum.count,
            dispatches: sum.dispatches,
            ms: sum.ms,
            bytes: sum.bytes,
        }
    };
    sums.into_iter().map(total).collect()
}
