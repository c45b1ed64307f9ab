//! Files whose index is sound and whose model is refused.

use lathe_harness::model::gguf::writer::GgufWriter;
use lathe_harness::model::{Config, GgmlType, Gguf};

use crate::{Case, assert_says, find_name};

fn config(bytes: &[u8]) -> Result<Config, String> {
    let gguf = Gguf::parse(bytes).expect("the index is sound");
    Config::from_gguf(&gguf, bytes).map_err(|e| e.to_string())
}

fn refused(bytes: &[u8], says: &[String]) {
    assert_says(&config(bytes).expect_err("the model is refused"), says);
}

#[derive(Clone)]
enum Meta {
    U32(u32),
    U64(u64),
    F32(f32),
    Bool(bool),
    Str(&'static str),
    Ints(Vec<i32>),
    Strs(Vec<&'static str>),
}
use Meta::{Bool, F32, Ints, Str, Strs, U32, U64};

/// The smallest model of an architecture: hidden 8, ffn 12, 2 heads on 1, head_dim 4, 6 tokens.
struct Model {
    arch: &'static str,
    keys: Vec<(String, Meta)>,
    tensors: Vec<(String, Vec<u64>)>,
}

impl Model {
    fn new(arch: &'static str) -> Self {
        let mut model = Self { arch, keys: vec![], tensors: vec![] };
        for (key, value) in [
            ("general.architecture", Str(arch)),
            (".context_length", U32(64)),
            (".embedding_length", U32(8)),
            (".block_count", U32(1)),
            (".feed_forward_length", U32(12)),
            (".attention.head_count", U32(2)),
            (".attention.head_count_kv", U32(1)),
            (".attention.key_length", U32(4)),
            (".attention.value_length", U32(4)),
            (".attention.layer_norm_rms_epsilon", F32(1e-6)),
            (".rope.freq_base", F32(1e6)),
            ("tokenizer.ggml.tokens", Strs(vec!["a", "b", "c", "d", "e", "f"])),
            ("tokenizer.ggml.bos_token_id", U32(2)),
            ("tokenizer.ggml.eos_token_id", U32(1)),
        ] {
            model = model.set(key, value);
        }
        if arch == "gemma3" {
            model = model.set(".attention.sliding_window", U32(4));
        }
        model = model.tensor("token_embd.weight", &[8, 6]).tensor("output_norm.weight", &[8]);
        for (part, dims) in [
            ("attn_norm", &[8][..]),
            ("attn_q", &[8, 8]),
            ("attn_k", &[8, 4]),
            ("attn_v", &[8, 4]),
            ("attn_output", &[8, 8]),
            ("ffn_norm", &[8]),
            ("ffn_gate", &[8, 12]),
            ("ffn_up", &[8, 12]),
            ("ffn_down", &[12, 8]),
        ] {
            model = model.tensor(&format!("blk.0.{part}.weight"), dims);
        }
        if arch != "llama" {
            model = model.tensor("blk.0.attn_q_norm.weight", &[4]);
            model = model.tensor("blk.0.attn_k_norm.weight", &[4]);
        }
        if arch == "gemma3" {
            model = model.tensor("blk.0.post_attention_norm.weight", &[8]);
            model = model.tensor("blk.0.post_ffw_norm.weight", &[8]);
        }
        model
    }

    /// `.x` stands for `<arch>.x`.
    fn full(&self, key: &str) -> String {
        if key.starts_with('.') { format!("{}{key}", self.arch) } else { key.to_owned() }
    }

    fn set(mut self, key: &str, value: Meta) -> Self {
        let key = self.full(key);
        match self.keys.iter_mut().find(|(k, _)| *k == key) {
            Some(entry) => entry.1 = value,
            None => self.keys.push((key, value)),
        }
        self
    }

    fn unset(mut self, key: &str) -> Self {
        let key = self.full(key);
        self.keys.retain(|(k, _)| *k != key);
        self
    }

    /// Adds a tensor or gives it other dimensions.
    fn tensor(mut self, name: &str, dims: &[u64]) -> Self {
        match self.tensors.iter_mut().find(|(n, _)| n == name) {
            Some(entry) => entry.1 = dims.to_vec(),
            None => self.tensors.push((name.to_owned(), dims.to_vec())),
        }
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|(n, _)| n != name);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.keys {
            match value {
                U32(v) => writer.add_u32(key, *v),
                U64(v) => writer.add_u64(key, *v),
                F32(v) => writer.add_f32(key, *v),
                Bool(v) => writer.add_bool(key, *v),
                Str(v) => writer.add_str(key, v),
                Ints(v) => writer.add_i32_array(key, v),
                Strs(v) => writer.add_str_array(key, v),
            };
        }
        for (name, dims) in &self.tensors {
            writer.add_tensor(name, GgmlType::F32, dims);
        }
        writer.zeroed()
    }

    /// The file, and a message that names the key, its offset and `part`.
    fn key_refused(self, key: &str, part: &str) -> Case {
        let key = self.full(key);
        let bytes = self.bytes();
        let at = find_name(&bytes, &key);
        (bytes, vec![format!("byte {at}, metadata `{key}`"), part.to_owned()])
    }

    fn tensor_refused(self, name: &str, part: &str) -> Case {
        (self.bytes(), vec![format!("tensor `{name}`"), part.to_owned()])
    }
}

fn llama() -> Model {
    Model::new("llama")
}

fn gemma3() -> Model {
    Model::new("gemma3")
}

/// A Llama with this value, which is refused.
fn with(key: &str, value: Meta, part: &str) -> Case {
    llama().set(key, value).key_refused(key, part)
}

fn gemma3_with(key: &str, value: Meta, part: &str) -> Case {
    gemma3().set(key, value).key_refused(key, part)
}

/// A Llama with one more tensor, which is refused.
fn extra(name: &str) -> Case {
    llama().tensor(name, &[8]).tensor_refused(name, "is not part of llama")
}

const ABOVE_ZERO: &str = "it must be above zero";
const FINITE: &str = "it must be finite and above zero";
const NOT: &str = "not implemented";

cases! { refused;
    architecture_missing => {
        let bytes = llama().unset("general.architecture").bytes();
        (bytes, vec!["metadata `general.architecture` is missing".into()])
    };
    architecture_unsupported => {
        with("general.architecture", Str("mamba"), "`mamba` is not supported; supported are gemma3, llama, qwen3")
    };
    architecture_of_wrong_type => with("general.architecture", U32(3), "expected a string");
    split_shard => with("split.count", U32(2), "one shard of a split file");
    block_count_0 => with(".block_count", U32(0), ABOVE_ZERO);
    block_count_of_wrong_type => with(".block_count", F32(1.0), "the value is f32");
    block_count_beyond_u32 => with(".block_count", U64(1 << 32), "does not fit u32");
    block_count_beyond_tensors => {
        llama().set(".block_count", U32(u32::MAX)).tensor_refused("blk.1.attn_norm.weight", "missing")
    };
    embedding_length_0 => with(".embedding_length", U32(0), ABOVE_ZERO);
    feed_forward_length_0 => with(".feed_forward_length", U32(0), ABOVE_ZERO);
    context_length_0 => with(".context_length", U32(0), ABOVE_ZERO);
    head_count_0 => with(".attention.head_count", U32(0), ABOVE_ZERO);
    head_count_per_layer => {
        with(".attention.head_count", Ints(vec![2]), "the value is array of i32, expected an integer")
    };
    head_count_kv_0 => with(".attention.head_count_kv", U32(0), ABOVE_ZERO);
    head_count_kv_does_not_divide => {
        with(".attention.head_count_kv", U32(3), "does not divide the 2 of attention.head_count")
    };
    head_count_does_not_divide_hidden => {
        let model = llama().unset(".attention.key_length").set(".attention.head_count", U32(3));
        model.key_refused(".attention.head_count", "does not divide the 8 of embedding_length")
    };
    key_length_0 => with(".attention.key_length", U32(0), ABOVE_ZERO);
    key_length_odd => with(".attention.key_length", U32(5), "a head of 5 cannot be rotated in pairs");
    value_length_differs => with(".attention.value_length", U32(8), "only the head dimension 4");
    rope_of_part_of_the_head => with(".rope.dimension_count", U32(2), "only the head dimension 4");
    epsilon_nan => with(".attention.layer_norm_rms_epsilon", F32(f32::NAN), FINITE);
    epsilon_0 => with(".attention.layer_norm_rms_epsilon", F32(0.0), FINITE);
    epsilon_negative => with(".attention.layer_norm_rms_epsilon", F32(-1e-6), FINITE);
    epsilon_infinite => with(".attention.layer_norm_rms_epsilon", F32(f32::INFINITY), FINITE);
    rope_base_0 => with(".rope.freq_base", F32(0.0), FINITE);
    rope_base_negative => with(".rope.freq_base", F32(-1.0), FINITE);
    rope_base_nan => with(".rope.freq_base", F32(f32::NAN), FINITE);
    rope_base_local_0 => gemma3_with(".rope.freq_base_swa", F32(0.0), FINITE);
    window_0 => gemma3_with(".attention.sliding_window", U32(0), ABOVE_ZERO);
    window_pattern_unknown => {
        gemma3_with(".attention.sliding_window_pattern", U32(4), "every 6th layer")
    };
    window_where_there_is_none => with(".attention.sliding_window", U32(16), NOT);
    bos_beyond_vocabulary => with("tokenizer.ggml.bos_token_id", U32(6), "the vocabulary has 6 tokens");
    eos_beyond_vocabulary => {
        with("tokenizer.ggml.eos_token_id", U32(u32::MAX), "the vocabulary has 6 tokens")
    };
    end_of_turn_beyond_vocabulary => {
        with("tokenizer.ggml.eot_token_id", U32(6), "the vocabulary has 6 tokens")
    };
    end_of_message_is_no_number => with("tokenizer.ggml.eom_token_id", Str("1"), "eom_token_id");
    tokens_of_another_count => {
        with("tokenizer.ggml.tokens", Strs(vec!["a"; 7]), "`token_embd.weight` has 6 rows")
    };
    vocab_size_differs => with(".vocab_size", U32(7), "`token_embd.weight` has 6 rows");
    vocabulary_empty => {
        llama().tensor("token_embd.weight", &[8, 0]).tensor_refused("token_embd.weight", "0 rows")
    };
    soft_capping => gemma3_with(".final_logit_softcapping", F32(30.0), NOT);
    soft_capping_of_attention => gemma3_with(".attn_logit_softcapping", F32(50.0), NOT);
    soft_capping_nan => gemma3_with(".final_logit_softcapping", F32(f32::NAN), NOT);
    logit_scale => with(".logit_scale", F32(0.5), NOT);
    attention_scale => with(".attention.scale", F32(0.1), NOT);
    experts => with(".expert_count", U32(8), "experts are not implemented");
    rope_scaled_linearly => with(".rope.scaling.factor", F32(8.0), "linear rope scaling");
    rope_scaled_otherwise => with(".rope.scaling.type", Str("yarn"), NOT);
    attention_not_causal => with(".attention.causal", Bool(false), "only causal");
    bias_of_attention => extra("blk.0.attn_q.bias");
    bias_of_output => extra("output.bias");
    expert_tensors => extra("blk.0.ffn_gate_exps.weight");
    layer_beyond_block_count => extra("blk.1.attn_norm.weight");
    norm_of_another_architecture => extra("blk.0.attn_q_norm.weight");
    rope_freqs_of_another_architecture => {
        let model = gemma3().tensor("rope_freqs.weight", &[2]);
        model.tensor_refused("rope_freqs.weight", "is not part of gemma3")
    };
    rope_freqs_too_long => {
        let model = llama().tensor("rope_freqs.weight", &[4]);
        model.tensor_refused("rope_freqs.weight", "dimensions [4], the metadata ask for [2]")
    };
    rope_freqs_0 => {
        // All data are zero here, and rope divides by them.
        let bytes = llama().tensor("rope_freqs.weight", &[2]).bytes();
        let at = bytes.len() - 8;
        (bytes, vec![format!("byte {at}, tensor `rope_freqs.weight`: value 0 is 0")])
    };
    output_of_another_vocabulary => {
        llama().tensor("output.weight", &[8, 7]).tensor_refused("output.weight", "ask for [8, 6]")
    };
}

#[test]
fn the_smallest_models_are_understood() {
    for arch in ["llama", "gemma3", "qwen3"] {
        let config = config(&Model::new(arch).bytes()).unwrap();
        assert_eq!(config.arch.name(), arch);
        assert_eq!((config.head_dim, config.vocab, config.tied_head), (4, 6, true));
        assert_eq!((config.bos, config.eos), (Some(2), Some(1)));
        assert_eq!(config.attention_scale, 0.5);
    }
}

#[test]
fn every_missing_key_is_named() {
    for arch in ["llama", "gemma3", "qwen3"] {
        let mut needed = vec![
            ".context_length",
            ".embedding_length",
            ".block_count",
            ".feed_forward_length",
            ".attention.head_count",
            ".attention.layer_norm_rms_epsilon",
        ];
        if arch != "llama" {
            needed.push(".rope.freq_base");
        }
        if arch == "gemma3" {
            needed.push(".attention.sliding_window");
        }
        for key in needed {
            let error = config(&Model::new(arch).unset(key).bytes()).unwrap_err();
            assert_eq!(error, format!("metadata `{arch}{key}` is missing"));
        }
    }
}

#[test]
fn every_missing_tensor_is_named() {
    for arch in ["llama", "gemma3", "qwen3"] {
        for (name, _) in Model::new(arch).tensors {
            let error = config(&Model::new(arch).without(&name).bytes()).unwrap_err();
            assert_eq!(error, format!("tensor `{name}` is missing"));
        }
    }
}

#[test]
fn every_wrong_dimension_is_named() {
    for arch in ["llama", "gemma3", "qwen3"] {
        for (name, dims) in Model::new(arch).tensors {
            let mut wrong = vec![[&dims[..], &[1]].concat(), vec![]];
            for i in 0..dims.len() {
                let mut other = dims.clone();
                other[i] += 1;
                wrong.push(other);
            }
            for other in wrong {
                let error = config(&Model::new(arch).tensor(&name, &other).bytes()).unwrap_err();
                // Other rows of the embedding mean another vocabulary, seen before the shape.
                let named = error.contains(&format!("`{name}`"));
                assert!(named, "{arch} {name} {other:?}: {error}");
            }
        }
    }
}

#[test]
fn neutral_values_are_no_obstacle() {
    let model = gemma3()
        .set("split.count", U32(1))
        .set(".final_logit_softcapping", F32(0.0))
        .set(".rope.scaling.type", Str("linear"))
        .set(".rope.scaling.factor", F32(1.0))
        .set(".expert_count", U32(0))
        .set(".attention.sliding_window_pattern", U32(6))
        .set(".attention.causal", Bool(true))
        .set(".rope.freq_base_swa", F32(20_000.0))
        .tensor("output.weight", &[8, 6]);
    let config = config(&model.bytes()).unwrap();
    assert!(!config.tied_head);
    assert_eq!((config.layer_rope_base(0), config.layer_window(0)), (2e4, Some(4)));
}

#[test]
fn what_files_leave_out_has_defaults() {
    let model = llama()
        .unset(".attention.head_count_kv")
        .unset(".attention.key_length")
        .unset(".attention.value_length")
        .unset(".rope.freq_base")
        .unset("tokenizer.ggml.tokens")
        .unset("tokenizer.ggml.bos_token_id")
        .set(".block_count", U64(1))
        .tensor("blk.0.attn_k.weight", &[8, 8])
        .tensor("blk.0.attn_v.weight", &[8, 8]);
    let config = config(&model.bytes()).unwrap();
    assert_eq!((config.n_kv_heads, config.head_dim, config.rope_base), (2, 4, 1e4));
    assert_eq!((config.bos, config.rope_base_local, config.window), (None, 1e4, None));
}

/// Sound to the index, so the fuzz target goes on to the model.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    ["llama", "gemma3", "qwen3"]
        .into_iter()
        .zip(["model_llama", "model_gemma3", "model_qwen3"])
        .map(|(arch, name)| (name, Model::new(arch).bytes()))
        .chain(
            all()
                .into_iter()
                .filter(|(name, _)| matches!(*name, "bias_of_attention" | "epsilon_nan"))
                .map(|(name, (bytes, _))| (name, bytes)),
        )
        .collect()
}
