//! The search for tuned choices.
//!
//! Every candidate is checked against the reference in a child process before it is timed, so one
//! that is wrong, hangs or is refused by the driver does no harm: the next gets a new process.
//! Survivors are timed round-robin over the same memory, with no compilation or upload in between;
//! ties go to the simpler. The winner is measured again against the incumbent in three or more
//! fresh processes, and is stored only if it is FASTER in each.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use lathe_kernels::{Capabilities, Constants, Kernel, KernelVariant, Packing, Problem, Shape};
use lathe_record::{Ratio, paired, stats};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::execute::GpuExecutor;
use crate::gpu::{Gpu, Pipelines, Policy};
use crate::judge::check::{Case, Verdict, check_prepared, takes_one_shape};
use crate::measure::ab::{AbOptions, plans_against};
use crate::measure::{Bench, BenchOptions, Temperature};
use crate::plan::select::{Hints, select};
use crate::plan::tuned::Entry;
use crate::plan::{Plan, PlanError, Subject};

/// A candidate of the search: a variant with overrides, or a user's file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Variant, or the first variant's name for a user's file.
    pub variant: String,
    /// Overrides that are set.
    pub constants: Constants,
    /// A user's WGSL file.
    pub wgsl: Option<PathBuf>,
}

impl Candidate {
    /// A variant without overrides.
    fn plain(variant: &KernelVariant) -> Self {
        Self { variant: variant.name.to_owned(), ..Self::default() }
    }

    /// The variant with its overrides, or the file that replaces it.
    fn subject(&self, kernel: &'static Kernel) -> Result<Subject, PlanError> {
        let variant = kernel.variant(&self.variant).ok_or_else(|| {
            PlanError::Unavailable(format!("kernel {} has no {}", kernel.name, self.variant))
        })?;
        match &self.wgsl {
            Some(path) => Subject::compile(path, kernel, variant),
            None => Ok(Subject::tuned(kernel, variant, self.constants.clone())),
        }
    }

    fn plan(&self, kernel: &'static Kernel, at: &Problem, caps: &Capabilities) -> Result<Plan> {
        let plan = self.subject(kernel).and_then(|subject| subject.plan(at, caps));
        plan.map_err(|e| Error::Usage(format!("{}: {e}", self.show())))
    }

    /// For tables: `subgroup WG=128,ROWS_PER_WG=4`.
    pub fn show(&self) -> String {
        let name = match &self.wgsl {
            Some(path) => path.display().to_string(),
            None => self.variant.clone(),
        };
        let set: Vec<_> = self.constants.iter().map(|(n, v)| format!("{n}={v}")).collect();
        if set.is_empty() { name } else { format!("{name} {}", set.join(",")) }
    }
}

/// The given variants with all combinations of their tunables, simplest first, then users' files.
pub fn candidates(
    variants: &[&'static KernelVariant],
    files: &[(&'static KernelVariant, PathBuf)],
) -> Vec<Candidate> {
    let mut all = Vec::new();
    for variant in variants {
        all.push(Candidate::plain(variant));
        let mut sets = vec![Candidate::plain(variant)];
        for (name, values) in variant.tunables().unwrap_or_default() {
            let mut more = Vec::with_capacity(sets.len() * values.len());
            for (set, value) in sets.iter().flat_map(|set| values.iter().map(move |v| (set, v))) {
                let mut set = set.clone();
                set.constants.insert(name.to_owned(), *value);
                more.push(set);
            }
            sets = more;
        }
        all.extend(sets.into_iter().filter(|set| !set.constants.is_empty()));
    }
    for (variant, path) in files {
        all.push(Candidate { wgsl: Some(path.clone()), ..Candidate::plain(variant) });
    }
    all
}

/// A request to a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Check a candidate against the reference.
    Check(Candidate),
    /// Time every candidate that passed, in the order they were given.
    Rank,
    /// Measure the second candidate against the first.
    Prove(Box<[Candidate; 2]>),
}

/// A child process's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The candidate is correct.
    Right,
    /// The candidate is wrong or cannot run.
    Rejected {
        /// The reason.
        reason: String,
        /// True if the device survived: a process that lost its device can try no other candidate.
        alive: bool,
    },
    /// Microseconds per invocation, cold, of every correct candidate, or the fault in its result
    /// after it was timed.
    Times(Vec<Result<f64, String>>),
    /// The comparison.
    Proof(Box<paired::Comparison>),
}

/// The child process's work: checks and times candidates of one kernel and shape over the same
/// inputs.
#[derive(Debug)]
pub struct Trials {
    gpu: Arc<Gpu>,
    kernel: &'static Kernel,
    problem: Problem,
    options: BenchOptions,
    bases: Vec<Base>,
    /// The correct candidates, ready to be timed.
    right: Vec<Bench>,
}

/// Memory that all candidates of one packing share.
#[derive(Debug)]
struct Base {
    packing: Packing,
    /// One case per seed, between guard words.
    checked: Vec<(Case, GpuExecutor)>,
    bench: Bench,
}

impl Trials {
    /// Trials without any candidate so far.
    pub fn new(gpu: Arc<Gpu>, kernel: &'static Kernel, problem: Problem) -> Self {
        let options = BenchOptions::of(&gpu);
        Self { gpu, kernel, problem, options, bases: Vec::new(), right: Vec::new() }
    }

    /// Answers a request.
    pub fn answer(&mut self, request: &Request) -> Result<Answer> {
        let candidate = match request {
            Request::Check(candidate) => candidate,
            Request::Rank => return Ok(Answer::Times(self.rank()?)),
            Request::Prove(sides) => {
                let proof = prove(&self.gpu, self.kernel, &self.problem, sides)?;
                return Ok(Answer::Proof(Box::new(proof)));
            }
        };
        Ok(match self.check(candidate) {
            Ok(()) => Answer::Right,
            Err(e) => {
                let alive = self.gpu.check_faults().is_ok();
                Answer::Rejected { reason: e.to_string(), alive }
            }
        })
    }

    /// Adds a candidate if it is correct; the error is the reason why it is rejected.
    fn check(&mut self, candidate: &Candidate) -> Result<()> {
        let gpu = &self.gpu;
        let subject = candidate.subject(self.kernel).map_err(PlanError::into_usage)?;
        let plan = subject.plan(&self.problem, &gpu.caps).map_err(PlanError::into_usage)?;
        if takes_one_shape(gpu, &subject, std::slice::from_ref(&self.problem))? {
            return Err(Error::CheckFailed("takes no other shape to be checked on".into()));
        }
        let pipelines = Pipelines::default();
        let known = self.bases.iter().position(|base| base.packing == plan.packing);
        if known.is_none() {
            let base = self.base(&pipelines, &plan)?;
            self.bases.push(base);
        }
        let base = &self.bases[known.unwrap_or(self.bases.len() - 1)];
        for (case, executor) in &base.checked {
            let case = case.with_plan(plan.clone());
            let mut executor = case.prepare_beside(executor, &pipelines, Policy::Guarded)?;
            case.reset(&mut executor)?;
            match check_prepared(&case, &mut executor)? {
                Verdict::Passed { .. } => {}
                Verdict::Failed { reason, .. } => {
                    return Err(Error::CheckFailed(format!("wrong: {reason}")));
                }
                Verdict::Unavailable { reason } => return Err(Error::CheckFailed(reason)),
            }
        }
        self.right.push(base.bench.beside(&pipelines, plan)?.validated()?);
        Ok(())
    }

    /// The memory of a packing, laid out by its first candidate.
    fn base(&self, pipelines: &Pipelines, plan: &Plan) -> Result<Base> {
        let (gpu, seed) = (&self.gpu, self.options.seed);
        let mut checked = Vec::new();
        for (i, seed) in [seed, seed + 1].into_iter().enumerate() {
            // What was drawn for another packing serves again.
            let case = match self.bases.first() {
                Some(other) => other.checked[i].0.with_plan(plan.clone()),
                None => Case::new(gpu, plan.clone(), &self.problem, seed)?,
            };
            let executor = case.prepare(gpu, pipelines, Policy::Guarded)?;
            checked.push((case, executor));
        }
        let case = checked[0].0.with_plan(plan.clone());
        let bench = Bench::new(gpu, pipelines, case, self.options.rotate_bytes)?;
        Ok(Base { packing: plan.packing, checked, bench })
    }

    /// Times all candidates in turn, so that all meet the same clocks: no pipeline is compiled and
    /// nothing is uploaded meanwhile. Candidates far behind drop out. The results of each are
    /// judged at the end.
    fn rank(&mut self) -> Result<Vec<Result<f64, String>>> {
        /// Largest ratio to the best time at which a candidate stays, after each round.
        const ROUNDS: &[f64] =
            &[2.5, 1.6, 1.3, 1.2, 1.15, 1.15, 1.15, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1];
        let Some(first) = self.right.first_mut() else { return Ok(Vec::new()) };
        let warm_up = if self.gpu.adapter.software { 10 } else { 500 };
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(warm_up) {
            first.time(100, Temperature::Cold)?;
        }
        // Invocations per sample, samples in microseconds, and their median.
        let mut timed = vec![(0u64, Vec::new(), 0.0); self.right.len()];
        let mut limit = f64::INFINITY;
        for behind in ROUNDS {
            let all = self.right.iter_mut().zip(&mut timed);
            for (bench, (count, samples, median)) in all.filter(|(_, timed)| timed.2 <= limit) {
                bench.renew()?;
                if samples.is_empty() {
                    // The first run of a pipeline is no sample; it says how many make one.
                    *count = bench.grow(1, self.options.sample, Temperature::Cold)?;
                }
                let took = bench.time(*count, Temperature::Cold)?;
                samples.push(took.as_secs_f64() * 1e6 / *count as f64);
                *median = stats::summarise(samples).median;
            }
            limit = behind * timed.iter().map(|timed| timed.2).fold(f64::INFINITY, f64::min);
        }
        let judged = self.right.iter_mut().zip(timed).map(|(bench, (count, _, median))| {
            bench.time_from(0, count)?;
            match bench.judge_left(Temperature::Cold) {
                Ok(_) => Ok(Ok(median)),
                Err(Error::CheckFailed(reason)) => Ok(Err(reason)),
                Err(e) => Err(e),
            }
        });
        judged.collect()
    }
}

/// A child process that runs [`Trials`]: one request per line in, one answer per line out. Opening
/// a device and drawing inputs cost more than a trial, so it lives until a candidate kills it.
struct Child {
    process: std::process::Child,
    requests: ChildStdin,
    outcomes: Receiver<String>,
    complaints: Receiver<String>,
}

impl Child {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(child_error)?;
        let missing = || child_error(std::io::ErrorKind::BrokenPipe.into());
        let requests = process.stdin.take().ok_or_else(missing)?;
        let outcomes = lines(process.stdout.take().ok_or_else(missing)?);
        let complaints = lines(process.stderr.take().ok_or_else(missing)?);
        Ok(Self { process, requests, outcomes, complaints })
    }

    /// The answer to a request, or the reason why the process will give none, now or later.
    fn ask(&mut self, request: &Request, time_out: Duration) -> Result<Answer> {
        let line = serde_json::to_string(request).map_err(|e| child_error(e.into()))?;
        // Where the process has died, waiting for its answer tells.
        let _ = writeln!(self.requests, "{line}").and_then(|()| self.requests.flush());
        let dead = |reason| Ok(Answer::Rejected { reason, alive: false });
        match self.outcomes.recv_timeout(time_out) {
            Ok(line) => serde_json::from_str(&line)
                .or_else(|e| dead(format!("its process said `{line}`: {e}"))),
            Err(RecvTimeoutError::Timeout) => {
                dead(format!("hung: did not end within {:.0} s", time_out.as_secs_f64()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.process.wait().map_err(child_error)?;
                let said: Vec<_> = self.complaints.iter().collect();
                let last = said.iter().rev().find(|l| !l.trim().is_empty());
                let last = last.map_or("nothing", String::as_str);
                dead(format!("its process ended with {status}; it said: {last}"))
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may hang in a driver; nobody waits for it to see the end of its input.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn child_error(source: std::io::Error) -> Error {
    Error::Io { path: "tuner's child process".into(), source }
}

/// The lines of a pipe, read while its writer runs: a writer of much output would otherwise block
/// on the pipe.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Options of a search.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Time limit of a trial.
    pub time_out: Duration,
    /// Number of fresh processes; a winner must be FASTER in each to be stored.
    pub processes: usize,
    /// Users' files among the candidates, each with the variant it replaces.
    pub files: Vec<(&'static KernelVariant, PathBuf)>,
    /// Time after which no further candidate is checked; candidates checked before are still
    /// measured.
    pub within: Duration,
}

impl TuneOptions {
    /// Time limit of a process that measures the winner against the incumbent.
    fn proof_time_out(&self) -> Duration {
        self.time_out + AbOptions::new(false).time_out
    }
}

/// Result of a search.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// Kernel.
    pub kernel: String,
    /// Compiled-in parameters.
    pub shape: String,
    /// Candidates tried.
    pub tried: usize,
    /// Candidates that were left out because time ran out.
    pub skipped: usize,
    /// Rejected candidates with their reasons.
    pub rejected: Vec<(String, String)>,
    /// Every timed candidate with its time in the search, microseconds, fastest first.
    pub ranking: Vec<(String, f64)>,
    /// Finalists with their times, microseconds, fastest first.
    pub finalists: Vec<(String, f64)>,
    /// The choice without tuning.
    pub incumbent: String,
    /// The winner.
    pub winner: String,
    /// Comparisons of the winner with the incumbent, each in a fresh process, up to the first that
    /// is not FASTER.
    pub comparisons: Vec<paired::Comparison>,
    /// The entry added to the store.
    pub stored: Option<Entry>,
}

/// Candidates that are listed as finalists.
const FINALISTS: usize = 5;

/// Largest ratio of two finalists' times that counts as a tie.
const TIE: f64 = 1.01;

/// Receives each candidate and, if it is rejected, the reason.
type OnTrial<'a> = dyn FnMut(&Candidate, Option<&str>) + 'a;

impl Found {
    fn reject(&mut self, candidate: &Candidate, reason: String, on_trial: &mut OnTrial<'_>) {
        on_trial(candidate, Some(&reason));
        self.rejected.push((candidate.show(), reason));
    }

    /// Checks candidates in a child process; a new process takes the rest if a candidate ends it.
    /// Returns the correct ones, as indices, and the process that has prepared them.
    fn check(
        &mut self,
        all: &[Candidate],
        options: &TuneOptions,
        start: &dyn Fn() -> Result<Child>,
        on_trial: &mut OnTrial<'_>,
    ) -> Result<(Vec<usize>, Child)> {
        let (mut right, mut child) = (Vec::new(), start()?);
        let begun = Instant::now();
        for (rank, candidate) in all.iter().enumerate() {
            if begun.elapsed() > options.within {
                self.skipped += 1;
                continue;
            }
            self.tried += 1;
            let answer = child.ask(&Request::Check(candidate.clone()), options.time_out)?;
            let Answer::Rejected { reason, alive } = answer else {
                on_trial(candidate, None);
                right.push(rank);
                continue;
            };
            self.reject(candidate, reason, on_trial);
            if !alive {
                child = start()?;
                // The new process has to know those that were right.
                for rank in &right {
                    let known: &Candidate = &all[*rank];
                    child.ask(&Request::Check(known.clone()), options.time_out)?;
                }
            }
        }
        Ok((right, child))
    }
}

/// Searches the best candidate of some variants for one shape. `trials` makes the command of a
/// process that answers with [`Trials`] of this kernel and shape on this device; `on_trial`
/// receives each candidate and, if it is rejected, the reason.
pub fn tune(
    gpu: &Arc<Gpu>,
    kernel: &'static Kernel,
    variants: &[&'static KernelVariant],
    problem: &Problem,
    options: &TuneOptions,
    trials: &dyn Fn() -> Command,
    on_trial: &mut OnTrial<'_>,
) -> Result<Found> {
    let shape = &problem.shape;
    let incumbent = incumbent(kernel, shape, &gpu.caps)?;
    let mut found = Found {
        kernel: kernel.name.to_owned(),
        shape: kernel.key(shape),
        incumbent: incumbent.show(),
        winner: incumbent.show(),
        ..Found::default()
    };
    let (inexact, all): (Vec<_>, Vec<_>) = candidates(variants, &options.files)
        .into_iter()
        .partition(|candidate| rounds_more(kernel, shape, candidate));
    for candidate in &inexact {
        let reason = "its tolerance is its own, so only a hint takes it for this shape";
        found.reject(candidate, reason.into(), on_trial);
    }
    found.tried = inexact.len();
    let start = || Child::start(trials());
    let (right, mut child) = found.check(&all, options, &start, on_trial)?;
    let times = match child.ask(&Request::Rank, 20 * options.time_out)? {
        Answer::Times(times) if times.len() == right.len() => times,
        other => return Err(unexpected(kernel, problem, "times", &other)),
    };
    drop(child);
    let mut timed: Vec<(f64, usize)> = Vec::with_capacity(right.len());
    for (time, rank) in times.into_iter().zip(right) {
        match time {
            Ok(us) => timed.push((us, rank)),
            Err(reason) => found.reject(&all[rank], reason, on_trial),
        }
    }
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.ranking = timed.iter().map(|(us, rank)| (all[*rank].show(), *us)).collect();
    found.finalists = found.ranking.iter().take(FINALISTS).cloned().collect();
    // Of those that tie with the fastest, the simplest.
    let tied = timed.iter().take_while(|(us, _)| *us <= TIE * timed[0].0);
    let Some(rank) = tied.map(|(_, rank)| *rank).min() else { return Ok(found) };
    let winner = &all[rank];
    let plan = winner.plan(kernel, problem, &gpu.caps)?;
    found.winner = winner.show();
    if plan.fingerprint() == incumbent.plan(kernel, problem, &gpu.caps)?.fingerprint() {
        return Ok(found);
    }
    // Each in a fresh process: code and weights lie elsewhere in each, and what is claimed of one
    // may be the luck of where they lay. The first that does not say so ends it.
    let sides = Box::new([incumbent.clone(), winner.clone()]);
    for _ in 0..options.processes {
        let mut child = start()?;
        match child.ask(&Request::Prove(sides.clone()), options.proof_time_out())? {
            Answer::Proof(comparison) => found.comparisons.push(*comparison),
            // Right until then, and not now, or the process ended: no claim is made of it.
            Answer::Rejected { reason, .. } => {
                found.reject(winner, format!("beside the incumbent: {reason}"), on_trial);
                found.winner = found.incumbent.clone();
                found.comparisons.clear();
                return Ok(found);
            }
            other => return Err(unexpected(kernel, problem, "a proof", &other)),
        }
        if found.comparisons.iter().any(|c| c.verdict != paired::Verdict::Faster) {
            return Ok(found);
        }
    }
    if winner.wgsl.is_none() {
        // What the most doubtful of them says.
        let ratios = found.comparisons.iter().map(|c| c.ratio);
        let ratio = ratios.max_by(|a, b| a.median.total_cmp(&b.median)).unwrap_or(Ratio::UNKNOWN);
        found.stored = Some(Entry {
            adapter: gpu.adapter.name.clone(),
            driver: gpu.adapter.driver.clone(),
            wgpu: gpu.platform().wgpu.to_owned(),
            runtime_checks: gpu.platform().runtime_checks.to_owned(),
            kernel: kernel.name.to_owned(),
            shape: kernel.key(shape),
            variant: winner.variant.clone(),
            constants: winner.constants.clone(),
            source: plan.fingerprint(),
            ratio,
            incumbent: incumbent.show(),
            date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
        });
    }
    Ok(found)
}

/// The error for an answer of the wrong kind from a child process.
fn unexpected(kernel: &Kernel, problem: &Problem, asked: &str, answer: &Answer) -> Error {
    let (name, text) = (kernel.name, kernel.show(problem));
    Error::CheckFailed(format!("{name} {text}: asked for {asked}, a process answered {answer:?}"))
}

/// Measures a winner against an incumbent over the same memory.
fn prove(
    gpu: &Arc<Gpu>,
    kernel: &'static Kernel,
    problem: &Problem,
    [a, b]: &[Candidate; 2],
) -> Result<paired::Comparison> {
    let plans = [a.plan(kernel, problem, &gpu.caps)?, b.plan(kernel, problem, &gpu.caps)?];
    let options = AbOptions::new(gpu.adapter.software);
    let (outcome, _) = plans_against(gpu, plans, problem, &BenchOptions::of(gpu), &options)?;
    Ok(outcome.comparison)
}

/// Returns true if decoding must not select a candidate by itself: a stored choice overrides the
/// preference, and a variant with a tolerance of its own is less exact than the kernel.
fn rounds_more(kernel: &Kernel, shape: &Shape, candidate: &Candidate) -> bool {
    let own = kernel.variant(&candidate.variant).is_some_and(KernelVariant::has_own_tolerance);
    own && !kernel.prefer(shape).contains(&candidate.variant.as_str())
}

/// The choice without tuning: the first preference that can run.
fn incumbent(kernel: &'static Kernel, shape: &Shape, caps: &Capabilities) -> Result<Candidate> {
    let selection = select(kernel, shape, caps, &Hints::new(), None)
        .map_err(|e| Error::Usage(e.to_string()))?;
    Ok(Candidate::plain(selection.plan.declared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_cover_every_combination_simplest_first() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let all = candidates(&kernel.variants.iter().collect::<Vec<_>>(), &[]);
        let of = |name: &str| all.iter().filter(|c| c.variant == name).count();
        for variant in kernel.variants {
            let tunables = variant.tunables().expect("a table");
            let sets: usize = tunables.iter().map(|(_, values)| values.len()).product();
            assert_eq!(of(variant.name), 1 + if tunables.is_empty() { 0 } else { sets });
        }
        assert_eq!(of("subgroup"), 1 + 4 * 6);
        assert_eq!(all[0], Candidate { variant: "naive".into(), ..Candidate::default() });
    }

    #[cfg(unix)]
    #[test]
    fn a_candidate_that_loses_the_device_is_not_called_wrong_and_takes_no_other_with_it() {
        // Loses its device over the candidates of one variant.
        const CHILD: &str = r#"while read -r line; do
            case "$line" in *lost*) echo 'device lost' >&2; exit 4;; esac
            echo '"right"'
        done"#;
        let all: Vec<_> = ["naive", "lost", "subgroup"]
            .map(|variant| Candidate { variant: variant.into(), ..Candidate::default() })
            .into();
        let started = std::cell::Cell::new(0);
        let start = || {
            started.set(started.get() + 1);
            let mut command = Command::new("sh");
            command.args(["-c", CHILD]);
            Child::start(command)
        };
        let options = TuneOptions {
            time_out: Duration::from_secs(60),
            processes: 3,
            files: Vec::new(),
            within: Duration::from_secs(600),
        };
        let mut found = Found::default();
        let (right, _) = found.check(&all, &options, &start, &mut |_, _| {}).expect("checked");
        assert_eq!((right, found.skipped, started.get()), (vec![0, 2], 0, 2));
        let [(name, reason)] = &found.rejected[..] else { panic!("{:?}", found.rejected) };
        let is_said = reason.contains("exit status: 4") && reason.ends_with("device lost");
        assert!(name == "lost" && is_said && !reason.contains("wrong"), "{name}: {reason}");
    }
}
