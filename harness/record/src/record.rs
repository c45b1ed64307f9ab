//! What a saved run looks like: one versioned JSON document, complete enough that a number in it
//! can be questioned later. See docs/records.md for the schema in words.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paired::{Block, Comparison, Options, Verdict, compare};
use super::{Ratio, Word};
use crate::error::{Error, Result};
use crate::files;

mod agree;
mod generation;
pub mod made_up;

pub use generation::{
    BesideRuns, GenerationTest, GenerationTests, MeasuredModel, ORDER as SUITE_ORDER,
    SamplingSettings, Suite, SuiteConfig, SuiteModel, SuiteRun, TokS, Verified, Watched,
};

/// Version of every document this command writes.
pub const SCHEMA_VERSION: u32 = 1;

/// The JSON Schema of a [`Record`] as it is read: of any version of this command that wrote
/// [`SCHEMA_VERSION`]. Keys that it does not name may be there.
pub fn schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_deserialize();
    settings.into_generator().into_root_schema_for::<Record>().to_value()
}

/// A saved run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Where and with what it ran.
    pub environment: Environment,
    /// What ran.
    #[serde(flatten)]
    pub body: Body,
}

/// The kinds of run.
#[allow(clippy::large_enum_variant, reason = "a run has one")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The kind in a word or two.
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

/// Where and with what a run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Smallest step of the GPU's timestamps, nanoseconds; absent without timestamps.
    pub timestamp_quantum_ns: Option<f64>,
    /// Measured copy bandwidth, read plus written, 10^9 bytes a second.
    pub copy_gb_s: Option<f64>,
    /// Measured read bandwidth, 10^9 bytes a second.
    #[serde(default)]
    pub read_gb_s: Option<f64>,
    /// Largest change of the canary kernel's time during the run, as a fraction of its smallest.
    pub canary_drift: Option<f64>,
    /// The command line; absent in records from before it was kept, and where no command ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Hash of all WGSL in the binary, whatever the tree says; absent, as all that follows, in
    /// records from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wgsl: Option<String>,
    /// What inputs were drawn from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Last-level cache as measured, bytes; 0 where none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// What the measured peaks of the device are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Ceilings>,
    /// The machine around the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Processes whose samples these are, where there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// Version of naga, which translates WGSL for the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naga: Option<String>,
    /// The compiler of this command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rustc: Option<String>,
    /// What it optimised for, such as `release, opt-level 3`; a cargo profile of another name is
    /// `release` too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// The machine around a GPU, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Processor.
    pub cpu: Option<String>,
    /// Release of the operating system's kernel.
    pub kernel: Option<String>,
    /// Processors this process may use.
    pub cpus: usize,
    /// How the operating system chooses the processors' clocks; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Version of Vulkan that the loader has, on Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vulkan_loader: Option<String>,
    /// Where the GPU sits on the bus.
    pub pci: Option<String>,
    /// How the GPU is set up, where its driver can be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Card>,
    /// What the GPU's driver says at the start and at the end of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu: Vec<GpuState>,
    /// Variables that change what a run does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// How a GPU is set up; what its driver does not say is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Card {
    /// Memory, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Errors in memory are corrected, which costs bandwidth on some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// The GPU may be divided into instances (MIG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<bool>,
    /// The driver stays loaded while nobody uses the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<bool>,
    /// Highest clock of the multiprocessors, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sm_mhz: Option<u32>,
    /// Highest clock of the memory, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_mhz: Option<u32>,
}

/// What a driver says of a GPU at one moment, as far as it does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuState {
    /// Clock of the multiprocessors, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<u32>,
    /// Power drawn, watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Most it may draw, watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Temperature, degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Reasons for which the driver holds the clocks down, none of them idling.
    pub throttled: Vec<String>,
}

/// Work that never changes, timed between cases: what changes is the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Canary {
    /// A copy, seconds: bound by memory.
    pub copy: f64,
    /// A chain of multiply-adds, seconds: a number of cycles over the clock.
    pub cycles: f64,
}

/// Peaks of a device, measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// What a dispatch costs that waits for the one before, microseconds.
    pub dependent_us: f64,
    /// What one costs that does not.
    pub independent_us: f64,
    /// What recording one costs the CPU, microseconds.
    pub record_us: f64,
    /// From submitting an empty dispatch to knowing that it is done, microseconds.
    pub round_trip_us: f64,
}

/// `lathe bench`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bench {
    /// One entry a kernel, variant and shape.
    pub cases: Vec<BenchCase>,
    /// What gave no result: a wrong output, or a rate that cannot be. Empty in most records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The runs that `lathe merge` joined, in the order of their cases; empty for one run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<BenchRun>,
}

/// One of the runs of a merged record. The cases of a record are those of its first run, then those
/// of the second, and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchRun {
    /// Where and with what it ran. `fraction_of_copy` of its cases is over its own bandwidth.
    pub environment: Environment,
    /// How many of the cases it measured.
    pub cases: usize,
    /// How many of those without a result it tried.
    pub failed: usize,
}

/// One measured kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchCase {
    /// Kernel.
    pub kernel: String,
    /// Variant, or a user's file.
    pub variant: String,
    /// Parameters, `NAME=VALUE,…`.
    pub shape: String,
    /// Hash of the WGSL and its constants.
    pub source: String,
    /// The text of a user's file, with its modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wgsl: Option<String>,
    /// Values of all overrides, where a stored choice of `lathe tune` was timed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tuned: BTreeMap<String, f64>,
    /// Weights rotated past the last-level cache.
    pub cold: Timing,
    /// The same weights every time.
    pub warm: Timing,
    /// Cold invocations each with outputs of its own, in batches without a barrier, so that
    /// neighbours overlap: what throughput leaves of the launch. None unless asked for.
    #[serde(default)]
    pub overlapped: Option<Timing>,
    /// Each dispatch of an invocation alone, cold. Empty unless asked for, and for one dispatch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageTiming>,
    /// Bytes an invocation must move.
    pub bytes: f64,
    /// Floating-point operations of an invocation.
    pub flops: f64,
    /// `bytes` over the cold median, 10^9 a second.
    pub gb_s: f64,
    /// `gb_s` over the measured copy bandwidth.
    pub fraction_of_copy: f64,
    /// `flops` over the cold median, 10^12 a second; absent in records from before it was kept.
    #[serde(default)]
    pub tflop_s: Option<f64>,
    /// Bytes the cold copies cover together.
    pub rotated_bytes: u64,
    /// Largest normalised mean squared error of what timed invocations left; absent in records
    /// from before it was judged.
    #[serde(default)]
    pub nmse: Option<f64>,
    /// Largest that was accepted.
    #[serde(default)]
    pub nmse_bound: Option<f64>,
    /// The canaries after it; absent in records from before they were kept.
    #[serde(default)]
    pub canary: Option<Canary>,
    /// Whether each sample draws tokens by a seed of its own; in records from before it was so, and
    /// of kernels that draw none, all samples have the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seed_a_sample: bool,
    /// Where the times come from.
    pub clock: Word<Clock>,
    /// What makes the number doubtful.
    pub flags: Vec<Word<Flag>>,
}

impl BenchCase {
    /// What tells it from the others of a run.
    pub fn key(&self) -> String {
        format!("{}/{} {}", self.kernel, self.variant, self.shape)
    }
}

/// Where a time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Timestamps written by the GPU.
    Gpu,
    /// The host's clock around submit and wait.
    Wall,
}

/// What makes a number doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The rate lies above the measured ceiling, within what the ceiling is known to.
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

/// Time of one dispatch among those of an invocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageTiming {
    /// WGSL entry point.
    pub entry: String,
    /// The dispatch again and again, over what a whole invocation left in scratch memory. Nothing
    /// where it then does something else than in an invocation.
    pub cold: Option<Timing>,
}

/// Time of one invocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Median over the samples, microseconds.
    pub median_us: f64,
    /// Smallest sample, microseconds.
    pub min_us: f64,
    /// Interquartile range over the median.
    pub spread: f64,
    /// Half-width of the median's 95 % interval over the median, within one run or over processes.
    pub noise: f64,
    /// Times had stopped moving before samples were taken.
    pub settled: bool,
    /// Invocations in a sample.
    pub dispatches: u64,
    /// The samples themselves, microseconds an invocation, in order.
    pub samples_us: Vec<f64>,
    /// Samples that were dropped, since the driver held the clocks down meanwhile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throttled: usize,
    /// Median of each process, where several took samples; `noise` is then over them. Empty for
    /// one, whose `noise` is only what its own samples say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes_us: Vec<f64>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `lathe ab`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ab {
    /// Kernel, or `decode`.
    pub kernel: String,
    /// Parameters, or the model.
    pub shape: String,
    /// First side.
    pub a: String,
    /// Second side.
    pub b: String,
    /// Median time of A, microseconds.
    pub a_us: f64,
    /// Median time of B, microseconds.
    pub b_us: f64,
    /// B against A.
    pub verdict: Word<Verdict>,
    /// Time of B over time of A.
    pub ratio: Ratio,
    /// A against itself in the same run.
    pub control: Ratio,
    /// B against itself; absent in records from before it was kept, as is what follows.
    #[serde(default)]
    pub control_b: Option<Ratio>,
    /// What A was.
    #[serde(default)]
    pub a_side: Option<AbSide>,
    /// What B was.
    #[serde(default)]
    pub b_side: Option<AbSide>,
    /// All samples, microseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<AbBlock>,
    /// Each process, where several measured: the ratio is then over them, and the verdict what all
    /// of them say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<AbProcess>,
    /// Half-width of the zone around 1 that counts as the same.
    pub indifference: f64,
    /// Confidence of the intervals of one run, which are those of the sign test; absent in records
    /// from before 2026-11-25, whose intervals are a bootstrap's at 95 %. Over processes the
    /// interval is Student's at 95 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// What was verified of a side's steps, whichever is further off; none for kernels, whose
    /// outputs are judged, and in records from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// What makes the verdict doubtful.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Word<Flag>>,
    /// Blocks that were dropped, since the driver held the clocks down meanwhile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throttled: usize,
    /// Blocks: of eight samples, A's and B's in an order drawn for each; before 2026-11-23 of A B
    /// B A.
    pub blocks: usize,
}

impl Ab {
    /// What today's statistics say of the samples of one run; none where they are not there, or in
    /// an order of before.
    pub fn compared_again(&self) -> Option<Comparison> {
        if self.samples.is_empty() || !self.processes.is_empty() {
            return None;
        }
        let blocks: Option<Vec<Block>> = self.samples.iter().map(AbBlock::block).collect();
        Some(compare(&blocks?, &Options::default()))
    }

    /// What its interval is, in words.
    pub fn interval(&self) -> String {
        let confidence = self.confidence.filter(|_| self.processes.is_empty());
        format!("{} % interval", 100.0 * confidence.unwrap_or(0.95))
    }
}

/// One side of an A/B run of kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbSide {
    /// Hash of the WGSL and its constants.
    pub source: String,
    /// The text of a user's file, with its modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wgsl: Option<String>,
    /// Largest normalised mean squared error of what timed invocations left.
    pub nmse: f64,
    /// Largest that a right kernel may have.
    pub nmse_bound: f64,
}

/// Samples of one block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbBlock {
    /// Who was measured when, such as `AABBABBA`.
    pub order: String,
    /// A's times in their order.
    pub a_us: [f64; 4],
    /// B's.
    pub b_us: [f64; 4],
}

impl From<&Block> for AbBlock {
    fn from(block: &Block) -> Self {
        Self { order: block.order.to_string(), a_us: block.a, b_us: block.b }
    }
}

impl AbBlock {
    /// The block, if its order is one of those that are drawn; before 2026-11-23 it was another.
    pub fn block(&self) -> Option<Block> {
        Some(Block { order: self.order.parse().ok()?, a: self.a_us, b: self.b_us })
    }
}

impl From<&Ab> for AbProcess {
    fn from(ab: &Ab) -> Self {
        let Ab { ratio, control, a_us, b_us, blocks, .. } = *ab;
        Self { ratio, control, verdict: ab.verdict.clone(), a_us, b_us, blocks }
    }
}

/// One of several processes of an A/B run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbProcess {
    /// B over A.
    pub ratio: Ratio,
    /// A over itself.
    pub control: Ratio,
    /// What this process alone says.
    pub verdict: Word<Verdict>,
    /// Median time of A, microseconds.
    pub a_us: f64,
    /// Median time of B.
    pub b_us: f64,
    /// Blocks measured.
    pub blocks: usize,
}

/// `lathe decode --profile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Model file or architecture.
    pub model: String,
    /// What the model is whatever its file is called; absent in records from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Storage of the KV cache.
    pub kv: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// The same decode without a timestamp between its operations.
    pub unprofiled: Unprofiled,
    /// Operations of a step, in order.
    pub ops: Vec<ProfiledOp>,
    /// Profiled steps.
    pub steps: Vec<ProfiledStep>,
    /// Sums over steps and layers, by operation, slowest first.
    pub by_op: Vec<OpTotal>,
    /// Mean of the summed operation times of a step, milliseconds. Operations are timed one after
    /// the other, each in its own pass; on a GPU this exceeds the unprofiled step.
    pub serialised_ms_per_token: f64,
    /// Which variant serves what, and why.
    pub selected: Vec<Selected>,
    /// What was verified before the figures were taken; none where that was left out, and in
    /// records from before it was done.
    #[serde(default)]
    pub verified: Option<Verified>,
}

/// Decode at full speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unprofiled {
    /// Tokens a second, wall clock.
    pub decode_tok_s: f64,
    /// GPU time of a step, milliseconds.
    pub gpu_ms_per_token: Option<f64>,
    /// Wall time of each step, milliseconds.
    pub step_ms: Vec<f64>,
    /// Decode steps in a submission.
    pub steps_per_submit: usize,
}

/// One operation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledOp {
    /// Layer, if it belongs to one.
    pub layer: Option<usize>,
    /// What it does, such as `ffn_down`.
    pub op: String,
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// Parameters.
    pub shape: String,
}

/// One profiled step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpTotal {
    /// What it does.
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
    /// Those bytes at the better of the measured bandwidths, milliseconds; until 2026-11-23 at that
    /// of a copy.
    pub floor_ms: Option<f64>,
    /// `ms` over `floor_ms`.
    pub over_floor: Option<f64>,
    /// Dispatches a step; 0 in records from before they were counted.
    #[serde(default)]
    pub dispatches: usize,
    /// `floor_ms` and what so many dispatches cost, each of which waits for the one before.
    #[serde(default)]
    pub launch_floor_ms: Option<f64>,
}

/// The reason for a variant that the kernel's own order of preference decided.
pub const FIRST_PREFERENCE: &str = "first preference for this shape";

/// Which variant serves an operation, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Values of its overrides; absent in records from before they were kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub constants: BTreeMap<String, f64>,
    /// A stored choice of `lathe tune`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
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
    /// How long it takes at least: with the launches, where their cost was measured.
    pub fn least_ms(&self) -> Option<f64> {
        self.launch_floor_ms.or(self.floor_ms)
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

    /// The same of a text, which errors say is `path`'s.
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
        let record: Self =
            serde_json::from_str(text).map_err(|e| bad(format!("not a record: {e}")))?;
        agree::figures(&record.body).map_err(bad)?;
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

    /// The text of a file that holds it; errors name `path`.
    pub fn line(&self, path: &Path) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self).map_err(|e| Error::io(path)(e.into()))?;
        text.push(b'\n');
        Ok(text)
    }
}
