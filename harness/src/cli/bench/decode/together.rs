//! Several sequences at once, each held against what it chooses alone.

use std::time::SystemTime;

use lathe_reference::nmse;

use super::{Opts, Results, Test, axes, result, setting};
use crate::cli::Global;
use crate::cli::generation::OnDevice;
use crate::data::record::{MeasuredModel, Verified};
use crate::decode::{RunOptions, Script, sequences, session};
use crate::error::{Error, Result};

/// Times one test of several sequences, once its choices are those of each alone.
pub(super) fn of_test(
    global: &Global,
    opts: &Opts,
    (facts, tokens): (&MeasuredModel, &[u32]),
    test: Test,
    on_device: &mut OnDevice<'_>,
    results: &mut Results<'_>,
) -> Result<()> {
    let n = test.sequences;
    let each = Script::given(test.depth, test.prompt);
    let prompts: Vec<Vec<u32>> = tokens.chunks(each).take(n).map(<[u32]>::to_vec).collect();
    let context = each + test.generate;
    // What is verified of one sequence holds for those that choose the same.
    let mut alone = Alone::default();
    if let Some(positions) = opts.run.verified_positions() {
        alone = Alone::of(global, opts, &prompts, test.generate, on_device, positions)?;
    }
    let (graph, executor) = on_device.sequences(global, context, n)?;
    let memory = executor.device_bytes();
    for steps in axes::all(&opts.steps_per_submit) {
        let began = SystemTime::now();
        let named = format!("{} {}{}", facts.file(), test.name(), setting(Some(steps)));
        let bar = global.progress(1 + opts.repetitions as u64, &named, false);
        let mut samples = Vec::new();
        for repetition in 0..=opts.repetitions {
            let run = sequences::run(&graph, executor, &prompts, test.generate, steps)?;
            if alone.verified.is_some() {
                sequences::same_as_alone(&run, &alone.tokens)?;
                alone.compare(&sequences::logits(&graph, executor)?)?;
            }
            if repetition > 0 {
                samples.push(run.steps.iter().sum());
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let time = humantime::format_rfc3339_seconds(began).to_string();
        let mut result = result((facts, &opts.run), test, Some(steps), &samples, time);
        result.verified = alone.verified;
        result.gpu_memory_bytes = memory;
        result.kv_cache_bytes = graph.kv_bytes();
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

/// What each sequence chooses by itself.
#[derive(Default)]
struct Alone {
    tokens: Vec<Vec<u32>>,
    /// After the last step.
    logits: Vec<Vec<f32>>,
    verified: Option<Verified>,
}

impl Alone {
    fn of(
        global: &Global,
        opts: &Opts,
        prompts: &[Vec<u32>],
        steps: usize,
        on_device: &mut OnDevice<'_>,
        positions: usize,
    ) -> Result<Self> {
        let context = prompts[0].len() + steps;
        let (graph, executor) = on_device.graph(global, context, None)?;
        let script = Script {
            tokens: prompts[0].clone(),
            depth: prompts[0].len(),
            prompt: 0,
            generate: steps.min(positions),
            seed: opts.run.seed,
        };
        let verified =
            opts.run.verify(&graph, &mut crate::decode::Trial::new(&graph, executor, script)?)?;
        let mut alone = Self { verified, ..Self::default() };
        for prompt in prompts {
            let options = RunOptions {
                prompt: prompt.clone(),
                generate: steps + 1,
                steps_per_submit: 8,
                ..RunOptions::default()
            };
            let run = session::run(&graph, executor, &options, &mut |_| {})?;
            alone.tokens.push(run.generated);
            alone.logits.push(crate::execute::Execute::read_f32(executor, graph.logits)?);
        }
        Ok(alone)
    }

    /// Holds the last logits of sequences against those of each alone.
    fn compare(&mut self, together: &[Vec<f32>]) -> Result<()> {
        let Some(verified) = &mut self.verified else { return Ok(()) };
        for (i, (alone, together)) in self.logits.iter().zip(together).enumerate() {
            let [a, b] = [alone, together].map(|logits| logits.iter().map(|v| f64::from(*v)));
            let error = nmse(a, b);
            if error.is_nan() || error > verified.limit {
                return Err(Error::CheckFailed(format!(
                    "sequence {i}: its last logits differ from those alone, NMSE {error:.3e} > \
                     {:.0e}",
                    verified.limit
                )));
            }
            verified.worst_nmse = verified.worst_nmse.max(error);
        }
        Ok(())
    }
}
