//! GGUF files with a broken index: each is refused with a message that names place and fault. Models
//! whose index is sound are in `broken.txt`.

use lathe_harness::model::gguf::writer::GgufWriter;
use lathe_harness::model::{Config, GgmlType, Gguf};

use crate::common::escaped;
use crate::gguf::Parts;

const ARCHITECTURES: [&str; 3] = ["llama", "gemma3", "qwen3"];

/// Name of the fault, the file, and the message.
type Case = (&'static str, Vec<u8>, &'static str);

/// Files whose index is refused: rows `NAME | STEPS | MESSAGE`, where steps are `entry KEY TYPE
/// BYTES`, `tensor NAME DIMS` (of f32), `raw NAME TYPE DIMS OFFSET`, and `patch OFFSET BYTES`, which
/// stands alone for one in a file with a tensor.
fn of_index() -> Vec<Case> {
    let rows = include_str!("index.txt").lines().filter(|line| line.contains(" | "));
    let cases = rows.map(|row| {
        let [name, steps, message] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        (name, if steps == "bytes" { Vec::new() } else { made(steps) }, message)
    });
    cases.collect()
}

fn made(steps: &str) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer.add("general.architecture", "llama");
    let mut patches = Vec::new();
    if steps.starts_with("patch") {
        writer.add_tensor("test.weight", GgmlType::F32, &[8, 2]);
    }
    let dims = |text: &str| text.split(',').map(|n| n.parse().unwrap()).collect::<Vec<u64>>();
    let named = |text: &str| String::from_utf8(item(text)).unwrap();
    for step in steps.split("; ") {
        match step.split(' ').collect::<Vec<_>>()[..] {
            ["entry", key, ty, ref value @ ..] => {
                let value: Vec<u8> = value.iter().flat_map(|text| item(text)).collect();
                writer.add_raw(&item(key), ty.parse().unwrap(), &value);
            }
            ["tensor", name, shape] => {
                writer.add_tensor(&named(name), GgmlType::F32, &dims(shape));
            }
            ["raw", name, ty, shape, offset] => {
                let (ty, offset) = (ty.parse().unwrap(), offset.parse().unwrap());
                writer.add_tensor_raw(name, ty, &dims(shape), offset);
            }
            ["patch", at, bytes] => patches.push((at.parse::<usize>().unwrap(), item(bytes))),
            _ => panic!("{step}"),
        }
    }
    let mut bytes = writer.zeroed();
    for (at, patch) in patches {
        bytes[at..at + patch.len()].copy_from_slice(&patch);
    }
    bytes
}

/// Bytes: `WIDTH:NUMBER`, a text, or one of them `*COUNT`.
fn item(text: &str) -> Vec<u8> {
    if let Some((text, count)) = text.split_once('*') {
        return item(text).repeat(count.parse().unwrap());
    }
    match text.split_once(':') {
        Some((width, number)) => {
            number.parse::<u64>().unwrap().to_le_bytes()[..width.parse().unwrap()].to_vec()
        }
        None => escaped(text),
    }
}

fn config(bytes: &[u8]) -> Result<Config, String> {
    let gguf = Gguf::parse(bytes).expect("the index is sound");
    Config::from_gguf(&gguf, bytes).map_err(|e| e.to_string())
}

#[test]
fn broken_indices_are_refused_by_offset_and_site() {
    for (name, bytes, message) in of_index() {
        let error = Gguf::parse(&bytes).expect_err(name).to_string();
        assert_eq!(error, message, "{name}");
    }
}

#[test]
fn every_missing_key_is_named() {
    for arch in ARCHITECTURES {
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
            let error = config(&Parts::smallest(arch).unset(key).bytes()).unwrap_err();
            assert_eq!(error, format!("metadata `{arch}{key}`: is missing"));
        }
    }
}

#[test]
fn every_missing_tensor_and_every_wrong_dimension_is_named() {
    for arch in ARCHITECTURES {
        let model = Parts::smallest(arch);
        for tensor in &model.tensors {
            let (name, dims) = (&tensor.name, &tensor.dims);
            let error = config(&model.clone().without(name).bytes()).unwrap_err();
            assert_eq!(error, format!("tensor `{name}`: is missing"));
            let mut wrong = vec![[&dims[..], &[1]].concat(), vec![]];
            for i in 0..dims.len() {
                let mut other = dims.clone();
                other[i] += 1;
                wrong.push(other);
            }
            for other in wrong {
                let error = config(&model.clone().tensor(name, &other).bytes()).unwrap_err();
                // Other rows of the embedding mean another vocabulary, seen before the shape.
                let named = error.contains(&format!("`{name}`"));
                assert!(named, "{arch} {name} {other:?}: {error}");
            }
        }
    }
}

#[test]
fn neutral_values_are_no_obstacle() {
    let model = Parts::smallest("gemma3")
        .set("split.count", "u32 1")
        .set(".final_logit_softcapping", "f32 0.0")
        .set(".rope.scaling.type", "str linear")
        .set(".rope.scaling.factor", "f32 1.0")
        .set(".expert_count", "u32 0")
        .set(".attention.sliding_window_pattern", "u32 6")
        .set(".attention.causal", "bool true")
        .set(".rope.freq_base_swa", "f32 20000.0")
        .tensor("output.weight", &[8, 6]);
    let config = config(&model.bytes()).unwrap();
    assert!(!config.tied_head);
    assert_eq!((config.layer_rope_base(0), config.layer_window(0)), (2e4, Some(4)));
}

#[test]
fn keys_that_files_leave_out_have_defaults() {
    for arch in ARCHITECTURES {
        let config = config(&Parts::smallest(arch).bytes()).unwrap();
        assert_eq!(config.arch.name(), arch);
        assert_eq!((config.head_dim, config.vocab, config.tied_head), (4, 6, true));
        assert_eq!((config.bos, config.eos), (Some(2), Some(1)));
        assert_eq!(config.attention_scale, 0.5);
    }
    let model = Parts::smallest("llama")
        .unset(".attention.head_count_kv")
        .unset(".attention.key_length")
        .unset(".attention.value_length")
        .unset(".rope.freq_base")
        .unset("tokenizer.ggml.tokens")
        .unset("tokenizer.ggml.bos_token_id")
        .set(".block_count", "u64 1")
        .tensor("blk.0.attn_k.weight", &[8, 8])
        .tensor("blk.0.attn_v.weight", &[8, 8]);
    let config = config(&model.bytes()).unwrap();
    assert_eq!((config.n_kv_heads, config.head_dim, config.rope_base), (2, 4, 1e4));
    assert_eq!((config.bos, config.rope_base_local, config.window), (None, 1e4, None));
}

/// Seeds for the fuzz target `gguf`, by name: every broken index, and models that are sound to the
/// index.
pub(crate) fn seeds() -> Vec<(String, Vec<u8>)> {
    let models = ARCHITECTURES.map(|arch| (format!("model {arch}"), Parts::smallest(arch)));
    let llama = || Parts::smallest("llama");
    let nan = llama().set(".attention.layer_norm_rms_epsilon", "f32 NaN");
    let refused = [
        ("bias of attention".to_owned(), llama().tensor("blk.0.attn_q.bias", &[8])),
        ("epsilon NaN".to_owned(), nan),
    ];
    let broken = of_index().into_iter().map(|(name, bytes, _)| (name.to_owned(), bytes));
    broken.chain(refused.into_iter().chain(models).map(|(name, m)| (name, m.bytes()))).collect()
}
