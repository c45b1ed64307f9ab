//! Broken and hostile checkpoints: each is refused with a message that names file and key, and with
//! the exit code of a bad model file.

use std::fs;

use serde_json::{Value, json};

use crate::folder::{Folder, Parts, Stored, raw};
use crate::{common, load};

fn parts() -> Parts {
    Parts::golden("llama-tiny-f16")
}

#[track_caller]
fn refused(folder: &Folder, says: &[&str]) {
    let error = load(&folder.path()).map(|_| ()).expect_err("a broken checkpoint was loaded");
    assert_eq!(error.exit_code(), 5, "{error}");
    let message = error.to_string();
    for part in says {
        assert!(message.contains(part), "`{message}` does not say `{part}`");
    }
}

/// A golden whose file of weights is another.
#[track_caller]
fn refused_file(bytes: &[u8], says: &[&str]) {
    let folder = parts().write();
    folder.put("model.safetensors", bytes);
    refused(&folder, &[&["model.safetensors: "], says].concat());
}

/// A file of one tensor with this header entry, over 64 bytes.
#[track_caller]
fn refused_entry(entry: &str, says: &[&str]) {
    let header = format!(r#"{{"model.norm.weight": {entry}}}"#);
    refused_file(&raw(&header, &[0; 64]), &[&["`model.norm.weight`"], says].concat());
}

#[test]
fn cut_files() {
    let whole = Parts::file(&parts().tensors);
    refused_file(&[], &["header: the file ends after 0 bytes"]);
    refused_file(&whole[..20], &["beyond the file: 12 left"]);
    for cut in [1, 1000, 500_000] {
        refused_file(&whole[..whole.len() - cut], &["tensor `", "the file is cut"]);
    }
    let folder = parts().shards();
    let shard = folder.join("model-00002-of-00003.safetensors");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 64]).unwrap();
    refused(&folder, &["model-00002-of-00003.safetensors: tensor `", "the file is cut"]);
}

#[test]
fn headers_that_are_none() {
    refused_file(&[0xff; 64], &["header: 18446744073709551615 bytes are more than"]);
    refused_file(&raw("{\"a\"", &[]), &["header: no valid JSON"]);
    refused_file(&raw("[]", &[]), &["header: ", "expected an object"]);
    refused_file(&raw(&"[".repeat(100_000), &[]), &["header: no valid JSON"]);
    refused_file(b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0", &["header: "]);
    // Bytes that no tensor owns hide something, or are another file's.
    let mut longer = Parts::file(&parts().tensors);
    longer.extend([0; 8]);
    refused_file(&longer, &["header: "]);
}

#[test]
fn entries_that_cannot_be() {
    refused_entry("7", &["expected an object"]);
    refused_entry(r#"{"dtype": "F32", "shape": [16]}"#, &["`data_offsets`", "missing"]);
    refused_entry(
        r#"{"dtype": "F99", "shape": [16], "data_offsets": [0, 64]}"#,
        &["`dtype`", "F99"],
    );
    refused_entry(r#"{"dtype": 4, "shape": [16], "data_offsets": [0, 64]}"#, &["`dtype`"]);
    refused_entry(r#"{"dtype": "F32", "shape": [-16], "data_offsets": [0, 64]}"#, &["`shape`"]);
    refused_entry(r#"{"dtype": "F32", "shape": [1.5], "data_offsets": [0, 64]}"#, &["`shape`"]);
    refused_entry(r#"{"dtype": "F32", "shape": "16", "data_offsets": [0, 64]}"#, &["`shape`"]);
    refused_entry(
        r#"{"dtype": "F32", "shape": [15], "data_offsets": [0, 64]}"#,
        &["60 bytes by type"],
    );
    refused_entry(r#"{"dtype": "F32", "shape": [16], "data_offsets": [64, 0]}"#, &["64 to 0"]);
    refused_entry(r#"{"dtype": "F32", "shape": [16], "data_offsets": [0]}"#, &["two numbers"]);
    refused_entry(
        r#"{"dtype": "F32", "shape": [32], "data_offsets": [0, 128]}"#,
        &["the file is cut"],
    );
    let huge = u64::MAX;
    for shape in [
        format!("[{huge}]"),
        format!("[{huge}, {huge}]"),
        "[4294967296, 4294967296]".to_owned(),
        "[9223372036854775807]".to_owned(),
        format!("[{huge}, {huge}, 0]"),
    ] {
        let entry = format!(r#"{{"dtype": "F32", "shape": {shape}, "data_offsets": [0, 0]}}"#);
        refused_entry(&entry, &["`shape`", "overflows"]);
    }
    let end =
        format!(r#"{{"dtype": "F32", "shape": [16], "data_offsets": [{}, {huge}]}}"#, huge - 64);
    refused_entry(&end, &["the file is cut"]);
}

#[test]
fn tensors_on_top_of_each_other_and_twice() {
    let entry = |start: u64| {
        format!(r#"{{"dtype": "F32", "shape": [8], "data_offsets": [{start}, {}]}}"#, start + 32)
    };
    let two = |a: &str, b: &str| format!(r#"{{"a": {a}, "b": {b}}}"#);
    let overlap = raw(&two(&entry(0), &entry(16)), &[0; 48]);
    refused_file(&overlap, &["tensor `b`", "overlap those of `a`"]);
    // A gap may hide anything.
    refused_file(&raw(&two(&entry(0), &entry(40)), &[0; 72]), &["header: ", "b"]);
    let twice = format!(r#"{{"a": {0}, "a": {0}}}"#, entry(0));
    refused_file(&raw(&twice, &[0; 32]), &["header: ", "key `a` comes twice"]);
}

#[test]
fn tensors_that_do_not_make_the_model() {
    let (q, norm) = ("model.layers.1.self_attn.q_proj.weight", "model.norm.weight");
    let mut missing = parts();
    missing.tensors.retain(|t| t.name != q);
    refused(&missing.write(), &["config.json", &format!("tensor `{q}` is missing")]);
    let mut without = parts();
    without.tensors.retain(|t| t.name != "model.embed_tokens.weight");
    refused(&without.write(), &["`model.embed_tokens.weight` is missing"]);
    let mut turned = parts();
    turned.tensor("model.layers.0.mlp.up_proj.weight").shape.reverse();
    refused(&turned.write(), &["`model.layers.0.mlp.up_proj.weight` has dimensions [256, 128]"]);
    let mut flat = parts();
    flat.tensor(q).shape = vec![1; 70].into_iter().chain([128, 128]).collect();
    refused(&flat.write(), &[q, "has dimensions"]);
    let mut typed = parts();
    typed.tensor(norm).dtype = "I32".to_owned();
    refused(&typed.write(), &["model.safetensors", norm, "I32", "F32, F16, BF16"]);
    for extra in
        ["model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.weight", "rope_freqs.weight"]
    {
        let mut more = parts();
        let (dtype, data) = ("F32".to_owned(), vec![0; 64]);
        more.tensors.push(Stored { name: extra.to_owned(), dtype, shape: vec![16], data });
        refused(&more.write(), &[&format!("`{extra}` is not part of llama")]);
    }
}

/// A golden with one key of its configuration changed.
#[track_caller]
fn refused_key(golden: &str, pointer: &str, value: Value) {
    let mut parts = Parts::golden(golden);
    let (object, key) = pointer.rsplit_once('/').unwrap();
    let object = parts.config.pointer_mut(object).unwrap();
    object[key] = value;
    refused(&parts.write(), &["config.json: key `", &format!("{key}`")]);
}

#[test]
fn configurations_that_cannot_be() {
    let llama = "llama-tiny-f16";
    let sizes = [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "vocab_size",
    ];
    for key in sizes {
        let wrong =
            [json!(0), json!(-1), json!(1.5), json!("96"), json!([1]), json!({}), json!(true)];
        for value in wrong.into_iter().chain([json!(1e300), json!(4_294_967_296u64)]) {
            refused_key(llama, &format!("/{key}"), value);
        }
    }
    for value in
        [json!(0.0), json!(-1e-5), json!(1e300), json!("small"), json!(1e-300), json!(null)]
    {
        refused_key(llama, "/rms_norm_eps", value);
    }
    for (key, value) in [
        ("/model_type", json!("mamba")),
        ("/model_type", json!(7)),
        ("/model_type", json!(null)),
        ("/num_key_value_heads", json!(3)),
        ("/head_dim", json!(33)),
        ("/hidden_act", json!("gelu")),
        ("/attention_bias", json!(true)),
        ("/mlp_bias", json!("no")),
        ("/quantization_config", json!({"quant_method": "gptq"})),
        ("/vocab_size", json!(321)),
        ("/eos_token_id", json!(320)),
        ("/eos_token_id", json!([1, -1])),
        ("/bos_token_id", json!("<s>")),
        ("/tie_word_embeddings", json!(1)),
        ("/rope_parameters", json!(5)),
        ("/rope_parameters/rope_theta", json!(0)),
        ("/rope_parameters/rope_theta", json!(null)),
        ("/rope_parameters/rope_type", json!("yarn")),
        ("/rope_parameters/factor", json!(0)),
        ("/rope_parameters/factor", json!("8")),
        ("/rope_parameters/low_freq_factor", json!(null)),
        ("/rope_parameters/high_freq_factor", json!(1.0)),
        ("/rope_parameters/original_max_position_embeddings", json!(-1)),
    ] {
        refused_key(llama, key, value);
    }
    for (key, value) in [
        ("/layer_types", json!(["full_attention"])),
        ("/layer_types", json!(["full_attention", "sliding_attention", "full_attention"])),
        ("/use_sliding_window", json!(true)),
        ("/rope_parameters/rope_type", json!("llama3")),
    ] {
        refused_key("qwen3-tiny-bf16", key, value);
    }
    for (key, value) in [
        ("/sliding_window", json!(null)),
        ("/_sliding_window_pattern", json!(5)),
        ("/final_logit_softcapping", json!(30.0)),
        ("/query_pre_attn_scalar", json!(0)),
        ("/use_bidirectional_attention", json!(true)),
        ("/rope_parameters/sliding_attention", json!(null)),
        ("/rope_parameters/full_attention/rope_type", json!("linear")),
    ] {
        refused_key("gemma3-tiny-f16", key, value);
    }
}

#[test]
fn configurations_that_are_larger_than_their_tensors() {
    // Nothing is made that large before the tensors were asked.
    for (key, says) in [
        ("num_hidden_layers", "`model.layers.3.input_layernorm.weight` is missing"),
        ("hidden_size", "has dimensions"),
        ("intermediate_size", "has dimensions"),
    ] {
        let mut parts = parts();
        parts.config[key] = json!(u32::MAX);
        refused(&parts.write(), &[says]);
    }
    let mut parts = parts();
    parts.config["head_dim"] = json!(u32::MAX - 1);
    refused(&parts.write(), &["has dimensions"]);
}

#[test]
fn configurations_that_are_no_json() {
    let folder = parts().write();
    for (bytes, says) in [
        (&b""[..], "no valid JSON"),
        (b"{", "no valid JSON"),
        (b"\xff\xfe", "no valid JSON"),
        (b"[1]", "expected an object"),
        (br#"{"hidden_size": 1, "hidden_size": 2}"#, "key `hidden_size` comes twice"),
    ] {
        folder.put("config.json", bytes);
        refused(&folder, &["config.json: ", says]);
    }
    fs::remove_file(folder.join("config.json")).unwrap();
    refused(&folder, &["config.json: cannot open"]);
    fs::create_dir(folder.join("config.json")).unwrap();
    refused(&folder, &["config.json: cannot read: is a directory"]);

    let folder = parts().write();
    folder.put("generation_config.json", br#"{"eos_token_id": "end"}"#);
    refused(&folder, &["generation_config.json: key `eos_token_id`"]);
    let folder = parts().write();
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    refused(&folder, &["neither model.safetensors nor model.safetensors.index.json"]);
}

/// A sharded golden whose index is another.
#[track_caller]
fn refused_index(change: impl FnOnce(&mut Value, &Folder), says: &[&str]) {
    let folder = parts().shards();
    let path = folder.join("model.safetensors.index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut index, &folder);
    folder.index(&index);
    refused(&folder, says);
}

#[test]
fn indices_that_point_elsewhere() {
    let norm = "model.norm.weight";
    let outside = Parts::file(&parts().tensors);
    for shard in
        ["../secret.safetensors", "..", ".", "", "a/b.safetensors", "a\\b.safetensors", "c:x"]
    {
        refused_index(
            |index, folder| {
                fs::write(folder.outside().join("secret.safetensors"), &outside).unwrap();
                index["weight_map"][norm] = json!(shard);
            },
            &["index.json: key `weight_map.model.norm.weight`", "no plain file name"],
        );
    }
    refused_index(
        |index, folder| {
            let secret = folder.outside().join("secret.safetensors");
            fs::write(&secret, &outside).unwrap();
            index["weight_map"][norm] = json!(secret);
        },
        &["no plain file name"],
    );
    #[cfg(unix)]
    refused_index(
        |index, folder| {
            let secret = folder.outside().join("secret.safetensors");
            fs::write(&secret, &outside).unwrap();
            std::os::unix::fs::symlink(&secret, folder.join("link.safetensors")).unwrap();
            index["weight_map"][norm] = json!("link.safetensors");
        },
        &["index.json: key `weight_map.model.norm.weight`", "link out of the folder"],
    );
}

#[test]
fn indices_that_do_not_fit_their_shards() {
    let norm = "model.norm.weight";
    let key = "index.json: key `weight_map.model.norm.weight`";
    refused_index(
        |index, _| index["weight_map"][norm] = json!("none.safetensors"),
        &[key, "none.s"],
    );
    refused_index(|index, _| index["weight_map"][norm] = json!(7), &[key, "expected a string"]);
    refused_index(|index, _| index["weight_map"][norm] = json!(null), &[key, "is missing"]);
    refused_index(
        |index, folder| {
            fs::create_dir(folder.join("folder.safetensors")).unwrap();
            index["weight_map"][norm] = json!("folder.safetensors");
        },
        &[key, "is no file"],
    );
    refused_index(|index, _| *index = json!({}), &["index.json: key `weight_map`: is missing"]);
    refused_index(|index, _| *index = json!([]), &["index.json: ", "expected an object"]);
    let first = "model-00001-of-00003.safetensors";
    refused_index(
        |index, _| index["weight_map"]["invented"] = json!(first),
        &[first, "tensor `invented` is missing", "index.json"],
    );
    refused_index(
        |index, _| {
            index["weight_map"].as_object_mut().unwrap().remove(norm);
        },
        &["tensor `model.norm.weight` is not what", "index.json"],
    );
    let folder = parts().shards();
    let twice = format!(r#"{{"weight_map": {{"{norm}": "{first}", "{norm}": "{first}"}}}}"#);
    folder.put("model.safetensors.index.json", twice.as_bytes());
    refused(&folder, &["index.json: ", "comes twice"]);
}

#[test]
fn the_command_exits_with_five() {
    let folder = parts().write();
    folder.put("config.json", br#"{"model_type": "llama", "hidden_size": 0}"#);
    let path = folder.path();
    let out = folder.outside().join("out.gguf");
    let path = path.to_str().unwrap();
    for arguments in [
        vec!["inspect", path],
        vec!["decode", "--model", path, "--prompt-tokens", "1", "--executor", "cpu"],
        vec!["quantize", path, "--type", "q8_0", "-o", out.to_str().unwrap()],
    ] {
        let output = common::lathe(&arguments);
        let stderr = common::stderr(&output);
        assert_eq!(common::code(&output), 5, "{arguments:?}: {stderr}");
        assert!(stderr.contains("config.json: key `"), "{stderr}");
    }
    assert!(!out.exists());
}
