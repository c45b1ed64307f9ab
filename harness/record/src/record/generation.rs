//! Records of whole generations: llama-bench's tests, and the suite.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Flag, Selected};
use crate::add_new;
use crate::stats::{mean_sd, quantile};

/// Comparison of a run with the CPU reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// Positions compared, from the first on.
    pub positions: usize,
    /// Largest NMSE of a position's logits, centred unless a repetition penalty follows.
    pub worst_nmse: f64,
    /// Largest divergence of a position's probabilities, nats.
    #[serde(default)]
    pub worst_kl: f64,
    /// Positions of those compared at which both find the same token likeliest.
    #[serde(default)]
    pub same_top1: usize,
    /// Largest accepted.
    pub limit: f64,
    /// Choices of several sequences that each alone makes differently after the same tokens,
    /// between logits closer than that error.
    pub ties: usize,
    /// NMSE of the logits at the end of the run that was timed against those of the same tokens
    /// run as a prompt in chunks, by other kernels. None where the graph has no chunks.
    pub end_nmse: Option<f64>,
}

impl Verified {
    /// Counts the distance of a position in, which had this limit.
    pub fn add(&mut self, limit: f64, nmse: f64, kl: f64) {
        self.limit = self.limit.max(limit);
        self.worst_nmse = self.worst_nmse.max(nmse);
        self.worst_kl = self.worst_kl.max(kl);
    }

    /// The worse of each figure of two runs.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            positions: self.positions.min(other.positions),
            worst_nmse: self.worst_nmse.max(other.worst_nmse),
            worst_kl: self.worst_kl.max(other.worst_kl),
            same_top1: self.same_top1.min(other.same_top1),
            limit: self.limit.max(other.limit),
            ties: self.ties.max(other.ties),
            end_nmse: self.end_nmse.into_iter().chain(other.end_nmse).reduce(f64::max),
        }
    }
}

/// The model of a measurement, in llama-bench's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Name of the model whatever its file is called: architecture, values and the bytes they take.
    pub fn identity(&self) -> String {
        let Self { model_type, model_n_params, model_size, .. } = self;
        format!("{model_type}, {model_n_params} values in {model_size} bytes")
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        &self.model_filename
    }
}

/// `lathe bench decode --model`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationTests {
    /// Source of the prompt tokens, such as `seed 42`.
    pub prompts: String,
    /// One entry a model, test and setting.
    pub tests: Vec<GenerationTest>,
}

/// Tokens a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokS {
    /// Mean over the repetitions.
    pub mean: f64,
    /// Standard deviation over the repetitions, n - 1.
    pub sd: f64,
}

/// State of the device while figures were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Repetitions that were dropped and taken again, since the driver held the clocks down.
    pub throttled: usize,
    /// Reasons to doubt the figures.
    pub flags: Vec<Flag>,
}

/// Facts about a decode and its figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decoded {
    /// Settings of sampling; none for the greedy choice.
    pub sampling: Option<SamplingSettings>,
    /// Bytes of all KV caches.
    pub kv_cache_bytes: u64,
    /// Bytes of device memory at their peak: weights, caches and all other buffers of the process.
    pub gpu_memory_bytes: u64,
    /// Prediction of that before loading.
    pub gpu_memory_predicted_bytes: u64,
    /// Verification before the figures were taken; none where that was left out.
    pub verified: Option<Verified>,
    /// Variant that serves each operation, and why.
    pub selected: Vec<Selected>,
    /// Workgroups and invocations of the dispatches that are several operations each, such as
    /// 128x256; none where every stage is a dispatch.
    pub persistent_grid: Option<String>,
    /// Throttling and other reasons to doubt the figures.
    #[serde(flatten)]
    pub watched: Watched,
}

/// One test. Keys that llama-bench has mean what they mean there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Storage of the inputs of matrices.
    pub activations: String,
    /// Prompt tokens.
    pub n_prompt: usize,
    /// Generated tokens.
    pub n_gen: usize,
    /// Tokens in the cache before.
    pub n_depth: usize,
    /// Sequences decoded together, each with its own prompt; `n_gen` tokens each. Figures are of
    /// all of them together.
    pub sequences: usize,
    /// Decode steps in a submission; none for a test that generates nothing.
    pub steps_per_submit: Option<usize>,
    /// Start of the test, UTC.
    pub test_time: String,
    /// Mean time of a repetition, nanoseconds.
    #[serde(skip_deserializing)]
    pub avg_ns: u64,
    /// Standard deviation of the repetitions, nanoseconds.
    #[serde(skip_deserializing)]
    pub stddev_ns: u64,
    /// Mean of the repetitions' tokens a second.
    #[serde(skip_deserializing)]
    pub avg_ts: f64,
    /// Standard deviation of the repetitions' tokens a second.
    #[serde(skip_deserializing)]
    pub stddev_ts: f64,
    /// Time of each repetition, nanoseconds.
    pub samples_ns: Vec<u64>,
    /// Tokens a second of each repetition.
    #[serde(skip_deserializing)]
    pub samples_ts: Vec<f64>,
    /// `avg_ts` and `stddev_ts` again, where other documents of this command have them.
    #[serde(skip_deserializing)]
    pub tok_s: TokS,
    /// Facts about the decode.
    #[serde(flatten)]
    pub of: Decoded,
}

impl GenerationTest {
    /// Fills in the figures that follow from the times of its repetitions.
    #[must_use]
    pub fn settled(mut self) -> Self {
        let tokens = (self.sequences * (self.n_prompt + self.n_gen)) as f64;
        let ns: Vec<f64> = self.samples_ns.iter().map(|ns| *ns as f64).collect();
        self.samples_ts = ns.iter().map(|ns| tokens * 1e9 / ns).collect();
        let ((ns, ns_sd), (mean, sd)) = (mean_sd(&ns), mean_sd(&self.samples_ts));
        (self.avg_ns, self.stddev_ns) = (ns.round() as u64, ns_sd.round() as u64);
        (self.avg_ts, self.stddev_ts, self.tok_s) = (mean, sd, TokS { mean, sd });
        self
    }

    /// llama-bench's name of a test, with the number of sequences and the sampling.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// quick, standard or full.
    pub tier: String,
    /// Source of the prompt tokens, such as `seed 42`.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteModel {
    /// The model.
    #[serde(flatten)]
    pub model: MeasuredModel,
    /// Storage of the KV cache.
    pub kv: String,
    /// Storage of the inputs of matrices.
    pub activations: String,
    /// Configurations by name.
    pub configs: BTreeMap<String, SuiteConfig>,
}

/// Settings of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuiteConfig {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the one after the prompt included.
    pub generated_tokens: usize,
    /// Time until the first token was read back, milliseconds.
    #[serde(skip_deserializing)]
    pub ttft_ms: f64,
    /// Prompt tokens over that time.
    #[serde(skip_deserializing)]
    pub prefill_tok_s: f64,
    /// Generated tokens over the whole time.
    #[serde(skip_deserializing)]
    pub e2e_tok_s: f64,
    /// Tokens after the first over the time after the first.
    #[serde(skip_deserializing)]
    pub decode_tok_s: f64,
    /// `e2e_tok_s` at one step a submission.
    #[serde(skip_deserializing)]
    pub one_step_e2e_tok_s: f64,
    /// `decode_tok_s` at one step a submission.
    #[serde(skip_deserializing)]
    pub one_step_decode_tok_s: f64,
    /// Median time of a step at one step a submission, over all repetitions, milliseconds.
    #[serde(skip_deserializing)]
    pub p50_ms: f64,
    /// 95th percentile of the same.
    #[serde(skip_deserializing)]
    pub p95_ms: f64,
    /// Facts about the decode.
    #[serde(flatten)]
    pub of: Decoded,
    /// Every timed run.
    pub runs: Vec<SuiteRun>,
}

/// One timed run of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteRun {
    /// Decode steps in a submission.
    pub steps_per_submit: usize,
    /// Time until the first token was read back, milliseconds.
    pub ttft_ms: f64,
    /// Time from the first token to the last, milliseconds.
    pub decode_ms: f64,
    /// Time of each step, milliseconds; only at one step per submission, where steps are timed
    /// singly.
    pub step_ms: Vec<f64>,
}

/// Names of the suite's configurations, in the order they are shown in.
pub const ORDER: [&str; 7] =
    ["short", "medium", "prefill", "decode", "long", "sampled", "full-pipe"];

impl SuiteConfig {
    /// Fills in the figures that follow from its runs, some at `steps_per_submit`, some at one step
    /// a submission.
    #[must_use]
    pub fn settled(mut self, steps_per_submit: usize) -> Self {
        let runs = &self.runs;
        let median = |setting: usize, of: &dyn Fn(&SuiteRun) -> f64| {
            let of_setting = runs.iter().filter(|run| run.steps_per_submit == setting);
            quantile(&of_setting.map(of).collect::<Vec<_>>(), 0.5)
        };
        let generated = self.generated_tokens as f64;
        let e2e = |run: &SuiteRun| generated * 1e3 / (run.ttft_ms + run.decode_ms);
        let decode = |run: &SuiteRun| (generated - 1.0) * 1e3 / run.decode_ms;
        let steps: Vec<f64> = runs.iter().flat_map(|run| run.step_ms.iter().copied()).collect();
        self.ttft_ms = median(steps_per_submit, &|run| run.ttft_ms);
        self.e2e_tok_s = median(steps_per_submit, &e2e);
        self.decode_tok_s = median(steps_per_submit, &decode);
        self.one_step_e2e_tok_s = median(1, &e2e);
        self.one_step_decode_tok_s = median(1, &decode);
        (self.p50_ms, self.p95_ms) = (quantile(&steps, 0.5), quantile(&steps, 0.95));
        self.prefill_tok_s = self.prompt_tokens as f64 * 1e3 / self.ttft_ms;
        self
    }
}

impl Suite {
    /// Fills in the figures of all configurations.
    #[must_use]
    pub fn settled(mut self) -> Self {
        for config in self.models.iter_mut().flat_map(|model| model.configs.values_mut()) {
            *config = std::mem::take(config).settled(self.steps_per_submit);
        }
        self
    }

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
        let (prompt_tokens, generated_tokens) = (64, 64);
        let f = SuiteConfig { prompt_tokens, generated_tokens, runs, ..SuiteConfig::default() };
        let f = f.settled(8);
        assert_eq!((f.ttft_ms, f.prefill_tok_s), (16.0, 4000.0));
        assert_eq!((f.decode_tok_s, f.one_step_decode_tok_s), (750.0, 500.0));
        assert_eq!((f.e2e_tok_s, f.one_step_e2e_tok_s), (640.0, 64e3 / 142.0));
        assert_eq!(f.p50_ms, 2.0);
        assert!((f.p95_ms - 7.5).abs() < 1e-12, "{}", f.p95_ms);
    }
}
