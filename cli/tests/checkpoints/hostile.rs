//! Broken and hostile safetensors checkpoints: each is refused with a message that names file and
//! key, and with the exit code of a bad model file.

use std::fs;

use serde_json::{Value, json};

use crate::folder::{Folder, Parts, Stored, raw};
use crate::{common, load};

const NORM: &str = "model.norm.weight";
const CONFIG: &str = "config.json: key `";

/// A change, and the words of the refusal.
type Case<'a, T> = (&'a dyn Fn(&mut T), &'a [&'a str]);

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

/// Files of weights that are refused in the place of a golden's.
#[track_caller]
fn refused_weights(cases: &[(&[u8], &[&str])]) {
    let folder = parts().write();
    for (bytes, says) in cases {
        folder.put("model.safetensors", bytes);
        refused(&folder, &[&["model.safetensors: "], *says].concat());
    }
}

#[test]
fn cut_files() {
    let whole = Parts::file(&parts().tensors);
    let tensor = &["tensor `", "the file is cut"][..];
    refused_weights(&[
        (&[], &["header: the file ends after 0 bytes"]),
        (&whole[..20], &["beyond the file: 12 left"]),
        (&whole[..whole.len() - 1], tensor),
        (&whole[..whole.len() - 1000], tensor),
        (&whole[..whole.len() - 500_000], tensor),
    ]);
    let folder = parts().shards();
    let shard = "model-00002-of-00003.safetensors";
    let bytes = fs::read(folder.join(shard)).unwrap();
    folder.put(shard, &bytes[..bytes.len() - 64]);
    refused(&folder, &[&format!("{shard}: tensor `"), "the file is cut"]);
}

#[test]
fn headers_that_are_none() {
    // Bytes that no tensor owns hide something, or are another file's.
    let mut longer = Parts::file(&parts().tensors);
    longer.extend([0; 8]);
    let entry = |start: u64| {
        format!(r#"{{"dtype": "F32", "shape": [8], "data_offsets": [{start}, {}]}}"#, start + 32)
    };
    let two = |a: &str, first, second| {
        raw(&format!(r#"{{"a": {}, "{a}": {}}}"#, entry(first), entry(second)), &[0; 72])
    };
    refused_weights(&[
        (&[0xff; 64], &["header: 18446744073709551615 bytes are more than"]),
        (&raw("{\"a\"", &[]), &["header: no valid JSON"]),
        (&raw("[]", &[]), &["header: ", "expected an object"]),
        (&raw(&"[".repeat(100_000), &[]), &["header: no valid JSON"]),
        (b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0", &["header: "]),
        (&longer, &["header: "]),
        (&two("b", 0, 16)[..], &["tensor `b`", "overlap those of `a`"]),
        // A gap may hide anything.
        (&two("b", 0, 40), &["header: ", "b"]),
        (&two("a", 0, 0), &["header: ", "key `a` comes twice"]),
    ]);
}

#[test]
fn entries_that_cannot_be() {
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"dtype": {dtype}, "shape": {shape}, "data_offsets": {offsets}}}"#)
    };
    let f32 = |shape: &str, offsets: &str| entry("\"F32\"", shape, offsets);
    let huge = u64::MAX;
    let overflows = ["`shape`", "overflows"];
    let cases: [(String, &[&str]); 18] = [
        ("7".to_owned(), &["expected an object"]),
        (r#"{"dtype": "F32", "shape": [16]}"#.to_owned(), &["`data_offsets`", "missing"]),
        (entry("\"F99\"", "[16]", "[0, 64]"), &["unknown variant `F99`"]),
        (entry("4", "[16]", "[0, 64]"), &["integer `4`"]),
        (f32("[-16]", "[0, 64]"), &["integer `-16`"]),
        (f32("[1.5]", "[0, 64]"), &["floating point `1.5`"]),
        (f32("\"16\"", "[0, 64]"), &["string \"16\"", "sequence"]),
        (f32("[15]", "[0, 64]"), &["60 bytes by type"]),
        (f32("[16]", "[64, 0]"), &["64 to 0"]),
        (f32("[16]", "[0]"), &["invalid length 1"]),
        (f32("[32]", "[0, 128]"), &["the file is cut"]),
        (f32("[16]", &format!("[{}, {huge}]", huge - 64)), &["the file is cut"]),
        (f32(&format!("[{huge}]"), "[0, 0]"), &overflows),
        (f32(&format!("[{huge}, {huge}]"), "[0, 0]"), &overflows),
        (f32("[4294967296, 4294967296]", "[0, 0]"), &overflows),
        (f32("[9223372036854775807]", "[0, 0]"), &overflows),
        (f32(&format!("[{huge}, {huge}, 0]"), "[0, 0]"), &overflows),
        (f32("[16]", "[\"0\", 64]"), &["string \"0\""]),
    ];
    for (entry, says) in cases {
        let file = raw(&format!(r#"{{"{NORM}": {entry}}}"#), &[0; 64]);
        refused_weights(&[(&file, &[&["`model.norm.weight`"], says].concat())]);
    }
}

#[test]
fn tensors_that_do_not_make_the_model() {
    const Q: &str = "model.layers.1.self_attn.q_proj.weight";
    const UP: &str = "model.layers.0.mlp.up_proj.weight";
    let missing = |parts: &mut Parts, name: &str| parts.tensors.retain(|t| t.name != name);
    let extra = |parts: &mut Parts, name: &str| {
        let (name, dtype) = (name.to_owned(), "F32".to_owned());
        parts.tensors.push(Stored { name, dtype, shape: vec![16], data: vec![0; 64] });
    };
    let flat = vec![1; 70].into_iter().chain([128, 128]).collect::<Vec<u64>>();
    let cases: [Case<'_, Parts>; 8] = [
        (&|p| missing(p, Q), &["config.json", "self_attn.q_proj.weight`: is missing"]),
        (
            &|p| missing(p, "model.embed_tokens.weight"),
            &["`model.embed_tokens.weight`: is missing"],
        ),
        (&|p| p.tensor(UP).shape.reverse(), &[UP, "has dimensions [256, 128]"]),
        (&|p| p.tensor(Q).shape.clone_from(&flat), &[Q, "has dimensions"]),
        (
            &|p| p.tensor(NORM).dtype = "I32".to_owned(),
            &["model.safetensors", NORM, "I32", "F32, F16, BF16"],
        ),
        (
            &|p| extra(p, "model.layers.0.self_attn.q_proj.bias"),
            &["`model.layers.0.self_attn.q_proj.bias`: is not part of llama"],
        ),
        (&|p| extra(p, "blk.0.attn_q.weight"), &["`blk.0.attn_q.weight`: is not part of llama"]),
        (&|p| extra(p, "rope_freqs.weight"), &["`rope_freqs.weight`: is not part of llama"]),
    ];
    for (change, says) in cases {
        let mut parts = parts();
        change(&mut parts);
        refused(&parts.write(), says);
    }
}

#[test]
fn configurations_that_cannot_be() {
    let sizes = [
        "/hidden_size",
        "/intermediate_size",
        "/num_hidden_layers",
        "/num_attention_heads",
        "/num_key_value_heads",
        "/head_dim",
        "/max_position_embeddings",
        "/vocab_size",
    ];
    let no_size = json!([0, -1, 1.5, "96", [1], {}, true, 1e300, 4_294_967_296u64]);
    let llama = sizes.map(|key| (key, no_size.clone())).into_iter().chain([
        ("/rms_norm_eps", json!([0.0, -1e-5, 1e300, "small", 1e-300, null])),
        ("/model_type", json!(["mamba", 7, null])),
        ("/num_key_value_heads", json!([3])),
        ("/head_dim", json!([33])),
        ("/hidden_act", json!(["gelu"])),
        ("/attention_bias", json!([true])),
        ("/mlp_bias", json!(["no"])),
        ("/quantization_config", json!([{"quant_method": "gptq"}])),
        ("/vocab_size", json!([321])),
        ("/eos_token_id", json!([320, [1, -1]])),
        ("/bos_token_id", json!(["<s>"])),
        ("/tie_word_embeddings", json!([1])),
        ("/rope_parameters", json!([5])),
        ("/rope_parameters/rope_theta", json!([0, null])),
        ("/rope_parameters/rope_type", json!(["yarn"])),
        ("/rope_parameters/factor", json!([0, "8"])),
        ("/rope_parameters/low_freq_factor", json!([null])),
        ("/rope_parameters/high_freq_factor", json!([1.0])),
        ("/rope_parameters/original_max_position_embeddings", json!([-1])),
    ]);
    let qwen3 = [
        (
            "/layer_types",
            json!([["full_attention"], ["full_attention", "sliding_attention", "full_attention"],]),
        ),
        ("/use_sliding_window", json!([true])),
        ("/rope_parameters/rope_type", json!(["llama3"])),
    ];
    let gemma3 = [
        ("/sliding_window", json!([null])),
        ("/_sliding_window_pattern", json!([5])),
        ("/final_logit_softcapping", json!([30.0])),
        ("/query_pre_attn_scalar", json!([0])),
        ("/use_bidirectional_attention", json!([true])),
        ("/rope_parameters/sliding_attention", json!([null])),
        ("/rope_parameters/full_attention/rope_type", json!(["linear"])),
    ];
    for (golden, keys) in [
        ("llama-tiny-f16", llama.collect::<Vec<_>>()),
        ("qwen3-tiny-bf16", qwen3.to_vec()),
        ("gemma3-tiny-f16", gemma3.to_vec()),
    ] {
        let parts = Parts::golden(golden);
        let folder = parts.write();
        for (pointer, values) in keys {
            let (object, key) = pointer.rsplit_once('/').unwrap();
            for value in values.as_array().unwrap() {
                let mut config = parts.config.clone();
                config.pointer_mut(object).unwrap()[key] = value.clone();
                folder.put("config.json", config.to_string().as_bytes());
                refused(&folder, &[CONFIG, &format!("{key}`")]);
            }
        }
    }
}

#[test]
fn configurations_that_are_larger_than_their_tensors() {
    // Nothing is made that large before the tensors were asked.
    for (key, size, says) in [
        ("num_hidden_layers", u32::MAX, "`model.layers.3.input_layernorm.weight`: is missing"),
        ("hidden_size", u32::MAX, "has dimensions"),
        ("intermediate_size", u32::MAX, "has dimensions"),
        ("head_dim", u32::MAX - 1, "has dimensions"),
    ] {
        let mut parts = parts();
        parts.config[key] = json!(size);
        refused(&parts.write(), &[says]);
    }
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

const INDEX: &str = "model.safetensors.index.json";
const FIRST: &str = "model-00001-of-00003.safetensors";
/// The message's beginning where the shard of one tensor is at fault.
const AT_NORM: &str = "index.json: key `weight_map.model.norm.weight`";

/// Changes the index of a sharded golden. Another shard lies outside its folder.
#[track_caller]
fn refused_index(change: impl FnOnce(&mut Value, &Folder), says: &[&str]) {
    let folder = parts().shards();
    fs::write(folder.outside().join("secret.safetensors"), Parts::file(&parts().tensors)).unwrap();
    let mut index: Value = serde_json::from_slice(&fs::read(folder.join(INDEX)).unwrap()).unwrap();
    change(&mut index, &folder);
    folder.index(&index);
    refused(&folder, says);
}

#[test]
fn indices_that_point_elsewhere() {
    for shard in
        ["../secret.safetensors", "..", ".", "", "a/b.safetensors", "a\\b.safetensors", "c:x"]
    {
        let point = |index: &mut Value, _: &Folder| index["weight_map"][NORM] = json!(shard);
        refused_index(point, &[AT_NORM, "no plain file name"]);
    }
    refused_index(
        |index, folder| {
            index["weight_map"][NORM] = json!(folder.outside().join("secret.safetensors"));
        },
        &["no plain file name"],
    );
    #[cfg(unix)]
    refused_index(
        |index, folder| {
            let secret = folder.outside().join("secret.safetensors");
            std::os::unix::fs::symlink(&secret, folder.join("link.safetensors")).unwrap();
            index["weight_map"][NORM] = json!("link.safetensors");
        },
        &[AT_NORM, "link out of the folder"],
    );
}

#[test]
fn indices_that_do_not_fit_their_shards() {
    let shard = |index: &mut Value, shard: Value| index["weight_map"][NORM] = shard;
    let cases: [Case<'_, Value>; 7] = [
        (&|index| shard(index, json!("none.safetensors")), &[AT_NORM, "none.s"]),
        (&|index| shard(index, json!(7)), &[AT_NORM, "expected a string"]),
        (&|index| shard(index, json!(null)), &[AT_NORM, "is missing"]),
        (&|index| *index = json!({}), &["index.json: key `weight_map`: is missing"]),
        (&|index| *index = json!([]), &["index.json: ", "expected an object"]),
        (
            &|index| index["weight_map"]["invented"] = json!(FIRST),
            &[FIRST, "tensor `invented` is missing", "index.json"],
        ),
        (
            &|index| drop(index["weight_map"].as_object_mut().unwrap().remove(NORM)),
            &["tensor `model.norm.weight` is not what", "index.json"],
        ),
    ];
    for (change, says) in cases {
        refused_index(|index, _| change(index), says);
    }
    refused_index(
        |index, folder| {
            fs::create_dir(folder.join("folder.safetensors")).unwrap();
            shard(index, json!("folder.safetensors"));
        },
        &[AT_NORM, "is no file"],
    );
    let folder = parts().shards();
    let twice = format!(r#"{{"weight_map": {{"{NORM}": "{FIRST}", "{NORM}": "{FIRST}"}}}}"#);
    folder.put(INDEX, twice.as_bytes());
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
