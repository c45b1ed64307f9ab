//! A model's decode step and the chunks of its prompts as a recording, in passes: list the
//! operations, select a variant for each, pack the weights.

mod choose;
mod chunk;
mod layer;
mod step;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use lathe_kernels::phases::Grid;
use lathe_kernels::{Capabilities, FloatFormat, KvFormat, Problem, State};

use super::kv_cache::KvCache;
use super::load::Weights;
use super::sampling::Sampling;

use choose::Chooser;
use lathe_device::error::{Error, Result};
use lathe_device::plan::recording::{Recording, TensorId};
use lathe_device::plan::run::Runs;
use lathe_device::plan::select::{self, Hint, Hints};
use lathe_device::plan::tuned::Tuned;
use lathe_model::Config;
pub use lathe_record::record::Selected;

/// How prompts run: in chunks of many tokens, or token by token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Tokens of the largest chunk; 0 for prompts that run token by token.
    pub most: usize,
    /// Storage of what goes into a chunk's matrices. f16 is what matrix units multiply; f32 keeps
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

/// What a graph is built for.
#[derive(Clone, Debug)]
pub struct GraphOptions {
    /// Positions it must hold.
    pub context: usize,
    /// Storage of the KV cache.
    pub kv: KvFormat,
    /// Storage of what goes into matrices: normalised, gated and mixed vectors, where they are
    /// stored at all. The residual stream and the sums of products stay in f32, and so does a norm
    /// that its reader makes.
    pub acts: FloatFormat,
    /// How prompts run.
    pub chunks: Chunks,
    /// Sequences that a step takes a token further, all at one position; more than one have
    /// prompts that run token by token and greedy choices.
    pub sequences: usize,
    /// How tokens are drawn; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Explicit variants.
    pub hints: Hints,
    /// Tuned choices of the adapter at hand.
    pub tuned: Option<Arc<Tuned>>,
    /// Workgroups of runs, where a step of one sequence has them.
    pub runs: Option<Grid>,
}

impl GraphOptions {
    /// A greedy step of one sequence with a cache in f16, by the kernels' own preferences.
    pub fn of_step(context: usize) -> Self {
        Self {
            context,
            kv: KvFormat::F16,
            acts: FloatFormat::F32,
            chunks: Chunks::NONE,
            sequences: 1,
            sampling: None,
            hints: Hints::new(),
            tuned: None,
            runs: None,
        }
    }

    /// Positions that tensors have room for: a chunk may begin at the last one.
    fn positions(&self) -> usize {
        self.context + self.chunks.most
    }
}

/// A decode step with handles to what a session reads and writes.
#[derive(Clone, Debug)]
pub struct DecodeGraph {
    /// The step.
    pub recording: Arc<Recording>,
    /// Step state, a row a sequence; see [`lathe_kernels::StateWord`].
    pub state: TensorId,
    /// Token of every position; of several sequences those of one position are neighbours.
    pub tokens: TensorId,
    /// Logits of the last step, a row a sequence.
    pub logits: TensorId,
    /// One cache a layer.
    pub caches: Vec<KvCache>,
    /// How tokens are drawn; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Positions it holds.
    pub context: usize,
    /// Sequences that a step takes a token further.
    pub sequences: usize,
    /// Vocabulary.
    pub vocab: usize,
    /// Selections, one an operation and shape.
    pub selected: Vec<Selected>,
}

impl DecodeGraph {
    /// The selections that are stored choices of `lathe tune`.
    pub fn tuned(&self) -> Vec<Selected> {
        self.selected.iter().filter(|s| s.tuned).cloned().collect()
    }

    /// Refuses tokens beyond the vocabulary. `whose` they are stands in the error behind the token.
    ///
    /// # Errors
    /// [`Error::Usage`] that names the first of them.
    pub fn knows(&self, tokens: &[u32], whose: &str) -> Result<()> {
        let vocab = self.vocab;
        match tokens.iter().find(|token| **token as usize >= vocab) {
            None => Ok(()),
            Some(token) => Err(Error::Usage(format!(
                "token {token}{whose} lies beyond the vocabulary of {vocab}"
            ))),
        }
    }

    /// Refuses more positions than the context has room for.
    pub(crate) fn fits(&self, positions: usize) -> Result<()> {
        match positions <= self.context {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "{positions} positions do not fit the context of {}",
                self.context
            ))),
        }
    }

    /// The grid of runs of operations, as records have it; none where there are none.
    pub fn run_grid(&self) -> Option<String> {
        self.recording.runs.first().map(|run| Runs::Of(run.grid).to_string())
    }

    /// Bytes of all KV caches.
    pub fn kv_bytes(&self) -> u64 {
        let tensors = self.caches.iter().flat_map(|c| [c.k, c.v]);
        tensors.map(|t| self.recording.tensors[t.0].content.device_bytes()).sum()
    }

    /// Bytes that a step must move when `n_kv` tokens are in the sequence, the current one
    /// included: what its operations declare.
    pub fn bytes(&self, n_kv: usize) -> f64 {
        let state = State { n_kv, ..State::default() };
        let bytes = self
            .recording
            .ops
            .iter()
            .map(|op| op.kernel().cost(&Problem { shape: op.shape.clone(), state }).bytes);
        bytes.sum()
    }
}

/// The operations that a model's step and chunks may have, whichever ways are taken.
pub fn operations(
    config: &Config,
    weights: &Weights,
    options: &GraphOptions,
) -> BTreeSet<&'static str> {
    let steps = step::list(config, weights, options, u64::MAX);
    let chunks = steps.chunks.iter().flat_map(|(_, nodes)| nodes);
    steps.nodes.iter().chain(chunks).flat_map(step::Node::ops).map(|op| op.kernel).collect()
}

/// Builds the decode step of a model: lists its operations, selects a variant for each, packs the
/// weights as those read them. `path` names the model in errors.
pub fn build(
    path: &Path,
    config: &Config,
    weights: &Weights,
    caps: &Capabilities,
    options: &GraphOptions,
) -> Result<DecodeGraph> {
    for name in options.hints.keys() {
        select::known(name)?;
    }
    if options.sequences == 0 {
        return Err(Error::Usage("0 sequences: a step takes at least one further".into()));
    }
    if options.sequences > 1 && options.sampling.is_some() {
        return Err(Error::Usage(format!(
            "{} sequences are decoded greedily; sampling takes one",
            options.sequences
        )));
    }
    let mut chunks = match options.sequences {
        1 => options.chunks,
        _ => Chunks::NONE,
    };
    // No chunk is larger than a context needs.
    chunks.most = chunks.most.min(options.context.next_power_of_two().max(16));
    let options = &GraphOptions { chunks, ..options.clone() };
    let mut step = step::list(config, weights, options, caps.binding_bytes);
    let tuned = options.tuned.as_deref();
    let runs = options.runs.filter(|_| options.sequences == 1);
    let chooser = Chooser { caps, hints: &options.hints, tuned, path, runs };
    let (recording, selected, moved) = chooser.record(&mut step)?;
    for (name, hint) in &options.hints {
        // A manifest may name variants for many models; a file is given to be run.
        if matches!(hint, Hint::File { .. }) && !selected.iter().any(|s| s.kernel == *name) {
            let used: BTreeSet<_> = selected.iter().map(|s| s.kernel.as_str()).collect();
            return Err(Error::Usage(format!(
                "hint {name}={hint}: no operation of {} is a {name}; its are {}",
                path.display(),
                Vec::from_iter(used).join(", ")
            )));
        }
    }
    let moved = |tensor: TensorId| moved[tensor.0].expect("kept for the session");
    let caches = step.caches.iter().map(|c| KvCache { k: moved(c.k), v: moved(c.v), ..*c });
    Ok(DecodeGraph {
        state: moved(step.state),
        tokens: moved(step.tokens),
        logits: moved(step.logits),
        caches: caches.collect(),
        sampling: options.sampling,
        context: options.context,
        sequences: options.sequences,
        vocab: config.vocab,
        selected,
        recording: Arc::new(recording),
    })
}
