//! The reason for a step without a choice: the first operation that left a value which is not
//! finite, and the weights that made it so.

use lathe_device::error::{Error, Result};
use lathe_device::execute::Execute;
use lathe_device::judge::finite::{self, Narrow, NotFinite};
use lathe_device::plan::recording::{Part, TensorInit};
use lathe_kernels::{FloatFormat, STATE_WORDS, StateWord};
use lathe_model::ModelFile;
use lathe_reference::argmax::NO_TOKEN;

use super::decoder::Decoder;
use super::options::Prompts;

impl Decoder<'_> {
    /// The error of a step whose logits are not finite. Runs the sequence once more: steps up to
    /// the first without a choice at full speed, that step and all chunks operation by operation.
    ///
    /// # Errors
    /// The device is lost.
    pub(super) fn not_finite(&mut self) -> Result<Error> {
        let graph = self.graph;
        let n = graph.sequences;
        let state = self.executor.read_words(graph.state)?;
        let done = state[StateWord::Position as usize] as usize;
        let mut tokens = self.executor.read_words(graph.tokens)?;
        let rows = tokens.chunks(n).take(done + 1);
        // Tokens that the host gives have no choice in their place.
        let end = rows.clone().position(|row| row.contains(&NO_TOKEN)).unwrap_or(done);
        tokens.truncate(end * n);
        let parts = std::mem::take(&mut self.ran);
        let parts: Vec<Part> =
            parts.iter().flat_map(|part| vec![part.one(); part.times()]).collect();
        let seed = state[StateWord::Seed as usize];
        self.again(seed, &tokens)?;
        let mut apart = self.executor.apart()?;
        let mut found = None;
        for (i, part) in parts.iter().enumerate() {
            let position = self.state(StateWord::Position)? as usize;
            if position >= end {
                break;
            }
            if let Part::Chunk(_) | Part::Tail = part {
                found = finite::part(walker(&mut apart, self.executor), *part, end - position)?;
            } else {
                self.executor.run(&[*part])?;
                let state = self.executor.read_words(graph.state)?;
                let mut choices =
                    state.chunks(STATE_WORDS).map(|row| row[StateWord::Choice as usize]);
                if choices.any(|choice| choice == NO_TOKEN) {
                    self.again(seed, &tokens)?;
                    self.executor.run(&parts[..i])?;
                    found = finite::part(walker(&mut apart, self.executor), *part, 1)?;
                }
            }
            if let Some(found) = &found {
                let in_chunks = !matches!(part, Part::Steps(_));
                return Ok(Error::CheckFailed(self.said(found, position, &tokens, in_chunks)));
            }
        }
        let last = end.saturating_sub(1);
        Ok(Error::CheckFailed(format!(
            "position {last}: logits are not finite, and are finite where the same tokens run once \
             more: a kernel does not always give the same"
        )))
    }

    /// A new sequence to which all tokens are given.
    fn again(&mut self, seed: u32, tokens: &[u32]) -> Result<()> {
        let (graph, n) = (self.graph, self.graph.sequences);
        self.reset(seed)?;
        self.executor.write_words(graph.tokens, 0, tokens)?;
        for row in 0..n {
            let word = row * STATE_WORDS + StateWord::PromptLen as usize;
            self.executor.write_words(graph.state, word, &[(tokens.len() / n) as u32])?;
        }
        Ok(())
    }

    fn said(&self, found: &NotFinite, position: usize, tokens: &[u32], in_chunks: bool) -> String {
        let NotFinite { op, layer, tensor, index, value, narrow } = found;
        let prompts = if in_chunks { Prompts::Chunks } else { Prompts::TokenByToken };
        let cause = self.weight(*layer).or_else(|| narrow.map(|narrow| self.cure(narrow)));
        let cause = cause.unwrap_or_else(|| {
            format!(
                "no weight of the file is to blame, so f32 overflows or the kernel is wrong: \
                 `{}` compares it with the CPU reference",
                self.graph.diff_command(tokens, prompts)
            )
        });
        format!(
            "position {position}: {tensor}[{index}] is {value} after operation {op}, the first that \
             leaves a value which is not finite; {cause}"
        )
    }

    /// The options with which a value has room.
    pub(super) fn cure(&self, narrow: Narrow) -> String {
        match narrow {
            Narrow::Activations => format!(
                "f16 holds values up to 65504, f32 has room: {}",
                self.wider_activations().join(" ")
            ),
            Narrow::Operands { kernel, wide } => {
                format!("matrix units multiply f16, up to 65504: --hint {kernel}={wide} has room")
            }
            Narrow::Kv => {
                "the cache's scales and values are f16, up to 65504: --kv f32 has room".into()
            }
        }
    }

    /// Options that widen all activations of the graph: another value may overflow next.
    fn wider_activations(&self) -> Vec<&'static str> {
        let tensors = &self.graph.recording.tensors;
        let is_narrow = |of_chunk: bool| {
            tensors.iter().filter(|tensor| tensor.is_of_chunk() == of_chunk).any(|tensor| {
                matches!(tensor.content, TensorInit::Activation { format, .. }
                    if format != FloatFormat::F32)
            })
        };
        let options = [(true, "--prompt-activations f32"), (false, "--activations f32")];
        options.into_iter().filter(|(of, _)| is_narrow(*of)).map(|(_, option)| option).collect()
    }

    /// The weight in the file that is not finite: of this layer or of none, else of any.
    pub(super) fn weight(&self, layer: Option<usize>) -> Option<String> {
        let path = &self.graph.path;
        let file = ModelFile::open(path).ok()?;
        let values = lathe_model::finite::values(&file).not_finite;
        let own = |name: &str| {
            let of_layer = layer.map(|i| (format!("blk.{i}."), format!("layers.{i}.")));
            match &of_layer {
                Some((gguf, folder)) => name.contains(gguf) || name.contains(folder),
                None => !name.contains("blk.") && !name.contains("layers."),
            }
        };
        let bad = values.iter().find(|bad| own(&bad.name)).or(values.first())?;
        Some(format!(
            "{} has {} at element {} (byte {} of {}); `lathe inspect --values {}` lists all",
            bad.name,
            bad.value,
            bad.index,
            bad.byte,
            bad.file,
            path.display()
        ))
    }
}

/// The executor that runs operations one by one.
fn walker<'e>(
    apart: &'e mut Option<Box<dyn Execute>>,
    executor: &'e mut dyn Execute,
) -> &'e mut dyn Execute {
    match apart {
        Some(apart) => apart.as_mut(),
        None => executor,
    }
}
