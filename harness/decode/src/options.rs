//! Options of a decode: for building its steps, and for the tokens of one run.

use std::path::PathBuf;

use lathe_kernels::{FloatFormat, KvFormat};

use super::sampling::Sampling;
use lathe_device::plan::persistent::Persistent;
use lathe_device::plan::select::Hints;
use lathe_device::plan::tuned::Store;

/// Settings of prompts: in chunks of many tokens, or token by token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Tokens of the largest chunk; 0 for prompts that run token by token.
    pub most: usize,
    /// Storage of the inputs of a chunk's matrices. f16 is what matrix units multiply; f32 keeps
    /// every bit of the activations.
    pub acts: FloatFormat,
}

impl Chunks {
    /// Prompts token by token: a decode step each.
    pub const NONE: Self = Self { most: 0, acts: FloatFormat::F32 };

    /// Chunks as large as a GPU wants them, with activations as exact as a cache of this storage
    /// is.
    pub fn with_cache(kv: KvFormat) -> Self {
        let acts = match kv {
            KvFormat::F32 => FloatFormat::F32,
            KvFormat::F16 | KvFormat::Q8_0 => FloatFormat::F16,
        };
        Self { most: 1024, acts }
    }
}

/// Settings of a model's steps. The default is greedy, with the storage and the tuned choices of
/// `lathe decode`.
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    /// Positions that fit: prompt and generated tokens together.
    pub context: usize,
    /// Storage of the KV cache.
    pub kv: KvFormat,
    /// Storage of the inputs of matrices: normalised, gated and mixed vectors, where they are
    /// stored at all. The residual stream and the sums of products stay in f32, and so does a norm
    /// that its reader computes.
    pub acts: FloatFormat,
    /// Settings of prompts; none for those that suit the cache ([`Chunks::with_cache`]).
    pub chunks: Option<Chunks>,
    /// Sequences that a step takes a token further, all at one position. Several have prompts that
    /// run token by token and greedy choices.
    pub sequences: usize,
    /// Settings of sampling; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Seed of the draws.
    pub seed: u32,
    /// Explicit variants and files.
    pub hints: Hints,
    /// Store of tuned choices; none to leave them out.
    pub store: Option<PathBuf>,
    /// Layers that run as one dispatch, in steps of one sequence.
    pub persistent: Persistent,
    /// Decode steps per submission; none for as many as fit [`super::FRAME`].
    pub steps_per_submit: Option<usize>,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            context: 2048,
            kv: KvFormat::F16,
            acts: FloatFormat::F32,
            chunks: None,
            sequences: 1,
            sampling: None,
            seed: 42,
            hints: Hints::new(),
            store: Some(Store::default_path()),
            persistent: Persistent::Auto,
            steps_per_submit: None,
        }
    }
}

impl DecodeOptions {
    /// A step by the kernels' own preferences: a dispatch per stage, no chunks of prompts, no tuned
    /// choices.
    pub fn of_step(context: usize) -> Self {
        let (chunks, store, persistent) = (Some(Chunks::NONE), None, Persistent::Off);
        Self { context, chunks, store, persistent, ..Self::default() }
    }

    /// Options of a command that builds the same steps; the size of chunks apart.
    pub(super) fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut add = |name: &str, value: String| flags.extend([format!("--{name}"), value]);
        if self.kv != KvFormat::F16 {
            add("kv", self.kv.name().into());
        }
        if self.acts != FloatFormat::F32 {
            add("activations", self.acts.name().into());
        }
        let usual = Chunks::with_cache(self.kv);
        if let Some(chunks) = self.chunks.filter(|c| c.most > 0 && c.acts != usual.acts) {
            add("prompt-activations", chunks.acts.name().into());
        }
        for (kernel, hint) in &self.hints {
            add("hint", format!("{kernel}={}", hint.name()));
        }
        if let Some(s) = &self.sampling {
            add("temperature", s.temperature.to_string());
            if s.top_k > 0 {
                add("top-k", s.top_k.to_string());
            }
            if s.top_p < 1.0 {
                add("top-p", s.top_p.to_string());
            }
            if s.repeat_penalty != 1.0 {
                add("repeat-penalty", s.repeat_penalty.to_string());
            }
            if s.repeat_last_n > 0 {
                add("repeat-last-n", s.repeat_last_n.to_string());
            }
            if s.temperature > 0.0 {
                add("seed", self.seed.to_string());
            }
        }
        if self.store.is_none() {
            flags.push("--untuned".into());
        }
        flags
    }

    /// Chunks of prompts as they are built: none for several sequences, and none larger than the
    /// context needs.
    pub(super) fn built_chunks(&self) -> Chunks {
        let chunks = self.chunks.unwrap_or_else(|| Chunks::with_cache(self.kv));
        match self.sequences {
            1 => {
                Chunks { most: chunks.most.min(self.context.next_power_of_two().max(16)), ..chunks }
            }
            _ => Chunks::NONE,
        }
    }
}

/// Execution of a prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompts {
    /// In chunks of many tokens, where the graph has them.
    #[default]
    Chunks,
    /// A decode step each, so that every position has logits.
    TokenByToken,
}

/// Input tokens of a run, and its number of tokens to generate.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Prompt tokens; at least one.
    pub prompt: Vec<u32>,
    /// Tokens of it that run before the others, in a stream of their own that is not timed.
    pub depth: usize,
    /// Tokens with which both the prompt and the sequence before begin stay in the caches.
    pub keep: bool,
    /// Tokens fed in place of generated ones, after the prompt.
    pub forced: Vec<u32>,
    /// Execution of the prompt's tokens.
    pub prompts: Prompts,
    /// Tokens to generate.
    pub generate: usize,
    /// Decode steps per submission; none for as many as fit [`super::FRAME`].
    pub steps_per_submit: Option<usize>,
    /// Tokens that end the run, unless forced ones follow.
    pub stop_at: Vec<u32>,
    /// Seed of the draws; unused by a greedy graph.
    pub seed: u32,
}

impl Script {
    /// Positions processed: the prompt, then the forced tokens or all generated ones but the last,
    /// whichever are more.
    pub fn positions(&self) -> usize {
        self.prompt.len() + self.generate.saturating_sub(1).max(self.forced.len())
    }

    /// Returns true if the chosen tokens have reached the end.
    pub(super) fn is_ended_by(&self, generated: &[u32]) -> bool {
        generated.len() > self.forced.len()
            && generated.last().is_some_and(|token| self.stop_at.contains(token))
    }

    /// The script of a run that takes over from one that handed out `known` tokens before it
    /// failed: it feeds them as its own first choices, and keeps nothing.
    #[must_use]
    pub fn behind(&self, known: &[u32]) -> Self {
        let ended = self.is_ended_by(known);
        let generate = if ended { known.len() } else { self.generate };
        let forced = match self.forced.is_empty() {
            true => known[..known.len().min(generate.saturating_sub(1))].to_vec(),
            false => self.forced.clone(),
        };
        Self { forced, generate, keep: false, ..self.clone() }
    }
}
