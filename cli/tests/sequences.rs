//! Several sequences at once: each chooses what it chooses alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use lathe_harness::decode::{
    DecodeGraph, GraphOptions, RunOptions, Weights, graph, sequences, session,
};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::{CpuExecutor, Execute};
use lathe_kernels::{Capabilities, KvFormat};

use crate::common::{self, Golden};

/// Steps after the longest prompt: over the edge of Gemma's windows.
const STEPS: usize = 12;

fn build(golden: &Golden, caps: &Capabilities, n: usize, kv: KvFormat) -> Result<DecodeGraph> {
    let config = golden.file.config()?;
    let weights = Weights::load(&golden.file, &config)?;
    let options =
        GraphOptions { kv, sequences: n, ..GraphOptions::of_step(golden.prompt.len() + STEPS) };
    graph::build(&golden.file.path, &config, &weights, caps, &options)
}

/// Prompts of several lengths, each with tokens of its own.
fn prompts(golden: &Golden, n: usize) -> Vec<Vec<u32>> {
    let of = |i: usize| {
        let (first, len) = (i % 3, 1 + (7 * i + 3) % (golden.prompt.len() - 3));
        golden.prompt[first..].iter().cycle().take(len).copied().collect()
    };
    let mut prompts: Vec<Vec<u32>> = (0..n).map(of).collect();
    prompts[n - 1] = golden.prompt.clone();
    prompts
}

/// Every sequence alone and all together. The largest NMSE of logits after the last step.
fn together_as_alone(
    golden: &Golden,
    (caps, n, kv): (&Capabilities, usize, KvFormat),
    executor: impl Fn(&DecodeGraph) -> Box<dyn Execute>,
) -> f64 {
    let graph = build(golden, caps, n, kv).unwrap();
    let prompts = prompts(golden, n);
    let mut all = executor(&graph);
    let run = sequences::run(&graph, all.as_mut(), &prompts, STEPS, 5).unwrap();
    let logits = all.read_f32(graph.logits).unwrap();
    assert_eq!((run.steps.len(), run.generated.len()), (STEPS, n));
    // A second run on the same caches is the same.
    let again = sequences::run(&graph, all.as_mut(), &prompts, STEPS, 1).unwrap();
    assert_eq!(run.generated, again.generated);

    let single = build(golden, caps, 1, kv).unwrap();
    let mut one = executor(&single);
    let longest = golden.prompt.len();
    let (mut alone, mut worst) = (Vec::new(), 0.0f64);
    for (prompt, together) in prompts.iter().zip(logits.chunks(graph.vocab)) {
        // To the position at which all of them end.
        let generate = longest + STEPS - prompt.len() + 1;
        let options = RunOptions {
            prompt: prompt.clone(),
            generate,
            steps_per_submit: Some(4),
            ..RunOptions::default()
        };
        let mut run = session::run(&single, one.as_mut(), &options, &mut |_| {}).unwrap();
        let last = one.read_f32(single.logits).unwrap();
        let [a, b] = [last.as_slice(), together].map(|logits| logits.iter().map(|v| f64::from(*v)));
        worst = worst.max(lathe_reference::nmse(a, b));
        run.generated.truncate(STEPS + 1);
        alone.push(run.generated);
    }
    assert_eq!(run.generated, alone);
    for (prompt, chosen) in prompts.iter().zip(&run.generated) {
        assert_eq!(sequences::ties(&single, one.as_mut(), prompt, chosen, 1e-8).unwrap(), 0);
    }
    // Another token is no tie.
    let mut wrong = alone[0].clone();
    wrong[3] = (wrong[3] + 1) % single.vocab as u32;
    let said = sequences::ties(&single, one.as_mut(), &prompts[0], &wrong, 1e-8);
    assert!(matches!(said, Err(Error::CheckFailed(why)) if why.contains("choice 3 is")));
    worst
}

#[test]
fn sequences_choose_what_they_choose_alone_on_the_cpu() {
    for name in ["gemma3-tiny-f16", "llama-tiny-q4km", "qwen3-tiny-bf16"] {
        let golden = Golden::load(name);
        let cpu = |graph: &DecodeGraph| -> Box<dyn Execute> {
            Box::new(CpuExecutor::new(Arc::clone(&graph.recording)))
        };
        for kv in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
            let worst = together_as_alone(&golden, (&Capabilities::minimal(), 3, kv), cpu);
            let limit = if kv == KvFormat::F32 { 1e-10 } else { 1e-5 };
            assert!(worst < limit, "{name} {kv:?}: {worst:e}");
        }
    }
}

/// In two halves: it is the last long test, and steps this small keep no more than one core busy.
#[test]
fn sequences_choose_what_they_choose_alone_on_the_gpu() {
    let Some(_) = common::gpu() else { return };
    let (f32s, f16s, q8s) = (KvFormat::F32, KvFormat::F16, KvFormat::Q8_0);
    let all = [
        ("gemma3-tiny-f16", 8, f32s),
        ("llama-tiny-f16", 5, f16s),
        ("qwen3-tiny-bf16", 9, f32s),
        ("gemma3-tiny-q4km", 3, f16s),
        ("gemma3-tiny-f16", 3, q8s),
        ("llama-tiny-q4km", 8, f32s),
        ("qwen3-tiny-q80", 2, f32s),
    ];
    let run = |half: &[(&str, usize, KvFormat)]| {
        let gpu = common::own_gpu().unwrap();
        for &(name, n, kv) in half {
            let golden = Golden::load(name);
            let device =
                |graph: &DecodeGraph| -> Box<dyn Execute> { Box::new(common::on_gpu(&gpu, graph)) };
            let worst = together_as_alone(&golden, (&gpu.caps, n, kv), device);
            let limit = if kv == f32s { 1e-8 } else { 1e-5 };
            assert!(worst < limit, "{name} x{n}: {worst:e}");
        }
    };
    std::thread::scope(|scope| {
        for half in all.chunks(all.len().div_ceil(2)) {
            scope.spawn(|| run(half));
        }
    });
}

#[test]
fn what_cannot_be_run_together_is_refused() {
    let golden = Golden::load("llama-tiny-f16");
    let caps = Capabilities::minimal();
    let said = |result: Result<DecodeGraph>| match result {
        Err(Error::Usage(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(said(build(&golden, &caps, 0, KvFormat::F32)).contains("0 sequences"));
    let graph = build(&golden, &caps, 2, KvFormat::F32).unwrap();
    let mut cpu = CpuExecutor::new(Arc::clone(&graph.recording));
    let mut why =
        |prompts: &[Vec<u32>], steps| match sequences::run(&graph, &mut cpu, prompts, steps, 1) {
            Err(Error::Usage(why)) => why,
            other => panic!("{other:?}"),
        };
    let one = || golden.prompt.clone();
    assert!(why(&[one()], 1).contains("1 prompts for a graph of 2"));
    assert!(why(&[one(), Vec::new()], 1).contains("sequence 1 is empty"));
    assert!(why(&[vec![u32::MAX], one()], 1).contains("of sequence 0 lies beyond"));
    assert!(why(&[one(), one()], STEPS + 1).contains("do not fit"));
    let options = RunOptions { prompt: one(), generate: 2, ..RunOptions::default() };
    let single = session::run(&graph, &mut cpu, &options, &mut |_| {});
    assert!(matches!(single, Err(Error::Usage(why)) if why.contains("the graph has 2")));
}
