//! The recording on the CPU, operation by operation through the reference crate.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::oracle::{self, expected};
use super::value::{Outcome, Value};
use super::{Batch, Execute, Stream};
use crate::error::Result;
use crate::plan::recording::{Content, Recording, TensorId};

/// Runs a recording with the reference.
#[derive(Debug)]
pub struct CpuExecutor {
    /// What is executed.
    pub recording: Arc<Recording>,
    /// One value a tensor.
    pub values: Vec<Value>,
}

impl CpuExecutor {
    /// An executor with every tensor at its initial content.
    pub fn new(recording: Arc<Recording>) -> Self {
        let values = recording.tensors.iter().map(|t| Value::of(&t.content)).collect();
        Self { recording, values }
    }

    /// Runs one operation.
    pub fn run_op(&mut self, index: usize) -> Result<()> {
        let recording = Arc::clone(&self.recording);
        let op = &recording.ops[index];
        if oracle::in_place(op, &mut self.values)? {
            return Ok(());
        }
        for (tensor, outcome) in expected(op, &self.values)? {
            self.values[tensor.0] = match outcome {
                Outcome::Real(e) => {
                    let mut values = e.to_f32();
                    let content = &recording.tensors[tensor.0].content;
                    if let Content::Activation { format, .. } = content {
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
        }
        Ok(())
    }
}

impl Execute for CpuExecutor {
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

    fn run(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            for op in 0..self.recording.ops.len() {
                self.run_op(op)?;
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
        for step in 0..stream.batches.iter().sum() {
            self.run(1)?;
            let word = self.values[stream.words.0].words()[stream.from + step];
            let batch = Batch { words: vec![word], at: begun.elapsed(), gpu: None };
            if on(batch).is_break() {
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
