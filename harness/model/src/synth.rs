//! Deterministic random checkpoints of the real shapes, for tests of speed and correctness without
//! a model's weights. Other engines load them.
//!
//! Every value is a function of seed, tensor and element alone, so any number of threads writes the
//! same bytes.

mod vocab;
mod weights;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lathe_kernels::Format;
use weights::Values;

use super::config::{Arch, Config, write_shape};
use super::error::ModelError;
use super::gguf::writer::GgufWriter;
use super::names::expected;
use super::quantise::{file_types, quantise};
use super::rope::Llama3Rope;
use super::write::{Fallback, Job, fallbacks, in_parts, write};

/// The shapes that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "the models' own names")]
pub enum SynthArch {
    /// Gemma 3 1B.
    Gemma3_1b,
    /// Llama 3.2 1B.
    Llama3_2_1b,
    /// Qwen3 1.7B.
    Qwen3_1_7b,
    /// Gemma 3 in small: widths that are no multiple of 8, a short window, one global layer.
    Gemma3Mini,
    /// Llama in small: four query heads to a KV head, llama3 rope factors.
    LlamaMini,
    /// Qwen3 in small: heads wider together than the residual stream.
    Qwen3Mini,
}

/// Name, architecture, sizes as [`Config::new`] takes them, epsilon, rope base and window.
type Shape = (&'static str, Arch, [usize; 8], f32, f32, Option<usize>);

/// In the order of [`SynthArch`].
#[rustfmt::skip]
const SHAPES: [Shape; 6] = [
    ("gemma3-1b", Arch::Gemma3, [26, 1152, 6912, 4, 1, 256, 262_144, 32_768], 1e-6, 1e6, Some(512)),
    ("llama3.2-1b", Arch::Llama, [16, 2048, 8192, 32, 8, 64, 128_256, 131_072], 1e-5, 5e5, None),
    ("qwen3-1.7b", Arch::Qwen3, [28, 2048, 6144, 16, 8, 128, 151_936, 40_960], 1e-6, 1e6, None),
    ("gemma3-mini", Arch::Gemma3, [8, 320, 1004, 4, 1, 64, 4099, 32_768], 1e-6, 1e6, Some(32)),
    ("llama-mini", Arch::Llama, [4, 256, 684, 8, 2, 32, 2051, 131_072], 1e-5, 5e5, None),
    ("qwen3-mini", Arch::Qwen3, [4, 256, 768, 4, 2, 128, 3001, 40_960], 1e-6, 1e6, None),
];

impl SynthArch {
    /// Every shape.
    pub const ALL: [Self; 6] = [
        Self::Gemma3_1b,
        Self::Llama3_2_1b,
        Self::Qwen3_1_7b,
        Self::Gemma3Mini,
        Self::LlamaMini,
        Self::Qwen3Mini,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        SHAPES[self as usize].0
    }

    fn config(self) -> Config {
        let (_, arch, sizes, eps, base, window) = SHAPES[self as usize];
        let rope_freqs = arch == Arch::Llama;
        Config { rope_freqs, ..Config::new(arch, sizes, eps, base, window) }
    }
}

/// A name that is none of those known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a known {what}; known are {known}")]
pub struct UnknownName {
    what: &'static str,
    given: String,
    known: String,
}

fn by_name<T: Copy>(
    what: &'static str,
    given: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, UnknownName> {
    all.iter().copied().find(|&one| name(one).eq_ignore_ascii_case(given)).ok_or_else(|| {
        let known = all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", ");
        UnknownName { what, given: given.to_owned(), known }
    })
}

impl FromStr for SynthArch {
    type Err = UnknownName;
    fn from_str(given: &str) -> Result<Self, UnknownName> {
        by_name("architecture", given, &Self::ALL, Self::name)
    }
}

/// The storage format of a name on the command line.
pub fn weight_type(given: &str) -> Result<Format, UnknownName> {
    by_name("weight type", given, Format::ALL, Format::name)
}

impl fmt::Display for SynthArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Settings of a synthetic checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynthSpec {
    /// The shape.
    pub arch: SynthArch,
    /// Storage of the matrices. Norms and rope factors are always F32.
    pub quant: Format,
    /// Storage of the embedding, and with it of the tied head, if different.
    pub embed_quant: Option<Format>,
    /// Another seed gives other weights.
    pub seed: u64,
}

/// Summary of the written file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SynthSummary {
    /// The file.
    #[serde(serialize_with = "lathe_record::files::lossy")]
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Tensors in it.
    pub tensors: usize,
    /// Values in them.
    pub parameters: u64,
    /// The seed.
    pub seed: u64,
    /// Tensors by how they are stored.
    pub types: BTreeMap<&'static str, usize>,
    /// Matrices whose rows hold no whole blocks of the requested type.
    pub fallbacks: Vec<Fallback>,
}

/// Writes a checkpoint under a temporary name, which is renamed when it is complete. `progress` is
/// told the bytes written so far and in all.
///
/// # Errors
/// `path` exists already, or the file system refuses.
pub fn write_synth(
    spec: &SynthSpec,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SynthSummary, ModelError> {
    let config = spec.arch.config();
    let jobs = jobs(spec, &config);
    let bytes = write(path, false, metadata(spec, &config), &jobs, progress, |job, sink| {
        let len = job.stored.block_len() as u64;
        let stored = |values: Vec<f32>| quantise(job.stored, values.len(), &values);
        let convert = |blocks: std::ops::Range<u64>| {
            stored(job.values.part(blocks.start * len, blocks.end * len))
        };
        in_parts(job.elements() / len, len, convert, |bytes| sink(&bytes))
    })?;
    let mut types = BTreeMap::new();
    for job in &jobs {
        *types.entry(job.stored.name()).or_default() += 1;
    }
    Ok(SynthSummary {
        path: path.to_owned(),
        bytes,
        tensors: jobs.len(),
        parameters: jobs.iter().map(Job::elements).sum(),
        seed: spec.seed,
        types,
        fallbacks: fallbacks(&jobs),
    })
}

fn jobs(spec: &SynthSpec, config: &Config) -> Vec<Job<Values>> {
    let job = |(stream, (name, dims, _)): (u64, (String, Vec<u64>, _))| {
        let (asked, values) = if name == "rope_freqs.weight" {
            let factors = LLAMA_ROPE.divisors(config.head_dim, config.rope_base.into());
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
        Job::new(name, dims, asked, values)
    };
    (0..).zip(expected(config)).map(job).collect()
}

/// Scaling of Llama 3.2.
const LLAMA_ROPE: Llama3Rope = Llama3Rope {
    factor: 32.0,
    low_freq_factor: 1.0,
    high_freq_factor: 4.0,
    original_context: 8192.0,
};

fn metadata(spec: &SynthSpec, config: &Config) -> GgufWriter {
    let SynthSpec { arch, quant, embed_quant, seed } = spec;
    let mut writer = GgufWriter::new();
    writer.add("general.architecture", config.arch.name());
    writer.add("general.type", "model");
    let name = format!("{arch} synthetic {} seed {seed}", quant.name());
    writer.add("general.name", &name);
    file_types(&mut writer, *quant, *embed_quant);
    writer.add("lathe.synth.seed", seed);
    write_shape(&mut writer, config);
    vocab::add(&mut writer, config.vocab);
    writer
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ModelFile;
    use crate::gguf::GgmlType;
    use crate::quantise::decode;

    fn mini(arch: SynthArch) -> SynthSpec {
        SynthSpec { arch, quant: Format::Bf16, embed_quant: None, seed: 7 }
    }

    /// A written file, its summary, and the folder that holds it.
    fn written(spec: &SynthSpec) -> (ModelFile, SynthSummary, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gguf");
        let summary = write_synth(spec, &path, &mut |_, _| {}).unwrap();
        (ModelFile::open(path).unwrap(), summary, dir)
    }

    #[test]
    fn same_seed_same_bytes_for_any_thread_count() {
        let on = |threads, spec: &SynthSpec| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| written(spec).0.files()[0].bytes().to_vec())
        };
        let spec = mini(SynthArch::LlamaMini);
        let quantised = SynthSpec { quant: Format::Q4K, embed_quant: Some(Format::Q6K), ..spec };
        assert!(on(1, &quantised) == on(3, &quantised), "one thread and three disagree");
        let one = on(1, &spec);
        assert!(one == on(3, &spec), "one thread and three disagree");
        let other = on(1, &SynthSpec { seed: 8, ..spec });
        assert_eq!(one.len(), other.len());
        assert!(one != other, "another seed gives the same bytes");
    }

    #[test]
    fn minis_have_the_stated_shapes() {
        for arch in [SynthArch::Gemma3Mini, SynthArch::LlamaMini, SynthArch::Qwen3Mini] {
            let (file, ..) = written(&mini(arch));
            let read = file.config().unwrap();
            let stated = arch.config();
            let shape = |c: &Config| (c.arch, c.n_layers, c.hidden, c.ffn, c.n_heads, c.vocab);
            assert_eq!(shape(&read), shape(&stated));
            assert_eq!((read.n_kv_heads, read.head_dim), (stated.n_kv_heads, stated.head_dim));
            assert_eq!((read.rms_eps, read.window), (stated.rms_eps, stated.window));
            assert_eq!(read.rope_freqs, stated.rope_freqs);
            if arch == SynthArch::Gemma3Mini {
                assert_eq!((read.layer_window(0), read.layer_window(5)), (Some(32), None));
                assert_eq!((read.layer_rope_base(4), read.layer_rope_base(5)), (1e4, 1e6));
                assert_eq!(read.embed_scale, 320f32.sqrt());
            }
            assert!(read.tied_head && read.bos.is_some() && read.eos.is_some());
            let gguf = file.gguf().unwrap();
            let vocab = gguf.strings("tokenizer.ggml.tokens", file.files()[0].bytes());
            let vocab = vocab.unwrap().unwrap();
            let distinct: std::collections::HashSet<_> = vocab.iter().collect();
            assert_eq!((vocab.len(), distinct.len()), (read.vocab, read.vocab));
        }
    }

    #[test]
    fn real_shapes_have_the_real_parameter_counts() {
        // As their model cards and the official configurations give them, head tied.
        let expected = [999_885_952, 1_235_814_400, 1_720_574_976];
        for (arch, expected) in SynthArch::ALL.into_iter().zip(expected) {
            let jobs = jobs(&mini(arch), &arch.config());
            let drawn = jobs.iter().filter(|job| !matches!(job.values, Values::Given(_)));
            assert_eq!(drawn.map(Job::elements).sum::<u64>(), expected, "{arch}");
        }
    }

    #[test]
    fn values_have_the_stated_spread_in_every_type() {
        for &quant in Format::ALL {
            let (file, ..) = written(&SynthSpec { quant, ..mini(SynthArch::Qwen3Mini) });
            let values = |name: &str, format| {
                let tensor = file.tensor(name).unwrap();
                assert_eq!(tensor.ty, GgmlType::of(format));
                let mut values = vec![0.0; tensor.elements() as usize];
                decode(format, file.tensor_bytes(tensor), &mut values);
                values
            };
            for (name, std) in [
                ("token_embd.weight", 1.0 / 256f64.sqrt()),
                ("blk.1.ffn_down.weight", 1.0 / 768f64.sqrt()),
                ("blk.3.attn_q.weight", 1.0 / 256f64.sqrt()),
            ] {
                let values: Vec<f64> = values(name, quant).into_iter().map(f64::from).collect();
                let n = values.len() as f64;
                let mean = values.iter().sum::<f64>() / n;
                let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
                // The error of a mean of n is std/√n; six of them never happen by chance.
                assert!(mean.abs() < 6.0 * std / n.sqrt(), "{name}: mean {mean}");
                assert!((var.sqrt() / std - 1.0).abs() < 0.01, "{name}: std {}", var.sqrt());
            }
            let norm = values("blk.0.attn_norm.weight", Format::F32);
            assert!(norm.iter().all(|v| (0.9..=1.1).contains(v)));
            assert!(norm.iter().any(|v| *v < 0.95) && norm.iter().any(|v| *v > 1.05));
        }
    }

    #[test]
    fn rows_no_multiple_of_a_superblock_are_stored_as_llama_quantize_would() {
        let embed_quant = Some(Format::Q6K);
        let spec = SynthSpec { quant: Format::Q4K, embed_quant, ..mini(SynthArch::Gemma3Mini) };
        let (file, summary, _dir) = written(&spec);
        // Rows of 320, of 4 x 64 = 256 and of 1004.
        for (name, ty) in [
            ("token_embd.weight", GgmlType::Q8_0),
            ("blk.0.attn_q.weight", GgmlType::Q5_0),
            ("blk.0.attn_output.weight", GgmlType::Q4K),
            ("blk.0.ffn_down.weight", GgmlType::F16),
            ("blk.0.attn_norm.weight", GgmlType::F32),
        ] {
            assert_eq!(file.tensor(name).unwrap().ty, ty, "{name}");
        }
        let counted = [("f16", 8), ("f32", 49), ("q4_k", 8), ("q5_0", 40), ("q8_0", 1)];
        assert_eq!(summary.types, BTreeMap::from(counted));
        let fallback =
            |asked, stored, row_len, tensors| Fallback { asked, stored, row_len, tensors };
        let expected = [
            fallback("q4_k", "f16", 1004, 8),
            fallback("q4_k", "q5_0", 320, 40),
            fallback("q6_k", "q8_0", 320, 1),
        ];
        assert_eq!(summary.fallbacks, expected);
    }

    #[test]
    fn an_existing_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gguf");
        let spec = mini(SynthArch::LlamaMini);
        let mut last = (0, 0);
        let summary = write_synth(&spec, &path, &mut |done, total| last = (done, total)).unwrap();
        assert_eq!(last, (summary.bytes, summary.bytes));
        assert_eq!(fs::metadata(&path).unwrap().len(), summary.bytes);
        let error = write_synth(&spec, &path, &mut |_, _| {}).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(error.contains("exists already"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "leftovers");
    }

    #[test]
    fn unknown_names_list_the_known() {
        for arch in SynthArch::ALL {
            assert_eq!(arch.to_string().parse(), Ok(arch));
        }
        let error = weight_type("q9_9").unwrap_err().to_string();
        assert!(error.starts_with("`q9_9` is not a known weight type; known are f32, f16, bf16"));
        assert_eq!(weight_type("Q4_K"), Ok(Format::Q4K));
    }

    #[test]
    fn rope_factors_match_a_converted_checkpoint() {
        // rope_freqs.weight as the official converter writes it: head_dim 32, base 500000.
        let ours = LLAMA_ROPE.divisors(32, 5e5);
        assert_eq!((&ours[..8], &ours[9..]), (&[1.0; 8][..], &[32.0; 7][..]));
        assert!((ours[8] - 3.292_262_8).abs() < 1e-5, "{}", ours[8]);
    }
}
