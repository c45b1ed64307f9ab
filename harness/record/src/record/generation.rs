//! Records of whole generations: llama-bench's tests, and the suite.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Flag, Selected, is_zero};
use crate::stats::quantile;
use crate::{Word, add_new};

/// What of a run was held against the CPU reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Positions compared, from the first on.
    pub positions: usize,
    /// Largest NMSE of a position's logits.
    pub worst_nmse: f64,
    /// Largest accepted.
    pub limit: f64,
    /// Choices of several sequences that each alone makes differently after the same tokens,
    /// between logits closer than that error.
    #[serde(default)]
    pub ties: usize,
    /// NMSE of the logits at the end of the run that was timed against those of the same tokens
    /// run as a prompt in chunks, by other kernels. None where the graph has no chunks, and in
    /// older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_nmse: Option<f64>,
}

impl Verified {
    /// What holds of two runs: the worse of each figure.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            positions: self.positions.min(other.positions),
            worst_nmse: self.worst_nmse.max(other.worst_nmse),
            limit: self.limit.max(other.limit),
            ties: self.ties.max(other.ties),
            end_nmse: self.end_nmse.into_iter().chain(other.end_nmse).reduce(f64::max),
        }
    }
}

/// The model of a measurement, in llama-bench's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredModel {
    /// Name of the file, without its folders.
    pub model_filename: String,
    /// Architecture, size and the type that most of its bytes have, such as `llama 1.2B BF16`.
    pub model_type: String,
    /// Bytes of all tensors.
    pub model_size: u64,
    /// Values of all tensors.
    pub model_n_params: u64,
}

impl MeasuredModel {
    /// What it is whatever its file is called: architecture, values and the bytes they take.
    pub fn identity(&self) -> String {
        let Self { model_type, model_n_params, model_size, .. } = self;
        format!("{model_type}, {model_n_params} values in {model_size} bytes")
    }

    /// The file without its folder, which older records have.
    pub fn file(&self) -> &str {
        self.model_filename.rsplit(['/', '\\']).next().unwrap_or_default()
    }
}

/// `lathe bench decode --model`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenerationTests {
    /// Where the tokens came from, such as `seed 42`.
    pub prompts: String,
    /// One entry a model, test and setting.
    pub tests: Vec<GenerationTest>,
}

/// Tokens a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokS {
    /// Mean over the repetitions.
    pub mean: f64,
    /// Their standard deviation, over n - 1.
    pub sd: f64,
}

/// What was seen of the device while figures were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watched {
    /// Repetitions that were dropped and taken again, since the driver held the clocks down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throttled: usize,
    /// What makes the figures doubtful.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Word<Flag>>,
}

/// Sequences of a record that does not name them.
fn one() -> usize {
    1
}

/// One test. Keys that llama-bench has mean what they mean there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenerationTest {
    /// The test in llama-bench's notation, such as `pp512` or `tg128 @ d4096`.
    pub test: String,
    /// The model.
    #[serde(flatten)]
    pub model: MeasuredModel,
    /// Storage of keys.
    pub type_k: String,
    /// Storage of values.
    pub type_v: String,
    /// Storage of what goes into matrices.
    pub activations: String,
    /// Prompt tokens.
    pub n_prompt: usize,
    /// Generated tokens.
    pub n_gen: usize,
    /// Tokens in the cache before.
    pub n_depth: usize,
    /// Sequences decoded together, each with its own prompt; `n_gen` tokens each. Figures are of
    /// all of them together.
    #[serde(default = "one")]
    pub sequences: usize,
    /// How tokens were drawn; none for the greedy choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingSettings>,
    /// Decode steps in a submission; none for a test that generates nothing.
    pub steps_per_submit: Option<usize>,
    /// Start of the test, UTC.
    pub test_time: String,
    /// Mean time of a repetition, nanoseconds.
    pub avg_ns: u64,
    /// Standard deviation of the repetitions, nanoseconds.
    pub stddev_ns: u64,
    /// Mean of the repetitions' tokens a second.
    pub avg_ts: f64,
    /// Their standard deviation.
    pub stddev_ts: f64,
    /// Time of each repetition, nanoseconds.
    pub samples_ns: Vec<u64>,
    /// Tokens a second of each repetition.
    pub samples_ts: Vec<f64>,
    /// `avg_ts` and `stddev_ts` again, where other documents of this command have them.
    pub tok_s: TokS,
    /// What was verified before the figures were taken; none where that was left out.
    pub verified: Option<Verified>,
    /// Stored choices of `lathe tune` that were taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<Selected>,
    /// Workgroups and invocations of the dispatches that are several operations each, such as
    /// 128x256; none where every stage is a dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_grid: Option<String>,
    /// Bytes of device memory at their peak: all buffers of the process.
    pub gpu_memory_bytes: u64,
    /// What was predicted before loading; 0 in records that have none.
    #[serde(default)]
    pub gpu_memory_predicted_bytes: u64,
    /// Bytes of all KV caches.
    pub kv_cache_bytes: u64,
    /// Throttling and what makes the figures doubtful.
    #[serde(flatten)]
    pub watched: Watched,
    /// Another program that ran in turns with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideRuns>,
}

/// Runs of another program, one after each repetition of a test: in turns, so that what drifts
/// drifts for both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BesideRuns {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// FNV-1a hash of the program's file, 64 bits.
    pub program_hash: String,
    /// What each run printed on stdout, its end where that is long.
    pub outputs: Vec<String>,
    /// Tokens a second that each run printed.
    pub samples_ts: Vec<f64>,
    /// Their mean.
    pub avg_ts: f64,
    /// Their standard deviation, over n - 1.
    pub stddev_ts: f64,
}

impl GenerationTest {
    /// How many times as fast as the program beside it: the least of ours over the most of its, and
    /// the most over the least. None where nothing ran beside.
    pub fn times_beside(&self) -> Option<(f64, f64)> {
        let range = |samples: &[f64]| {
            let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
            (least, samples.iter().copied().fold(0.0, f64::max))
        };
        let (least, most) = range(&self.samples_ts);
        let (their_least, their_most) = range(&self.beside.as_ref()?.samples_ts);
        Some((least / their_most, most / their_least))
    }

    /// llama-bench's name of a test, with how many sequences run it together and how tokens are
    /// drawn.
    pub fn name(
        (prompt, generate, depth): (usize, usize, usize),
        sequences: usize,
        sampling: Option<&SamplingSettings>,
    ) -> String {
        let mut name = match (prompt, generate) {
            (prompt, 0) => format!("pp{prompt}"),
            (0, generate) => format!("tg{generate}"),
            (prompt, generate) => format!("pp{prompt}+tg{generate}"),
        };
        if sequences > 1 {
            name.push_str(&format!(" x{sequences}"));
        }
        if depth > 0 {
            name.push_str(&format!(" @ d{depth}"));
        }
        if let Some(sampling) = sampling {
            name.push_str(&format!(", {sampling}"));
        }
        name
    }
}

/// `lathe suite`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
    /// quick, standard or full.
    pub tier: String,
    /// Where the tokens came from, such as `seed 42`.
    pub prompts: String,
    /// Seed of the draws.
    pub seed: u32,
    /// Untimed runs of a configuration before those that count.
    pub warm_ups: usize,
    /// Timed runs of a configuration and setting.
    pub repetitions: usize,
    /// Decode steps in a submission of the faster setting.
    pub steps_per_submit: usize,
    /// In the order of the command line.
    pub models: Vec<SuiteModel>,
}

/// A model's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteModel {
    /// The model.
    #[serde(flatten)]
    pub model: MeasuredModel,
    /// Storage of the KV cache.
    pub kv: String,
    /// Storage of what goes into matrices.
    pub activations: String,
    /// By name of the configuration.
    pub configs: BTreeMap<String, SuiteConfig>,
}

/// How tokens were drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplingSettings {
    /// Divides the logits.
    pub temperature: f32,
    /// Tokens that stay.
    pub top_k: u32,
    /// Share of the probability that stays.
    pub top_p: f32,
    /// Divides positive and multiplies negative logits of seen tokens; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Last tokens the penalty looks at; 0 for all.
    #[serde(default)]
    pub repeat_last_n: u32,
}

impl fmt::Display for SamplingSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T {}", self.temperature)?;
        if self.top_k > 0 {
            write!(f, " top-k {}", self.top_k)?;
        }
        if self.top_p < 1.0 {
            write!(f, " top-p {}", self.top_p)?;
        }
        if self.repeat_penalty != 1.0 {
            write!(f, " penalty {}", self.repeat_penalty)?;
        }
        if self.repeat_last_n > 0 {
            write!(f, " of {}", self.repeat_last_n)?;
        }
        Ok(())
    }
}

/// One configuration of one model. Rates and times are medians over the repetitions; those
/// without a setting in their name are of the faster one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteConfig {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the one after the prompt included.
    pub generated_tokens: usize,
    /// None for the greedy choice.
    pub sampling: Option<SamplingSettings>,
    /// Until the first token was read back, milliseconds.
    pub ttft_ms: f64,
    /// Prompt tokens over that time.
    pub prefill_tok_s: f64,
    /// Generated tokens over the whole time.
    pub e2e_tok_s: f64,
    /// Tokens after the first over the time after the first.
    pub decode_tok_s: f64,
    /// `e2e_tok_s` at one step a submission.
    pub one_step_e2e_tok_s: f64,
    /// `decode_tok_s` at one step a submission.
    pub one_step_decode_tok_s: f64,
    /// Median time of a step at one step a submission, over all repetitions, milliseconds.
    pub p50_ms: f64,
    /// 95th percentile of the same.
    pub p95_ms: f64,
    /// Bytes of all KV caches.
    pub kv_cache_bytes: u64,
    /// Bytes of device memory at their peak: weights, caches and everything else.
    pub gpu_memory_bytes: u64,
    /// What was predicted before loading; 0 in records that have none.
    #[serde(default)]
    pub gpu_memory_predicted_bytes: u64,
    /// What was verified before the figures were taken; none where that was left out.
    pub verified: Option<Verified>,
    /// Stored choices of `lathe tune` that were taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<Selected>,
    /// Workgroups and invocations of the dispatches that are several operations each, such as
    /// 128x256; none where every stage is a dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_grid: Option<String>,
    /// Throttling and what makes the figures doubtful.
    #[serde(flatten)]
    pub watched: Watched,
    /// Every timed run.
    pub runs: Vec<SuiteRun>,
}

/// One timed run of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteRun {
    /// Decode steps in a submission.
    pub steps_per_submit: usize,
    /// Until the first token was read back, milliseconds.
    pub ttft_ms: f64,
    /// From the first token to the last, milliseconds.
    pub decode_ms: f64,
    /// Of each step, milliseconds; only at one step a submission, where steps have times of their
    /// own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_ms: Vec<f64>,
}

/// Names of the suite's configurations, in the order they are shown in.
pub const ORDER: [&str; 7] =
    ["short", "medium", "prefill", "decode", "long", "sampled", "full-pipe"];

impl SuiteConfig {
    /// The figures of runs of so many prompt and generated tokens, some at `steps_per_submit`, some
    /// at one step a submission; what else was known of them is the caller's.
    pub fn of(
        [prompt_tokens, generated_tokens]: [usize; 2],
        sampling: Option<SamplingSettings>,
        steps_per_submit: usize,
        runs: Vec<SuiteRun>,
    ) -> Self {
        let sorted = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |setting: usize, of: &dyn Fn(&SuiteRun) -> f64| {
            let of_setting = runs.iter().filter(|run| run.steps_per_submit == setting);
            quantile(&sorted(of_setting.map(of).collect()), 0.5)
        };
        let generated = generated_tokens as f64;
        let e2e = |run: &SuiteRun| generated * 1e3 / (run.ttft_ms + run.decode_ms);
        let decode = |run: &SuiteRun| (generated - 1.0) * 1e3 / run.decode_ms;
        let steps = sorted(runs.iter().flat_map(|run| run.step_ms.iter().copied()).collect());
        let ttft_ms = median(steps_per_submit, &|run| run.ttft_ms);
        Self {
            prompt_tokens,
            generated_tokens,
            sampling,
            ttft_ms,
            prefill_tok_s: prompt_tokens as f64 * 1e3 / ttft_ms,
            e2e_tok_s: median(steps_per_submit, &e2e),
            decode_tok_s: median(steps_per_submit, &decode),
            one_step_e2e_tok_s: median(1, &e2e),
            one_step_decode_tok_s: median(1, &decode),
            p50_ms: quantile(&steps, 0.5),
            p95_ms: quantile(&steps, 0.95),
            runs,
            ..Self::default()
        }
    }
}

impl Suite {
    /// Names of all configurations of all models: known ones in their order, then others.
    pub fn config_names(&self) -> Vec<&str> {
        let has = |name: &str| self.models.iter().any(|m| m.configs.contains_key(name));
        let mut names: Vec<&str> = ORDER.into_iter().filter(|name| has(name)).collect();
        add_new(&mut names, self.models.iter().flat_map(|m| m.configs.keys().map(String::as_str)));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps_per_submit: usize, ttft_ms: f64, decode_ms: f64, step_ms: &[f64]) -> SuiteRun {
        SuiteRun { steps_per_submit, ttft_ms, decode_ms, step_ms: step_ms.to_vec() }
    }

    #[test]
    fn figures_are_medians_of_their_own_setting() {
        // Steps have times only where each has a submission of its own.
        let runs = vec![
            run(8, 16.0, 84.0, &[]),
            run(1, 16.0, 126.0, &[2.0, 2.0, 4.0]),
            run(8, 32.0, 63.0, &[]),
            run(1, 16.0, 112.0, &[1.0, 2.0]),
            run(8, 8.0, 126.0, &[]),
            run(1, 16.0, 240.0, &[3.0, 9.0]),
        ];
        let f = SuiteConfig::of([64, 64], None, 8, runs);
        assert_eq!((f.ttft_ms, f.prefill_tok_s), (16.0, 4000.0));
        assert_eq!((f.decode_tok_s, f.one_step_decode_tok_s), (750.0, 500.0));
        assert_eq!((f.e2e_tok_s, f.one_step_e2e_tok_s), (640.0, 64e3 / 142.0));
        assert_eq!(f.p50_ms, 2.0);
        assert!((f.p95_ms - 7.5).abs() < 1e-12, "{}", f.p95_ms);
    }
}
