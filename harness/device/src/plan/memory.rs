//! Device memory of a recording, known before anything is allocated.

use std::fmt;

use lathe_kernels::{KvFormat, KvVectors};
use lathe_record::bytes;
use serde::Serialize;

use super::recording::{Op, Recording, TensorId, TensorInit, padded};

/// Bytes of one upload, and of the staging memory it takes.
pub const UPLOAD_BYTES: u64 = 16 << 20;

/// Maximum number of uploads in flight while the next one is filled.
pub const UPLOADS_IN_FLIGHT: u64 = 2;

/// Bytes of device memory by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Matrices, as the kernels read them.
    pub weights: u64,
    /// KV caches.
    pub kv_cache: u64,
    /// Other constant inputs: norms, rotary tables, uniforms.
    pub tables: u64,
    /// Memory of a decode step: activations, scratch, tokens and state.
    pub step: u64,
    /// Memory that only chunks of a prompt use.
    pub prompt: u64,
    /// Staging at its peak, while the rest is filled. A discrete GPU may place it in host memory.
    pub staging: u64,
}

impl Memory {
    /// Memory that an executor of a recording allocates.
    pub fn of(recording: &Recording) -> Self {
        Self::of_those(recording, |_| true)
    }

    /// Memory of the tensors that `own` names: the others are shared.
    pub fn of_those(recording: &Recording, own: impl Fn(TensorId) -> bool) -> Self {
        let among = |ops: &mut dyn Iterator<Item = &Op>| {
            let mut used = vec![false; recording.tensors.len()];
            for op in ops {
                let bound = op.bindings.iter().map(|(_, id)| *id);
                for TensorId(id) in bound.chain(op.own.iter().map(|(_, id)| *id)) {
                    used[id] = true;
                }
            }
            used
        };
        let step = among(&mut recording.ops.iter());
        let chunks = among(&mut recording.chunks.iter().flat_map(|chunk| &chunk.ops));
        let mut memory = Self::default();
        let mut filled = 0;
        let tensors = recording.tensors.iter().enumerate();
        let allocated = tensors.filter(|(_, tensor)| !tensor.content.is_unused());
        for (i, tensor) in allocated.filter(|(i, _)| own(TensorId(*i))) {
            let bytes = padded(tensor.content.device_bytes());
            let part = match &tensor.content {
                _ if chunks[i] && !step[i] && is_worked_on(&tensor.content) => &mut memory.prompt,
                TensorInit::Weights(..) | TensorInit::WeightPart(..) => &mut memory.weights,
                TensorInit::Kv { .. } => &mut memory.kv_cache,
                content if is_worked_on(content) => &mut memory.step,
                _ => &mut memory.tables,
            };
            *part += bytes;
            if !is_worked_on(&tensor.content) {
                filled += bytes;
            }
        }
        memory.staging = filled.min(UPLOAD_BYTES * (UPLOADS_IN_FLIGHT + 1));
        memory
    }

    /// Total at its peak, while the last tensors are filled.
    pub fn total(&self) -> u64 {
        self.tensors() + self.staging
    }

    /// All tensors, without staging.
    pub fn tensors(&self) -> u64 {
        self.weights + self.kv_cache + self.tables + self.step + self.prompt
    }
}

/// Returns true if the recording itself writes the tensor.
fn is_worked_on(content: &TensorInit) -> bool {
    match content {
        TensorInit::Activation { .. } | TensorInit::Words(_) | TensorInit::Counter(_) => true,
        TensorInit::Kv { .. } => true,
        TensorInit::Weights(..) | TensorInit::Apart(_) | TensorInit::WeightPart(..) => false,
        TensorInit::Values(_) | TensorInit::Uniform(_) | TensorInit::Rope(_) => false,
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("weights", self.weights),
            ("KV cache", self.kv_cache),
            ("tables", self.tables),
            ("a step", self.step),
            ("chunks of a prompt", self.prompt),
            ("staging", self.staging),
        ];
        let parts = parts.iter().filter(|(_, n)| *n > 0);
        let parts: Vec<_> = parts.map(|(name, n)| format!("{name} {}", bytes(*n))).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Advice for a recording that is too large: options that need less memory, and their savings.
pub fn advice(recording: &Recording, memory: &Memory) -> String {
    let mut advice = Vec::new();
    let has = |is: &dyn Fn(&TensorInit) -> bool| recording.tensors.iter().any(|t| is(&t.content));
    if memory.kv_cache > 0 {
        advice.push(format!("a shorter context (its caches take {})", bytes(memory.kv_cache)));
    }
    let kv = recording.tensors.iter().find_map(|tensor| match tensor.content {
        TensorInit::Kv { vectors, .. } => Some(vectors),
        _ => None,
    });
    if let Some(vectors) = kv {
        let smaller = match vectors.format {
            KvFormat::F32 => Some(KvFormat::F16),
            KvFormat::F16 => Some(KvFormat::Q8_0),
            KvFormat::Q8_0 => None,
        };
        if let Some(format) = smaller {
            let of = |vectors: KvVectors| vectors.bytes() as u64;
            let saved = of(vectors).saturating_sub(of(KvVectors { format, ..vectors }));
            // Short heads have more of scales than they save.
            if saved > 0 {
                let saved = bytes(memory.kv_cache * saved / of(vectors));
                advice.push(format!("--kv {} (saves {saved})", format.name()));
            }
        }
    }
    if memory.prompt > 0 {
        advice.push(format!("a smaller --prompt-chunk (chunks take {})", bytes(memory.prompt)));
    }
    if has(&|c| matches!(c, TensorInit::Weights(rows, _) if rows.format.is_dense())) {
        advice.push("quantised weights (`lathe quantize`)".to_owned());
    } else if memory.weights > 0 {
        advice.push("weights of fewer bits (`lathe quantize`)".to_owned());
    }
    advice.join(", ")
}
