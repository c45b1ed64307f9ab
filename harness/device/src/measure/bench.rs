//! GPU time of one kernel variant on one shape. The timed invocations are the ones that are judged:
//! see docs/measuring.md.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lathe_kernels::Role;
use lathe_record::record::{AbSide, Clock, Timing};
use lathe_record::rng::Rng;
use lathe_record::stats;
use lathe_record::steady::steady;

use super::ring::{Blocks, Ring};
use crate::error::{Error, Result};
use crate::execute::{Execute, GpuExecutor};
use crate::gpu::{DeviceBuffer, Gpu, Pipelines, Policy, Span};
use crate::judge::check::{Case, DRAWS, Draw, Verdict};
use crate::plan::Plan;
use crate::plan::recording::{Part, TensorId};

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
    /// Samples are taken until the noise of the median ([`stats::Summary::noise`]) is this low …
    pub noise: f64,
    /// … or this time is over.
    pub time_out: Duration,
    /// Minimum number of samples.
    pub samples: usize,
    /// True to time overlapping invocations too.
    pub overlapped: bool,
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
            overlapped: false,
            seed: Rng::fresh().next_u64() >> 16,
        }
    }
}

/// Minimum number of invocations per batch: the barrier after it is then little of the time.
const LEAST_BATCH: usize = 64;

/// Maximum number of dispatches in one submission.
const MOST_DISPATCHES: u64 = 4096;

/// Minimum length of a sample in steps of the timestamp, so that a step is below 0.1 % of it.
const TIMESTAMP_STEPS: f64 = 1000.0;

/// A case ready to be timed.
#[derive(Debug)]
pub struct Bench {
    gpu: Arc<Gpu>,
    case: Case,
    ring: Ring,
    turns: Vec<Turn>,
    /// Memory that is renewed before a sample.
    renewed: Renewals,
    /// Rotated caches, copy by copy, which are renewed too.
    caches: Vec<Renewals>,
    /// Step state before a sample, and the byte offsets of its seeds.
    seeded: Option<(Arc<DeviceBuffer>, Vec<u64>)>,
    span: Span,
    /// Number of invocations so far, which selects the next turn.
    cursor: u64,
    /// The last turn taken.
    last: usize,
    /// True if invocations of a batch are independent and overlap: no two copies share written
    /// memory. Otherwise each depends on the one before, as in a decode step.
    overlaps: bool,
}

/// An invocation over memory of its own.
#[derive(Debug)]
struct Turn {
    executor: GpuExecutor,
    draw: Draw,
}

/// Memory with its content before a sample.
type Renewals = Vec<(Arc<DeviceBuffer>, Renewed)>;

/// Content of memory before a sample.
#[derive(Clone, Debug)]
enum Renewed {
    /// Poison, which an invocation cannot mistake for a result.
    Poison,
    Zeros,
    /// The drawn content.
    Drawn(Arc<DeviceBuffer>),
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
        Self::of(gpu, case, ring, &first, None)
    }

    /// A bench of another plan of the same kernel and shape over the very same memory.
    pub fn beside(&self, pipelines: &Pipelines, plan: Plan) -> Result<Self> {
        let case = self.case.with_plan(plan);
        let first = case.prepare_beside(&self.turns[0].executor, pipelines, Policy::Plain)?;
        let ring = self.ring.beside(&case, &first)?;
        Self::of(&self.gpu, case, ring, &first, Some(self))
    }

    /// A bench over a ring; reuses the saved contents that `known` has for memory that both share.
    fn of(
        gpu: &Arc<Gpu>,
        case: Case,
        ring: Ring,
        first: &GpuExecutor,
        known: Option<&Self>,
    ) -> Result<Self> {
        let mut drawn = Blocks::new();
        for id in case.read_and_written() {
            let mut shared = known.into_iter().flat_map(|bench| &bench.renewed);
            let kept = shared.find_map(|(block, how)| match how {
                Renewed::Drawn(drawn) if Arc::ptr_eq(block, &first.shared(id)) => Some(drawn),
                _ => None,
            });
            if let Some(kept) = kept {
                drawn.push((id, Arc::clone(kept)));
            } else if !ring.rotates(id) {
                // It may lie in another way than that of `known`.
                let name = &case.recording.tensors[id.0].name;
                drawn.push((id, Arc::new(first.block(id).copied(gpu, name)?)));
            }
        }
        let caches = caches(gpu, &case, &ring, known.map_or(&[][..], |bench| &bench.caches[..]))?;
        let span = Span::new(gpu)?;
        let turn = |(blocks, draw): (Blocks, Draw)| -> Result<Turn> {
            Ok(Turn { executor: first.with_blocks(&blocks)?, draw })
        };
        let turns = ring.turns().map(turn).collect::<Result<_>>()?;
        let renewed = renewed(&case, &drawn).map(|(id, how)| (first.shared(id), how)).collect();
        let seeded = case.seeds().and_then(|(state, seeds)| {
            let (_, block) = drawn.iter().find(|(id, _)| *id == state)?;
            Some((Arc::clone(block), seeds.collect()))
        });
        Ok(Self {
            gpu: Arc::clone(gpu),
            case,
            ring,
            turns,
            renewed,
            caches,
            seeded,
            span,
            cursor: 0,
            last: 0,
            overlaps: false,
        })
    }

    /// A bench of the same plan and inputs, taken in the same turns, with separate outputs and
    /// scratch memory for each of at least [`LEAST_BATCH`] invocations, or as many as fit in `most`
    /// bytes. Every other batch writes each output from other inputs.
    pub(super) fn overlapping(&self, most: u64) -> Result<Self> {
        let written = self.case.written();
        let tensors = &self.case.recording.tensors;
        let each: u64 = written.iter().map(|t| tensors[t.0].content.device_bytes()).sum();
        let room = usize::try_from(most / each.max(1)).unwrap_or(usize::MAX).max(2);
        let batch = self.turns.len().max(LEAST_BATCH).min(room);
        let own = |turn: &Turn| -> Result<Blocks> {
            let copied = |id: &TensorId| {
                let block = turn.executor.block(*id);
                Ok((*id, Arc::new(block.copied(&self.gpu, &tensors[id.0].name)?)))
            };
            written.iter().map(copied).collect()
        };
        let inputs = || self.turns.iter().cycle().take(batch);
        let outputs: Vec<Blocks> = inputs().map(own).collect::<Result<_>>()?;
        let mut turns = Vec::with_capacity(2 * batch);
        for lap in 0..2 {
            for (i, turn) in inputs().enumerate() {
                let executor = turn.executor.with_blocks(&outputs[(i + lap) % batch])?;
                turns.push(Turn { executor, draw: turn.draw });
            }
        }
        // Each is made new as that which it is a copy of.
        let known = || self.renewed.iter().chain(self.caches.iter().flatten());
        let mut all = Renewals::new();
        for (turn, own) in inputs().zip(&outputs) {
            for (id, block) in own {
                let is = |known: &&(Arc<DeviceBuffer>, Renewed)| {
                    Arc::ptr_eq(&known.0, &turn.executor.shared(*id))
                };
                all.extend(known().find(is).map(|(_, how)| (Arc::clone(block), how.clone())));
            }
        }
        Ok(Self {
            gpu: Arc::clone(&self.gpu),
            case: self.case.with_plan(self.case.recording.ops[0].plan.clone()),
            ring: self.ring.beside(&self.case, &self.turns[0].executor)?,
            turns,
            renewed: all,
            caches: Vec::new(),
            seeded: self.seeded.clone(),
            span: Span::new(&self.gpu)?,
            cursor: 0,
            last: 0,
            overlaps: true,
        })
    }

    /// Judges one invocation on fresh memory: a kernel that fails there is not timed.
    pub fn validated(mut self) -> Result<Self> {
        let executor = &mut self.turns[0].executor;
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
        if let Some((state, seeds)) = &self.seeded {
            let mut rng = Rng::derive(self.case.seed(), &format!("sample {}", self.cursor));
            self.gpu.caught(|| {
                for at in seeds {
                    state.write(&self.gpu, *at, &(rng.next_u64() as u32).to_le_bytes());
                }
            })?;
        }
        self.renew_those(|_| true)
    }

    fn renew_those(&self, wanted: impl Fn(&Renewed) -> bool) -> Result<()> {
        let submission = self.gpu.caught(|| {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            // Copies whose turn comes last are written last: a device's cache has those, and they
            // are gone from it until then.
            let next = self.cursor as usize % self.caches.len().max(1);
            let caches = self.caches[next..].iter().chain(&self.caches[..next]).flatten();
            for (block, how) in self.renewed.iter().chain(caches).filter(|(_, how)| wanted(how)) {
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
            found = self.case.found(&self.turns[next].executor)?;
            self.time(1, temperature)?;
        }
        let Turn { executor, draw } = &self.turns[self.last];
        let verdict = self.case.judge_found(executor, Policy::Plain, *draw, &found)?;
        self.right(verdict, "in what timed invocations left")
    }

    /// This side's entry in an A/B record.
    pub fn side(&self, nmse: f64) -> AbSide {
        let plan = &self.case.recording.ops[0].plan;
        AbSide {
            source: plan.fingerprint(),
            wgsl: plan.users_text(),
            nmse,
            nmse_bound: plan.tolerance(self.case.problem()).nmse,
        }
    }

    /// Returns true if each sample draws tokens by a seed of its own.
    pub fn draws_anew(&self) -> bool {
        self.seeded.is_some()
    }

    /// The clock that times come from.
    pub fn clock(&self) -> Clock {
        self.span.clock()
    }

    /// Total bytes of the rotated copies.
    pub fn rotated_bytes(&self) -> u64 {
        self.ring.bytes()
    }

    /// The turn of the invocation after `count` more.
    fn turn_after(&self, count: u64, temperature: Temperature) -> usize {
        let among = self.turns.len() as u64;
        match temperature {
            Temperature::Cold => ((self.cursor + count) % among) as usize,
            Temperature::Warm => self.ring.warm()[((self.cursor + count) % 2) as usize],
        }
    }

    /// Time of `count` invocations in batches with barriers between them. A batch runs the first
    /// dispatch of all invocations, then their second and so on. Each of these rounds is a pass in
    /// a command buffer of its own: within one, wgpu places a barrier before each write to a buffer
    /// written before, and a barrier waits for all.
    fn time_overlapping(&mut self, count: u64) -> Result<Duration> {
        let (turns, each) = (&self.turns, self.turns[0].executor.dispatches());
        let batch = turns.len() as u64 / 2;
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            // A batch begins where its outputs do.
            let room = batch - self.cursor % batch;
            let now = left.min((MOST_DISPATCHES.max(batch) / batch - 1) * batch + room);
            left -= now;
            // Invocations of each batch: from the cursor to the end of the first one, then whole.
            let mut ranges = Vec::new();
            let (mut at, end) = (self.cursor, self.cursor + now);
            while at < end {
                let until = (at / batch * batch + batch).min(end);
                ranges.push(at..until);
                at = until;
            }
            total += self.span.passes(&self.gpu, ranges.len() * each, |pass, i| {
                for turn in ranges[i / each].clone() {
                    let turn = &turns[(turn % turns.len() as u64) as usize];
                    turn.executor.encode_dispatch(pass, i % each);
                }
            })?;
            self.last = ((end - 1) % turns.len() as u64) as usize;
            self.cursor = end;
        }
        Ok(total)
    }

    /// Time of `count` invocations.
    pub fn time(&mut self, count: u64, temperature: Temperature) -> Result<Duration> {
        if self.overlaps {
            return self.time_overlapping(count);
        }
        let mut total = Duration::ZERO;
        let mut done = 0;
        while done < count {
            let now = (count - done).min(MOST_DISPATCHES);
            total += self.span.pass(&self.gpu, |pass| {
                for i in done..done + now {
                    self.turns[self.turn_after(i, temperature)].executor.encode(pass);
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

    fn grow(&mut self, from: u64, sample: Duration, temperature: Temperature) -> Result<u64> {
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

    /// Microseconds per invocation, sampled until the median is precise enough, and judged.
    pub fn sample(
        &mut self,
        options: &BenchOptions,
        timestamp_step_ns: Option<f64>,
        temperature: Temperature,
    ) -> Result<Sampled> {
        let least =
            Duration::from_nanos((timestamp_step_ns.unwrap_or(0.0) * TIMESTAMP_STEPS) as u64);
        self.renew()?;
        let (count, settled) = self.warm_up(options.sample.max(least), temperature)?;
        let begun = Instant::now();
        let (mut samples_us, mut throttled) = (Vec::new(), 0);
        let (mut summary, mut timed_out);
        loop {
            self.renew()?;
            let took = self.time(count, temperature)?;
            // Where nothing else is to be had, what was taken counts, with a flag.
            if self.gpu.is_throttled() && throttled <= samples_us.len().max(options.samples) {
                throttled += 1;
                continue;
            }
            samples_us.push(took.as_secs_f64() * 1e6 / count as f64);
            summary = stats::summarise(&samples_us);
            timed_out = begun.elapsed() >= options.time_out;
            let known = samples_us.len() >= options.samples && summary.noise <= options.noise;
            if known || (timed_out && samples_us.len() >= 5) {
                break;
            }
        }
        let nmse = self.judge_left(temperature)?;
        let mut timing =
            Timing { settled, dispatches: count, samples_us, throttled, ..Timing::default() };
        timing.settle();
        let timed_out = timed_out && summary.noise > options.noise;
        Ok(Sampled { timing, timed_out, nmse })
    }

    /// The device.
    pub(super) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

/// Result of sampling.
#[derive(Debug)]
pub struct Sampled {
    /// The time.
    pub timing: Timing,
    /// Time ran out before the median was precise enough.
    pub timed_out: bool,
    /// Largest normalised error of the judged results.
    pub nmse: f64,
}

/// Contents of the rotated caches before a sample, copy by copy: the drawn ones, so that none can
/// carry anything from sample to sample. For shared memory the contents saved in `known` are
/// reused; other memory still holds the drawn content and is saved.
fn caches(gpu: &Gpu, case: &Case, ring: &Ring, known: &[Renewals]) -> Result<Vec<Renewals>> {
    let mut caches = Vec::new();
    for id in case.read_and_written().into_iter().filter(|id| ring.rotates(*id)) {
        let name = &case.recording.tensors[id.0].name;
        let mut drawn: Vec<Arc<DeviceBuffer>> = Vec::new();
        for (copy, block) in ring.copies_of(id).enumerate() {
            caches.resize_with(caches.len().max(copy + 1), Vec::new);
            let shared = known.iter().flatten().find(|(known, _)| Arc::ptr_eq(known, block));
            let how = match shared {
                Some((_, how)) => how.clone(),
                None => {
                    if drawn.len() < DRAWS {
                        drawn.push(Arc::new(block.copied(gpu, name)?));
                    }
                    Renewed::Drawn(Arc::clone(&drawn[copy % DRAWS]))
                }
            };
            caches[copy].push((Arc::clone(block), how));
        }
    }
    Ok(caches)
}

/// Content before a sample of each tensor that a case writes, except rotated caches ([`caches`]).
fn renewed(case: &Case, drawn: &Blocks) -> impl Iterator<Item = (TensorId, Renewed)> {
    let how = |id: TensorId| match case.role(id)? {
        Role::Output | Role::Scratch => Some((id, Renewed::Poison)),
        Role::Counter => Some((id, Renewed::Zeros)),
        Role::InOut => {
            let (_, block) = drawn.iter().find(|(own, _)| *own == id)?;
            Some((id, Renewed::Drawn(Arc::clone(block))))
        }
        Role::Input => None,
    };
    case.written().into_iter().filter_map(how)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Timed invocations run whole: the second of two dispatches reads the result of the first of
    /// the same invocation. [`Bench::validated`] runs one on its own and would not notice.
    #[test]
    fn overlapping_invocations_run_all_their_dispatches_in_order() {
        let Some(gpu) = crate::measure::test_gpu() else { return };
        let kernel = lathe_kernels::kernel("attention_decode").unwrap();
        let variant = kernel.variant("split_kv_workgroup").unwrap();
        let problem = kernel.default_problem();
        let problem = kernel.parse_over(&problem, "KV_SIZE=40,N_KV=33").unwrap();
        let plan = Plan::of(kernel, variant, &problem.shape, &gpu.caps).unwrap();
        let pipelines = Pipelines::default();
        let case = Case::new(&gpu, plan, &problem, 7).unwrap();
        let bench = Bench::new(&gpu, &pipelines, case, 1 << 20).unwrap();
        let mut bench = bench.overlapping(64 << 20).unwrap();
        let dispatches = bench.turns[0].executor.dispatches();
        assert_eq!((bench.turns.len(), dispatches), (2 * LEAST_BATCH, 2));
        bench.renew().unwrap();
        // A second batch, which is not full.
        bench.time(LEAST_BATCH as u64 + 3, Temperature::Cold).unwrap();
        // Outputs of the first batch that the second did not write again: it writes each output
        // one turn later.
        for (i, turn) in bench.turns[..LEAST_BATCH].iter().enumerate() {
            if (1..=3).contains(&i) {
                continue;
            }
            let Turn { executor, draw } = turn;
            let verdict = bench.case.judge_found(executor, Policy::Plain, *draw, &[]);
            let verdict = verdict.unwrap();
            assert!(matches!(verdict, Verdict::Passed { .. }), "invocation {i}: {verdict:?}");
        }
    }

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
            let bytes = bench.turns[0].executor.block(state).read(&gpu).unwrap();
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
