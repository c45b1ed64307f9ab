//! The recording on the CPU, operation by operation through the reference crate.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use lathe_record::rng::Rng;

use super::oracle::{self, expected};
use super::value::{Outcome, Value};
use super::{Batch, Execute, Stream};
use crate::error::Result;
use crate::plan::recording::{Part, Recording, TensorId, TensorInit};

/// Runs a recording with the reference.
#[derive(Debug)]
pub struct CpuExecutor {
    /// The recording it executes.
    pub recording: Arc<Recording>,
    /// One value a tensor.
    pub values: Vec<Value>,
    nudge: Option<Nudge>,
}

/// Relative changes of embeddings, drawn from a generator.
#[derive(Debug)]
struct Nudge {
    most: f32,
    rng: Rng,
}

impl Nudge {
    fn apply(&mut self, values: &mut [f32]) {
        for value in values {
            *value *= 1.0 + self.most * (2.0 * self.rng.uniform() - 1.0);
        }
    }
}

impl CpuExecutor {
    /// An executor with every tensor at its initial content.
    pub fn new(recording: Arc<Recording>) -> Self {
        let values = recording.tensors.iter().map(|t| Value::of(&t.content)).collect();
        Self { recording, values, nudge: None }
    }

    /// An executor whose embeddings are off by up to the part `most` of each value, drawn from a
    /// seed. What narrow storage rounds up and what it rounds down is then drawn too, so another
    /// seed shows another error of that storage.
    pub fn nudged(recording: Arc<Recording>, most: f32, seed: u64) -> Self {
        Self { nudge: Some(Nudge { most, rng: Rng::new(seed) }), ..Self::new(recording) }
    }

    /// Runs one operation of a part.
    pub fn run_op(&mut self, part: Part, index: usize) -> Result<()> {
        let recording = Arc::clone(&self.recording);
        let op = &recording.part(part)[index];
        if oracle::in_place(op, &mut self.values)? {
            return Ok(());
        }
        for (tensor, outcome) in expected(op, &self.values)? {
            let new = match outcome {
                Outcome::Real(e) => {
                    let mut values = e.to_f32();
                    if let Some(nudge) = self.nudge.as_mut().filter(|_| op.label.op == "embed") {
                        nudge.apply(&mut values);
                    }
                    let content = &recording.tensors[tensor.0].content;
                    if let TensorInit::Activation { format, .. } = content {
                        for v in &mut values {
                            *v = format.round(*v);
                        }
                    }
                    Value::F32(values)
                }
                Outcome::Largest(logits) => Value::F32(vec![logits.own()]),
                Outcome::Words(words)
                | Outcome::Choice { words, .. }
                | Outcome::Ranking { indices: words, .. } => Value::U32(words),
            };
            // Tensors of a prompt's chunks have room for the largest one.
            match (&mut self.values[tensor.0], new) {
                (Value::F32(all), Value::F32(new)) => all[..new.len()].copy_from_slice(&new),
                (Value::U32(all), Value::U32(new)) => all[..new.len()].copy_from_slice(&new),
                (all, new) => *all = new,
            }
        }
        Ok(())
    }
}

impl Execute for CpuExecutor {
    fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    fn apart(&self) -> Result<Option<Box<dyn Execute>>> {
        Ok(None)
    }

    fn run_op(&mut self, part: Part, op: usize) -> Result<()> {
        Self::run_op(self, part, op)
    }

    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()> {
        if let Value::U32(all) = &mut self.values[tensor.0] {
            all[at..at + words.len()].copy_from_slice(words);
        }
        Ok(())
    }

    fn clear(&mut self, tensor: TensorId) -> Result<()> {
        match &mut self.values[tensor.0] {
            Value::F32(v) => v.fill(0.0),
            Value::U32(v) => v.fill(0),
            Value::Weights(_) | Value::Rope(_) => {}
        }
        Ok(())
    }

    fn prepare(&mut self, _parts: &[Part]) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, parts: &[Part]) -> Result<()> {
        for &part in parts {
            for _ in 0..part.times() {
                for op in 0..self.recording.part(part).len() {
                    self.run_op(part, op)?;
                }
            }
        }
        Ok(())
    }

    fn stream(
        &mut self,
        stream: &Stream,
        on: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<()> {
        let begun = Instant::now();
        for submission in &stream.submissions {
            self.run(&submission.parts)?;
            let words = self.values[stream.words.0].words()[submission.words.clone()].to_vec();
            let at = begun.elapsed();
            if on(Batch { words, steps: submission.steps(), at, gpu: None }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_words(&mut self, tensor: TensorId) -> Result<Vec<u32>> {
        Ok(self.values[tensor.0].words().to_vec())
    }

    fn read_f32(&mut self, tensor: TensorId) -> Result<Vec<f32>> {
        Ok(self.values[tensor.0].f32s().to_vec())
    }
}
