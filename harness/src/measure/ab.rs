//! Two variants in one run: ABBA blocks until the verdict is clear or the time is over.

use std::time::{Duration, Instant};

use super::bench::{Bench, BenchOptions, Temperature};
use crate::data::paired::{self, Block, Comparison, Options};
use crate::error::Result;

/// How long an A/B run may take.
#[derive(Clone, Copy, Debug)]
pub struct AbOptions {
    /// What the statistics are asked.
    pub paired: Options,
    /// Half-width of the interval at which more blocks are no use.
    pub target: f64,
    /// Least blocks.
    pub least: usize,
    /// When to stop whatever is known.
    pub time_out: Duration,
}

impl AbOptions {
    /// Defaults: 1 % counts as the same, the interval is narrowed to 0.3 %, for at most a minute.
    pub fn new(software: bool) -> Self {
        Self {
            paired: Options::default(),
            target: 0.003,
            least: 20,
            time_out: Duration::from_secs(if software { 10 } else { 60 }),
        }
    }
}

/// Runs blocks of `time_a`, `time_b`, `time_b`, `time_a` until enough is known.
pub fn run(
    options: &AbOptions,
    time_a: &mut dyn FnMut() -> Result<f64>,
    time_b: &mut dyn FnMut() -> Result<f64>,
) -> Result<(Comparison, Vec<Block>)> {
    let begun = Instant::now();
    let mut blocks = Vec::new();
    loop {
        let (first, b, last) = (time_a()?, [time_b()?, time_b()?], time_a()?);
        blocks.push(Block { a: [first, last], b });
        if blocks.len() < options.least {
            if begun.elapsed() >= options.time_out {
                break;
            }
            continue;
        }
        // The bootstrap costs milliseconds; ask it now and then.
        let ask = blocks.len() % 10 == 0 || begun.elapsed() >= options.time_out;
        if ask && paired::enough(&blocks, &options.paired, options.target)
            || begun.elapsed() >= options.time_out
        {
            break;
        }
    }
    Ok((paired::compare(&blocks, &options.paired), blocks))
}

/// Two kernels against each other, cold, both in microseconds an invocation. Both sides run
/// equally many invocations a sample over the same copies in the same order: what a sample costs
/// beside its invocations, and which copies it finds in the cache, is the same for both.
pub fn kernels(
    a: &mut Bench,
    b: &mut Bench,
    bench: &BenchOptions,
    options: &AbOptions,
) -> Result<(Comparison, Vec<Block>)> {
    let (count_a, _) = a.warm_up(bench.sample, Temperature::Cold)?;
    let (count_b, _) = b.warm_up(bench.sample, Temperature::Cold)?;
    let count = count_a.max(count_b);
    let microseconds = |d: Duration| d.as_secs_f64() * 1e6 / count as f64;
    run(options, &mut || a.time_from_first(count).map(microseconds), &mut || {
        b.time_from_first(count).map(microseconds)
    })
}
