//! Several sequences at once, each held against what it chooses alone.

use std::time::{Duration, SystemTime};

use lathe_harness::data::record::{GenerationTest, MeasuredModel, Verified};
use lathe_harness::decode::{Script, Trial, sequences};
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::Gpu;
use lathe_harness::measure::Repetitions;

use super::{Opts, Results, Test, axes, result, setting};
use crate::Global;
use crate::generation::{OnDevice, run_memory};
use crate::out;

/// Times one test of several sequences, and verifies what they chose.
pub(super) fn of_test(
    global: &Global,
    opts: &Opts,
    (gpu, facts, tokens): (&Gpu, &MeasuredModel, &[u32]),
    test: Test,
    on_device: &mut OnDevice<'_>,
    results: &mut Results<'_>,
) -> Result<()> {
    let n = test.sequences;
    let each = Script::given(test.depth, test.prompt);
    let prompts: Vec<Vec<u32>> = tokens.chunks(each).take(n).map(<[u32]>::to_vec).collect();
    let context = each + test.generate;
    let (graph, executor) = on_device.graph(global, context, n, None)?;
    let held = executor.device_bytes();
    // A GPU that has idled while weights were read runs its first seconds at a fraction of its
    // clocks, and this may be the first test.
    let settled = sequences::settle(&gpu.adapter, &graph, executor, &prompts, test.generate)?;
    if !settled {
        tracing::warn!("step times had not settled when the measured runs began");
    }
    let mut chosen: Vec<Vec<u32>> = Vec::new();
    let mut measured = Vec::new();
    for steps in axes::all(&opts.steps_per_submit) {
        let began = SystemTime::now();
        let named =
            format!("{} {}{}", out::escaped(facts.file()), test.name(), setting(Some(steps)));
        let bar = global.progress(1 + opts.repetitions as u64, &named, false);
        let mut time = || -> Result<Duration> {
            let run = sequences::run(&graph, executor, &prompts, test.generate, steps)?;
            if chosen.is_empty() {
                chosen = run.generated;
            } else if chosen != run.generated {
                return Err(Error::CheckFailed(format!(
                    "{named}: two runs of the same {n} sequences chose different tokens"
                )));
            }
            bar.inc(1);
            Ok(run.steps.iter().sum())
        };
        time()?;
        let mut repetitions = Repetitions::new(opts.repetitions);
        while repetitions.wanted().is_some() {
            repetitions.push(time()?, gpu.is_throttled());
        }
        let (samples, watched) = repetitions.end(settled);
        bar.finish_and_clear();
        let time = humantime::format_rfc3339_seconds(began).to_string();
        let result = result((facts, &opts.run, &graph), test, Some(steps), &samples, time);
        measured.push((named, GenerationTest { watched, ..result }));
    }
    let (memory, predicted) = run_memory(gpu, &graph, held);
    // No figure is printed or kept before its tokens are known to be right.
    let verified = alone(global, opts, (&prompts, &chosen), on_device)?;
    for (named, mut result) in measured {
        (result.verified, result.gpu_memory_bytes) = (verified, memory);
        result.gpu_memory_predicted_bytes = predicted;
        eprintln!(
            "{:>9.1} ± {:.1} tok/s, {:.1} each  {named}",
            result.avg_ts,
            result.stddev_ts,
            result.avg_ts / n as f64
        );
        results.push(result)?;
    }
    Ok(())
}

/// Verifies one sequence against the CPU reference, and the choices of all against those that each
/// makes alone after the same tokens. None where nothing is to be verified.
fn alone(
    global: &Global,
    opts: &Opts,
    (prompts, chosen): (&[Vec<u32>], &[Vec<u32>]),
    on_device: &mut OnDevice<'_>,
) -> Result<Option<Verified>> {
    let steps = chosen[0].len() - 1;
    let context = prompts[0].len() + steps;
    let (graph, executor) = on_device.graph(global, context, 1, None)?;
    let script = Script {
        tokens: prompts[0].clone(),
        depth: prompts[0].len(),
        prompt: 0,
        generate: steps,
        seed: opts.run.seed,
    };
    let mut trial = Trial::new(&graph, executor, script)?;
    let Some(mut verified) = opts.run.verify(&graph, &mut trial)? else { return Ok(None) };
    for (i, (prompt, chosen)) in prompts.iter().zip(chosen).enumerate() {
        let ties = sequences::ties(&graph, executor, prompt, chosen, verified.limit);
        verified.ties += ties.map_err(|e| match e {
            Error::CheckFailed(why) => Error::CheckFailed(format!("sequence {i}: {why}")),
            other => other,
        })?;
    }
    Ok(Some(verified))
}
