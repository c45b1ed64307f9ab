//! Is B faster than A? Statistics of blocks of eight samples, four of A and four of B, each block
//! in an [`Order`] drawn for it.
//!
//! Each block gives one log-ratio of B to A, in which a linear drift of the clock cancels. The
//! answer is their median, because single samples are now and then several times too long, with
//! the interval that the sign test gives it: between order statistics, whatever the distribution
//! ([`stats::median_interval`]).
//!
//! A run looks at its interval every ten blocks and stops once that decides. Intervals of 95 %
//! at each look held the truth in as few as 82 % of simulated runs that ended this way; intervals
//! of 99 % hold it in 95 % and more, wherever the truth lies ([`Options::confidence`]).
//!
//! The same run also holds A against itself and B against itself, as contrasts of the four
//! samples of a block in which a linear drift cancels too. What a side seems to differ from
//! itself is no difference between the sides, so these controls widen the zone that counts as
//! equal. Widening can take FASTER or SLOWER away; only within limits ([`MOST_WIDENED`]) does it
//! allow SAME, or the noisiest run would prove every pair equal.
//!
//! A fixed order would take whatever comes back every few samples for a difference: with A B B A a
//! wave of 3 % and a period of four samples made half of the verdicts false. Drawn orders put it on
//! either side by chance, and the median stays where it was.
//!
//! No statistic of one run sees a difference that is real in this process and gone in the next,
//! such as the place of buffers in memory.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rng::Rng;
use super::{Ratio, stats};

/// Fewest blocks that a verdict can rest on: fewer have no interval of 99 %.
pub const FEWEST_BLOCKS: usize = 8;

/// Fewest blocks after which [`enough`] lets a run stop early. Looking after every block gives
/// chance many occasions; few blocks are where it is easily had.
pub const FEWEST_TO_STOP: usize = 10;

/// Largest multiple of the indifference asked for within which SAME needs the interval, however far
/// the controls widen the zone.
pub const MOST_WIDENED: f64 = 2.0;

/// Samples of a block.
pub const SAMPLES: usize = 8;

/// The order of a block's samples: all that have four of A and four of B with the same mean
/// place, so that a linear drift cancels. The places of A; order `7 - i` has the sides of order
/// `i` swapped.
const ORDERS: [[usize; 4]; 8] = [
    [0, 1, 6, 7],
    [0, 2, 5, 7],
    [0, 3, 4, 7],
    [0, 3, 5, 6],
    [1, 2, 4, 7],
    [1, 2, 5, 6],
    [1, 3, 4, 6],
    [2, 3, 4, 5],
];

/// Assignment of a block's samples to side A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Order(usize);

impl Order {
    /// Draws one of all orders, equally likely.
    pub fn draw(rng: &mut Rng) -> Self {
        Self(rng.below(ORDERS.len() as u32) as usize)
    }

    /// Returns true if sample `at` of the block is A's.
    pub fn is_a(self, at: usize) -> bool {
        ORDERS[self.0].contains(&at)
    }

    /// Swaps the sides.
    #[must_use]
    pub fn swapped(self) -> Self {
        Self(ORDERS.len() - 1 - self.0)
    }

    /// Places of A's samples.
    fn places(self) -> [usize; 4] {
        ORDERS[self.0]
    }
}

/// Who is measured when, such as AABBABBA.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..SAMPLES).try_for_each(|at| f.write_str(if self.is_a(at) { "A" } else { "B" }))
    }
}

impl From<Order> for String {
    fn from(order: Order) -> Self {
        order.to_string()
    }
}

impl TryFrom<String> for Order {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let order = (0..ORDERS.len()).map(Self).find(|order| order.to_string() == text);
        order.ok_or_else(|| format!("`{text}` is no order of a block"))
    }
}

/// Four times of A and four of B, all in the same unit, each side's in the order measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Turns that they took.
    pub order: Order,
    /// Times of A.
    #[serde(rename = "a_us")]
    pub a: [f64; 4],
    /// Times of B.
    #[serde(rename = "b_us")]
    pub b: [f64; 4],
}

impl Block {
    /// Measures a block in an order.
    ///
    /// # Errors
    /// Of `time`, which is told whether a sample is A's.
    pub fn measure<E>(
        order: Order,
        time: &mut dyn FnMut(bool) -> Result<f64, E>,
    ) -> Result<Self, E> {
        let mut block = Self { order, a: [0.0; 4], b: [0.0; 4] };
        let (mut a, mut b) = (block.a.iter_mut(), block.b.iter_mut());
        for at in 0..SAMPLES {
            let is_a = order.is_a(at);
            let side = if is_a { &mut a } else { &mut b };
            if let Some(slot) = side.next() {
                *slot = time(is_a)?;
            }
        }
        Ok(block)
    }
}

/// B against A.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// B takes less time, by more than the zone.
    Faster,
    /// B takes more time, by more than the zone.
    Slower,
    /// Times differ by less than the zone.
    Same,
    /// The measurement decides nothing.
    #[default]
    Inconclusive,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Settings of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Difference that does not matter, as a fraction: ratios from `1 / (1 + indifference)` to
    /// `1 + indifference` count as equal. Negative counts as 0.
    pub indifference: f64,
    /// Confidence of the intervals at one look.
    pub confidence: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { indifference: 0.01, confidence: 0.99 }
    }
}

/// B compared with A, with the evidence of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Reason why the blocks allow no verdict at all, if so.
    pub unusable: Option<String>,
}

/// Compares B with A. The verdict is FASTER or SLOWER when the whole interval of the ratio lies
/// outside the widened zone, SAME when it lies inside the zone (widened at most
/// [`MOST_WIDENED`] times), else INCONCLUSIVE. Times that are not positive numbers, or fewer than
/// [`FEWEST_BLOCKS`] blocks, are INCONCLUSIVE.
pub fn compare(blocks: &[Block], options: &Options) -> Comparison {
    let asked = options.indifference.max(0.0);
    let unusable = if !blocks.iter().all(|block| block.a.iter().chain(&block.b).all(usable)) {
        Some("a time is not a positive number".to_owned())
    } else if blocks.len() < FEWEST_BLOCKS {
        Some(format!("fewer than {FEWEST_BLOCKS} blocks"))
    } else {
        None
    };
    let mut found = Comparison {
        ratio: Ratio::UNKNOWN,
        control: Ratio::UNKNOWN,
        control_b: Ratio::UNKNOWN,
        indifference: asked,
        verdict: Verdict::Inconclusive,
        blocks: blocks.len(),
        unusable,
    };
    if found.unusable.is_some() {
        return found;
    }

    let logs = |times: [f64; 4]| times.map(f64::ln);
    let sum = |times: [f64; 4]| logs(times).iter().sum::<f64>();
    let ratios: Vec<f64> = blocks.iter().map(|x| (sum(x.b) - sum(x.a)) / 4.0).collect();
    let a: Vec<f64> = blocks.iter().map(|x| against_itself(x.order, logs(x.a))).collect();
    let b: Vec<f64> = blocks.iter().map(|x| against_itself(x.order.swapped(), logs(x.b))).collect();
    // Where the confidence asked for has no interval, nothing is known.
    let interval = |logs: &[f64]| match stats::median_interval(logs, options.confidence) {
        Some(ends) => Ratio::exp(median(logs), ends),
        None => Ratio::UNKNOWN,
    };
    (found.ratio, found.control, found.control_b) = (interval(&ratios), interval(&a), interval(&b));

    let asked_log = asked.ln_1p();
    let zone = asked_log.max(found.control.reach()).max(found.control_b.reach());
    let same = zone.min(MOST_WIDENED * asked_log);
    let (low, high) = (found.ratio.low.ln(), found.ratio.high.ln());
    found.indifference = zone.exp_m1();
    found.verdict = if high < -zone {
        Verdict::Faster
    } else if low > zone {
        Verdict::Slower
    } else if low >= -same && high <= same {
        Verdict::Same
    } else {
        Verdict::Inconclusive
    };
    found
}

/// Returns true if more blocks would be wasted. After [`FEWEST_TO_STOP`] blocks that is a decided
/// verdict, or an interval with a half-width below `target` in log space unless a control widens
/// the zone, which more blocks could mend. An unusable time, which no further block mends, stops
/// earlier.
pub fn enough(blocks: &[Block], options: &Options, target: f64) -> bool {
    let found = compare(blocks, options);
    if found.unusable.is_some() {
        return blocks.len() >= FEWEST_BLOCKS;
    }
    let as_asked = found.indifference <= options.indifference.max(0.0) + 1e-12;
    blocks.len() >= FEWEST_TO_STOP
        && (found.verdict != Verdict::Inconclusive
            || (as_asked && found.ratio.half_width() < target))
}

/// Returns true for a time that is positive and finite: timestamps that did not advance give zero
/// or negative ones.
pub fn usable(time: &f64) -> bool {
    time.is_normal() && *time > 0.0
}

/// A side compared with itself: outer over inner samples of its four in an order, less the effect
/// of a linear drift, scaled to the chance spread of a block's log-ratio.
fn against_itself(order: Order, logs: [f64; 4]) -> f64 {
    let places = order.places().map(|at| at as f64);
    let mean = places.iter().sum::<f64>() / 4.0;
    let times = places.map(|at| at - mean);
    let outer = [1.0, -1.0, -1.0, 1.0];
    let dot = |x: [f64; 4], y: [f64; 4]| x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>();
    let slope = dot(outer, times) / dot(times, times);
    let mut weights = outer;
    weights.iter_mut().zip(times).for_each(|(w, t)| *w -= slope * t);
    // A ratio is a sum of eight samples weighted by a quarter each.
    dot(weights, logs) * (0.5 / dot(weights, weights)).sqrt()
}

/// Middle value.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    stats::quantile(&sorted, 0.5)
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    const RUNS: u64 = 1000;

    /// Blocks for which the time of a simulated run lasts.
    const BLOCKS: usize = 150;

    /// Disturbances of the samples of a simulated run, in the order they are taken.
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
        /// Height of a sine that comes back after `period` samples.
        sine: f64,
        /// Height of a square wave that does.
        square: f64,
        period: f64,
        /// Extra time of B alone, as a fraction, during a tenth of the run: in spells that last
        /// `spell` samples on average.
        one_sided: f64,
        spell: f64,
        /// Standard deviation of a side's own time in a process, which is constant in it.
        process: f64,
    }

    fn unit(rng: &mut Rng) -> f64 {
        f64::from(rng.uniform())
    }

    /// Blocks of a run in which B takes `ratio` times as long as A.
    fn simulate(seed: u64, blocks: usize, ratio: f64, noise: &Noise) -> Vec<Block> {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9) ^ 0x51ed);
        let mut orders = Rng::new(!seed);
        let phase = unit(&mut rng);
        let count = SAMPLES * blocks;
        let mut steps = vec![0.0; count];
        for _ in 0..5 {
            let at = rng.below(count as u32) as usize;
            let size = noise.steps * (2.0 * unit(&mut rng) - 1.0);
            steps[at..].iter_mut().for_each(|s| *s += size);
        }
        let (mut walk, mut burst) = (noise.correlated * f64::from(rng.normal()), false);
        let mut slow = unit(&mut rng) < 0.1;
        let places = [(); 2].map(|()| noise.process * f64::from(rng.normal()));
        let mut sample = |at: usize, is_a: bool| {
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
            if noise.period > 0.0 {
                let turn = at as f64 / noise.period + phase;
                log += noise.sine * (std::f64::consts::TAU * turn).sin();
                log += noise.square * f64::from(u8::from(turn.fract() < 0.5));
            }
            if noise.spell > 0.0 {
                let leave = 1.0 / noise.spell;
                slow ^= unit(&mut rng) < if slow { leave } else { leave / 9.0 };
                log += if slow && !is_a { noise.one_sided } else { 0.0 };
            }
            log += places[usize::from(is_a)];
            let tail = if unit(&mut rng) < noise.tails { 1.2 + 1.8 * unit(&mut rng) } else { 1.0 };
            37.0 * if is_a { 1.0 } else { ratio } * log.exp() * tail
        };
        let mut at = 0;
        let mut block = || {
            Block::measure(Order::draw(&mut orders), &mut |is_a| {
                at += 1;
                Ok::<_, ()>(sample(at - 1, is_a))
            })
            .unwrap()
        };
        (0..blocks).map(|_| block()).collect()
    }

    /// Number of blocks of a simulated run.
    #[derive(Clone, Copy, Debug)]
    enum Blocks {
        /// So many.
        All(usize),
        /// At most so many: `lathe ab` asks every ten blocks from 30 on if they are enough.
        UpTo(usize),
    }

    fn simulated(run: u64, blocks: Blocks, ratio: f64, noise: &Noise, of: &Options) -> Comparison {
        let (most, asks) = match blocks {
            Blocks::All(n) => (n, false),
            Blocks::UpTo(n) => (n, true),
        };
        let all = simulate(run, most, ratio, noise);
        let stop = (30..=most).step_by(10).find(|n| asks && enough(&all[..*n], of, 0.003));
        compare(&all[..stop.unwrap_or(most)], of)
    }

    /// Shares of FASTER, SLOWER and SAME.
    fn shares(name: &str, blocks: Blocks, ratio: f64, noise: &Noise, of: &Options) -> [f64; 3] {
        let runs = (0..RUNS).into_par_iter();
        let found: Vec<Comparison> =
            runs.map(|run| simulated(run, blocks, ratio, noise, of)).collect();
        let share = |wanted| found.iter().filter(|f| f.verdict == wanted).count() as f64;
        let shares = [Verdict::Faster, Verdict::Slower, Verdict::Same]
            .map(|verdict| share(verdict) / RUNS as f64);
        eprintln!(
            "{ratio:.4}, {name}, {blocks:?}, on average {}, indifference {}: {:.1} % FASTER, {:.1} % \
             SLOWER, {:.1} % SAME",
            found.iter().map(|f| f.blocks).sum::<usize>() / found.len(),
            of.indifference,
            100.0 * shares[0],
            100.0 * shares[1],
            100.0 * shares[2]
        );
        shares
    }

    fn disturbances() -> Vec<(&'static str, Noise)> {
        let white = Noise { white: 0.01, ..Noise::default() };
        let wave =
            |sine, square, period| Noise { white: 0.003, sine, square, period, ..Noise::default() };
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
            ("sine 2 %, period 4", wave(0.02, 0.0, 4.0)),
            ("sine 2 %, period 4.02", wave(0.02, 0.0, 4.02)),
            ("square 3 %, period 4", wave(0.0, 0.03, 4.0)),
            ("square 3 %, period 8", wave(0.0, 0.03, 8.0)),
            ("sine 2 %, period 8 / 3", wave(0.02, 0.0, 8.0 / 3.0)),
            ("square 3 %, period 16 / 3", wave(0.0, 0.03, 16.0 / 3.0)),
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
                    ..Noise::default()
                },
            ),
        ]
    }

    #[test]
    fn identical_sides_are_rarely_told_apart() {
        // With no indifference at all only the intervals and the controls stand in the way.
        let (asked, none) = (0.01, 0.0);
        let runs = [8, 12, 40].map(Blocks::All);
        let runs = runs.into_iter().flat_map(|blocks| [(blocks, asked), (blocks, none)]);
        let runs: Vec<_> = runs.chain([(Blocks::UpTo(BLOCKS), asked)]).collect();
        for (name, noise) in disturbances() {
            for (blocks, indifference) in &runs {
                let options = Options { indifference: *indifference, ..Options::default() };
                let [faster, slower, _] = shares(name, *blocks, 1.0, &noise, &options);
                assert!(faster + slower <= 0.01, "{name}, {blocks:?}, {indifference}");
            }
        }
    }

    #[test]
    fn a_difference_of_3_percent_is_found() {
        let white = Noise { white: 0.01, ..Noise::default() };
        let square = Noise { white: 0.003, square: 0.03, period: 4.0, ..white };
        for (name, noise, blocks) in [
            ("white 1 %", white, Blocks::All(40)),
            ("drift, tails", Noise { linear: 0.2, tails: 0.05, ..white }, Blocks::All(40)),
            ("square 3 %, period 4", square, Blocks::All(40)),
            // A narrow interval once ended runs whose controls were still wide: half was missed.
            ("two clocks", Noise { white: 0.003, bursts: 0.1, ..white }, Blocks::UpTo(BLOCKS)),
        ] {
            let [_, slower, _] = shares(name, blocks, 1.03, &noise, &Options::default());
            let [faster, ..] = shares(name, blocks, 1.0 / 1.03, &noise, &Options::default());
            assert!(slower >= 0.95 && faster >= 0.95, "{name}: {slower} {faster}");
        }
    }

    #[test]
    fn quiet_identical_sides_are_the_same_and_noisy_ones_are_not() {
        for (white, least, most) in [(0.005, 0.95, 1.0), (0.2, 0.0, 0.0)] {
            let noise = Noise { white, ..Noise::default() };
            let [.., same] = shares("white", Blocks::All(40), 1.0, &noise, &Options::default());
            assert!((least..=most).contains(&same), "{white}: {same}");
        }
    }

    /// Returns true if a verdict on identical sides tells them apart.
    fn told_apart(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Faster | Verdict::Slower)
    }

    /// The run stops where it likes its interval, and the interval is honest all the same: also at
    /// the edge of the zone, where a run goes on until chance decides.
    #[test]
    fn intervals_hold_the_truth_where_a_run_stopped() {
        let noises = [
            ("white 0.3 %", Noise { white: 0.003, ..Noise::default() }),
            ("white 1 %", Noise { white: 0.01, ..Noise::default() }),
            ("white 3 %", Noise { white: 0.03, ..Noise::default() }),
            ("1 % and 5 % tails", Noise { white: 0.01, tails: 0.05, ..Noise::default() }),
            ("autocorrelated 3 %", Noise { correlated: 0.03, ..Noise::default() }),
            ("bursts 10 %", Noise { white: 0.003, bursts: 0.1, ..Noise::default() }),
        ];
        let held = |most, runs: u64, ratio: f64, noise: &Noise| {
            let holds = |run: &u64| {
                let options = Options::default();
                let found = simulated(*run, Blocks::UpTo(most), ratio, noise, &options).ratio;
                found.low <= ratio && ratio <= found.high
            };
            (0..runs).into_par_iter().filter(holds).count() as f64 / runs as f64
        };
        for (name, noise) in noises {
            for ratio in [1.0, 1.009, 1.01, 1.015, 1.03] {
                let share = held(BLOCKS, 2 * RUNS, ratio, &noise);
                eprintln!("true ratio {ratio}, {name}: held in {:.1} %", 100.0 * share);
                assert!(share >= 0.95, "{name}, {ratio}: {share}");
            }
        }
        // Where the truth is the edge of the zone, a noisy run goes on and on: a minute of blocks.
        let noise = Noise { white: 0.03, ..Noise::default() };
        let share = held(1500, RUNS, 1.01, &noise);
        eprintln!("true ratio 1.01, white 3 %, up to 1500 blocks: held in {:.1} %", 100.0 * share);
        // 95 % less two standard deviations of so many runs.
        assert!(share >= 0.936, "{share}");
    }

    /// A disturbance as long as a run shows as a difference in it. Fresh processes see it come and
    /// go.
    #[test]
    fn what_one_process_cannot_see_three_do() {
        let white = Noise { white: 0.003, ..Noise::default() };
        let spells = |spell| Noise { one_sided: 0.05, spell, ..white };
        let places = |process| Noise { process, ..white };
        for (name, noise, one_may, three_may) in [
            ("B 5 % slow in spells of 8 samples", spells(8.0), 0.0..=0.01, 0.01),
            ("B 5 % slow in spells of 80 samples", spells(80.0), 0.01..=0.05, 0.01),
            ("B 5 % slow in spells of 800 samples", spells(800.0), 0.05..=0.15, 0.01),
            ("a process moves a side by 0.15 %", places(0.0015), 0.0..=0.01, 0.01),
            ("a process moves a side by 0.3 %", places(0.003), 0.0..=0.05, 0.01),
            ("a process moves a side by 1 %", places(0.01), 0.3..=0.6, 0.05),
        ] {
            let verdict = |run| {
                let blocks = Blocks::UpTo(BLOCKS);
                simulated(run, blocks, 1.0, &noise, &Options::default()).verdict
            };
            let verdicts: Vec<Verdict> = (0..3 * RUNS).into_par_iter().map(verdict).collect();
            let share = |wrong: usize, of: usize| wrong as f64 / of as f64;
            let one = share(verdicts.iter().filter(|v| told_apart(**v)).count(), verdicts.len());
            let agreed =
                |three: &&[Verdict]| told_apart(three[0]) && three.iter().all(|v| *v == three[0]);
            let three = share(verdicts.chunks(3).filter(agreed).count(), RUNS as usize);
            eprintln!(
                "identical, {name}: {:.1} % FASTER or SLOWER in one process, {:.1} % in each of three",
                100.0 * one,
                100.0 * three
            );
            assert!(one_may.contains(&one) && three <= three_may, "{name}: {one} {three}");
        }
    }

    #[test]
    fn orders_cancel_drift_and_mirror() {
        for i in 0..ORDERS.len() {
            let order = Order(i);
            assert_eq!(order.places().iter().sum::<usize>(), 14);
            for at in 0..SAMPLES {
                assert_ne!(order.is_a(at), order.swapped().is_a(at));
            }
        }
        let mut rng = Rng::new(1);
        let drawn: Vec<Order> = (0..200).map(|_| Order::draw(&mut rng)).collect();
        assert!((0..ORDERS.len()).all(|i| drawn.contains(&Order(i))));
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
            let blocks = simulate(run as u64, 8 + run % 40, ratio, &noise);
            let swapped: Vec<Block> = blocks
                .iter()
                .map(|block| Block { order: block.order.swapped(), a: block.b, b: block.a })
                .collect();
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
                    .map(|s| Block { a: s.a.map(|t| t * scale), b: s.b.map(|t| t * scale), ..*s })
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
        let steady = Block { order: Order(0), a: [1.0; 4], b: [1.05; 4] };
        let found = compare(&[steady; 12], &Options::default());
        assert_eq!(found.verdict, Verdict::Slower);
        // A alternates by 12 % while every block's ratio stays what it was.
        let (high, low) = (1.12_f64.sqrt(), 1.12_f64.powf(-0.5));
        let restless = Block { a: [high, low, low, high], ..steady };
        let calm = Block { a: [low, high, high, low], ..steady };
        let blocks: Vec<Block> = [restless, calm].into_iter().cycle().take(12).collect();
        let found = compare(&blocks, &Options::default());
        assert!((found.ratio.low - 1.05).abs() < 1e-9, "{found:?}");
        assert!(found.indifference > 0.07 && found.verdict == Verdict::Inconclusive, "{found:?}");
    }

    #[test]
    fn unusable_times_and_few_blocks_decide_nothing() {
        let good = Block { order: Order(3), a: [1.0; 4], b: [2.0; 4] };
        assert_eq!(compare(&[good; 8], &Options::default()).verdict, Verdict::Slower);
        for n in 0..8 {
            let found = compare(&vec![good; n], &Options::default());
            assert_eq!((found.verdict, found.blocks), (Verdict::Inconclusive, n));
            assert_eq!(found.unusable.as_deref(), Some("fewer than 8 blocks"));
        }
        for bad in [f64::NAN, 0.0, -0.0, -1.0, f64::INFINITY, f64::MIN_POSITIVE / 2.0] {
            for at in 0..SAMPLES {
                let mut blocks = [good; 9];
                let Block { a, b, .. } = &mut blocks[3];
                *a.iter_mut().chain(b).nth(at).unwrap() = bad;
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
                confidence: [f64::NAN, 0.95, 1.0, 7.0][seed as usize % 4],
            };
            let verdict = compare(&blocks, &options).verdict;
            assert_eq!(verdict, Verdict::Inconclusive);
        }
    }
}
