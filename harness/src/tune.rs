//! Tuned choices and the search for them.
//!
//! Every candidate is checked against the reference in a child process before it is timed, so one
//! that is wrong, hangs or is refused by the driver harms nothing: the next gets a new process. What survives is timed
//! round-robin over the same memory; ties go to the simpler; the winner is measured again, on
//! fresh samples against the incumbent, and is stored only when it is FASTER.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use lathe_kernels::{Capabilities, Constants, Kernel, Shape, Variant};
use serde::{Deserialize, Serialize};

use crate::check::{Case, Verdict, check_case};
use crate::error::{Error, Result};
use crate::gpu::{AdapterSummary, Checks, Gpu, Pipelines};
use crate::measure::ab::{self, AbOptions};
use crate::measure::{Bench, BenchOptions, Temperature, paired, stats};
use crate::plan::{Plan, PlanError};
use crate::report::record::Ratio;
use crate::user::UserKernel;

/// One stored choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Adapter name.
    pub adapter: String,
    /// Driver and its version.
    pub driver: String,
    /// Kernel.
    pub kernel: String,
    /// Compiled-in parameters; see [`Kernel::key`].
    pub shape: String,
    /// Variant.
    pub variant: String,
    /// Overrides that differ from the variant's own choice.
    pub constants: BTreeMap<String, f64>,
    /// Hash of the source and all constants it was tuned with.
    pub source: String,
    /// Time over the incumbent's.
    pub ratio: Ratio,
    /// What it beat.
    pub incumbent: String,
    /// When, UTC.
    pub date: String,
}

/// Stored choices of all machines in one JSON file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Store {
    /// Version of the file.
    pub schema_version: u32,
    /// Choices.
    pub entries: Vec<Entry>,
}

impl Store {
    /// `LATHE_TUNED`, or `tuned.json` in the user's cache folder.
    pub fn default_path() -> PathBuf {
        if let Some(path) = std::env::var_os("LATHE_TUNED") {
            return path.into();
        }
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .or_else(|| std::env::var_os("LOCALAPPDATA").map(PathBuf::from));
        cache.unwrap_or_default().join("lathe").join("tuned.json")
    }

    /// Reads a store; a missing file is an empty one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { schema_version: 1, entries: Vec::new() });
            }
            Err(source) => return Err(Error::Io { path: path.to_owned(), source }),
        };
        let bad = |reason: String| Error::Usage(format!("{}: {reason}", path.display()));
        let store: Self = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        match store.schema_version {
            1 => Ok(store),
            other => Err(bad(format!("schema_version {other}; this version reads 1"))),
        }
    }

    /// Writes the store beside its old version and puts it in its place.
    pub fn write(&self, path: &Path) -> Result<()> {
        let error = |source| Error::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(error)?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|e| error(e.into()))?;
        let beside = path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&beside, text).map_err(error)?;
        std::fs::rename(&beside, path).map_err(error)
    }

    /// Replaces the choice for the same adapter, driver, kernel and shape.
    pub fn put(&mut self, entry: Entry) {
        self.entries.retain(|e| {
            (&e.adapter, &e.driver, &e.kernel, &e.shape)
                != (&entry.adapter, &entry.driver, &entry.kernel, &entry.shape)
        });
        self.entries.push(entry);
    }

    /// The choices of one adapter and driver.
    pub fn of(&self, adapter: &AdapterSummary) -> Tuned {
        let mine = |e: &&Entry| e.adapter == adapter.name && e.driver == adapter.driver;
        Tuned { entries: self.entries.iter().filter(mine).cloned().collect() }
    }
}

/// The stored choices of one adapter.
#[derive(Clone, Debug, Default)]
pub struct Tuned {
    entries: Vec<Entry>,
}

impl Tuned {
    /// The plan stored for a shape and why it is taken. An entry whose source has changed since
    /// is stale and not looked at.
    pub fn find(
        &self,
        kernel: &'static Kernel,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Option<(Plan, String)> {
        let key = kernel.key(shape);
        let entry = self.entries.iter().find(|e| e.kernel == kernel.name && e.shape == key)?;
        let variant = kernel.variant(&entry.variant)?;
        let plan = Plan::tuned(kernel, variant, shape, caps, &entry.constants).ok()?;
        if plan.fingerprint() != entry.source {
            tracing::warn!(kernel = kernel.name, shape = key, "tuned entry is stale, ignored");
            return None;
        }
        let why = format!("tuned: {:.3} of {}'s time", entry.ratio.median, entry.incumbent);
        Some((plan, why))
    }
}

/// Something a tuner may try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Variant, or the first variant's name for a user's file.
    pub variant: String,
    /// Overrides set.
    pub constants: BTreeMap<String, f64>,
    /// A user's WGSL file.
    pub wgsl: Option<PathBuf>,
}

impl Candidate {
    /// Its plan for a shape.
    pub fn plan(
        &self,
        kernel: &'static Kernel,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Result<Plan, PlanError> {
        let variant = kernel.variant(&self.variant).ok_or_else(|| {
            PlanError::Unavailable(format!("kernel {} has no {}", kernel.name, self.variant))
        })?;
        match &self.wgsl {
            Some(path) => UserKernel::read(path, kernel)?.plan(variant, shape, caps),
            None => Plan::tuned(kernel, variant, shape, caps, &self.constants),
        }
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

/// All variants with all combinations of their tunables, simplest first, then users' files.
pub fn candidates(kernel: &'static Kernel, files: &[PathBuf]) -> Vec<Candidate> {
    let mut all = Vec::new();
    for variant in kernel.variants {
        let plain =
            |constants| Candidate { variant: variant.name.to_owned(), constants, wgsl: None };
        all.push(plain(BTreeMap::new()));
        let mut sets = vec![BTreeMap::new()];
        for (name, values) in variant.tunables {
            sets = sets
                .iter()
                .flat_map(|set: &BTreeMap<String, f64>| {
                    values.iter().map(move |v| {
                        let mut set = set.clone();
                        set.insert((*name).to_owned(), *v);
                        set
                    })
                })
                .collect();
        }
        all.extend(sets.into_iter().filter(|s| !s.is_empty()).map(plain));
    }
    for path in files {
        all.push(Candidate {
            variant: kernel.variants[0].name.to_owned(),
            constants: BTreeMap::new(),
            wgsl: Some(path.clone()),
        });
    }
    all
}

/// What a child process says of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Trial {
    /// Right, and this fast, microseconds an invocation, cold.
    Timed {
        /// Median of a few samples.
        us: f64,
    },
    /// Rejected.
    Rejected {
        /// Why.
        reason: String,
    },
}

/// What a child process answers to a candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// What became of it.
    pub trial: Trial,
    /// Whether the device survived it: a process that lost its device can try no other.
    pub alive: bool,
}

/// Checks and times candidates of one kernel and shape over the same inputs: what the child
/// process does.
#[derive(Debug)]
pub struct Trials {
    gpu: Arc<Gpu>,
    kernel: &'static Kernel,
    shape: Shape,
    /// One for each seed, once a candidate could be planned.
    cases: Vec<Case>,
    base: Option<Bench>,
}

impl Trials {
    /// Nothing tried yet.
    pub fn new(gpu: Arc<Gpu>, kernel: &'static Kernel, shape: Shape) -> Self {
        Self { gpu, kernel, shape, cases: Vec::new(), base: None }
    }

    /// Checks a candidate on two seeds and times it.
    pub fn run(&mut self, candidate: &Candidate) -> Answer {
        let attempt = self.attempt(candidate);
        let trial = attempt.unwrap_or_else(|e| Trial::Rejected { reason: e.to_string() });
        Answer { trial, alive: self.gpu.check_faults().is_ok() }
    }

    fn attempt(&mut self, candidate: &Candidate) -> Result<Trial> {
        let rejected = |reason: String| Ok(Trial::Rejected { reason });
        let gpu = &self.gpu;
        let plan = match candidate.plan(self.kernel, &self.shape, &gpu.caps) {
            Ok(plan) => plan,
            Err(e) => return rejected(e.to_string()),
        };
        if self.cases.is_empty() {
            for seed in [SEED, SEED + 1] {
                self.cases.push(Case::new(gpu, plan.clone(), &self.shape, seed)?);
            }
        }
        let pipelines = Pipelines::default();
        for case in &self.cases {
            match check_case(gpu, &pipelines, &case.with_plan(plan.clone()))? {
                Verdict::Passed { .. } => {}
                Verdict::Failed { reason, .. } => return rejected(format!("wrong: {reason}")),
                Verdict::Unavailable { reason } => return rejected(reason),
            }
        }
        let options = BenchOptions::of(gpu);
        // The first candidate finds the clocks low and allocates what all of them share.
        let first = self.base.is_none();
        let mut bench = match &self.base {
            Some(base) => base.beside(&pipelines, plan)?,
            None => {
                Bench::of(gpu, &pipelines, self.cases[0].with_plan(plan), options.rotate_bytes)?
            }
        };
        let mut count = 1u64;
        let begun = Instant::now();
        // Enough for a ranking; the finalists are measured properly.
        let warm_up = match (gpu.adapter.software, first) {
            (true, _) => 10,
            (false, true) => 300,
            (false, false) => 40,
        };
        let warm_up = Duration::from_millis(warm_up);
        while begun.elapsed() < warm_up || count == 1 {
            let took = bench.time(count, Temperature::Cold)?;
            if took < options.sample {
                let missing = options.sample.as_secs_f64() / took.as_secs_f64().max(1e-9);
                count = (count as f64 * missing.clamp(1.2, 16.0)).ceil() as u64;
            } else {
                count = count.max(2);
            }
        }
        let samples: Vec<f64> = (0..7)
            .map(|_| {
                let took = bench.time(count, Temperature::Cold)?;
                Ok(took.as_secs_f64() * 1e6 / count as f64)
            })
            .collect::<Result<_>>()?;
        if first {
            self.base = Some(bench);
        }
        Ok(Trial::Timed { us: stats::summarise(&samples).median })
    }
}

/// A child process of this very command that runs [`Trials`]: one candidate a line in, one outcome
/// a line out. Opening a device and drawing inputs cost more than a trial, so it lives until a
/// candidate kills it.
struct Child {
    process: std::process::Child,
    requests: ChildStdin,
    outcomes: Receiver<String>,
    complaints: Receiver<String>,
}

impl Child {
    fn start(
        adapter: &AdapterSummary,
        checks: Checks,
        kernel: &Kernel,
        shape: &str,
    ) -> Result<Self> {
        let command = match std::env::var_os("LATHE_COMMAND") {
            Some(path) => path.into(),
            None => std::env::current_exe().map_err(child_error)?,
        };
        let mut process = Command::new(command)
            .args((checks == Checks::On).then_some("--runtime-checks"))
            .args(["--adapter", &adapter.index.to_string(), "tune-candidates"])
            .args([kernel.name, shape])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(child_error)?;
        let missing = || child_error(std::io::ErrorKind::BrokenPipe.into());
        let requests = process.stdin.take().ok_or_else(missing)?;
        let outcomes = lines(process.stdout.take().ok_or_else(missing)?);
        let complaints = lines(process.stderr.take().ok_or_else(missing)?);
        Ok(Self { process, requests, outcomes, complaints })
    }

    /// The outcome of a candidate, and whether the process can take another.
    fn run(&mut self, candidate: &Candidate, time_out: Duration) -> Result<(Trial, bool)> {
        let spec = serde_json::to_string(candidate).map_err(|e| child_error(e.into()))?;
        // Where the process has died, waiting for its answer tells.
        let _ = writeln!(self.requests, "{spec}").and_then(|()| self.requests.flush());
        let dead = |reason| Ok((Trial::Rejected { reason }, false));
        match self.outcomes.recv_timeout(time_out) {
            Ok(line) => match serde_json::from_str::<Answer>(&line) {
                Ok(answer) => Ok((answer.trial, answer.alive)),
                Err(e) => dead(format!("its process said `{line}`: {e}")),
            },
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

/// The lines of a pipe, read while its writer runs: one that says much would otherwise wait for
/// its reader.
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

/// How to search.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Longest trial of a candidate.
    pub time_out: Duration,
    /// Candidates that are measured properly.
    pub finalists: usize,
    /// Users' files among the candidates.
    pub files: Vec<PathBuf>,
    /// How the winner is measured against the incumbent.
    pub ab: AbOptions,
}

/// What a search found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Kernel.
    pub kernel: String,
    /// Compiled-in parameters.
    pub shape: String,
    /// Candidates tried.
    pub tried: usize,
    /// Those that were rejected, with the reason.
    pub rejected: Vec<(String, String)>,
    /// Every candidate that was timed with its time in the search, microseconds, fastest first.
    pub ranking: Vec<(String, f64)>,
    /// Finalists with their times, microseconds, fastest first.
    pub finalists: Vec<(String, f64)>,
    /// What runs without tuning.
    pub incumbent: String,
    /// The winner.
    pub winner: String,
    /// The winner against the incumbent, on fresh samples.
    pub comparison: Option<paired::Comparison>,
    /// What entered the store.
    pub stored: Option<Entry>,
}

const SEED: u64 = 42;

/// Finalists whose times lie this close are a tie.
const TIE: f64 = 1.01;

/// Searches the best candidate for one shape. `on_trial` hears each outcome.
pub fn tune(
    gpu: &Arc<Gpu>,
    kernel: &'static Kernel,
    shape: &Shape,
    options: &TuneOptions,
    on_trial: &mut dyn FnMut(&Candidate, &Trial),
) -> Result<Found> {
    let incumbent = incumbent(kernel, shape, &gpu.caps)?;
    let all = candidates(kernel, &options.files);
    let text = shape.show(kernel.params);
    let (mut timed, mut rejected) = (Vec::new(), Vec::new());
    let mut child: Option<Child> = None;
    for (rank, candidate) in all.iter().enumerate() {
        let mut running = match child.take() {
            Some(running) => running,
            None => Child::start(&gpu.adapter, gpu.checks, kernel, &text)?,
        };
        let (trial, alive) = running.run(candidate, options.time_out)?;
        child = alive.then_some(running);
        on_trial(candidate, &trial);
        match trial {
            Trial::Timed { us } => timed.push((us, rank)),
            Trial::Rejected { reason } => rejected.push((candidate.show(), reason)),
        }
    }
    drop(child);
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ranking = timed.iter().map(|(us, rank)| (all[*rank].show(), *us)).collect();
    timed.truncate(options.finalists.max(1));
    // The incumbent takes part in the final whatever its trial said.
    let pipelines = Pipelines::default();
    let bench_options = BenchOptions::of(gpu);
    let planned = |c: &Candidate| {
        c.plan(kernel, shape, &gpu.caps).map_err(|e| Error::Usage(format!("{}: {e}", c.show())))
    };
    let rotate = bench_options.rotate_bytes;
    let mut base = Bench::new(gpu, &pipelines, planned(&incumbent)?, shape, SEED, rotate)?;
    let mut finalists = Vec::new();
    for (_, rank) in &timed {
        let mut bench = base.beside(&pipelines, planned(&all[*rank])?)?;
        let (count, _) = bench.warm_up(bench_options.sample, Temperature::Cold)?;
        finalists.push((*rank, bench, count, Vec::new()));
    }
    const ROUNDS: usize = 15;
    for _ in 0..ROUNDS {
        for (_, bench, count, samples) in &mut finalists {
            let took = bench.time(*count, Temperature::Cold)?;
            samples.push(took.as_secs_f64() * 1e6 / *count as f64);
        }
    }
    let mut results: Vec<(f64, usize)> =
        finalists.iter().map(|(rank, _, _, s)| (stats::summarise(s).median, *rank)).collect();
    results.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut found = Found {
        kernel: kernel.name.to_owned(),
        shape: kernel.key(shape),
        tried: all.len(),
        rejected,
        ranking,
        finalists: results.iter().map(|(us, rank)| (all[*rank].show(), *us)).collect(),
        incumbent: incumbent.show(),
        winner: incumbent.show(),
        comparison: None,
        stored: None,
    };
    let Some((best, _)) = results.first().copied() else { return Ok(found) };
    // Of those that tie with the fastest, the simplest.
    let Some(rank) = results.iter().filter(|(us, _)| *us <= TIE * best).map(|(_, r)| *r).min()
    else {
        return Ok(found);
    };
    let winner = &all[rank];
    found.winner = winner.show();
    let plan = planned(winner)?;
    if plan.fingerprint() == planned(&incumbent)?.fingerprint() {
        return Ok(found);
    }
    let mut bench = base.beside(&pipelines, plan.clone())?;
    let (comparison, _) = ab::kernels(&mut base, &mut bench, &bench_options, &options.ab)?;
    bench.validate("after timing")?;
    found.comparison = Some(comparison);
    let stored = comparison.verdict == paired::Verdict::Faster && winner.wgsl.is_none();
    if stored {
        found.stored = Some(Entry {
            adapter: gpu.adapter.name.clone(),
            driver: gpu.adapter.driver.clone(),
            kernel: kernel.name.to_owned(),
            shape: kernel.key(shape),
            variant: winner.variant.clone(),
            constants: winner.constants.clone(),
            source: plan.fingerprint(),
            ratio: Ratio {
                median: comparison.ratio.median,
                low: comparison.ratio.low,
                high: comparison.ratio.high,
            },
            incumbent: incumbent.show(),
            date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
        });
    }
    Ok(found)
}

/// What runs untuned: the first preference that can.
fn incumbent(kernel: &'static Kernel, shape: &Shape, caps: &Capabilities) -> Result<Candidate> {
    let hints = crate::select::Hints::new();
    let selection = crate::select::select(kernel, shape, caps, &hints, None)
        .map_err(|e| Error::Usage(e.to_string()))?;
    let variant: &'static Variant =
        kernel.variant(&selection.plan.variant).expect("selected from this kernel");
    Ok(Candidate { variant: variant.name.to_owned(), constants: Constants::new(), wgsl: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kernel: &'static Kernel, shape: &Shape) -> Entry {
        let variant = kernel.variant("workgroup").expect("a variant of gemv");
        let constants = BTreeMap::from([("LANES".to_owned(), 16.0)]);
        let caps = Capabilities::minimal();
        let plan = Plan::tuned(kernel, variant, shape, &caps, &constants).expect("a plan");
        Entry {
            adapter: "A".into(),
            driver: "D".into(),
            kernel: kernel.name.into(),
            shape: kernel.key(shape),
            variant: "workgroup".into(),
            constants,
            source: plan.fingerprint(),
            ratio: Ratio { median: 0.9, low: 0.89, high: 0.91 },
            incumbent: "naive".into(),
            date: String::new(),
        }
    }

    #[test]
    fn a_tuned_choice_comes_after_a_hint_and_before_preferences_and_stale_ones_are_ignored() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let shape = kernel.default_shape();
        let caps = Capabilities::minimal();
        let mut entry = entry(kernel, &shape);
        let chosen = |tuned: &Tuned, hints: &crate::select::Hints| {
            let s = crate::select::select(kernel, &shape, &caps, hints, Some(tuned));
            let s = s.expect("a selection");
            (s.plan.variant.clone(), s.plan.constants.get("LANES").copied(), s.why)
        };
        let none = crate::select::Hints::new();
        let tuned = Tuned { entries: vec![entry.clone()] };
        let (variant, lanes, why) = chosen(&tuned, &none);
        assert_eq!((variant.as_str(), lanes), ("workgroup", Some(16.0)));
        assert!(why.contains("tuned"));
        let hint = crate::select::Hints::from([("gemv".to_owned(), "naive".to_owned())]);
        assert_eq!(chosen(&tuned, &hint).0, "naive");
        entry.source = "another".into();
        let (_, lanes, why) = chosen(&Tuned { entries: vec![entry] }, &none);
        assert_eq!(lanes, Some(32.0));
        assert!(!why.contains("tuned"));
    }

    #[test]
    fn the_store_keeps_one_choice_an_adapter_and_shape() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let one = entry(kernel, &kernel.default_shape());
        let mut store = Store { schema_version: 1, entries: vec![] };
        store.put(one.clone());
        store.put(Entry { variant: "naive".into(), ..one.clone() });
        store.put(Entry { driver: "E".into(), ..one });
        assert_eq!(store.entries.len(), 2);
        assert_eq!(store.entries[0].variant, "naive");
    }

    #[test]
    fn candidates_cover_every_combination_simplest_first() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let all = candidates(kernel, &[]);
        let of = |name: &str| all.iter().filter(|c| c.variant == name).count();
        assert_eq!(of("workgroup"), 1 + 3 * 4);
        assert_eq!(of("subgroup"), 1 + 4 * 6);
        assert_eq!(
            all[0],
            Candidate { variant: "naive".into(), constants: BTreeMap::new(), wgsl: None }
        );
    }
}
