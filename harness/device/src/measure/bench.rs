//! GPU time of one kernel variant on one shape. The timed invocations are the ones that are judged:
//! see docs/measuring.md.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lathe_record::record::{BenchCase, Timing};
use lathe_record::rng::Rng;
use lathe_record::steady::steady;

use super::ring::{Renewed, Ring};
use crate::error::{Error, Result};
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{Gpu, Pipelines, Policy, Span};
use crate::judge::check::{Case, Verdict};
use crate::plan::Plan;
use crate::plan::recording::Part;

/// Memory state of a dispatch's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temperature {
    /// Each dispatch reads another copy of its inputs, rotated past the last-level cache.
    Cold,
    /// Every dispatch reads the same tensors.
    Warm,
}

/// Duration and precision of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// Bytes that rotated copies should exceed in total.
    pub rotate_bytes: u64,
    /// Minimum length of one sample.
    pub sample: Duration,
    /// Samples are taken until the noise of their median ([`Timing::noise`]) is this low …
    pub noise: f64,
    /// … or this time is over.
    pub time_out: Duration,
    /// Minimum number of samples.
    pub samples: usize,
    /// Seed of the inputs, a new one each time, so that no kernel can know them.
    pub seed: u64,
}

impl BenchOptions {
    /// Settings for an adapter: a real GPU must leave its cache and needs milliseconds for its
    /// timestamps' step not to matter; a software adapter only has to show that it works.
    pub fn of(gpu: &Gpu) -> Self {
        let (rotate_bytes, noise, time_out, samples) = match gpu.adapter.software {
            true => (2 << 20, 0.05, Duration::from_millis(100), 5),
            false => (512 << 20, 0.002, Duration::from_secs(3), 25),
        };
        Self {
            rotate_bytes,
            sample: Duration::from_millis(2),
            noise,
            time_out,
            samples,
            seed: Rng::fresh().next_u64() >> 16,
        }
    }
}

/// Maximum number of dispatches in one submission.
const MOST_DISPATCHES: u64 = 4096;

/// A case ready to be timed. Each invocation depends on the one before, as in a decode step.
#[derive(Debug)]
pub struct Bench {
    gpu: Arc<Gpu>,
    case: Case,
    ring: Ring,
    /// One for each turn of the ring.
    turns: Vec<GpuExecutor>,
    span: Span,
    /// Number of invocations so far, which selects the next turn.
    cursor: u64,
    /// The last turn taken.
    last: usize,
}

impl Bench {
    /// Prepares a case in copies that exceed `rotate_bytes` in total.
    pub fn new(
        gpu: &Arc<Gpu>,
        pipelines: &Pipelines,
        case: Case,
        rotate_bytes: u64,
    ) -> Result<Self> {
        let first = case.prepare(gpu, pipelines, Policy::Plain)?;
        let ring = Ring::new(&case, &first, rotate_bytes)?;
        Self::of(case, ring, &first)
    }

    /// A bench of another plan of the same kernel and shape over the very same memory.
    pub fn beside(&self, pipelines: &Pipelines, plan: Plan) -> Result<Self> {
        let case = self.case.with_plan(plan);
        let first = case.prepare_beside(&self.turns[0], pipelines, Policy::Plain)?;
        let ring = self.ring.beside(&case, &first)?;
        Self::of(case, ring, &first)
    }

    fn of(case: Case, ring: Ring, first: &GpuExecutor) -> Result<Self> {
        let gpu = Arc::clone(&first.gpu);
        let turn = |turn| first.with_blocks(&ring.blocks(turn));
        let turns = (0..ring.turns()).map(turn).collect::<Result<_>>()?;
        let span = Span::new(&gpu)?;
        Ok(Self { gpu, case, ring, turns, span, cursor: 0, last: 0 })
    }

    /// Judges one invocation on fresh memory: a kernel that fails there is not timed.
    pub fn validated(mut self) -> Result<Self> {
        let executor = &mut self.turns[0];
        self.case.reset(executor)?;
        executor.run(&[Part::Steps(1)])?;
        let verdict = self.case.judge(executor, Policy::Plain)?;
        self.right(verdict, "before timing")?;
        Ok(self)
    }

    fn right(&self, verdict: Verdict, when: &str) -> Result<f64> {
        match verdict {
            Verdict::Passed { nmse, .. } => Ok(nmse),
            Verdict::Failed { reason, .. } | Verdict::Unavailable { reason } => {
                let op = &self.case.recording.ops[0];
                Err(Error::CheckFailed(format!(
                    "{}/{} {} is wrong {when} (seed {}): {reason}",
                    op.kernel().name,
                    op.plan.variant,
                    op.kernel().show(self.case.problem()),
                    self.case.seed()
                )))
            }
        }
    }

    /// Poisons outputs and restores the drawn content of tensors that are read and written, on the
    /// device. Seeds are drawn for each sample: the time to draw a token may depend on the draw.
    /// Two sides that begin with the same turn get the same seeds.
    pub fn renew(&self) -> Result<()> {
        if let Some((state, seeds)) = self.case.seeds()
            && let Some(drawn) = self.ring.drawn(state)
        {
            let mut rng = Rng::derive(self.case.seed(), &format!("sample {}", self.cursor));
            self.gpu.caught(|| {
                for at in seeds {
                    drawn.write(&self.gpu, at, &(rng.next_u64() as u32).to_le_bytes());
                }
            })?;
        }
        self.renew_those(|_| true)
    }

    fn renew_those(&self, wanted: impl Fn(&Renewed) -> bool) -> Result<()> {
        let submission = self.gpu.caught(|| {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            let all = self.ring.renewed(self.cursor as usize);
            for (block, how) in all.filter(|(_, how)| wanted(how)) {
                match how {
                    Renewed::Poison => block.encode_poison(&self.gpu, &mut encoder),
                    Renewed::Zeros => block.encode_zeros(&mut encoder),
                    Renewed::Drawn(drawn) => block.encode_copy(drawn, &mut encoder),
                }
            }
            self.gpu.queue.submit([encoder.finish()])
        })?;
        // A sample finds an idle device.
        self.gpu.wait(Some(submission))
    }

    /// Judges the result of the last timed invocation. Where it depends on previous content, which
    /// is overwritten, one more invocation is timed over the results of those before.
    pub fn judge_left(&mut self, temperature: Temperature) -> Result<f64> {
        let mut found = Vec::new();
        if !self.case.read_and_written().is_empty() {
            if self.case.counts() {
                // A position that ran on beyond what was drawn goes back; a list of candidates
                // begins anew.
                self.renew_those(|how| matches!(how, Renewed::Drawn(_)))?;
            }
            let next = self.turn_after(0, temperature);
            found = self.case.found(&self.turns[next])?;
            self.time(1, temperature)?;
        }
        let (executor, draw) = (&self.turns[self.last], self.ring.draw(self.last));
        let verdict = self.case.judge_found(executor, Policy::Plain, draw, &found)?;
        self.right(verdict, "in what timed invocations left")
    }

    /// The plan that is timed.
    pub fn plan(&self) -> &Plan {
        &self.case.recording.ops[0].plan
    }

    /// The entry in a record, without times.
    pub fn entry(&self) -> BenchCase {
        let (plan, problem) = (self.plan(), self.case.problem());
        let (kernel, cost) = (plan.kernel, plan.kernel.cost(problem));
        BenchCase {
            kernel: kernel.name.into(),
            variant: plan.variant.clone(),
            shape: kernel.show(problem),
            source: plan.fingerprint(),
            wgsl: plan.users_text(),
            tuned: if plan.is_tuned { plan.code.constants.clone() } else { Default::default() },
            bytes: cost.bytes,
            flops: cost.flops,
            rotated_bytes: self.ring.bytes,
            nmse_bound: plan.tolerance(problem).nmse,
            seed_a_sample: self.case.seeds().is_some(),
            clock: self.span.clock(),
            ..BenchCase::default()
        }
    }

    /// The turn of the invocation after `count` more.
    fn turn_after(&self, count: u64, temperature: Temperature) -> usize {
        let among = self.turns.len() as u64;
        match temperature {
            Temperature::Cold => ((self.cursor + count) % among) as usize,
            Temperature::Warm => self.ring.warm()[((self.cursor + count) % 2) as usize],
        }
    }

    /// Time of `count` invocations.
    pub fn time(&mut self, count: u64, temperature: Temperature) -> Result<Duration> {
        let mut total = Duration::ZERO;
        let mut done = 0;
        while done < count {
            let now = (count - done).min(MOST_DISPATCHES);
            total += self.span.pass(&self.gpu, |pass| {
                for i in done..done + now {
                    self.turns[self.turn_after(i, temperature)].encode(pass);
                }
            })?;
            done += now;
        }
        if count > 0 {
            self.last = self.turn_after(count - 1, temperature);
            self.cursor += count;
        }
        Ok(total)
    }

    /// Time of `count` cold invocations over renewed memory, beginning with the copy at position
    /// `turn` of the ring: two sides with the same `turn` touch the same memory in the same order.
    pub fn time_from(&mut self, turn: u64, count: u64) -> Result<Duration> {
        self.cursor = turn;
        self.renew()?;
        self.time(count, Temperature::Cold)
    }

    /// Warms up until times are steady. Returns the number of invocations that make a sample of at
    /// least `sample`, and whether times had settled.
    pub fn warm_up(&mut self, sample: Duration, temperature: Temperature) -> Result<(u64, bool)> {
        let count = self.grow(1, sample, temperature)?;
        let gpu = Arc::clone(&self.gpu);
        let settled =
            steady(&gpu.adapter, &mut || self.time(count, temperature).map(|d| d.as_secs_f64()))?;
        // What is long enough at idle clocks is too short at full ones.
        Ok((self.grow(count, sample, temperature)?, settled))
    }

    /// Number of invocations, at least `from`, that make a sample of at least `sample`.
    pub(super) fn grow(
        &mut self,
        from: u64,
        sample: Duration,
        temperature: Temperature,
    ) -> Result<u64> {
        let mut count = from;
        loop {
            let took = self.time(count, temperature)?;
            if took >= sample || count >= 1 << 20 {
                return Ok(count);
            }
            let missing = sample.as_secs_f64() / took.as_secs_f64().max(1e-9);
            count = (count as f64 * missing.clamp(1.2, 16.0)).ceil() as u64;
        }
    }

    /// Microseconds per invocation, sampled until the median is precise enough or time is over, and
    /// the normalised error of what the last sample left.
    pub fn sample(
        &mut self,
        options: &BenchOptions,
        temperature: Temperature,
    ) -> Result<(Timing, f64)> {
        self.renew()?;
        let (dispatches, settled) = self.warm_up(options.sample, temperature)?;
        let mut timing = Timing { settled, dispatches, ..Timing::default() };
        let begun = Instant::now();
        loop {
            self.renew()?;
            let took = self.time(dispatches, temperature)?;
            // Where nothing else is to be had, what was taken counts, with a flag.
            let most = timing.samples_us.len().max(options.samples);
            if self.gpu.is_throttled() && timing.throttled <= most {
                timing.throttled += 1;
                continue;
            }
            timing.samples_us.push(took.as_secs_f64() * 1e6 / dispatches as f64);
            timing.settle();
            let samples = timing.samples_us.len();
            let is_known = samples >= options.samples && timing.noise <= options.noise;
            if is_known || samples >= 5 && begun.elapsed() >= options.time_out {
                return Ok((timing, self.judge_left(temperature)?));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Samples use different draws, since the time of a draw may depend on it, but the two sides of
    /// a comparison use the same. Results are judged by the seed that was used.
    #[test]
    fn samples_draw_anew_and_sides_alike() {
        let Some(gpu) = crate::measure::test_gpu() else { return };
        let kernel = lathe_kernels::kernel("sample").unwrap();
        let problem = kernel.parse_over(&kernel.default_problem(), "N=700,TEMPERATURE=1").unwrap();
        let plan = |variant| {
            Plan::of(kernel, kernel.variant(variant).unwrap(), &problem.shape, &gpu.caps).unwrap()
        };
        let pipelines = Pipelines::default();
        let case = Case::new(&gpu, plan("naive"), &problem, 7).unwrap();
        let mut a = Bench::new(&gpu, &pipelines, case, 1 << 20).unwrap();
        let mut b = a.beside(&pipelines, plan("histogram")).unwrap();
        // Seed and choice of what is left.
        let left = |bench: &mut Bench, turn| {
            bench.time_from(turn, 3).unwrap();
            bench.judge_left(Temperature::Cold).unwrap();
            let (state, _) = bench.case.seeds().unwrap();
            let bytes = bench.turns[0].block(state).read(&gpu).unwrap();
            let word = |at: lathe_kernels::StateWord| bytes[4 * at as usize..][..4].to_vec();
            (word(lathe_kernels::StateWord::Seed), word(lathe_kernels::StateWord::Choice))
        };
        let of_a: Vec<_> = (0..4).map(|block| left(&mut a, 3 * block)).collect();
        let of_b: Vec<_> = (0..4).map(|block| left(&mut b, 3 * block)).collect();
        assert_eq!(of_a, of_b);
        let seeds: std::collections::BTreeSet<_> = of_a.iter().map(|(seed, _)| seed).collect();
        assert_eq!(seeds.len(), of_a.len());
    }
}
