//! Plan of a synthetic checkpoint: its metadata, and its tensors with the spread of their values.

use lathe_kernels::Format;

use super::weights::Values;
use super::{Fallback, Fallbacks, SynthArch, SynthSpec, vocab};
use crate::config::{Arch, Config, expected, write_shape};
use crate::gguf::GgmlType;
use crate::gguf::writer::GgufWriter;
use crate::quantise::file_types;
use crate::rope::Llama3Rope;

/// The shape of a model.
fn shape(arch: SynthArch) -> Config {
    let gemma3 = Config {
        n_layers: 26,
        hidden: 1152,
        ffn: 6912,
        n_heads: 4,
        n_kv_heads: 1,
        head_dim: 256,
        vocab: 262_144,
        context_length: 32_768,
        rms_eps: 1e-6,
        rope_base: 1e6,
        window: Some(512),
        ..Config::of_arch(Arch::Gemma3)
    };
    let llama = Config {
        n_layers: 16,
        hidden: 2048,
        ffn: 8192,
        n_heads: 32,
        n_kv_heads: 8,
        head_dim: 64,
        vocab: 128_256,
        context_length: 131_072,
        rms_eps: 1e-5,
        rope_base: 5e5,
        ..Config::of_arch(Arch::Llama)
    };
    let qwen3 = Config {
        n_layers: 28,
        hidden: 2048,
        ffn: 6144,
        n_heads: 16,
        n_kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
        context_length: 40_960,
        rms_eps: 1e-6,
        rope_base: 1e6,
        ..Config::of_arch(Arch::Qwen3)
    };
    let small = |config: Config, n_layers, hidden, ffn, heads: [usize; 2], head_dim, vocab| {
        let [n_heads, n_kv_heads] = heads;
        Config { n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab, ..config }
    };
    match arch {
        SynthArch::Gemma3_1b => gemma3,
        SynthArch::Llama3_2_1b => llama,
        SynthArch::Qwen3_1_7b => qwen3,
        SynthArch::Gemma3Mini => {
            Config { window: Some(32), ..small(gemma3, 8, 320, 1004, [4, 1], 64, 4099) }
        }
        SynthArch::LlamaMini => small(llama, 4, 256, 684, [8, 2], 32, 2051),
        SynthArch::Qwen3Mini => small(qwen3, 4, 256, 768, [4, 2], 128, 3001),
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
        let config = shape(spec.arch);
        let mut writer = GgufWriter::new();
        metadata(&mut writer, spec, &config);
        let (mut tensors, mut fallbacks) = (Vec::new(), Fallbacks::default());
        for (name, dims, _) in expected(&config, config.arch == Arch::Llama) {
            let stream = tensors.len() as u64;
            let (asked, values) = if name == "rope_freqs.weight" {
                let factors = llama3_rope_factors(config.head_dim, config.rope_base.into());
                (Format::F32, Values::Given(factors))
            } else if dims.len() == 1 {
                (Format::F32, Values::about_one(spec.seed, stream))
            } else {
                // A matrix keeps the spread of its input. As the tied head of a vector of spread 1
                // the embedding gives logits of spread 1; Gemma's factor √hidden makes inputs of
                // spread 1 of it.
                let embed = spec.embed_quant.filter(|_| name == "token_embd.weight");
                let std = 1.0 / (dims[0] as f64).sqrt();
                (embed.unwrap_or(spec.quant), Values::normal(spec.seed, stream, std))
            };
            let stored = fallbacks.fitting(asked, dims[0]);
            let offset = writer.add_tensor(&name, GgmlType::of(stored), &dims);
            tensors.push(Tensor { stored, values, offset, dims });
        }
        let (head, data_len, fallbacks) = (writer.head(), writer.data_len(), fallbacks.list());
        Self { head, tensors, fallbacks, data_len }
    }
}

fn metadata(writer: &mut GgufWriter, spec: &SynthSpec, config: &Config) {
    let SynthSpec { arch, quant, embed_quant, seed } = spec;
    writer.add_str("general.architecture", config.arch.name());
    writer.add_str("general.type", "model");
    let name = format!("{arch} synthetic {} seed {seed}", quant.name());
    writer.add_str("general.name", &name);
    file_types(writer, *quant, *embed_quant);
    writer.add_u64("lathe.synth.seed", *seed);
    write_shape(writer, config);
    vocab::add(writer, config.vocab);
}

/// Rope divisors of Llama 3.2.
fn llama3_rope_factors(head_dim: usize, base: f64) -> Vec<f32> {
    let rope = Llama3Rope {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192.0,
    };
    rope.divisors(head_dim, base)
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
