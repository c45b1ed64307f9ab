//! A model's decode step and the chunks of its prompts as a recording, in passes: list the
//! operations, select a variant for each, pack the weights.

mod choose;
mod chunk;
mod layer;
mod step;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lathe_kernels::{Capabilities, FloatFormat, KvFormat, Problem, State};

use super::load::Weights;
use super::options::{DecodeOptions, Prompts};
use super::sampling::Sampling;
use choose::Chooser;
use lathe_device::error::{Error, Result};
use lathe_device::plan::persistent::Persistent;
use lathe_device::plan::recording::{Recording, TensorId};
use lathe_device::plan::target::kernel_named;
use lathe_device::plan::tuned::Tuned;
use lathe_model::Config;
pub use lathe_record::record::Selected;

/// The KV cache of one layer, full or a ring over the sliding window: keys and values,
/// (kv_heads, capacity, head_dim) each.
#[derive(Clone, Copy, Debug)]
pub struct KvCache {
    /// Keys, rotated.
    pub k: TensorId,
    /// Values.
    pub v: TensorId,
    /// Slots; the context for a full cache, the window for a ring.
    pub capacity: usize,
    /// Old tokens are overwritten once `capacity` have been seen.
    pub sliding: bool,
}

/// A decode step with handles to the tensors that a session reads and writes.
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
    /// Cache of each layer.
    pub caches: Vec<KvCache>,
    /// Settings of sampling; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Storage of the inputs of matrices in a step.
    pub acts: FloatFormat,
    /// Positions it holds.
    pub context: usize,
    /// Sequences that a step takes a token further.
    pub sequences: usize,
    /// Vocabulary.
    pub vocab: usize,
    /// Selections, one an operation and shape.
    pub selected: Vec<Selected>,
    /// The model's path.
    pub path: PathBuf,
    /// Options of a command that builds the same step.
    pub(crate) flags: Vec<String>,
}

impl DecodeGraph {
    /// Refuses tokens beyond the vocabulary. The error names their owner, `whose`, after the token.
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

    /// The command that compares tokens with the reference operation by operation: in the chunks of
    /// this graph, or token by token.
    pub fn diff_command(&self, tokens: &[u32], prompts: Prompts) -> String {
        let mut words = vec!["lathe diff".to_owned(), quoted(&self.path.display().to_string())];
        let ids: Vec<_> = tokens.iter().map(ToString::to_string).collect();
        words.extend(["--prompt-tokens".into(), ids.join(",")]);
        let in_chunks = prompts == Prompts::Chunks && !self.recording.chunks.is_empty();
        let chunk = self.recording.chunks.first().map_or(0, |chunk| chunk.tokens);
        if !in_chunks || chunk < tokens.len().next_power_of_two().clamp(16, 1024) {
            let chunk = if in_chunks { chunk } else { 0 };
            words.push(format!("--prompt-chunk {chunk}"));
        }
        words.extend(self.flags.iter().map(|word| quoted(word)));
        words.join(" ")
    }

    /// The grid of persistent kernels, as records have it; none where there are none.
    pub fn persistent_grid(&self) -> Option<String> {
        self.recording.persistent.first().map(|kernel| Persistent::Of(kernel.grid).to_string())
    }

    /// Bytes of all KV caches.
    pub fn kv_bytes(&self) -> u64 {
        let tensors = self.caches.iter().flat_map(|c| [c.k, c.v]);
        tensors.map(|t| self.recording.tensors[t.0].content.device_bytes()).sum()
    }

    /// Bytes that a step must move when `n_kv` tokens are in the sequence, the current one
    /// included, as its operations declare them.
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

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Sequences from which on quantised weights are multiplied on matrix units: there f16 is all that a
/// product keeps of a weight, and as in chunks of prompts of an activation, unless the cache keeps
/// f32.
const SEQUENCES_ON_UNITS: usize = 9;

/// Returns true if inputs of matrices are stored in f16 whatever the options say.
fn is_narrow(weights: &Weights, caps: &Capabilities, options: &DecodeOptions) -> bool {
    options.sequences >= SEQUENCES_ON_UNITS
        && options.kv != KvFormat::F32
        && caps.has_matrix_units()
        && weights.matrices().any(|rows| !rows.format.is_dense())
}

/// Builds the decode step of a model by the tuned choices of its adapter, if there are any, and the
/// kernels' own preferences: lists its operations, selects a variant for each, packs the weights as
/// those read them. `path` names the model in errors.
///
/// # Errors
/// A hint that cannot hold, several sequences that are sampled, or an operation that no variant can
/// run.
pub fn build(
    path: &Path,
    config: &Config,
    weights: &Weights,
    caps: &Capabilities,
    options: &DecodeOptions,
    tuned: Option<&Tuned>,
) -> Result<DecodeGraph> {
    for name in options.hints.keys() {
        kernel_named(name)?;
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
    let (chunks, flags) = (options.built_chunks(), options.flags());
    let acts = if is_narrow(weights, caps, options) { FloatFormat::F16 } else { options.acts };
    let options = &DecodeOptions { acts, ..options.clone() };
    let mut step = step::list(config, weights, options, chunks, caps.binding_bytes);
    let persistent = match options.persistent {
        Persistent::Of(grid) | Persistent::Assumed(grid) if options.sequences == 1 => Some(grid),
        _ => None,
    };
    let (hints, tensors) = (&options.hints, std::mem::take(&mut step.tensors));
    let caches = std::mem::take(&mut step.caches);
    let mut chooser =
        Chooser { caps, hints, tuned, path, persistent, tensors, selected: Vec::new() };
    let recording = chooser.record(step)?;
    let selected = chooser.selected;
    for (name, hint) in &options.hints {
        // A manifest may name variants for many models; a file is given to be run.
        if hint.path().is_some() && !selected.iter().any(|s| s.kernel == *name) {
            let used: BTreeSet<_> = selected.iter().map(|s| s.kernel.as_str()).collect();
            return Err(Error::Usage(format!(
                "hint {name}={}: no operation of {} is a {name}; its are {}",
                hint.name(),
                path.display(),
                Vec::from_iter(used).join(", ")
            )));
        }
    }
    let named = |name: &str| {
        let tensor = recording.tensors.iter().position(|tensor| tensor.name == name);
        TensorId(tensor.expect("operations of every step bind it"))
    };
    Ok(DecodeGraph {
        state: named("state"),
        tokens: named("tokens"),
        logits: named("logits"),
        caches,
        sampling: options.sampling,
        acts,
        context: options.context,
        sequences: options.sequences,
        vocab: config.vocab,
        selected,
        path: path.to_owned(),
        flags,
        recording: Arc::new(recording),
    })
}
