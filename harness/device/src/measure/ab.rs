//! Comparison of two variants in one run: blocks in drawn orders until the verdict is clear or the
//! time is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lathe_kernels::Problem;
use lathe_record::paired::{self, Block, Comparison, Options, Order};
use lathe_record::record::{AbSide, BenchCase, Canary, Flag};
use lathe_record::rng::Rng;

use super::bench::{Bench, BenchOptions, Temperature};
use super::watch::{self, Canaries};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Pipelines};
use crate::judge::check::{Case, takes_one_shape};
use crate::plan::{Plan, PlanError, Subject};

/// Verdict of a run, with the data behind it.
#[derive(Debug)]
pub struct Outcome {
    /// The verdict.
    pub comparison: Comparison,
    /// Blocks it is computed from.
    pub blocks: Vec<Block>,
    /// Blocks that were dropped because the driver throttled the clocks meanwhile.
    pub throttled: usize,
    /// Largest change of a canary; none where none was timed twice.
    pub drift: Option<f64>,
    /// Reasons to doubt the verdict.
    pub flags: Vec<Flag>,
}

/// Time limits and precision of an A/B run.
#[derive(Clone, Copy, Debug)]
pub struct AbOptions {
    /// Options of the statistics.
    pub paired: Options,
    /// Half-width of the interval at which the run stops.
    pub target: f64,
    /// Minimum number of blocks, of eight samples each.
    pub least: usize,
    /// Minimum time: a clock's slow state may outlast many blocks.
    pub least_time: Duration,
    /// Time at which the run stops in any case.
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
            time_out: Duration::from_secs(if software { 3 } else { 60 }),
        }
    }
}

/// Measures blocks until the verdict is clear. `time` takes a sample, of A if its first argument is
/// true, in the block of the given number, and returns whether the driver throttled the clocks:
/// such blocks are dropped. `canary` times canaries, where there are any: before all blocks, after
/// every ten and after the last.
pub fn run(
    options: &AbOptions,
    canary: &mut dyn FnMut() -> Result<Option<Canary>>,
    time: &mut dyn FnMut(bool, usize) -> Result<(f64, bool)>,
) -> Result<Outcome> {
    let (mut canaries, mut drifted) = (Canaries::default(), false);
    let mut canary = || -> Result<()> {
        drifted |= canary()?.is_some_and(|now| canaries.push(now));
        Ok(())
    };
    canary()?;
    let begun = Instant::now();
    let mut orders = Rng::fresh();
    let (mut blocks, mut throttled, mut kept) = (Vec::new(), 0, false);
    loop {
        let number = blocks.len() + throttled;
        let mut held_down = false;
        let block = Block::measure(Order::draw(&mut orders), &mut |is_a| {
            let (took, is_throttled) = time(is_a, number)?;
            held_down |= is_throttled;
            Ok::<_, Error>(took)
        })?;
        let took = begun.elapsed();
        // Where nothing else is to be had, what was taken counts, with a flag.
        if held_down && throttled <= blocks.len().max(options.least) && took < options.time_out {
            throttled += 1;
            continue;
        }
        kept |= held_down;
        blocks.push(block);
        // Every look is an occasion for chance; ten blocks apart they are few.
        let tenth = blocks.len().is_multiple_of(10);
        let looks = tenth && blocks.len() >= options.least && took >= options.least_time;
        let is_over = took >= options.time_out
            || looks && paired::enough(&blocks, &options.paired, options.target);
        if tenth || is_over {
            canary()?;
        }
        if is_over {
            break;
        }
    }
    let comparison = paired::compare(&blocks, &options.paired);
    let flags = [(drifted, Flag::Drift), (kept, Flag::Throttled)];
    let flags = flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)).collect();
    Ok(Outcome { comparison, blocks, throttled, drift: canaries.drift(), flags })
}

/// Comparison of two kernels.
#[derive(Debug)]
pub struct Report {
    /// Verdict, and the blocks it is computed from.
    pub outcome: Outcome,
    /// Sources and errors of both sides.
    pub sides: [AbSide; 2],
    /// One side is a user's file, the other a built-in variant.
    pub mixed: bool,
}

/// Compares two variants or files on one problem. Users' files are checked first, on a shape that
/// is not timed.
pub fn subjects(
    gpu: &Arc<Gpu>,
    sides: &[Subject; 2],
    problem: &Problem,
    bench: &BenchOptions,
    options: &AbOptions,
) -> Result<Report> {
    let mut one_shape = false;
    let mut plan = |side: &Subject| -> Result<Plan> {
        let plan = side.plan(problem, &gpu.caps).map_err(|e| match e {
            PlanError::Unavailable(reason) => {
                let what = format!("{}/{}", side.kernel.name, side.variant.name);
                gpu.unavailable(what, reason)
            }
            e => e.into_usage(),
        })?;
        one_shape |= takes_one_shape(gpu, side, std::slice::from_ref(problem))?;
        Ok(plan)
    };
    let plans = [plan(&sides[0])?, plan(&sides[1])?];
    let mixed = plans[0].built_in != plans[1].built_in;
    let own_tolerance = plans.iter().any(|plan| plan.foreign.tolerated.is_some());
    let (mut outcome, sides) = plans_against(gpu, plans, problem, bench, options)?;
    outcome.flags.extend(one_shape.then_some(Flag::OneShape));
    outcome.flags.extend(own_tolerance.then_some(Flag::OwnTolerance));
    Ok(Report { outcome, sides, mixed })
}

/// Compares two plans over the same memory, cold, in microseconds per invocation, and judges the
/// results of both. Each side has pipelines of its own, even where both are the same code, and a
/// coin decides which is compiled and laid out first. Both sides run equally many invocations per
/// sample over the same copies in the same order, which begin where those of the previous block
/// ended. The overhead of a sample and the copies it finds in the cache are then the same for both.
pub(super) fn plans_against(
    gpu: &Arc<Gpu>,
    [a, b]: [Plan; 2],
    problem: &Problem,
    bench: &BenchOptions,
    options: &AbOptions,
) -> Result<(Outcome, [AbSide; 2])> {
    let b_first = Rng::fresh().below(2) == 1;
    let (first, second) = if b_first { (b, a) } else { (a, b) };
    let case = Case::new(gpu, first, problem, bench.seed)?;
    let mut first =
        Bench::new(gpu, &Pipelines::default(), case, bench.rotate_bytes)?.validated()?;
    let mut second = first.beside(&Pipelines::default(), second)?.validated()?;
    let (a, b) = if b_first { (&mut second, &mut first) } else { (&mut first, &mut second) };
    let (count_a, _) = a.warm_up(bench.sample, Temperature::Cold)?;
    let (count_b, _) = b.warm_up(bench.sample, Temperature::Cold)?;
    let count = together(count_a, count_b);
    let outcome = run(options, &mut watch::canary(gpu)?, &mut |is_a, block| {
        let side = if is_a { &mut *a } else { &mut *b };
        let took = side.time_from(block as u64 * count, count)?;
        Ok((took.as_secs_f64() * 1e6 / count as f64, gpu.is_throttled()))
    })?;
    // Each side wrote over what the other left: one more sample of each, as those before.
    let judged = |side: &mut Bench| -> Result<AbSide> {
        side.time_from(u64::from(Rng::fresh().below(1 << 20)), count)?;
        let nmse = side.judge_left(Temperature::Cold)?;
        let BenchCase { source, wgsl, nmse_bound, .. } = side.entry();
        Ok(AbSide { source, wgsl, nmse, nmse_bound })
    };
    Ok((outcome, [judged(a)?, judged(b)?]))
}

/// Invocations per sample of both sides: as many as fill a sample of the faster one. Beyond a
/// factor of eight between the two it is fewer: samples of the slower one would take long although
/// the verdict is plain.
fn together(a: u64, b: u64) -> u64 {
    a.max(b).min(8 * a.min(b).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 30 blocks of equal samples, on a device whose canaries and throttling follow a
    /// script; and the number of times that canaries were timed.
    fn ran(canaries: &[f64], throttled: fn(usize) -> bool) -> (Outcome, usize) {
        let options = AbOptions { least_time: Duration::ZERO, ..AbOptions::new(false) };
        let (mut asked, mut samples) = (0, 0);
        let mut canary = || {
            let copy = canaries[asked.min(canaries.len() - 1)];
            asked += 1;
            Ok(Some(Canary { copy, cycles: 1.0 }))
        };
        let outcome = run(&options, &mut canary, &mut |_, _| {
            samples += 1;
            Ok((10.0, throttled(samples - 1)))
        });
        (outcome.expect("a run"), asked)
    }

    #[test]
    fn a_slow_side_takes_no_more_than_eight_samples() {
        assert_eq!(
            [(100, 100), (100, 13), (100, 12), (3, 500), (0, 9)].map(|(a, b)| together(a, b)),
            [100, 100, 96, 24, 8]
        );
    }

    #[test]
    fn canaries_are_timed_before_and_every_ten_blocks() {
        let (outcome, asked) = ran(&[1.0], |_| false);
        assert_eq!((outcome.blocks.len(), asked), (30, 4));
        assert_eq!((outcome.throttled, outcome.flags.len()), (0, 0));
        assert_eq!(outcome.drift, Some(0.0));
        let (outcome, _) = ran(&[1.0, 1.0, 1.05, 1.0], |_| false);
        assert_eq!(outcome.flags, [Flag::Drift]);
        assert!((outcome.drift.expect("four") - 0.05).abs() < 1e-9);
    }

    #[test]
    fn throttled_blocks_are_dropped_and_counted() {
        // Samples 16 to 31 are the third and the fourth block.
        let (outcome, _) = ran(&[1.0], |sample| (16..32).contains(&sample));
        assert_eq!((outcome.blocks.len(), outcome.throttled), (30, 2));
        assert!(outcome.flags.is_empty());
        // Where the clocks are always held down, what was taken counts, with a flag.
        let (outcome, _) = ran(&[1.0], |_| true);
        assert_eq!(outcome.flags, [Flag::Throttled]);
        assert!(outcome.blocks.len() >= 30 && outcome.throttled > 30);
    }
}
