//! Comparison of two variants in one run: blocks in drawn orders until the verdict is clear or the
//! time is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lathe_kernels::Problem;
use lathe_record::paired::{self, Block, Comparison, Options, Order};
use lathe_record::record::{AbSide, Flag};
use lathe_record::rng::Rng;

use super::bench::{Bench, BenchOptions, Temperature};
use super::watch::{Canaries, GpuWatch, Watch};
use crate::error::Result;
use crate::gpu::{Gpu, Pipelines};
use crate::judge::check::{Case, second_shape};
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

/// Measures blocks until the verdict is clear. `time` takes a sample: of A if its first argument is
/// true, in the block of the given number. Blocks during which the driver throttled the clocks are
/// dropped. Canaries are timed before all blocks, after every ten and after the last.
pub fn run(
    options: &AbOptions,
    watch: &mut dyn Watch,
    time: &mut dyn FnMut(bool, usize) -> Result<f64>,
) -> Result<Outcome> {
    let (mut canaries, mut drifted) = (Canaries::default(), false);
    let mut canary = |watch: &mut dyn Watch| -> Result<()> {
        if let Some(now) = watch.canary()? {
            drifted |= canaries.push(now);
        }
        Ok(())
    };
    canary(watch)?;
    let begun = Instant::now();
    let mut orders = Rng::fresh();
    let (mut blocks, mut throttled, mut kept) = (Vec::new(), 0, 0);
    loop {
        let number = blocks.len() + throttled;
        let order = Order::draw(&mut orders);
        let mut held_down = false;
        let mut sample = |is_a| -> Result<f64> {
            let took = time(is_a, number)?;
            held_down |= watch.is_throttled();
            Ok(took)
        };
        let block = Block::measure(order, &mut sample)?;
        let took = begun.elapsed();
        // Where nothing else is to be had, what was taken counts, with a flag.
        if held_down && throttled <= blocks.len().max(options.least) && took < options.time_out {
            throttled += 1;
            continue;
        }
        kept += usize::from(held_down);
        blocks.push(block);
        let tenth = blocks.len().is_multiple_of(10);
        if tenth {
            canary(watch)?;
        }
        // Every look is an occasion for chance; ten blocks apart they are few.
        let ask = tenth && blocks.len() >= options.least && took >= options.least_time;
        if took >= options.time_out
            || ask && paired::enough(&blocks, &options.paired, options.target)
        {
            if !tenth {
                canary(watch)?;
            }
            break;
        }
    }
    let comparison = paired::compare(&blocks, &options.paired);
    let flags = [(drifted, Flag::Drift), (kept > 0, Flag::Throttled)];
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
        let timed = std::slice::from_ref(problem);
        one_shape |= side.path().is_some() && !second_shape(gpu, side, timed)?;
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

/// Compares two plans over the same memory. Each side has pipelines of its own, even where both are
/// the same code, and a coin decides which is compiled and laid out first.
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
    match b_first {
        true => kernels(&mut second, &mut first, bench, options),
        false => kernels(&mut first, &mut second, bench, options),
    }
}

/// Compares two benches, cold, in microseconds per invocation. Both sides run equally many
/// invocations per sample over the same copies in the same order, which begin where those of the
/// previous block ended. The overhead of a sample and the copies it finds in the cache are then the
/// same for both. The results of both are judged.
fn kernels(
    a: &mut Bench,
    b: &mut Bench,
    bench: &BenchOptions,
    options: &AbOptions,
) -> Result<(Outcome, [AbSide; 2])> {
    let (count_a, _) = a.warm_up(bench.sample, Temperature::Cold)?;
    let (count_b, _) = b.warm_up(bench.sample, Temperature::Cold)?;
    let count = together(count_a, count_b);
    let microseconds = |d: Duration| d.as_secs_f64() * 1e6 / count as f64;
    let mut watch = GpuWatch::new(a.gpu())?;
    let outcome = run(options, &mut watch, &mut |is_a, block| {
        let side = if is_a { &mut *a } else { &mut *b };
        side.time_from(block as u64 * count, count).map(microseconds)
    })?;
    // Each side wrote over what the other left: one more sample of each, as those before.
    let judged = |side: &mut Bench| -> Result<AbSide> {
        side.time_from(u64::from(Rng::fresh().below(1 << 20)), count)?;
        let nmse = side.judge_left(Temperature::Cold)?;
        Ok(side.side(nmse))
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
    use lathe_record::record::Canary;

    /// A device whose canaries and throttling follow a script.
    struct Scripted {
        canaries: Vec<f64>,
        asked: usize,
        samples: std::cell::Cell<usize>,
        throttled: fn(usize) -> bool,
    }

    impl Watch for Scripted {
        fn is_throttled(&self) -> bool {
            self.samples.set(self.samples.get() + 1);
            (self.throttled)(self.samples.get() - 1)
        }

        fn canary(&mut self) -> Result<Option<Canary>> {
            let at = self.asked.min(self.canaries.len() - 1);
            self.asked += 1;
            Ok(Some(Canary { copy: self.canaries[at], cycles: 1.0 }))
        }
    }

    /// A run of 30 blocks in which all samples are alike.
    fn ran(canaries: &[f64], throttled: fn(usize) -> bool) -> (Outcome, Scripted) {
        let canaries = canaries.to_vec();
        let mut watch = Scripted { canaries, asked: 0, samples: 0.into(), throttled };
        let options = AbOptions { least_time: Duration::ZERO, ..AbOptions::new(false) };
        let outcome = run(&options, &mut watch, &mut |_, _| Ok(10.0)).expect("a run");
        (outcome, watch)
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
        let (outcome, watch) = ran(&[1.0], |_| false);
        assert_eq!((outcome.blocks.len(), watch.asked), (30, 4));
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
