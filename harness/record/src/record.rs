//! A saved run: one versioned JSON document, complete enough that a number in it can be questioned
//! later. docs/records.md explains the keys.
//!
//! A file has samples and the figures that follow from them. Readers here compute the figures again
//! and ignore those of the file, which are for other programs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::paired::{Block, Options, Verdict, compare, median};
use super::{Ratio, stats};
use crate::error::{Error, Result};
use crate::files;

mod generation;
pub mod made_up;

pub use generation::{
    Decoded, GenerationTest, GenerationTests, MeasuredModel, ORDER as SUITE_ORDER,
    SamplingSettings, Suite, SuiteConfig, SuiteModel, SuiteRun, TokS, Verified, Watched,
};

/// Version of every document this command writes.
pub const SCHEMA_VERSION: u32 = 1;

/// A saved run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Machine, versions and time.
    pub environment: Environment,
    /// Results.
    #[serde(flatten)]
    pub body: Body,
}

/// The kinds of run.
#[allow(clippy::large_enum_variant, reason = "a run has one")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// `lathe bench`: kernels on their own.
    Bench(Bench),
    /// `lathe ab`: two variants in one run.
    Ab(Ab),
    /// `lathe decode --profile`: a whole decode, step by step.
    Profile(Profile),
    /// `lathe bench decode --model`: prompts and generation by llama-bench's tests.
    GenerationTests(GenerationTests),
    /// `lathe suite`: generation by seven configurations.
    Suite(Suite),
}

impl Body {
    /// Kind in a word or two.
    pub fn what(&self) -> &'static str {
        match self {
            Body::Bench(_) => "bench",
            Body::Ab(_) => "A/B run",
            Body::Profile(_) => "profile",
            Body::GenerationTests(_) => "run of `bench decode`",
            Body::Suite(_) => "suite",
        }
    }
}

/// Machine, versions and time of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Start of the run, UTC, such as 2026-11-20T16:00:00Z.
    pub date: String,
    /// Commit of the source tree that was built, if it was one.
    pub commit: Option<String>,
    /// The tree had changes that no commit holds.
    pub dirty: Option<bool>,
    /// Version of this command.
    pub lathe: String,
    /// Version of wgpu.
    pub wgpu: String,
    /// Operating system and architecture.
    pub os: String,
    /// Adapter name.
    pub adapter: String,
    /// Driver and its version.
    pub driver: String,
    /// vulkan, metal or dx12.
    pub backend: String,
    /// A software adapter: no subject for speed claims.
    pub software: bool,
    /// wgpu's run-time checks in built-in shaders: on or off.
    pub runtime_checks: String,
    /// Smallest step of the GPU's timestamps, nanoseconds; none without timestamps.
    pub timestamp_quantum_ns: Option<f64>,
    /// Measured copy bandwidth, read plus written, 10^9 bytes a second.
    pub copy_gb_s: Option<f64>,
    /// Measured read bandwidth, 10^9 bytes a second.
    pub read_gb_s: Option<f64>,
    /// Largest change of the canary kernel's time during the run, as a fraction of its smallest.
    pub canary_drift: Option<f64>,
    /// Command line; none where no command ran.
    pub command: Option<String>,
    /// Hash of all WGSL in the binary, whatever the tree says.
    pub wgsl: Option<String>,
    /// Seed of the inputs.
    pub seed: Option<u64>,
    /// Last-level cache as measured, bytes; 0 where none was found.
    pub cache_bytes: Option<u64>,
    /// Measured peaks of the device.
    pub ceilings: Option<Ceilings>,
    /// The machine around the GPU.
    pub machine: Option<Machine>,
    /// Processes whose samples these are, where there were several.
    pub processes: Option<usize>,
    /// Version of naga, which translates WGSL for the driver.
    pub naga: Option<String>,
    /// The compiler of this command.
    pub rustc: Option<String>,
    /// Optimisation of the build, such as `release, opt-level 3`; a cargo profile of another name
    /// is `release` too.
    pub build: Option<String>,
}

/// The machine around a GPU, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor.
    pub cpu: Option<String>,
    /// Release of the operating system's kernel.
    pub kernel: Option<String>,
    /// Processors this process may use.
    pub cpus: usize,
    /// Policy by which the operating system chooses the processors' clocks.
    pub governor: Option<String>,
    /// Version of Vulkan that the loader has, on Linux.
    pub vulkan_loader: Option<String>,
    /// PCI address of the GPU.
    pub pci: Option<String>,
    /// Setting of the GPU, where its driver can be asked.
    pub card: Option<Card>,
    /// State of the GPU at the start and at the end of the run.
    pub gpu: Vec<GpuState>,
    /// Environment variables that change a run.
    pub variables: BTreeMap<String, String>,
}

/// Setting of a GPU, as far as its driver says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Errors in memory are corrected, which costs bandwidth on some.
    pub ecc: Option<bool>,
    /// The GPU may be divided into instances (MIG).
    pub mig: Option<bool>,
    /// The driver stays loaded while the GPU is unused.
    pub persistence: Option<bool>,
    /// Highest clock of the multiprocessors, MHz.
    pub max_sm_mhz: Option<u32>,
    /// Highest clock of the memory, MHz.
    pub max_memory_mhz: Option<u32>,
}

/// State of a GPU at one moment, as far as its driver says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuState {
    /// Clock of the multiprocessors, MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_mhz: Option<u32>,
    /// Power drawn, watts.
    pub power_w: Option<f64>,
    /// Most it may draw, watts.
    pub power_limit_w: Option<f64>,
    /// Temperature, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Reasons for which the driver holds the clocks down, none of them idling.
    pub throttled: Vec<String>,
}

/// Work that never changes, timed between cases: a change of its time is the device's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// A copy, seconds: bound by memory.
    pub copy: f64,
    /// A chain of multiply-adds, seconds: a number of cycles over the clock.
    pub cycles: f64,
}

/// Peaks of a device, measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Copy: bytes read plus bytes written, 10^9 a second.
    pub copy_gb_s: f64,
    /// Reading alone, where memory is large enough to tell.
    pub read_gb_s: Option<f64>,
    /// f32 multiply-adds on vectors, 10^12 floating-point operations a second.
    pub f32_tflop_s: f64,
    /// f16 multiply-adds on vectors.
    pub f16_tflop_s: Option<f64>,
    /// Products of four 8-bit integers and their sum, 10^12 operations a second.
    pub dot4_top_s: Option<f64>,
    /// f16 products on matrix units with f32 sums.
    pub matrix_tflop_s: Option<f64>,
    /// Cost of a dispatch that waits for the one before, microseconds.
    pub dependent_us: f64,
    /// Cost of one that does not.
    pub independent_us: f64,
    /// Cost of recording one, on the CPU, microseconds.
    pub record_us: f64,
    /// Time from submitting an empty dispatch to knowing that it is done, microseconds.
    pub round_trip_us: f64,
}

/// `lathe bench`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bench {
    /// One entry a kernel, variant and shape.
    pub cases: Vec<BenchCase>,
    /// Cases that gave no result, each with its reason: a wrong output, or a rate that cannot be.
    pub failed: Vec<String>,
}

/// One measured kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchCase {
    /// Kernel.
    pub kernel: String,
    /// Variant, or a user's file.
    pub variant: String,
    /// Parameters, `NAME=VALUE,…`.
    pub shape: String,
    /// Hash of the WGSL and its constants.
    pub source: String,
    /// Text of a user's file, with its modules.
    pub wgsl: Option<String>,
    /// Values of all overrides, where a stored choice of `lathe tune` was timed.
    pub tuned: BTreeMap<String, f64>,
    /// Weights rotated past the last-level cache.
    pub cold: Timing,
    /// Invocations on the same weights every time.
    pub warm: Timing,
    /// Cold invocations each with outputs of its own, in batches without a barrier, so that
    /// neighbours overlap. Read from older records; new ones have none.
    pub overlapped: Option<Timing>,
    /// Bytes an invocation must move.
    pub bytes: f64,
    /// Floating-point operations of an invocation.
    pub flops: f64,
    /// `bytes` over the cold median, 10^9 a second.
    #[serde(skip_deserializing)]
    pub gb_s: f64,
    /// `gb_s` over the measured copy bandwidth.
    #[serde(skip_deserializing)]
    pub fraction_of_copy: f64,
    /// `flops` over the cold median, 10^12 a second.
    #[serde(skip_deserializing)]
    pub tflop_s: f64,
    /// Bytes the cold copies cover together.
    pub rotated_bytes: u64,
    /// Largest normalised mean squared error of the outputs of timed invocations.
    pub nmse: f64,
    /// Largest that was accepted.
    pub nmse_bound: f64,
    /// Canaries after it.
    pub canary: Option<Canary>,
    /// Each sample draws tokens by a seed of its own.
    pub seed_a_sample: bool,
    /// Clock of the times.
    pub clock: Clock,
    /// Reasons to doubt the number.
    pub flags: Vec<Flag>,
}

impl BenchCase {
    /// Name that tells it from the others of a run.
    pub fn key(&self) -> String {
        format!("{}/{} {}", self.kernel, self.variant, self.shape)
    }

    /// Its timings in a fixed order.
    pub(crate) fn timings(&mut self) -> impl Iterator<Item = &mut Timing> {
        [&mut self.cold, &mut self.warm].into_iter().chain(&mut self.overlapped)
    }

    /// Fills in the figures that follow from its samples and this copy bandwidth.
    #[must_use]
    pub fn settled(mut self, copy_gb_s: Option<f64>) -> Self {
        self.timings().for_each(Timing::settle);
        let us = self.cold.median_us;
        (self.gb_s, self.tflop_s) = (self.bytes / us / 1e3, self.flops / us / 1e6);
        self.fraction_of_copy = copy_gb_s.map_or(0.0, |copy| self.gb_s / copy);
        self
    }
}

/// Clock of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Timestamps written by the GPU.
    #[default]
    Gpu,
    /// The host's clock around submit and wait.
    Wall,
}

/// Reason to doubt a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flag {
    /// Times still moved when samples were taken.
    #[serde(rename = "not settled")]
    NotSettled,
    /// The canary moved since the case before.
    #[serde(rename = "drift")]
    Drift,
    /// The median is not known well.
    #[serde(rename = "noisy")]
    Noisy,
    /// The time was over before the median was known well enough.
    #[serde(rename = "timed out")]
    TimedOut,
    /// The host's clock was read, not the GPU's.
    #[serde(rename = "wall clock")]
    WallClock,
    /// wgpu's run-time checks are in this shader, a user's file, where built-in ones run without.
    #[serde(rename = "run-time checks on")]
    RuntimeChecksOn,
    /// A user's file was checked on this shape alone.
    #[serde(rename = "one shape")]
    OneShape,
    /// A user's file that is held to the tolerance of its mapping.
    #[serde(rename = "own tolerance")]
    OwnTolerance,
    /// The driver held the clocks down while most samples were taken.
    #[serde(rename = "throttled")]
    Throttled,
    /// The rate lies above the measured ceiling, within the ceiling's uncertainty.
    #[serde(rename = "above the ceiling")]
    AboveCeiling,
    /// The rotated copies may have stayed in the cache.
    #[serde(rename = "not cold")]
    NotCold,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Time of one invocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median over the samples, microseconds.
    #[serde(skip_deserializing)]
    pub median_us: f64,
    /// Smallest sample, microseconds.
    #[serde(skip_deserializing)]
    pub min_us: f64,
    /// Interquartile range over the median.
    #[serde(skip_deserializing)]
    pub spread: f64,
    /// Half-width of the median's 95 % interval over the median, within one run or over processes.
    #[serde(skip_deserializing)]
    pub noise: f64,
    /// Times had stopped moving before samples were taken.
    pub settled: bool,
    /// Invocations in a sample.
    pub dispatches: u64,
    /// Microseconds an invocation, in order.
    pub samples_us: Vec<f64>,
    /// Samples that were dropped, since the driver held the clocks down meanwhile.
    pub throttled: usize,
    /// Samples of each process, where several took some: `noise` is then over them. Empty for one,
    /// whose `noise` is only that of its own samples.
    pub processes: Vec<usize>,
}

impl Timing {
    /// Computes the figures from the samples.
    pub fn settle(&mut self) {
        let all = stats::summarise(&self.samples_us);
        (self.median_us, self.min_us, self.spread) = (all.median, all.min, all.spread);
        let mut rest = self.samples_us.as_slice();
        let medians = self.processes.iter().map(|count| {
            let (own, others) = rest.split_at((*count).min(rest.len()));
            rest = others;
            stats::summarise(own).median
        });
        let over = stats::half_interval(&medians.collect::<Vec<_>>());
        self.noise = over.map_or(all.noise, |half| half / all.median);
    }
}

/// `lathe ab`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ab {
    /// Kernel, or `decode`.
    pub kernel: String,
    /// Parameters, or the model.
    pub shape: String,
    /// First side.
    pub a: String,
    /// Second side.
    pub b: String,
    /// Figures of the samples.
    #[serde(flatten, skip_deserializing)]
    pub found: AbFigures,
    /// Side A; none for decodes.
    pub a_side: Option<AbSide>,
    /// Side B.
    pub b_side: Option<AbSide>,
    /// All samples, block by block.
    pub samples: Vec<Block>,
    /// Each process, where several measured.
    pub processes: Vec<AbProcess>,
    /// Judgement of a side's steps, whichever is further off; none for kernels, whose outputs are
    /// judged.
    pub verified: Option<Verified>,
    /// Reasons to doubt the verdict.
    pub flags: Vec<Flag>,
    /// Blocks that were dropped, since the driver held the clocks down meanwhile.
    pub throttled: usize,
    /// Number of blocks.
    #[serde(skip_deserializing)]
    pub blocks: usize,
}

/// Figures of the blocks of one process, or over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AbFigures {
    /// Median time of A, microseconds.
    pub a_us: f64,
    /// Median time of B, microseconds.
    pub b_us: f64,
    /// Verdict on B; of several processes the one all of them share.
    pub verdict: Verdict,
    /// Time of B over time of A.
    pub ratio: Ratio,
    /// A against itself in the same run.
    pub control: Ratio,
    /// B against itself; none over several processes.
    pub control_b: Option<Ratio>,
    /// Half-width of the zone around 1 that counts as the same.
    pub indifference: f64,
}

impl AbFigures {
    fn of(blocks: &[Block]) -> Self {
        let found = compare(blocks, &Options::default());
        let middle = |side: fn(&Block) -> [f64; 4]| {
            median(&blocks.iter().flat_map(side).collect::<Vec<f64>>())
        };
        Self {
            a_us: middle(|block| block.a),
            b_us: middle(|block| block.b),
            verdict: found.verdict,
            ratio: found.ratio,
            control: found.control,
            control_b: Some(found.control_b),
            indifference: found.indifference,
        }
    }
}

impl Ab {
    /// Fills in the figures that follow from its samples.
    ///
    /// # Errors
    /// Processes whose blocks are not those that there are.
    pub fn settled(mut self) -> Result<Self, String> {
        self.blocks = self.samples.len();
        let mut rest = self.samples.as_slice();
        for process in &mut self.processes {
            let Some((own, others)) = rest.split_at_checked(process.blocks) else {
                return Err(format!("a process of {} blocks, of {}", process.blocks, rest.len()));
            };
            (process.found, rest) = (AbFigures::of(own), others);
        }
        let each = || self.processes.iter().map(|process| &process.found);
        let Some(first) = each().next() else {
            self.found = AbFigures::of(&self.samples);
            return Ok(self);
        };
        if !rest.is_empty() {
            return Err(format!("{} blocks of no process", rest.len()));
        }
        let middle = |of: fn(&AbFigures) -> f64| median(&each().map(of).collect::<Vec<_>>());
        let agreed = each().all(|found| found.verdict == first.verdict);
        self.found = AbFigures {
            a_us: middle(|found| found.a_us),
            b_us: middle(|found| found.b_us),
            verdict: if agreed { first.verdict } else { Verdict::Inconclusive },
            ratio: Ratio::over_processes(each().map(|found| found.ratio)),
            control: Ratio::over_processes(each().map(|found| found.control)),
            control_b: None,
            indifference: each().map(|found| found.indifference).fold(0.0, f64::max),
        };
        Ok(self)
    }

    /// Interval of the ratio, in words.
    pub fn interval(&self) -> &'static str {
        if self.processes.is_empty() { "99 % interval" } else { "95 % interval" }
    }
}

/// One side of an A/B run of kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AbSide {
    /// Hash of the WGSL and its constants.
    pub source: String,
    /// Text of a user's file, with its modules.
    pub wgsl: Option<String>,
    /// Largest normalised mean squared error of the outputs of timed invocations.
    pub nmse: f64,
    /// Largest that a right kernel may have.
    pub nmse_bound: f64,
}

/// One of several processes of an A/B run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AbProcess {
    /// Figures of this process alone.
    #[serde(flatten, skip_deserializing)]
    pub found: AbFigures,
    /// Blocks measured.
    pub blocks: usize,
}

/// `lathe decode --profile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Model file or architecture.
    pub model: String,
    /// Architecture, values and bytes of the model, whatever its file is called.
    pub identity: String,
    /// Storage of the KV cache.
    pub kv: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// A decode of the same steps without a timestamp between its operations.
    pub unprofiled: Unprofiled,
    /// Operations of a step, in order.
    pub ops: Vec<ProfiledOp>,
    /// Profiled steps.
    pub steps: Vec<ProfiledStep>,
    /// Sums over steps and layers, by operation, slowest first.
    pub by_op: Vec<OpTotal>,
    /// Mean of the summed operation times of a step, milliseconds. Operations are timed one after
    /// the other, each in its own pass; on a GPU this exceeds the unprofiled step.
    #[serde(skip_deserializing)]
    pub serialised_ms_per_token: f64,
    /// Variant that serves each operation, and why.
    pub selected: Vec<Selected>,
    /// Verification before the figures were taken; none where that was left out.
    pub verified: Option<Verified>,
}

/// Decode at full speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unprofiled {
    /// Tokens a second, wall clock.
    #[serde(skip_deserializing)]
    pub decode_tok_s: f64,
    /// GPU time of a step, milliseconds.
    pub gpu_ms_per_token: Option<f64>,
    /// Wall time of each step, milliseconds.
    pub step_ms: Vec<f64>,
    /// Decode steps in a submission.
    pub steps_per_submit: usize,
}

/// One operation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfiledOp {
    /// Layer, if it belongs to one.
    pub layer: Option<usize>,
    /// Name, such as `ffn_down`.
    pub op: String,
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// Parameters.
    pub shape: String,
}

/// One profiled step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfiledStep {
    /// Position processed; attention covers this many tokens and one more.
    pub position: usize,
    /// GPU time of each operation, microseconds, as [`Profile::ops`].
    pub us: Vec<f64>,
    /// Time the CPU took to record the step, milliseconds.
    pub record_ms: f64,
    /// Time the CPU took to submit it, milliseconds.
    pub submit_ms: f64,
    /// Time the CPU waited for it, milliseconds.
    pub wait_ms: f64,
}

/// One operation over all layers and profiled steps, per token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpTotal {
    /// Name.
    pub op: String,
    /// Kernel and variant.
    pub kernel: String,
    /// Invocations a step.
    pub count: usize,
    /// Mean time a step, milliseconds.
    pub ms: f64,
    /// Share of all operations, percent.
    pub percent: f64,
    /// Bytes a step must move for it, at the middle position.
    pub bytes: f64,
    /// Time to move `bytes` at the better of the measured bandwidths, milliseconds.
    pub floor_ms: Option<f64>,
    /// `ms` over `floor_ms`.
    pub over_floor: Option<f64>,
    /// Dispatches per step.
    pub dispatches: usize,
    /// `floor_ms` plus the cost of `dispatches` dispatches, each of which waits for the previous
    /// one.
    pub launch_floor_ms: Option<f64>,
}

/// Reason for a variant that the kernel's own order of preference decided.
pub const FIRST_PREFERENCE: &str = "first preference for this shape";

/// Variant that serves an operation, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selected {
    /// Operation, without its layer.
    pub op: String,
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// Parameters.
    pub shape: String,
    /// Reason.
    pub why: String,
    /// Hash of its WGSL and constants.
    pub source: String,
    /// Values of its overrides.
    pub constants: BTreeMap<String, f64>,
    /// A stored choice of `lathe tune`.
    pub tuned: bool,
}

impl Ceilings {
    /// The better of the bandwidths.
    pub fn bandwidth_gb_s(&self) -> f64 {
        self.copy_gb_s.max(self.read_gb_s.unwrap_or(0.0))
    }

    /// The largest rate of any arithmetic, 10^12 operations a second.
    pub fn arithmetic_top_s(&self) -> f64 {
        let others = [self.f16_tflop_s, self.dot4_top_s, self.matrix_tflop_s];
        others.into_iter().flatten().fold(self.f32_tflop_s, f64::max)
    }
}

impl OpTotal {
    /// Least time it can take: with the launches, where their cost was measured.
    pub fn least_ms(&self) -> Option<f64> {
        self.launch_floor_ms.or(self.floor_ms)
    }
}

impl Profile {
    /// Fills in the figures that follow from its steps.
    #[must_use]
    pub fn settled(mut self) -> Self {
        let us: f64 = self.steps.iter().flat_map(|step| &step.us).sum();
        self.serialised_ms_per_token = us / 1e3 / self.steps.len().max(1) as f64;
        let ms = &self.unprofiled.step_ms;
        let wall: f64 = ms.iter().sum();
        self.unprofiled.decode_tok_s = if wall > 0.0 { ms.len() as f64 * 1e3 / wall } else { 0.0 };
        self
    }
}

impl Record {
    /// A record of this version.
    pub fn new(environment: Environment, body: Body) -> Self {
        Self { schema_version: SCHEMA_VERSION, environment, body }
    }

    /// Reads a record; errors name the file and, for a malformed one, line and key.
    pub fn read(path: &Path) -> Result<Self> {
        let text = files::read_text(path, files::DATA).map_err(Error::io(path))?;
        Self::parse(&text, path)
    }

    /// Reads a text, which errors say is `path`'s.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let bad = |reason: String| Error::Usage(format!("{}: {reason}", path.display()));
        let version: serde_json::Value =
            serde_json::from_str(text).map_err(|e| bad(format!("not JSON: {e}")))?;
        match version["schema_version"].as_u64() {
            Some(v) if v == u64::from(SCHEMA_VERSION) => {}
            Some(v) => {
                return Err(bad(format!(
                    "schema_version {v}; this version reads {SCHEMA_VERSION}"
                )));
            }
            None => return Err(bad("no schema_version: not a record".into())),
        }
        let mut record: Self =
            serde_json::from_str(text).map_err(|e| bad(format!("not a record: {e}")))?;
        let copy = record.environment.copy_gb_s;
        record.body = match record.body {
            Body::Bench(mut bench) => {
                bench.cases = bench.cases.into_iter().map(|case| case.settled(copy)).collect();
                Body::Bench(bench)
            }
            Body::Ab(ab) => Body::Ab(ab.settled().map_err(bad)?),
            Body::Profile(profile) => Body::Profile(profile.settled()),
            Body::GenerationTests(mut run) => {
                run.tests = run.tests.into_iter().map(GenerationTest::settled).collect();
                Body::GenerationTests(run)
            }
            Body::Suite(suite) => Body::Suite(suite.settled()),
        };
        Ok(record)
    }

    /// Writes a record. An existing file is never overwritten.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io(path))?;
        }
        files::write_new(path, &self.line(path)?).map_err(Error::io(path))
    }

    /// Puts this in the place of the record that the same run wrote before.
    pub fn rewrite(&self, path: &Path) -> Result<()> {
        files::replace(path, &self.line(path)?).map_err(Error::io(path))
    }

    /// Text of a file that holds it; errors name `path`.
    fn line(&self, path: &Path) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self).map_err(|e| Error::io(path)(e.into()))?;
        text.push(b'\n');
        Ok(text)
    }
}
