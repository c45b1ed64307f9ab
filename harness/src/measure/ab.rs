//! Two variants in one run: blocks in drawn orders until the verdict is clear or the time is over.

use std::time::{Duration, Instant};

use super::bench::{Bench, BenchOptions, Temperature};
use crate::data::paired::{self, Block, Comparison, Options, Order};
use crate::data::record::AbSide;
use crate::data::rng::Rng;
use crate::error::Result;

/// What a run says, and what it rests on.
pub type Outcome = (Comparison, Vec<Block>);

/// How long an A/B run may take.
#[derive(Clone, Copy, Debug)]
pub struct AbOptions {
    /// What the statistics are asked.
    pub paired: Options,
    /// Half-width of the interval at which more blocks are no use.
    pub target: f64,
    /// Least blocks, of eight samples each.
    pub least: usize,
    /// Least time: a clock's slow state may outlast many blocks.
    pub least_time: Duration,
    /// When to stop whatever is known.
    pub time_out: Duration,
}

impl AbOptions {
    /// Defaults: 1 % counts as the same, the interval is narrowed to 0.3 %, for at most a minute.
    pub fn new(software: bool) -> Self {
        Self {
            paired: Options::default(),
            target: 0.003,
            least: if software { 10 } else { 30 },
            least_time: Duration::from_secs(if software { 0 } else { 2 }),
            time_out: Duration::from_secs(if software { 10 } else { 60 }),
        }
    }
}

/// Measures blocks until enough is known. `time` takes a sample: of A if so told, in the block of
/// that number.
pub fn run(
    options: &AbOptions,
    time: &mut dyn FnMut(bool, usize) -> Result<f64>,
) -> Result<Outcome> {
    let begun = Instant::now();
    let mut orders = Rng::fresh();
    let mut blocks = Vec::new();
    loop {
        let number = blocks.len();
        let order = Order::draw(&mut orders);
        blocks.push(Block::measure(order, &mut |is_a| time(is_a, number))?);
        let took = begun.elapsed();
        // The bootstrap costs milliseconds; ask it now and then.
        let ask =
            blocks.len() % 10 == 0 && blocks.len() >= options.least && took >= options.least_time;
        if took >= options.time_out
            || ask && paired::enough(&blocks, &options.paired, options.target)
        {
            break;
        }
    }
    Ok((paired::compare(&blocks, &options.paired), blocks))
}

/// Two kernels against each other, cold, both in microseconds an invocation. Both sides run
/// equally many invocations a sample over the same copies in the same order, which begin where
/// those of the block before ended: what a sample costs beside its invocations, and which copies
/// it finds in the cache, is the same for both. What both leave behind is judged.
pub fn kernels(
    a: &mut Bench,
    b: &mut Bench,
    bench: &BenchOptions,
    options: &AbOptions,
) -> Result<(Outcome, [AbSide; 2])> {
    let (count_a, _) = a.warm_up(bench.sample, Temperature::Cold)?;
    let (count_b, _) = b.warm_up(bench.sample, Temperature::Cold)?;
    let count = count_a.max(count_b);
    let microseconds = |d: Duration| d.as_secs_f64() * 1e6 / count as f64;
    let outcome = run(options, &mut |is_a, block| {
        let side = if is_a { &mut *a } else { &mut *b };
        side.time_from(block as u64 * count, count).map(microseconds)
    })?;
    // Each side wrote over what the other left: one more sample of each, as those before.
    let judged = |side: &mut Bench| -> Result<AbSide> {
        side.time_from(u64::from(Rng::fresh().below(1 << 20)), count)?;
        let nmse = side.judge_sampled(count, Temperature::Cold)?;
        Ok(side.side(nmse))
    };
    Ok((outcome, [judged(a)?, judged(b)?]))
}
