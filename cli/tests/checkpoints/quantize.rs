//! `lathe quantize` and conversion while loading.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use lathe_harness::decode::{Model, Weights};
use lathe_harness::model::export::{ExportSpec, ExportSummary, write_gguf};
use lathe_harness::model::quantise::decode;
use lathe_harness::model::synth::{SynthArch, SynthSpec, write_synth};
use lathe_harness::model::tokenizer::Tokenizer;
use lathe_harness::model::{GgmlType, Keys, ModelError, ModelErrorKind, ModelFile};
use lathe_harness::plan::weights::WeightRows;
use lathe_kernels::Format;
use serde_json::{Value, json};

use crate::common::nmse;
use crate::folder::{Parts, Stored};
use crate::{GOLDENS, Golden, common, hold, logits, trained};

pub(crate) fn spec(weights: Format) -> ExportSpec {
    ExportSpec { weights, embed: None, overwrite: false, without_tokenizer: true }
}

pub(crate) fn export(
    from: &Path,
    to: &Path,
    spec: &ExportSpec,
) -> Result<ExportSummary, ModelError> {
    let file = ModelFile::open(from)?;
    let mut last = (0, 0);
    let summary = write_gguf(&file, spec, to, &mut |done, total| last = (done, total))?;
    assert_eq!(last, (summary.bytes, summary.bytes), "progress ends with the file");
    assert_eq!(fs::metadata(to).unwrap().len(), summary.bytes);
    Ok(summary)
}

/// The values of a tensor.
fn values(file: &ModelFile, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap();
    let format = tensor.ty.format().unwrap();
    let (k, mut all) = (tensor.row_len() as usize, vec![0.0; tensor.elements() as usize]);
    let rows = file.tensor_bytes(tensor).chunks(format.row_bytes(k));
    for (row, bytes) in all.chunks_mut(k).zip(rows) {
        decode(format, bytes, row);
    }
    all
}

/// The golden of each folder was written by the official converter's package.
#[test]
fn a_folder_becomes_the_file_that_the_official_package_wrote() {
    let out = tempfile::tempdir().unwrap();
    for name in GOLDENS {
        let official = ModelFile::open(common::golden(&format!("{name}.gguf"))).unwrap();
        let format = official.tensor("token_embd.weight").unwrap().ty.format().unwrap();
        let path = out.path().join(name).with_extension("gguf");
        let summary = export(&common::golden(name), &path, &spec(format)).unwrap();
        assert!(!summary.tokenizer && summary.fallbacks.is_empty());
        assert_eq!(summary.types[0].relative_rms_error, None, "matrices are copied");
        let ours = ModelFile::open(&path).unwrap();
        assert_eq!(ours.tensors().len(), official.tensors().len(), "{name}");
        for theirs in official.tensors() {
            let tensor = ours.tensor(&theirs.name).unwrap();
            assert_eq!((tensor.ty, &tensor.dims), (theirs.ty, &theirs.dims), "{}", theirs.name);
            if theirs.dims.len() > 1 {
                let same = ours.tensor_bytes(tensor) == official.tensor_bytes(theirs);
                assert!(same, "{name} {}", theirs.name);
            }
            // 1 + (w - 1) is w but for a rounding, and so are the rope factors.
            let pairs =
                values(&ours, &theirs.name).into_iter().zip(values(&official, &theirs.name));
            for (a, b) in pairs {
                assert!((a - b).abs() <= 3e-7 * b.abs().max(1.0), "{}: {a} {b}", theirs.name);
            }
        }
        let (a, b) = (ours.config().unwrap(), official.config().unwrap());
        // Metadata that are none of the tokenizer say the same.
        assert_eq!(
            (a.context_length, a.rms_eps, a.rope_base),
            (b.context_length, b.rms_eps, b.rope_base)
        );
        assert_eq!(
            (a.window, a.rope_base_local, a.rope_style),
            (b.window, b.rope_base_local, b.rope_style)
        );
        hold(&Golden::load(name), &path, None, 1e-10);
    }
}

/// A written file holds what readers compute the folder's rope and windows from.
#[test]
fn a_folder_with_scaled_rope_or_windows_becomes_a_file_that_says_so() {
    let out = tempfile::tempdir().unwrap();
    for (name, expected) in common::FOLDERS.into_iter().zip([
        "gemma3 attention.sliding_window=16 attention.sliding_window_pattern=2 \
         rope.scaling.factor=8 rope.scaling.type=linear",
        "llama rope.scaling.factor=4 rope.scaling.type=linear",
        "qwen3 rope.scaling.factor=4 rope.scaling.original_context_length=32 rope.scaling.type=yarn",
        "llama rope.scaling.attn_factor=1.0978111 rope.scaling.factor=4 \
         rope.scaling.original_context_length=32 rope.scaling.type=yarn \
         rope.scaling.yarn_beta_fast=16 rope.scaling.yarn_beta_slow=2",
        "llama",
        "llama attention.sliding_window=16",
        "llama",
        "qwen2",
    ]) {
        let path = out.path().join(name).with_extension("gguf");
        export(&common::golden(name), &path, &spec(Format::Bf16)).unwrap();
        let file = ModelFile::open(&path).unwrap();
        let arch = file.config().unwrap().arch.name();
        let keys = file.gguf().unwrap().metadata.iter();
        let mut said: Vec<String> = keys
            .filter(|(key, _)| key.contains(".rope.scaling.") || key.contains("sliding_window"))
            .map(|(key, value)| format!("{}={value}", key.split_once('.').unwrap().1))
            .collect();
        said.sort();
        said.insert(0, arch.to_owned());
        assert_eq!(said.join(" "), expected, "{name}");
        hold(&Golden::load(name), &path, None, 1e-10);
    }
}

/// A Llama with biases, in a folder and in the file made of it, whose Q and K rows have another
/// order: the values of all biases move with their rows.
#[test]
fn biases_of_a_llama_move_with_their_rows() {
    let mut parts = Parts::golden("llama-tiny-linear");
    parts.config["attention_bias"] = json!(true);
    for layer in 0..2 {
        for (part, len) in [("q", 128), ("k", 64), ("v", 64)] {
            let name = format!("model.layers.{layer}.self_attn.{part}_proj.bias");
            let value = |i: usize| ((i * 37 + layer) % 23) as f32 / 16.0 - 0.5;
            let data = (0..len).flat_map(|i| value(i).to_le_bytes()).collect();
            let (dtype, shape) = ("F32".to_owned(), vec![len as u64]);
            parts.tensors.push(Stored { name, dtype, shape, data });
        }
    }
    let (folder, golden) = (parts.write(), Golden::load("llama-tiny-linear"));
    let path = folder.join("biased.gguf");
    export(&folder.path(), &path, &spec(Format::Bf16)).unwrap();
    let script = golden.forced();
    let [(of_folder, _), (of_file, _)] =
        [folder.path(), path].map(|path| logits(&path, None, None, &script));
    assert!(nmse(&of_folder, &of_file) < 1e-12);
    assert!(nmse(&golden.logits, &of_folder[..golden.logits.len()]) > 1e-2, "biases matter");
}

fn rows(weights: &Weights) -> Vec<&WeightRows> {
    let mut all = vec![&weights.embed];
    for layer in &weights.layers {
        all.extend(layer.qkv.iter().chain(&layer.gate_up));
        all.extend([&layer.attn_output, &layer.ffn_down]);
    }
    all
}

#[test]
fn converting_while_loading_gives_what_the_written_file_holds() {
    let out = tempfile::tempdir().unwrap();
    // Rows of 96 and of 128: superblocks fall back.
    for (name, asked) in [
        ("gemma3-tiny-f16", Format::Q4K),
        ("gemma3-tiny-f16", Format::Q8_0),
        ("qwen3-tiny-bf16", Format::Q6K),
        ("qwen3-tiny-bf16", Format::Q4_0),
        ("qwen3-tiny-bf16", Format::F16),
    ] {
        let path = out.path().join(format!("{name}-{}.gguf", asked.name()));
        export(&common::golden(name), &path, &spec(asked)).unwrap();
        let written = Model::open(&path).unwrap().weights;
        let loaded = Model::open_as(common::golden(name), Some(asked)).unwrap().weights;
        for (a, b) in rows(&written).into_iter().zip(rows(&loaded)) {
            assert_eq!((a.format, a.k, a.rows()), (b.format, b.k, b.rows()), "{name}");
            let bytes = |m: &WeightRows| -> Vec<u8> {
                m.parts.iter().flat_map(|p| p.get().to_vec()).collect()
            };
            assert!(bytes(a) == bytes(b), "{name} {}", asked.name());
        }
    }
}

/// Logits stay near those of the whole model; a Llama goes through the reordering of Q and K.
#[test]
fn quantised_models_stay_near() {
    let out = tempfile::tempdir().unwrap();
    for name in GOLDENS {
        let golden = Golden::load(name);
        let from = common::golden(name);
        for (format, limit) in [(Format::Q8_0, 1e-3), (Format::Q5_1, 0.05), (Format::Q4K, 0.1)] {
            let path = out.path().join(format!("{name}-{}.gguf", format.name()));
            export(&from, &path, &spec(format)).unwrap();
            let (written, _) = logits(&path, None, None, &golden.forced());
            let (loaded, _) = logits(&from, Some(format), None, &golden.forced());
            let error = nmse(&golden.logits, &written[..golden.logits.len()]);
            let same = nmse(&written, &loaded);
            eprintln!("{name} {}: NMSE {error:.1e}, loaded {same:.1e}", format.name());
            assert!(error < limit && same < 1e-9, "{name} {}: {error:e} {same:e}", format.name());
        }
    }
}

#[test]
fn fallbacks_and_errors_are_told() {
    let out = tempfile::tempdir().unwrap();
    let source = common::golden("gemma3-tiny-f16");
    for (asked, instead) in [("q4_k", "q5_0"), ("q5_k", "q5_1"), ("q6_k", "q8_0")] {
        let format = lathe_harness::model::synth::weight_type(asked).unwrap();
        let path = out.path().join(asked);
        let summary = export(&source, &path, &spec(format)).unwrap();
        // Rows of 96, of 2 x 32 and of 256.
        let told: Vec<_> =
            summary.fallbacks.iter().map(|f| (f.asked, f.stored, f.row_len, f.tensors)).collect();
        assert_eq!(told, [(asked, instead, 64, 7), (asked, instead, 96, 36)]);
        let types: Vec<_> = summary.types.iter().map(|t| (t.ty, t.tensors)).collect();
        assert!(types.contains(&(asked, 7)) && types.contains(&(instead, 43)), "{types:?}");
        for ty in &summary.types {
            let (ours, nearest) =
                (ty.relative_rms_error.unwrap(), ty.nearest_relative_rms_error.unwrap());
            assert!(ours > 0.0 && ours < nearest && nearest < 0.15, "{ty:?}");
        }
    }
    let with_embed = ExportSpec { embed: Some(Format::Q8_0), ..spec(Format::Q4_0) };
    let path = out.path().join("embed");
    let summary = export(&source, &path, &with_embed).unwrap();
    assert!(summary.fallbacks.is_empty());
    let file = ModelFile::open(&path).unwrap();
    let ty = |name: &str| file.tensor(name).unwrap().ty;
    assert_eq!(
        (ty("token_embd.weight"), ty("blk.0.attn_q.weight")),
        (GgmlType::Q8_0, GgmlType::Q4_0)
    );
    assert_eq!(ty("blk.0.attn_norm.weight"), GgmlType::F32);

    // From GGUF to GGUF, quantised before.
    let again = out.path().join("again");
    let summary = export(&path, &again, &spec(Format::Q5_0)).unwrap();
    assert_eq!(summary.requantised, 50);
}

#[test]
fn metadata_of_a_gguf_stay() {
    let out = tempfile::tempdir().unwrap();
    let (from, to) = (out.path().join("a.gguf"), out.path().join("b.gguf"));
    let arch = SynthArch::LlamaMini;
    let synth = SynthSpec { arch, quant: Format::Bf16, embed_quant: None, seed: 3 };
    write_synth(&synth, &from, &mut |_, _| {}).unwrap();
    let kept = ExportSpec { without_tokenizer: false, ..spec(Format::Q8_0) };
    assert!(export(&from, &to, &kept).unwrap().tokenizer);
    let (a, b) = (ModelFile::open(&from).unwrap(), ModelFile::open(&to).unwrap());
    assert_eq!(a.vocabulary().unwrap(), b.vocabulary().unwrap());
    assert_eq!(a.config().unwrap(), b.config().unwrap());
    let (a, b) = (a.gguf().unwrap(), b.gguf().unwrap());
    for (key, value) in a.metadata.iter() {
        let other = b.metadata.get(key).unwrap();
        if key == "general.file_type" {
            assert_eq!(other.as_integer(), Some(7));
        } else if !matches!(value, lathe_harness::model::gguf::Value::Array(_)) {
            assert_eq!(value, other, "{key}");
        }
    }
    let bare = out.path().join("c.gguf");
    assert!(!export(&from, &bare, &spec(Format::Q8_0)).unwrap().tokenizer);
    assert_eq!(ModelFile::open(&bare).unwrap().vocabulary().unwrap(), None);
}

#[test]
fn a_file_is_replaced_only_when_asked_and_nothing_is_left_behind() {
    let out = tempfile::tempdir().unwrap();
    let (path, source) = (out.path().join("a.gguf"), common::golden("qwen3-tiny-bf16"));
    fs::write(&path, b"precious").unwrap();
    let error = export(&source, &path, &spec(Format::Q8_0)).unwrap_err();
    assert!(matches!(error.kind, ModelErrorKind::Exists), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");

    // A value that is no number is found on the way, and the old file stays.
    let mut parts = Parts::golden("qwen3-tiny-bf16");
    parts.tensor("model.layers.1.mlp.up_proj.weight").data[2 * 128 * 7..][..2]
        .copy_from_slice(&[0xc0, 0x7f]);
    let replace = ExportSpec { overwrite: true, ..spec(Format::Q8_0) };
    let error = export(&parts.write().path(), &path, &replace).unwrap_err().to_string();
    assert!(error.contains("`model.layers.1.mlp.up_proj.weight`, row 7: not every"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let folder = parts.write();
    let error = Model::open_as(folder.path(), Some(Format::Q8_0)).map(drop).unwrap_err();
    assert_eq!(error.exit_code(), 5);
    assert!(error.to_string().contains("model.layers.1.mlp.up_proj.weight"), "{error}");

    export(&source, &path, &replace).unwrap();
    // In place of what it is made from.
    export(&path, &path, &ExportSpec { overwrite: true, ..spec(Format::Q4_0) }).unwrap();
    Model::open(&path).unwrap();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "leftovers");
    let folder = export(&source, out.path(), &replace).unwrap_err().to_string();
    assert!(folder.contains("is a folder"), "{folder}");
}

#[test]
fn what_gguf_cannot_say_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let mut parts = Parts::golden("gemma3-tiny-f16");
    parts.config["query_pre_attn_scalar"] = json!(48);
    let folder = parts.write();
    Model::open(folder.path()).unwrap();
    let error = export(&folder.path(), &out.path().join("a"), &spec(Format::F16)).unwrap_err();
    assert!(error.to_string().contains("attention scale"), "{error}");
}

/// Byte-level BPE over the tiny models' 320 tokens: bytes, three merges, two added tokens.
pub(crate) fn tokenizer_json() -> Value {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut vocab = serde_json::Map::new();
    let mut beyond = 0x100..;
    for byte in 0..=u8::MAX {
        let c = if printable(byte) { u32::from(byte) } else { beyond.next().unwrap() };
        vocab.insert(char::from_u32(c).unwrap().to_string(), json!(u32::from(byte) + 2));
    }
    for (spelling, id) in [("he", 300), ("ll", 301), ("hell", 302)] {
        vocab.insert(spelling.to_owned(), json!(id));
    }
    let split = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    );
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "special": special, "lstrip": false,
            "rstrip": false, "single_word": false, "normalized": false})
    };
    json!({
        "added_tokens": [added(1, "<|end|>", true), added(310, "<tool>", false)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": false}]},
        "post_processor": null,
        "model": {"type": "BPE", "vocab": vocab, "merges": [["h", "e"], "l l", ["he", "ll"]]},
    })
}

#[test]
fn a_byte_level_tokenizer_goes_along() {
    let folder = Parts::golden("qwen3-tiny-bf16").write();
    folder.put("tokenizer.json", tokenizer_json().to_string().as_bytes());
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("a.gguf");
    let with = ExportSpec { without_tokenizer: false, ..spec(Format::Q8_0) };
    assert!(export(&folder.path(), &path, &with).unwrap().tokenizer);
    let file = ModelFile::open(&path).unwrap();
    let vocabulary = file.vocabulary().unwrap().unwrap();
    assert_eq!(vocabulary, ModelFile::open(folder.path()).unwrap().vocabulary().unwrap().unwrap());
    assert_eq!((vocabulary.pre.as_deref(), vocabulary.tokens.len()), (Some("qwen2"), 320));
    assert_eq!((&*vocabulary.tokens[0], vocabulary.token_types[0]), ("[PAD0]", 5));
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    let ids = tokenizer.encode("hello<|end|> <tool>", true).unwrap();
    assert_eq!(ids, [302, u32::from(b'o') + 2, 1, u32::from(b' ') + 2, 310]);
}

#[test]
fn every_end_token_goes_along() {
    let folder = Parts::golden("qwen3-tiny-bf16").write();
    let mut tokenizer = tokenizer_json();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    let mut message = added[0].clone();
    (message["id"], message["content"]) = (json!(311), json!("<|eom_id|>"));
    added.push(message);
    folder.put("tokenizer.json", tokenizer.to_string().as_bytes());
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("a.gguf");
    let with = ExportSpec { without_tokenizer: false, overwrite: true, ..spec(Format::Q8_0) };
    for (ends, [turn, end_of_message]) in [
        (&[1][..], [None, None]),
        (&[1, 310, 1], [Some(310), None]),
        (&[1, 311, 310], [Some(310), Some(311)]),
        (&[1, 310, 312], [Some(310), Some(312)]),
    ] {
        let config = json!({"eos_token_id": ends}).to_string();
        folder.put("generation_config.json", config.as_bytes());
        export(&folder.path(), &path, &with).unwrap();
        let file = ModelFile::open(&path).unwrap();
        let id = |key: &str| {
            file.gguf().unwrap().u32(&format!("tokenizer.ggml.{key}_token_id")).unwrap()
        };
        assert_eq!((id("eos"), id("eot"), id("eom")), (Some(1), turn, end_of_message), "{ends:?}");
        let config = file.config().unwrap();
        // `<|eom_id|>` ends a text by its spelling, named or not.
        let named = [Some(1), turn, end_of_message, Some(311)];
        let all: BTreeSet<u32> = named.into_iter().flatten().collect();
        assert_eq!(config.eos, Some(1));
        assert_eq!(config.end_tokens.into_iter().collect::<BTreeSet<_>>(), all);
    }
    folder.put("generation_config.json", br#"{"eos_token_id": [1, 310, 311, 312]}"#);
    let error = export(&folder.path(), &path, &with).unwrap_err().to_string();
    assert!(error.contains("3 tokens that end a text beside the EOS"), "{error}");
}

#[test]
fn without_a_tokenizer_one_is_asked_for() {
    let folder = Parts::golden("qwen3-tiny-bf16").write();
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("a.gguf");
    let with = ExportSpec { without_tokenizer: false, ..spec(Format::Q8_0) };
    let error = export(&folder.path(), &path, &with).unwrap_err().to_string();
    assert!(error.contains("no tokenizer.json") && error.contains("--no-tokenizer"), "{error}");
    // Files of another kind are in `broken.txt`. The weights are sound.
    folder.put("tokenizer.json", br#"{"model": {"type": "Unigram"}}"#);
    assert!(export(&folder.path(), &path, &with).is_err() && !path.exists());
    Model::open(folder.path()).unwrap();
    export(&folder.path(), &path, &spec(Format::Q8_0)).unwrap();
}

/// The official package reads our files. `LATHE_PYTHON` names another interpreter.
#[test]
fn the_official_package_reads_the_same_values() {
    let python = std::env::var("LATHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let run = |arguments: &[&str]| Command::new(&python).args(arguments).output();
    if !run(&["-c", "import gguf"]).is_ok_and(|o| o.status.success()) {
        eprintln!("UNAVAILABLE, not tested: {python} with the package gguf");
        return;
    }
    let script = "
import sys, gguf, numpy
for tensor in gguf.GGUFReader(sys.argv[1]).tensors:
    x = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    print(tensor.name, tensor.tensor_type.name, x.size, x.tobytes().hex())
";
    let out = tempfile::tempdir().unwrap();
    for &format in Format::ALL {
        // Rows of 256 among them, so that superblocks are there.
        let path = out.path().join(format.name());
        export(&common::golden("llama-tiny-f16"), &path, &spec(format)).unwrap();
        let output = run(&["-c", script, path.to_str().unwrap()]).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", format.name());
        let file = ModelFile::open(&path).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), file.tensors().len());
        assert!(text.to_lowercase().contains(&format!(" {} ", format.name())), "{}", format.name());
        for line in text.lines() {
            let [name, ty, _, hex] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let tensor = file.tensor(name).unwrap();
            assert_eq!(tensor.ty.name(), ty, "{name}");
            let ours = values(&file, name);
            assert_eq!(hex.len(), 8 * ours.len(), "{name}");
            for (i, (v, hex)) in ours.iter().zip(hex.as_bytes().chunks(8)).enumerate() {
                let word = u32::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
                let theirs = f32::from_bits(word.swap_bytes());
                assert!((v - theirs).abs() <= 1e-6 * v.abs(), "{name}[{i}]: {v} {theirs}");
            }
        }
    }
}

/// The trained checkpoint at q8_0, where `LATHE_RUSTY` names its folder: the same text.
#[test]
fn a_trained_checkpoint_says_the_same_at_q8_0() {
    let Some((folder, golden)) = trained() else { return };
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("q8_0.gguf");
    let with = ExportSpec { without_tokenizer: false, ..spec(Format::Q8_0) };
    export(&folder, &path, &with).unwrap();
    let (_, generated) = logits(&path, None, None, &golden.free(1));
    let expected = golden.greedy;
    let same = generated.iter().zip(&expected).take_while(|(a, b)| a == b).count();
    let tokenizer = Tokenizer::new(ModelFile::open(&path).unwrap().vocabulary().unwrap().unwrap());
    let text = tokenizer.unwrap().decode(&generated);
    eprintln!("{same} of {} tokens are the same: {text}", expected.len());
    assert!(same >= 32 && text.starts_with(" make up the same data structure."), "{same}: {text}");
}
