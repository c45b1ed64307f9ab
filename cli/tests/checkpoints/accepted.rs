//! Accepted checkpoints, and the results of reading them.

use std::fs;

use lathe_harness::decode::{DecodeOptions, Decoder, Model, Script};
use lathe_harness::model::{GgmlType, ModelFile, describe};
use serde_json::{Value, json};

use crate::folder::{Folder, Parts, Stored, raw};
use crate::{GOLDENS, Golden, common, hold, trained};

#[test]
fn safetensors_have_the_logits_of_transformers() {
    let gpu = common::own_gpu();
    for name in GOLDENS {
        let (golden, folder) = (Golden::load(name), common::golden(name));
        hold(&golden, &folder, None, 1e-10);
        let shards = Parts::golden(name).shards();
        assert_eq!(ModelFile::open(shards.path()).unwrap().files().len(), 3);
        hold(&golden, &shards.path(), None, 1e-10);
        if let Some(gpu) = &gpu {
            hold(&golden, &folder, Some(gpu), 1e-8);
        }
    }
    // All norms in bf16 too.
    if let Some((folder, golden)) = trained() {
        hold(&golden, &folder, None, 1e-10);
        if let Some(gpu) = &gpu {
            hold(&golden, &folder, Some(gpu), 1e-8);
        }
    }
}

/// A checkpoint's values in f32, behind a header that leaves them on odd bytes, opened as a file.
#[test]
fn f32_and_odd_places_change_nothing() {
    let name = "qwen3-tiny-bf16";
    let mut parts = Parts::golden(name);
    for t in parts.tensors.iter_mut().filter(|t| t.dtype == "BF16") {
        t.dtype = "F32".to_owned();
        t.data = t.data.chunks(2).flat_map(|b| [0, 0, b[0], b[1]]).collect();
    }
    let (header, data) = Parts::header(&parts.tensors);
    let mut header = Value::Object(header).to_string();
    while header.len().is_multiple_of(2) {
        header.push(' ');
    }
    let folder = parts.write();
    folder.put("other.safetensors", &raw(&header, &data));
    hold(&Golden::load(name), &folder.join("other.safetensors"), None, 1e-10);
}

/// Keys as transformers 4 wrote them.
#[test]
fn keys_of_before_say_the_same() {
    for name in GOLDENS {
        let mut parts = Parts::golden(name);
        let new = Model::open(parts.write().path()).unwrap().config;
        let keys = parts.config.as_object_mut().unwrap();
        let rope = keys.remove("rope_parameters").unwrap();
        if let Some(full) = rope.get("full_attention") {
            keys.insert("rope_theta".into(), full["rope_theta"].clone());
            let local = rope["sliding_attention"]["rope_theta"].clone();
            keys.insert("rope_local_base_freq".into(), local);
            keys.insert("rope_scaling".into(), Value::Null);
            keys.remove("layer_types");
            keys.remove("_sliding_window_pattern");
            keys.insert("sliding_window_pattern".into(), json!(6));
        } else {
            keys.insert("rope_theta".into(), rope["rope_theta"].clone());
            keys.insert("rope_scaling".into(), rope);
        }
        let folder = parts.write();
        let Model { config: old, .. } = Model::open(folder.path()).unwrap();
        assert_eq!(old, new, "{name}");
        assert_eq!(new.computed_rope_freqs().is_some(), name.starts_with("llama"));
    }
}

/// Settings that transformers' Gemma 3 and Mistral have where a configuration leaves them out.
#[test]
fn settings_that_are_left_out_have_the_values_of_transformers() {
    let read = |parts: &Parts| Model::open(parts.write().path()).unwrap().config;
    let mut parts = Parts::golden("gemma3-tiny-linear");
    let expected = read(&parts);
    let keys = parts.config.as_object_mut().unwrap();
    let scaling = keys.remove("rope_parameters").unwrap()["full_attention"].clone();
    // transformers 4 says it this way.
    keys.insert("rope_scaling".into(), scaling);
    keys.remove("rms_norm_eps");
    keys.remove("vocab_size");
    assert_eq!(read(&parts), expected);
    parts.config.as_object_mut().unwrap().remove("num_key_value_heads");
    parts.config.as_object_mut().unwrap().remove("num_attention_heads");
    let said = ModelFile::open(parts.write().path()).unwrap().config().unwrap_err().to_string();
    assert!(said.contains("[128, 256], the metadata ask for [128, 512]"), "{said}");
    let mut parts = Parts::golden("mistral-tiny");
    for (window, context, expected) in [
        (Some(json!(16)), 128, Some(16)),
        (Some(json!(128)), 128, None),
        (Some(Value::Null), 32_768, None),
        (None, 32_768, Some(4096)),
    ] {
        parts.config["max_position_embeddings"] = json!(context);
        let keys = parts.config.as_object_mut().unwrap();
        keys.remove("sliding_window");
        keys.extend(window.map(|window| ("sliding_window".to_owned(), window)));
        let config = read(&parts);
        assert_eq!((config.layer_window(0), config.layer_window(1)), (expected, expected));
    }
}

/// The divisors that the official converter wrote into the folder's GGUF.
#[test]
fn rope_divisors_are_those_of_the_converter() {
    let name = "llama-tiny-f16";
    let computed = ModelFile::open(common::golden(name)).unwrap().config().unwrap();
    let gguf = ModelFile::open(common::golden(&format!("{name}.gguf"))).unwrap();
    let tensor = gguf.tensor("rope_freqs.weight").unwrap();
    let expected: Vec<f32> = bytemuck::pod_collect_to_vec(gguf.tensor_bytes(tensor));
    let computed = computed.computed_rope_freqs().unwrap();
    assert_eq!(computed.len(), expected.len());
    assert!(computed.iter().any(|v| *v != 1.0));
    for (ours, theirs) in computed.iter().zip(&expected) {
        assert!((ours / theirs - 1.0).abs() < 1e-6, "{ours} {theirs}");
    }
}

#[test]
fn the_text_model_inside_one_of_images_is_found() {
    let golden = Golden::load("gemma3-tiny-f16");
    for (model, tower) in [
        ("language_model.model.", "vision_tower.x.weight"),
        ("model.language_model.", "model.vision_tower.x.weight"),
    ] {
        let mut parts = Parts::golden("gemma3-tiny-f16");
        for t in &mut parts.tensors {
            t.name = t.name.replacen("model.", model, 1);
        }
        let (dtype, data) = ("I64".to_owned(), vec![0; 16]);
        parts.tensors.push(Stored { name: tower.to_owned(), dtype, shape: vec![2], data });
        let eos = parts.config.as_object_mut().unwrap().remove("eos_token_id").unwrap();
        parts.config = json!({"model_type": "gemma3", "text_config": parts.config, "eos_token_id": [eos, 106]});
        let folder = parts.write();
        let config = Model::open(folder.path()).unwrap().config;
        assert_eq!((config.eos, &config.end_tokens[..]), (Some(1), &[1, 106][..]));
        hold(&golden, &folder.path(), None, 1e-10);
    }
}

#[test]
fn a_head_that_is_the_embedding_is_left_aside_and_another_is_not() {
    let mut parts = Parts::golden("llama-tiny-f16");
    let mut head = parts.tensor("model.embed_tokens.weight").clone();
    head.name = "lm_head.weight".to_owned();
    head.data.reverse();
    parts.tensors.push(head);
    hold(&Golden::load("llama-tiny-f16"), &parts.write().path(), None, 1e-10);
    parts.config["tie_word_embeddings"] = json!(false);
    let Model { config, weights, .. } = Model::open(parts.write().path()).unwrap();
    assert!(!config.tied_head && weights.head.is_some());
    // Without the key Llama and Qwen have a head of their own.
    parts.config.as_object_mut().unwrap().remove("tie_word_embeddings");
    assert!(Model::open(parts.write().path()).unwrap().weights.head.is_some());
}

#[test]
fn tokens_come_from_the_generation_config_first() {
    let folder = Parts::golden("llama-tiny-f16").write();
    folder.put("generation_config.json", br#"{"eos_token_id": [7, 1, 9], "bos_token_id": 5}"#);
    let config = Model::open(folder.path()).unwrap().config;
    assert_eq!((config.bos, config.eos), (Some(5), Some(7)));
    assert_eq!(config.end_tokens, [7, 1, 9]);
}

/// The second of three end tokens, wherever it is chosen: by a whole run, step by step, by a
/// session on a device.
#[test]
fn any_of_several_end_tokens_ends_a_text() {
    let golden = Golden::load("llama-tiny-f16");
    let greedy = &golden.greedy;
    let end = greedy[7];
    assert_eq!(greedy.iter().position(|t| *t == end), Some(7), "its first time");
    let until = &greedy[..8];
    let folder = Parts::golden("llama-tiny-f16").write();
    let ends = json!({"eos_token_id": [300, end, 301]});
    folder.put("generation_config.json", ends.to_string().as_bytes());
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(model.config.end_tokens, [300, end, 301]);

    let options = DecodeOptions { context: 64, store: None, ..DecodeOptions::default() };
    let graph = model.graph(None, &options).unwrap();
    let mut executor = common::on_cpu(&graph);
    let run = Script { stop_at: model.config.end_tokens.clone(), ..golden.free(3) };
    let mut heard = Vec::new();
    let mut decoder = Decoder::new(&graph, &mut executor);
    let whole = decoder.run(&run, &mut |t| heard.push(t)).unwrap();
    assert_eq!((&whole.generated[..], &heard[..]), (until, until));
    let observed = decoder.observe(&run, &mut |_| Ok(())).unwrap();
    assert_eq!(observed.generated, until);
    let on = decoder.run(&golden.free(3), &mut |_| {}).unwrap();
    assert_eq!(on.generated, *greedy, "without end tokens it goes on");

    let Some(gpu) = common::own_gpu() else { return };
    let mut session = model.session(&gpu, options).unwrap();
    assert_eq!(
        session.generate(&golden.prompt[..], greedy.len(), |_| {}).unwrap().generated,
        until
    );
}

/// Hugging Face's own cache: snapshots of links to blobs.
#[cfg(unix)]
#[test]
fn links_to_the_blobs_of_a_cache_are_followed() {
    let folder = Parts::golden("qwen3-tiny-bf16").shards();
    let (snapshot, blobs) =
        (folder.outside().join("snapshots/0123abcd"), folder.outside().join("blobs"));
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir(&blobs).unwrap();
    for (number, entry) in fs::read_dir(folder.path()).unwrap().enumerate() {
        let entry = entry.unwrap();
        let blob = format!("blob{number}");
        fs::rename(entry.path(), blobs.join(&blob)).unwrap();
        let link = snapshot.join(entry.file_name());
        std::os::unix::fs::symlink(format!("../../blobs/{blob}"), link).unwrap();
    }
    Model::open(&snapshot).unwrap();
}

#[test]
fn folders_are_described_whether_understood_or_not() {
    let mut parts = Parts::golden("qwen3-tiny-bf16");
    let summary = describe(&ModelFile::open(parts.shards().path()).unwrap());
    assert_eq!((summary.format, summary.files, summary.gguf_version), ("safetensors", 3, None));
    assert_eq!(summary.architecture.as_deref(), Some("qwen3"));
    assert_eq!(summary.types[0].ty, GgmlType::Bf16);
    assert!(summary.config.is_some());
    assert!(summary.metadata.iter().any(|l| l.key == "hidden_size" && l.value == "128"));

    parts.config["model_type"] = json!("mamba");
    let summary = describe(&ModelFile::open(parts.write().path()).unwrap());
    assert_eq!((summary.config, summary.tensor_count), (None, parts.tensors.len()));
    assert!(summary.config_error.unwrap().contains("`model_type`"));
    assert!(Model::open(Folder::empty().path()).is_err());
}
