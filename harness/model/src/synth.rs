//! Deterministic random checkpoints of the real shapes, for tests of speed and correctness without
//! a model's weights. Other engines load them.
//!
//! Every value is a function of seed, tensor and element alone, so any number of threads writes the
//! same bytes.

mod plan;
mod vocab;
mod weights;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lathe_kernels::Format;
use lathe_record::files::Partial;
use plan::Plan;
use rayon::prelude::*;

use super::file::{ModelError, ModelErrorKind};
use super::quantise::fitting;

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

    /// In the order of the variants.
    const NAMES: [&str; 6] =
        ["gemma3-1b", "llama3.2-1b", "qwen3-1.7b", "gemma3-mini", "llama-mini", "qwen3-mini"];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
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

/// Matrices stored otherwise than asked for. A row of a GGUF file is whole blocks.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fallback {
    /// The format asked for.
    pub asked: &'static str,
    /// The format in its place, as llama-quantize chooses it.
    pub stored: &'static str,
    /// Values of a row.
    pub row_len: u64,
    /// Matrices of such rows.
    pub tensors: usize,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, stored, row_len, tensors } = self;
        write!(
            f,
            "{tensors} of them as {stored} in place of {asked}: rows of {row_len} are no whole \
             blocks"
        )
    }
}

/// Tensors by requested type, stored type and length of their rows.
#[derive(Default)]
pub(super) struct Fallbacks(BTreeMap<(Format, Format, u64), usize>);

impl Fallbacks {
    /// Returns the storage of a matrix with rows of this length; counts it if that differs from
    /// `asked`.
    pub(super) fn fitting(&mut self, asked: Format, row_len: u64) -> Format {
        let stored = fitting(asked, row_len);
        if stored != asked {
            *self.0.entry((asked, stored, row_len)).or_default() += 1;
        }
        stored
    }

    pub(super) fn list(self) -> Vec<Fallback> {
        let named = |((asked, stored, row_len), tensors): ((Format, Format, _), _)| {
            let (asked, stored) = (asked.name(), stored.name());
            Fallback { asked, stored, row_len, tensors }
        };
        self.0.into_iter().map(named).collect()
    }
}

/// Bytes that a thread takes at a time, and parts generated between two writes: large enough to
/// hide the calls, small enough to need little memory.
const PART: usize = 256 << 10;
const PARTS: usize = 64;

/// Writes a checkpoint. It is written under a temporary name in the folder of `path` and renamed
/// when complete, so a file at `path` is always whole. `progress` is told the bytes written so far
/// and in all.
///
/// # Errors
/// `path` exists already, or the file system refuses.
pub fn write_synth(
    spec: &SynthSpec,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SynthSummary, ModelError> {
    let refused =
        |action| move |error| ModelError::at(path)(ModelErrorKind::Output { action, error });
    let absent = || match path.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(ModelError::at(path)(ModelErrorKind::Exists)),
        Err(error) => Err(refused("look at")(error)),
    };
    absent()?;
    let plan = Plan::of(spec);
    let mut file = Partial::create(path).map_err(refused("create"))?;
    stream(&plan, &mut file.file, progress).map_err(refused("write"))?;
    // Someone else may have put a file there meanwhile.
    absent()?;
    file.finish(path).map_err(refused("rename the finished file to"))?;
    let mut types = BTreeMap::new();
    for tensor in &plan.tensors {
        *types.entry(tensor.stored.name()).or_default() += 1;
    }
    Ok(SynthSummary {
        path: path.to_owned(),
        bytes: plan.total_bytes(),
        tensors: plan.tensors.len(),
        parameters: plan.tensors.iter().map(plan::Tensor::elements).sum(),
        seed: spec.seed,
        types,
        fallbacks: plan.fallbacks,
    })
}

fn stream(plan: &Plan, out: &mut impl Write, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
    let total = plan.total_bytes();
    out.write_all(&plan.head)?;
    let data_start = plan.head.len() as u64;
    let mut written = data_start;
    progress(written, total);
    let mut buffer = vec![0u8; PARTS * PART];
    for tensor in &plan.tensors {
        let padding = data_start + tensor.offset - written;
        io::copy(&mut io::Read::take(io::repeat(0), padding), out)?;
        written += padding;
        let (block_len, block_bytes) = (tensor.stored.block_len(), tensor.stored.block_bytes());
        let blocks_a_part = PART / block_bytes;
        let part_bytes = blocks_a_part * block_bytes;
        let mut done = 0;
        while done < tensor.bytes() {
            let len = (tensor.bytes() - done).min((PARTS * part_bytes) as u64);
            let batch = &mut buffer[..len as usize];
            let first_block = done / block_bytes as u64;
            batch.par_chunks_mut(part_bytes).enumerate().for_each(|(part, bytes)| {
                let block = first_block + (part * blocks_a_part) as u64;
                tensor.values.fill(tensor.stored, block * block_len as u64, bytes);
            });
            out.write_all(batch)?;
            done += len;
            written += len;
            progress(written, total);
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{Arch, Config};
    use crate::gguf::{GgmlType, Gguf};

    fn bytes_of(spec: &SynthSpec) -> Vec<u8> {
        let mut out = Vec::new();
        stream(&Plan::of(spec), &mut out, &mut |_, _| {}).unwrap();
        out
    }

    fn mini(arch: SynthArch) -> SynthSpec {
        SynthSpec { arch, quant: Format::Bf16, embed_quant: None, seed: 7 }
    }

    const MINIS: [SynthArch; 3] =
        [SynthArch::Gemma3Mini, SynthArch::LlamaMini, SynthArch::Qwen3Mini];

    #[test]
    fn same_seed_same_bytes_for_any_thread_count() {
        let on = |threads, spec: &SynthSpec| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| bytes_of(spec))
        };
        let spec = mini(SynthArch::LlamaMini);
        let quantised = SynthSpec { quant: Format::Q4K, embed_quant: Some(Format::Q6K), ..spec };
        assert!(on(1, &quantised) == on(3, &quantised), "one thread and three disagree");
        let one = on(1, &spec);
        assert!(one == on(3, &spec), "one thread and three disagree");
        let other = bytes_of(&SynthSpec { seed: 8, ..spec });
        assert_eq!(one.len(), other.len());
        assert!(one != other, "another seed gives the same bytes");
    }

    #[test]
    fn minis_parse_and_have_the_stated_shapes() {
        for arch in MINIS {
            let bytes = bytes_of(&mini(arch));
            let gguf = Gguf::parse(&bytes).unwrap();
            let c = Config::from_gguf(&gguf, &bytes).unwrap();
            let shape = [c.n_layers, c.hidden, c.ffn, c.n_heads, c.n_kv_heads, c.head_dim, c.vocab];
            match arch {
                SynthArch::Gemma3Mini => {
                    assert_eq!(c.arch, Arch::Gemma3);
                    assert_eq!(shape, [8, 320, 1004, 4, 1, 64, 4099]);
                    assert_eq!((c.layer_window(0), c.layer_window(5)), (Some(32), None));
                    assert_eq!((c.layer_rope_base(4), c.layer_rope_base(5)), (1e4, 1e6));
                    assert_eq!(c.embed_scale, 320f32.sqrt());
                }
                SynthArch::LlamaMini => {
                    assert_eq!(c.arch, Arch::Llama);
                    assert_eq!(shape, [4, 256, 684, 8, 2, 32, 2051]);
                    assert!(c.rope_freqs && !c.qk_norm && !c.post_norms);
                    assert_eq!(c.layer_window(0), None);
                }
                _ => {
                    assert_eq!(c.arch, Arch::Qwen3);
                    assert_eq!(shape, [4, 256, 768, 4, 2, 128, 3001]);
                    assert!(c.qk_norm && !c.post_norms && !c.rope_freqs);
                }
            }
            assert!(c.tied_head);
            assert!(c.bos.is_some() && c.eos.is_some());
            let vocab = gguf.string_array("tokenizer.ggml.tokens", &bytes).unwrap().unwrap();
            let distinct: std::collections::HashSet<_> = vocab.iter().collect();
            assert_eq!((vocab.len(), distinct.len()), (c.vocab, c.vocab));
        }
    }

    #[test]
    fn real_shapes_have_the_real_parameter_counts() {
        // As their model cards and the official configurations give them, head tied.
        let expected = [999_885_952, 1_235_814_400, 1_720_574_976];
        for (arch, expected) in SynthArch::ALL.into_iter().zip(expected) {
            let plan = Plan::of(&mini(arch));
            let without_rope_freqs: u64 = plan
                .tensors
                .iter()
                .filter(|t| !matches!(t.values, weights::Values::Given(_)))
                .map(plan::Tensor::elements)
                .sum();
            assert_eq!(without_rope_freqs, expected, "{arch}");
        }
    }

    #[test]
    fn values_have_the_stated_spread_in_every_type() {
        for &quant in Format::ALL {
            let spec = SynthSpec { quant, ..mini(SynthArch::Qwen3Mini) };
            let bytes = bytes_of(&spec);
            let gguf = Gguf::parse(&bytes).unwrap();
            for (name, std) in [
                ("token_embd.weight", 1.0 / 256f64.sqrt()),
                ("blk.1.ffn_down.weight", 1.0 / 768f64.sqrt()),
                ("blk.3.attn_q.weight", 1.0 / 256f64.sqrt()),
            ] {
                let tensor = gguf.tensor(name).unwrap();
                assert_eq!(tensor.ty, GgmlType::of(quant));
                let data = &bytes[tensor.range.clone()];
                let values = decode(quant, data);
                let n = values.len() as f64;
                let mean = values.iter().sum::<f64>() / n;
                let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
                // The error of a mean of n is std/√n; six of them never happen by chance.
                assert!(mean.abs() < 6.0 * std / n.sqrt(), "{name}: mean {mean}");
                assert!((var.sqrt() / std - 1.0).abs() < 0.01, "{name}: std {}", var.sqrt());
            }
            let norm = gguf.tensor("blk.0.attn_norm.weight").unwrap();
            let values = decode(Format::F32, &bytes[norm.range.clone()]);
            assert!(values.iter().all(|v| (0.9..=1.1).contains(v)));
            assert!(values.iter().any(|v| *v < 0.95) && values.iter().any(|v| *v > 1.05));
        }
    }

    fn decode(format: Format, data: &[u8]) -> Vec<f64> {
        let mut values = vec![0.0; data.len() / format.block_bytes() * format.block_len()];
        crate::quantise::oracle_format(format).decode(data, &mut values);
        values.into_iter().map(f64::from).collect()
    }

    #[test]
    fn rows_no_multiple_of_a_superblock_are_stored_as_llama_quantize_would() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gguf");
        let spec = SynthSpec {
            quant: Format::Q4K,
            embed_quant: Some(Format::Q6K),
            ..mini(SynthArch::Gemma3Mini)
        };
        let summary = write_synth(&spec, &path, &mut |_, _| {}).unwrap();
        let bytes = fs::read(&path).unwrap();
        let gguf = Gguf::parse(&bytes).unwrap();
        let ty = |name: &str| gguf.tensor(name).unwrap().ty;
        // Rows of 320, of 4 x 64 = 256 and of 1004.
        assert_eq!(ty("token_embd.weight"), GgmlType::Q8_0);
        assert_eq!(ty("blk.0.attn_q.weight"), GgmlType::Q5_0);
        assert_eq!(ty("blk.0.attn_output.weight"), GgmlType::Q4K);
        assert_eq!(ty("blk.0.ffn_down.weight"), GgmlType::F16);
        assert_eq!(ty("blk.0.attn_norm.weight"), GgmlType::F32);
        let counted = [("f16", 8), ("f32", 49), ("q4_k", 8), ("q5_0", 40), ("q8_0", 1)];
        assert_eq!(summary.types, BTreeMap::from(counted));
        let fallback =
            |asked, stored, row_len, tensors| Fallback { asked, stored, row_len, tensors };
        assert_eq!(
            summary.fallbacks,
            [
                fallback("q4_k", "f16", 1004, 8),
                fallback("q4_k", "q5_0", 320, 40),
                fallback("q6_k", "q8_0", 320, 1),
            ]
        );
    }

    #[test]
    fn embedding_may_have_its_own_type() {
        let spec = SynthSpec { embed_quant: Some(Format::F16), ..mini(SynthArch::LlamaMini) };
        let gguf = Gguf::parse(&bytes_of(&spec)).unwrap();
        assert_eq!(gguf.tensor("token_embd.weight").unwrap().ty, GgmlType::F16);
        assert_eq!(gguf.tensor("blk.0.attn_q.weight").unwrap().ty, GgmlType::Bf16);
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
}
