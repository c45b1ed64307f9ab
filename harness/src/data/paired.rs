//! Is B faster than A? Statistics of blocks measured in the order A B B A.
//!
//! Each block gives one log-ratio of B to A, in which a linear drift of the clock cancels. The
//! answer is their median with a percentile bootstrap interval (Efron and Tibshirani, An
//! Introduction to the Bootstrap, 1993, chapter 13): a median because single samples are now and
//! then several times too long, the plain percentiles because the corrected ones need a
//! derivative that a median does not have.
//!
//! The same run also holds A against itself and B against itself, as contrasts of four samples
//! over two neighbouring blocks. What a side seems to differ from itself is no difference between
//! the sides, so these controls widen the zone that counts as equal. Widening can take FASTER or
//! SLOWER away; only within limits ([`MOST_WIDENED`]) does it allow SAME, or the noisiest run
//! would prove every pair equal.
//!
//! What no statistic of one run sees: a difference that is real in this process and gone in the
//! next, such as where buffers happen to lie.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rng::Rng;
use super::{Ratio, stats};

/// Fewest blocks that a verdict can rest on.
pub const FEWEST_BLOCKS: usize = 5;

/// Fewest blocks after which [`enough`] lets a run stop early. Looking after every block gives
/// chance many occasions; few blocks are where it is easily had.
pub const FEWEST_TO_STOP: usize = 10;

/// SAME needs the interval within so many times the indifference asked for, however far the
/// controls widen it.
pub const MOST_WIDENED: f64 = 2.0;

/// Fewest resamples that show the ends of an interval.
const FEWEST_RESAMPLES: usize = 200;

/// Two times of A around two of B, all in the same unit, measured in the order `a[0]`, `b[0]`,
/// `b[1]`, `a[1]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// First and last.
    pub a: [f64; 2],
    /// Second and third.
    pub b: [f64; 2],
}

/// B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// B takes less time, by more than the zone.
    Faster,
    /// B takes more time, by more than the zone.
    Slower,
    /// They differ by less than the zone.
    Same,
    /// The measurement decides nothing.
    Inconclusive,
}

impl Verdict {
    /// Exit code of a command that reports this verdict: 0 for an answer, 6 for none.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Faster | Verdict::Slower | Verdict::Same => 0,
            Verdict::Inconclusive => 6,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How to decide.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Difference that does not matter, as a fraction: ratios from `1 / (1 + indifference)` to
    /// `1 + indifference` count as equal. Negative counts as 0.
    pub indifference: f64,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// Resamples of the bootstrap, at least 200.
    pub resamples: usize,
    /// Seed of the bootstrap: the same blocks always give the same answer.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { indifference: 0.01, confidence: 0.95, resamples: 2000, seed: 42 }
    }
}

/// B against A, with what the answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Time of B over time of A.
    pub ratio: Ratio,
    /// A over itself.
    pub control: Ratio,
    /// B over itself; with it, swapping the sides mirrors the verdict.
    pub control_b: Ratio,
    /// The zone after widening: ratios from `1 / (1 + indifference)` to `1 + indifference` are
    /// neither faster nor slower.
    pub indifference: f64,
    /// B against A.
    pub verdict: Verdict,
    /// Blocks measured.
    pub blocks: usize,
    /// Why the blocks allow no verdict at all, if so.
    pub unusable: Option<&'static str>,
}

/// Compares B with A. The verdict is FASTER or SLOWER when the whole interval of the ratio lies
/// outside the widened zone, SAME when it lies inside the zone (widened at most
/// [`MOST_WIDENED`] times), else INCONCLUSIVE. Times that are not positive numbers, or fewer than
/// [`FEWEST_BLOCKS`] blocks, are INCONCLUSIVE.
pub fn compare(blocks: &[Block], options: &Options) -> Comparison {
    let asked = options.indifference.max(0.0);
    let unusable = if !blocks.iter().all(|block| block.a.iter().chain(&block.b).all(usable)) {
        Some("a time is not a positive number")
    } else if blocks.len() < FEWEST_BLOCKS {
        Some("fewer than 5 blocks")
    } else {
        None
    };
    if unusable.is_some() {
        return Comparison {
            ratio: Ratio::UNKNOWN,
            control: Ratio::UNKNOWN,
            control_b: Ratio::UNKNOWN,
            indifference: asked,
            verdict: Verdict::Inconclusive,
            blocks: blocks.len(),
            unusable,
        };
    }

    let logs = |times: [f64; 2]| times.map(f64::ln);
    let a: Vec<[f64; 2]> = blocks.iter().map(|block| logs(block.a)).collect();
    let b: Vec<[f64; 2]> = blocks.iter().map(|block| logs(block.b)).collect();
    let ratios: Vec<f64> =
        a.iter().zip(&b).map(|(a, b)| (b[0] + b[1] - a[0] - a[1]) / 2.0).collect();
    let interval = |logs: &[f64]| {
        // The controls resample alike, whichever side is called A.
        let mut rng = Rng::new(options.seed);
        let ends = bootstrap(logs, options.resamples, options.confidence, &mut rng);
        Ratio::exp(median(logs), ends)
    };
    let ratio = interval(&ratios);
    let (control, control_b) = (interval(&against_itself(&a)), interval(&against_itself(&b)));

    let asked_log = asked.ln_1p();
    let zone = asked_log.max(control.reach()).max(control_b.reach());
    let same = zone.min(MOST_WIDENED * asked_log);
    let (low, high) = (ratio.low.ln(), ratio.high.ln());
    let verdict = if high < -zone {
        Verdict::Faster
    } else if low > zone {
        Verdict::Slower
    } else if low >= -same && high <= same {
        Verdict::Same
    } else {
        Verdict::Inconclusive
    };
    Comparison {
        ratio,
        control,
        control_b,
        indifference: zone.exp_m1(),
        verdict,
        blocks: blocks.len(),
        unusable,
    }
}

/// Whether more blocks would be wasted: the verdict is decided, or the interval's half-width in
/// log space is below `target`, both after [`FEWEST_TO_STOP`] blocks; or a time is unusable,
/// which no further block mends. Meant to be asked after every block.
pub fn enough(blocks: &[Block], options: &Options, target: f64) -> bool {
    let found = compare(blocks, options);
    if found.unusable.is_some() {
        return blocks.len() >= FEWEST_BLOCKS;
    }
    blocks.len() >= FEWEST_TO_STOP
        && (found.verdict != Verdict::Inconclusive || found.ratio.half_width() < target)
}

/// Whether a time can be one: zero and negative ones are timestamps that did not advance.
pub(crate) fn usable(time: &f64) -> bool {
    time.is_normal() && *time > 0.0
}

/// Log-ratios of one side to itself: inner over outer samples of two neighbouring blocks. Like a
/// block they take four samples, two for and two against, and a linear drift cancels; what is
/// left of a curved one is more than a block has, because they span more time. Neighbouring
/// ratios share samples with opposite signs, so the interval errs to the wide side.
fn against_itself(logs: &[[f64; 2]]) -> Vec<f64> {
    logs.array_windows().map(|[x, y]| (x[1] + y[0] - x[0] - y[1]) / 2.0).collect()
}

/// Middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    stats::quantile(&sorted, 0.5)
}

/// Percentile bootstrap interval of the median.
pub(crate) fn bootstrap(
    values: &[f64],
    resamples: usize,
    confidence: f64,
    rng: &mut Rng,
) -> (f64, f64) {
    percentiles(resampled_medians(values, resamples, rng), confidence)
}

/// The middle `confidence` of the values.
pub(crate) fn percentiles(mut values: Vec<f64>, confidence: f64) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    (stats::quantile(&values, tail), stats::quantile(&values, 1.0 - tail))
}

/// Medians of samples drawn from `values` with replacement, each as many as there are values.
pub(crate) fn resampled_medians(values: &[f64], resamples: usize, rng: &mut Rng) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|x, y| values[*x].total_cmp(&values[*y]));
    let sorted: Vec<f64> = order.iter().map(|i| values[*i]).collect();
    let Some(last) = sorted.len().checked_sub(1) else { return Vec::new() };
    // Draws name values by when they were measured, not by rank: negated values then have negated
    // medians. Counting how often each rank is drawn finds a median without sorting again.
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(r, i)| rank[*i] = r);
    let mut drawn = vec![0_usize; sorted.len()];
    let (lower, upper) = (last / 2, sorted.len() / 2);
    (0..resamples.max(FEWEST_RESAMPLES))
        .map(|_| {
            drawn.fill(0);
            for _ in 0..sorted.len() {
                drawn[rank[rng.below(sorted.len() as u32) as usize]] += 1;
            }
            let (mut below, mut low) = (0, None);
            for (value, times) in sorted.iter().zip(&drawn) {
                below += times;
                if below > lower && low.is_none() {
                    low = Some(*value);
                }
                if below > upper {
                    return low.map_or(*value, |low| low.midpoint(*value));
                }
            }
            sorted[last] // not reached: everything drawn has been counted
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: u64 = 200;

    /// What disturbs the samples of a simulated run, in the order they are taken.
    #[derive(Clone, Copy, Default)]
    struct Noise {
        /// Standard deviation of each sample, as a fraction.
        white: f64,
        /// Growth from the first to the last sample.
        linear: f64,
        /// Growth with the square of time.
        curved: f64,
        /// Steps of up to this size, up or down, at five random samples.
        steps: f64,
        /// Share of samples that take 1.2 to 3 times as long.
        tails: f64,
        /// Standard deviation of a disturbance that keeps 90 % of itself to the next sample.
        correlated: f64,
        /// Size of a disturbance that comes and goes every few samples.
        bursts: f64,
    }

    fn unit(rng: &mut Rng) -> f64 {
        f64::from(rng.uniform())
    }

    /// Blocks of a run in which B takes `ratio` times as long as A.
    fn simulate(seed: u64, blocks: usize, ratio: f64, noise: &Noise) -> Vec<Block> {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9) ^ 0x51ed);
        let count = 4 * blocks;
        let mut steps = vec![0.0; count];
        for _ in 0..5 {
            let at = rng.below(count as u32) as usize;
            let size = noise.steps * (2.0 * unit(&mut rng) - 1.0);
            steps[at..].iter_mut().for_each(|s| *s += size);
        }
        let (mut walk, mut burst) = (noise.correlated * f64::from(rng.normal()), false);
        let mut sample = |at: usize, ratio: f64| {
            let t = at as f64 / count as f64;
            walk = 0.9 * walk + 0.19_f64.sqrt() * noise.correlated * f64::from(rng.normal());
            if unit(&mut rng) < 0.2 {
                burst = !burst;
            }
            let mut log = noise.white * f64::from(rng.normal())
                + noise.linear * t
                + noise.curved * t * t
                + steps[at]
                + walk;
            if burst {
                log += noise.bursts;
            }
            let tail = if unit(&mut rng) < noise.tails { 1.2 + 1.8 * unit(&mut rng) } else { 1.0 };
            37.0 * ratio * log.exp() * tail
        };
        (0..blocks)
            .map(|i| {
                let a0 = sample(4 * i, 1.0);
                let b = [sample(4 * i + 1, ratio), sample(4 * i + 2, ratio)];
                Block { a: [a0, sample(4 * i + 3, 1.0)], b }
            })
            .collect()
    }

    /// Shares of FASTER, SLOWER and SAME.
    fn shares(blocks: usize, ratio: f64, noise: &Noise, options: &Options) -> [f64; 3] {
        let mut counts = [0; 3];
        for run in 0..RUNS {
            match compare(&simulate(run, blocks, ratio, noise), options).verdict {
                Verdict::Faster => counts[0] += 1,
                Verdict::Slower => counts[1] += 1,
                Verdict::Same => counts[2] += 1,
                Verdict::Inconclusive => {}
            }
        }
        counts.map(|n| f64::from(n) / RUNS as f64)
    }

    fn disturbances() -> Vec<(&'static str, Noise)> {
        let white = Noise { white: 0.01, ..Noise::default() };
        vec![
            ("white 1 %", white),
            ("white 10 %", Noise { white: 0.1, ..white }),
            ("linear drift 20 %", Noise { linear: 0.2, ..white }),
            ("curved drift 50 %", Noise { curved: 0.5, white: 0.001, ..white }),
            ("steps to 10 %", Noise { steps: 0.1, ..white }),
            ("5 % tails x1.2-3", Noise { tails: 0.05, ..white }),
            ("20 % tails x1.2-3", Noise { tails: 0.2, ..white }),
            ("autocorrelated 3 %", Noise { correlated: 0.03, ..white }),
            ("bursts 10 %", Noise { bursts: 0.1, ..white }),
            (
                "all at once",
                Noise {
                    white: 0.03,
                    linear: -0.2,
                    curved: 0.1,
                    steps: 0.1,
                    tails: 0.05,
                    correlated: 0.03,
                    bursts: 0.05,
                },
            ),
        ]
    }

    #[test]
    fn identical_sides_are_rarely_told_apart() {
        // With no indifference at all only the intervals and the controls stand in the way.
        for indifference in [0.01, 0.0] {
            let options = Options { indifference, resamples: 1000, ..Options::default() };
            for (name, noise) in disturbances() {
                for blocks in [5, 12, 40] {
                    let [faster, slower, same] = shares(blocks, 1.0, &noise, &options);
                    eprintln!(
                        "identical, {name}, {blocks} blocks, indifference {indifference}: \
                         {:.1} % FASTER or SLOWER, {:.1} % SAME",
                        100.0 * (faster + slower),
                        100.0 * same
                    );
                    assert!(faster + slower <= 0.05, "{name}, {blocks} blocks");
                }
            }
        }
    }

    #[test]
    fn a_difference_of_3_percent_is_found() {
        let white = Noise { white: 0.01, ..Noise::default() };
        let noises = [
            ("white 1 %", white),
            ("with drift and tails", Noise { linear: 0.2, tails: 0.05, ..white }),
        ];
        for (name, noise) in noises {
            let [_, slower, _] = shares(40, 1.03, &noise, &Options::default());
            let [faster, ..] = shares(40, 1.0 / 1.03, &noise, &Options::default());
            eprintln!(
                "3 % apart, {name}, 40 blocks: found {:.1} % SLOWER, {:.1} % FASTER",
                100.0 * slower,
                100.0 * faster
            );
            assert!(slower >= 0.95 && faster >= 0.95, "{name}: {slower} {faster}");
        }
    }

    #[test]
    fn quiet_identical_sides_are_the_same_and_noisy_ones_are_not() {
        let quiet = Noise { white: 0.005, ..Noise::default() };
        let [.., same] = shares(40, 1.0, &quiet, &Options::default());
        let loud = Noise { white: 0.2, ..Noise::default() };
        let [.., blind] = shares(40, 1.0, &loud, &Options::default());
        eprintln!(
            "SAME at 0.5 % noise {:.1} %, at 20 % noise {:.1} %",
            100.0 * same,
            100.0 * blind
        );
        assert!(same >= 0.95 && blind == 0.0);
    }

    #[test]
    fn stopping_early_decides_no_more_than_chance() {
        let options = Options { resamples: 200, ..Options::default() };
        for (name, noise) in disturbances() {
            let (mut wrong, mut blocks) = (0, 0);
            for run in 0..RUNS {
                let all = simulate(run, 60, 1.0, &noise);
                let stop = (1..=all.len()).find(|n| enough(&all[..*n], &options, 0.004));
                let taken = &all[..stop.unwrap_or(all.len())];
                blocks += taken.len();
                let verdict = compare(taken, &options).verdict;
                wrong += u32::from(matches!(verdict, Verdict::Faster | Verdict::Slower));
            }
            let rate = f64::from(wrong) / RUNS as f64;
            eprintln!(
                "identical, {name}, asked after every block: {:.1} % FASTER or SLOWER after {:.0} \
                 blocks",
                100.0 * rate,
                blocks as f64 / RUNS as f64
            );
            assert!(rate <= 0.05, "{name}");
        }
    }

    #[test]
    fn enough_waits_for_a_verdict_or_the_target() {
        let options = Options::default();
        let noise = Noise { white: 0.002, ..Noise::default() };
        let blocks = simulate(1, 40, 1.1, &noise);
        assert!(!enough(&blocks[..FEWEST_TO_STOP - 1], &options, 1.0));
        assert!(enough(&blocks[..FEWEST_TO_STOP], &options, 0.0));
        // Right on the edge of the zone nothing is ever decided; the target ends it.
        let edge = simulate(1, 40, 1.01, &noise);
        assert_eq!(compare(&edge, &options).verdict, Verdict::Inconclusive);
        assert!(!enough(&edge, &options, 1e-9));
        assert!(enough(&edge, &options, 0.01));
        let mut broken = blocks;
        broken[0].b[1] = 0.0;
        assert!(enough(&broken, &options, 0.0));
    }

    #[test]
    fn swapping_the_sides_mirrors_the_answer() {
        let mirrored = |verdict| match verdict {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            other => other,
        };
        let mut seen = Vec::new();
        for (run, (name, noise)) in disturbances().into_iter().cycle().take(100).enumerate() {
            let ratio = 0.95 + 0.001 * run as f64;
            let blocks = simulate(run as u64, 5 + run % 40, ratio, &noise);
            let swapped: Vec<Block> =
                blocks.iter().map(|block| Block { a: block.b, b: block.a }).collect();
            let one = compare(&blocks, &Options::default());
            let two = compare(&swapped, &Options::default());
            seen.push(one.verdict);
            assert_eq!(mirrored(one.verdict), two.verdict, "{name}: {one:?} {two:?}");
            assert!((one.ratio.low * two.ratio.high - 1.0).abs() < 1e-12, "{one:?} {two:?}");
            assert!((one.indifference - two.indifference).abs() < 1e-12);
        }
        for verdict in [Verdict::Faster, Verdict::Slower, Verdict::Same, Verdict::Inconclusive] {
            assert!(seen.contains(&verdict), "no {verdict}");
        }
    }

    #[test]
    fn the_unit_does_not_matter() {
        let noise = Noise { white: 0.01, tails: 0.05, ..Noise::default() };
        for run in 0..20 {
            let blocks = simulate(run, 20, 1.0 + 0.002 * run as f64, &noise);
            let one = compare(&blocks, &Options::default());
            for scale in [1e-9, 1024.0, 3e12] {
                let scaled: Vec<Block> = blocks
                    .iter()
                    .map(|s| Block { a: s.a.map(|t| t * scale), b: s.b.map(|t| t * scale) })
                    .collect();
                let two = compare(&scaled, &Options::default());
                assert_eq!(one.verdict, two.verdict);
                assert!((one.ratio.median / two.ratio.median - 1.0).abs() < 1e-12);
                assert!((one.ratio.high / two.ratio.high - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn linear_drift_cancels_in_ratio_and_controls() {
        let noise = Noise { linear: 0.5, ..Noise::default() };
        let found = compare(&simulate(3, 20, 1.02, &noise), &Options::default());
        for (interval, value) in [(found.ratio, 1.02), (found.control, 1.0), (found.control_b, 1.0)]
        {
            for end in [interval.median, interval.low, interval.high] {
                assert!((end - value).abs() < 1e-12, "{found:?}");
            }
        }
        assert_eq!(found.verdict, Verdict::Slower);
    }

    #[test]
    fn a_restless_control_takes_the_verdict_away() {
        let steady = Block { a: [1.0, 1.0], b: [1.05, 1.05] };
        let found = compare(&[steady; 12], &Options::default());
        assert_eq!(found.verdict, Verdict::Slower);
        // A alternates by 8 % while every block's ratio stays what it was.
        let restless = Block { a: [1.08_f64.sqrt(), 1.08_f64.powf(-0.5)], b: steady.b };
        let calm = Block { a: [1.08_f64.powf(-0.5), 1.08_f64.sqrt()], b: steady.b };
        let blocks: Vec<Block> = [restless, calm].into_iter().cycle().take(12).collect();
        let found = compare(&blocks, &Options::default());
        assert!((found.ratio.low - 1.05).abs() < 1e-9, "{found:?}");
        assert!(found.indifference > 0.07 && found.verdict == Verdict::Inconclusive, "{found:?}");
    }

    #[test]
    fn unusable_times_and_few_blocks_decide_nothing() {
        let good = Block { a: [1.0, 1.0], b: [2.0, 2.0] };
        assert_eq!(compare(&[good; 5], &Options::default()).verdict, Verdict::Slower);
        for n in 0..5 {
            let found = compare(&vec![good; n], &Options::default());
            assert_eq!((found.verdict, found.blocks), (Verdict::Inconclusive, n));
            assert_eq!(found.unusable, Some("fewer than 5 blocks"));
        }
        for bad in [f64::NAN, 0.0, -0.0, -1.0, f64::INFINITY, f64::MIN_POSITIVE / 2.0] {
            for at in 0..4 {
                let mut blocks = [good; 8];
                let Block { a: [a0, a1], b: [b0, b1] } = &mut blocks[3];
                *[a0, b0, b1, a1][at] = bad;
                let found = compare(&blocks, &Options::default());
                assert_eq!(found.verdict, Verdict::Inconclusive, "{bad}");
                assert_eq!(found.ratio, Ratio::UNKNOWN);
                let json = serde_json::to_value(found).unwrap();
                assert!(json["control"]["high"].is_number(), "{json}");
            }
        }
    }

    #[test]
    fn odd_options_stay_harmless() {
        let noise = Noise { white: 0.05, ..Noise::default() };
        for seed in 0..50 {
            let blocks = simulate(seed, 10, 1.0, &noise);
            let options = Options {
                indifference: -1.0,
                resamples: 0,
                seed,
                confidence: if seed % 2 == 0 { f64::NAN } else { 0.95 },
            };
            let verdict = compare(&blocks, &options).verdict;
            assert_eq!(verdict, Verdict::Inconclusive);
        }
    }

    #[test]
    fn the_bootstrap_agrees_with_the_exact_interval_of_a_median() {
        // For 1 to 41 the binomial interval of the median at 95 % is the 14th to the 28th value.
        let values: Vec<f64> = (1..=41).map(f64::from).collect();
        let (low, high) = bootstrap(&values, 20_000, 0.95, &mut Rng::new(5));
        assert!((14.0..=16.0).contains(&low) && (26.0..=28.0).contains(&high), "{low} {high}");
        assert_eq!(bootstrap(&[3.0; 7], 10, 0.95, &mut Rng::new(5)), (3.0, 3.0));
        assert_eq!(bootstrap(&[], 10, 0.95, &mut Rng::new(5)), (0.0, 0.0));
    }

    #[test]
    fn verdicts_show_and_serialise_in_capitals() {
        for (verdict, text, code) in [
            (Verdict::Faster, "FASTER", 0),
            (Verdict::Slower, "SLOWER", 0),
            (Verdict::Same, "SAME", 0),
            (Verdict::Inconclusive, "INCONCLUSIVE", 6),
        ] {
            assert_eq!(verdict.to_string(), text);
            assert_eq!(serde_json::to_value(verdict).unwrap(), text);
            assert_eq!(verdict.exit_code(), code);
        }
    }
}
