//! Plan of a synthetic checkpoint: its metadata, and its tensors with the spread of their values.

use lathe_kernels::Format;

use super::weights::Values;
use super::{Fallback, Fallbacks, SynthArch, SynthSpec, vocab};
use crate::config::Arch;
use crate::gguf::GgmlType;
use crate::gguf::writer::GgufWriter;
use crate::quantise::file_type;
use crate::rope::Llama3Rope;

/// The shape of a model.
struct Shape {
    arch: Arch,
    layers: u32,
    hidden: u32,
    ffn: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    vocab: u32,
    context: u32,
    eps: f32,
    rope_base: f32,
    /// Gemma 3 alone has one.
    window: Option<u32>,
}

fn shape(arch: SynthArch) -> Shape {
    let gemma3 = Shape {
        arch: Arch::Gemma3,
        layers: 26,
        hidden: 1152,
        ffn: 6912,
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        vocab: 262_144,
        context: 32_768,
        eps: 1e-6,
        rope_base: 1e6,
        window: Some(512),
    };
    let llama = Shape {
        arch: Arch::Llama,
        layers: 16,
        hidden: 2048,
        ffn: 8192,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        vocab: 128_256,
        context: 131_072,
        eps: 1e-5,
        rope_base: 5e5,
        window: None,
    };
    let qwen3 = Shape {
        arch: Arch::Qwen3,
        layers: 28,
        hidden: 2048,
        ffn: 6144,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
        context: 40_960,
        eps: 1e-6,
        rope_base: 1e6,
        window: None,
    };
    match arch {
        SynthArch::Gemma3_1b => gemma3,
        SynthArch::Llama3_2_1b => llama,
        SynthArch::Qwen3_1_7b => qwen3,
        SynthArch::Gemma3Mini => Shape {
            layers: 8,
            hidden: 320,
            ffn: 1004,
            heads: 4,
            kv_heads: 1,
            head_dim: 64,
            vocab: 4099,
            window: Some(32),
            ..gemma3
        },
        SynthArch::LlamaMini => Shape {
            layers: 4,
            hidden: 256,
            ffn: 684,
            heads: 8,
            kv_heads: 2,
            head_dim: 32,
            vocab: 2051,
            ..llama
        },
        SynthArch::Qwen3Mini => Shape {
            layers: 4,
            hidden: 256,
            ffn: 768,
            heads: 4,
            kv_heads: 2,
            head_dim: 128,
            vocab: 3001,
            ..qwen3
        },
    }
}

/// A tensor to be written.
pub(super) struct Tensor {
    pub(super) stored: Format,
    pub(super) values: Values,
    /// Offset from the start of the tensor data.
    pub(super) offset: u64,
    dims: Vec<u64>,
}

impl Tensor {
    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    pub(super) fn bytes(&self) -> u64 {
        let blocks = self.elements() / self.stored.block_len() as u64;
        blocks * self.stored.block_bytes() as u64
    }
}

/// The head of the file and the tensors that follow it.
pub(super) struct Plan {
    pub(super) head: Vec<u8>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) fallbacks: Vec<Fallback>,
    data_len: u64,
}

impl Plan {
    pub(super) fn total_bytes(&self) -> u64 {
        self.head.len() as u64 + self.data_len
    }

    pub(super) fn of(spec: &SynthSpec) -> Self {
        let shape = shape(spec.arch);
        let mut writer = GgufWriter::new();
        metadata(&mut writer, spec, &shape);
        let mut list = List { spec, writer, tensors: Vec::new(), fallbacks: Fallbacks::default() };
        list.model(&shape);
        Self {
            head: list.writer.head(),
            data_len: list.writer.data_len(),
            tensors: list.tensors,
            fallbacks: list.fallbacks.list(),
        }
    }
}

fn metadata(writer: &mut GgufWriter, spec: &SynthSpec, shape: &Shape) {
    let SynthSpec { arch, quant, embed_quant, seed } = spec;
    writer.add_str("general.architecture", shape.arch.name());
    writer.add_str("general.type", "model");
    let name = format!("{arch} synthetic {} seed {seed}", quant.name());
    writer.add_str("general.name", &name);
    writer.add_u32("general.file_type", file_type(*quant));
    if !(quant.is_dense() && embed_quant.is_none_or(Format::is_dense)) {
        writer.add_u32("general.quantization_version", 2);
    }
    writer.add_u64("lathe.synth.seed", *seed);

    let key = |key: &str| format!("{}.{key}", shape.arch);
    writer.add_u32(&key("context_length"), shape.context);
    writer.add_u32(&key("embedding_length"), shape.hidden);
    writer.add_u32(&key("block_count"), shape.layers);
    writer.add_u32(&key("feed_forward_length"), shape.ffn);
    writer.add_u32(&key("attention.head_count"), shape.heads);
    writer.add_u32(&key("attention.head_count_kv"), shape.kv_heads);
    writer.add_u32(&key("attention.key_length"), shape.head_dim);
    writer.add_u32(&key("attention.value_length"), shape.head_dim);
    writer.add_f32(&key("attention.layer_norm_rms_epsilon"), shape.eps);
    writer.add_f32(&key("rope.freq_base"), shape.rope_base);
    if let Some(window) = shape.window {
        writer.add_u32(&key("attention.sliding_window"), window);
    }
    if shape.arch == Arch::Llama {
        writer.add_u32(&key("rope.dimension_count"), shape.head_dim);
        writer.add_u32(&key("vocab_size"), shape.vocab);
    }
    vocab::add(writer, shape.vocab as usize);
}

struct List<'a> {
    spec: &'a SynthSpec,
    writer: GgufWriter,
    tensors: Vec<Tensor>,
    fallbacks: Fallbacks,
}

impl List<'_> {
    fn add(&mut self, name: &str, asked: Format, dims: &[u32], values: Values) {
        let dims: Vec<u64> = dims.iter().copied().map(u64::from).collect();
        let stored = self.fallbacks.fitting(asked, dims[0]);
        let offset = self.writer.add_tensor(name, GgmlType::of(stored), &dims);
        self.tensors.push(Tensor { stored, values, offset, dims });
    }

    fn stream(&self) -> u64 {
        self.tensors.len() as u64
    }

    /// A matrix of `rows` over vectors of `row_len`, spread so that it keeps their spread.
    fn matrix(&mut self, name: &str, row_len: u32, rows: u32) {
        let std = 1.0 / f64::from(row_len).sqrt();
        let values = Values::normal(self.spec.seed, self.stream(), std);
        self.add(name, self.spec.quant, &[row_len, rows], values);
    }

    fn norm(&mut self, name: &str, len: u32) {
        let values = Values::about_one(self.spec.seed, self.stream());
        self.add(name, Format::F32, &[len], values);
    }

    fn model(&mut self, s: &Shape) {
        let q_rows = s.heads * s.head_dim;
        let kv_rows = s.kv_heads * s.head_dim;
        let gemma3 = s.arch == Arch::Gemma3;

        // As the tied head of a vector of spread 1 this gives logits of spread 1; Gemma's factor
        // √hidden makes inputs of spread 1 of it.
        let std = 1.0 / f64::from(s.hidden).sqrt();
        let values = Values::normal(self.spec.seed, self.stream(), std);
        let stored = self.spec.embed_quant.unwrap_or(self.spec.quant);
        self.add("token_embd.weight", stored, &[s.hidden, s.vocab], values);
        self.norm("output_norm.weight", s.hidden);
        if s.arch == Arch::Llama {
            let factors = llama3_rope_factors(s.head_dim, f64::from(s.rope_base));
            let dims = [s.head_dim / 2];
            let values = Values::Given(factors);
            self.add("rope_freqs.weight", Format::F32, &dims, values);
        }
        for layer in 0..s.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            self.norm(&name("attn_norm"), s.hidden);
            self.matrix(&name("attn_q"), s.hidden, q_rows);
            self.matrix(&name("attn_k"), s.hidden, kv_rows);
            self.matrix(&name("attn_v"), s.hidden, kv_rows);
            self.matrix(&name("attn_output"), q_rows, s.hidden);
            if s.arch != Arch::Llama {
                self.norm(&name("attn_q_norm"), s.head_dim);
                self.norm(&name("attn_k_norm"), s.head_dim);
            }
            if gemma3 {
                self.norm(&name("post_attention_norm"), s.hidden);
            }
            self.norm(&name("ffn_norm"), s.hidden);
            self.matrix(&name("ffn_gate"), s.hidden, s.ffn);
            self.matrix(&name("ffn_up"), s.hidden, s.ffn);
            self.matrix(&name("ffn_down"), s.ffn, s.hidden);
            if gemma3 {
                self.norm(&name("post_ffw_norm"), s.hidden);
            }
        }
    }
}

/// Rope divisors of Llama 3.2.
fn llama3_rope_factors(head_dim: u32, base: f64) -> Vec<f32> {
    let rope = Llama3Rope {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192.0,
    };
    rope.divisors(head_dim as usize, base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rope_factors_match_a_converted_checkpoint() {
        // rope_freqs.weight as the official converter writes it: head_dim 32, base 500000.
        let ours = llama3_rope_factors(32, 5e5);
        assert_eq!((&ours[..8], &ours[9..]), (&[1.0; 8][..], &[32.0; 7][..]));
        assert!((ours[8] - 3.292_262_8).abs() < 1e-5, "{}", ours[8]);
    }
}
