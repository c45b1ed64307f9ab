//! Settings are read or refused: the keys that transformers' configurations and llama.cpp know,
//! split files, two sources of one thing, and tokens that end a text.

use serde_json::{Value, json};

use lathe_harness::model::{Config, Gguf, ModelFile};

use crate::folder::{Folder, Parts};
use crate::gguf;
use crate::table::INDEX;

fn of_gguf(parts: &gguf::Parts) -> Result<Config, String> {
    let bytes = parts.bytes();
    let index = Gguf::parse(&bytes).expect("the index is sound");
    Config::from_gguf(&index, &bytes).map_err(|e| e.to_string())
}

fn of_folder(folder: &Folder) -> Result<Config, String> {
    let file = ModelFile::open(folder.path()).map_err(|e| e.to_string())?;
    file.config().map_err(|e| e.to_string())
}

/// Keys of `Gemma3TextConfig`, `LlamaConfig`, `Qwen3Config`, `Qwen2Config` and `MistralConfig`
/// (transformers 5.24, `to_dict`), each with another value than the golden has. True where the value changes the configuration or is
/// refused, false where it changes nothing.
#[test]
fn keys_of_transformers_are_read_refused_or_neutral() {
    let common = [
        ("_name_or_path", json!("x"), false),
        ("architectures", json!(["X"]), false),
        ("attention_bias", json!(true), true),
        ("attention_dropout", json!(0.5), false),
        ("bos_token_id", json!(5), true),
        ("chunk_size_feed_forward", json!(3), false),
        ("dtype", json!("float64"), false),
        ("eos_token_id", json!(5), true),
        ("head_dim", json!(16), true),
        ("hidden_size", json!(64), true),
        ("id2label", json!({}), false),
        ("initializer_range", json!(0.5), false),
        ("intermediate_size", json!(64), true),
        ("is_causal", json!(false), true),
        ("is_encoder_decoder", json!(true), true),
        ("label2id", json!({}), false),
        ("max_position_embeddings", json!(64), true),
        ("model_type", json!("gpt2"), true),
        ("num_attention_heads", json!(64), true),
        ("num_hidden_layers", json!(9), true),
        ("num_key_value_heads", json!(8), true),
        ("output_attentions", json!(true), false),
        ("output_hidden_states", json!(true), false),
        ("pad_token_id", json!(1), false),
        ("per_layer_config", json!({"0": {"rms_norm_eps": 0.5}}), true),
        ("problem_type", json!("x"), false),
        ("return_dict", json!(false), false),
        ("rms_norm_eps", json!(0.5), true),
        ("rope_parameters", json!({"rope_theta": 123.0, "factor": 2.0}), true),
        ("tie_word_embeddings", json!(false), true),
        ("transformers_version", json!("1"), false),
        ("use_cache", json!(false), false),
        ("vocab_size", json!(7), true),
        // Keys of before, beside `rope_parameters`.
        ("rope_scaling", json!({"rope_type": "linear", "factor": 8.0}), true),
        ("rope_theta", json!(123.0), true),
        ("quantization_config", json!({}), true),
    ];
    let own: [&[(&str, Value, bool)]; 5] = [
        &[
            // The list of layers goes before it.
            ("_sliding_window_pattern", json!(5), false),
            ("sliding_window_pattern", json!(5), true),
            ("attn_logit_softcapping", json!(3.0), true),
            ("final_logit_softcapping", json!(3.0), true),
            ("hidden_activation", json!("silu"), true),
            ("layer_types", json!(["full_attention"]), true),
            ("query_pre_attn_scalar", json!(7), true),
            ("sliding_window", json!(3), true),
            ("use_bidirectional_attention", json!(true), true),
            ("rope_local_base_freq", json!(123.0), true),
        ],
        &[
            ("hidden_act", json!("gelu"), true),
            ("mlp_bias", json!(true), true),
            // Slices of one product.
            ("pretraining_tp", json!(2), false),
        ],
        &[
            ("hidden_act", json!("gelu"), true),
            ("layer_types", json!(["full_attention"]), true),
            ("max_window_layers", json!(1), false),
            // Without `use_sliding_window`.
            ("sliding_window", json!(3), false),
            ("use_sliding_window", json!(true), true),
        ],
        &[
            // Qwen2 has biases without being asked.
            ("attention_bias", json!(false), false),
            ("hidden_act", json!("gelu"), true),
            ("layer_types", json!(["full_attention"]), true),
            ("max_window_layers", json!(1), false),
            ("sliding_window", json!(3), false),
            ("use_sliding_window", json!(true), true),
        ],
        &[
            ("hidden_act", json!("gelu"), true),
            ("sliding_window", json!(3), true),
            ("tie_word_embeddings", json!(true), true),
        ],
    ];
    let names = crate::GOLDENS.into_iter().chain(["qwen2-tiny", "mistral-tiny"]);
    for (name, own) in names.zip(own) {
        let sound = Parts::golden(name);
        let base = of_folder(&sound.write());
        let common = common.iter().filter(|(key, ..)| own.iter().all(|own| own.0 != *key));
        for (key, value, matters) in common.chain(own) {
            let mut parts = sound.clone();
            parts.config[*key] = value.clone();
            let found = of_folder(&parts.write());
            assert_eq!(found != base, *matters, "{name}: {key} = {value}: {found:?}");
        }
    }
}

/// llama.cpp's keys of an architecture (`gguf/constants.py`, `llama-arch.cpp`), those of other ones
/// included, but for the neutral ones below.
const OF_LLAMA_CPP: &str = include_str!("keys.txt");

#[test]
fn keys_of_llama_cpp_are_read_refused_or_neutral() {
    for arch in ["gemma3", "llama", "qwen2", "qwen3"] {
        let sound = gguf::Parts::smallest(arch);
        let base = of_gguf(&sound);
        for key in OF_LLAMA_CPP.lines() {
            let full = format!(".{key}");
            // One of the types is right; another type is an error and says nothing.
            let found = ["u32 3", "f32 3"].map(|value| of_gguf(&sound.clone().set(&full, value)));
            assert!(found.iter().all(|found| *found != base), "{arch} {key}: {found:?}");
        }
        for (key, value) in [
            ("tensor_data_layout", "str Meta AI original pth"),
            ("pooling_type", "u32 3"),
            ("rope.scaling.finetuned", "bool true"),
            // Without yarn.
            ("rope.scaling.original_context_length", "u32 3"),
            ("rope.scaling.yarn_beta_fast", "f32 3"),
            ("rope.scaling.yarn_beta_slow", "f32 3"),
        ] {
            let found = of_gguf(&sound.clone().set(&format!(".{key}"), value));
            assert_eq!(found, base, "{arch} {key}");
        }
    }
}

#[test]
fn incomplete_and_contradictory_settings_name_the_key() {
    let llama = Parts::golden("llama-tiny-f16");
    let mut before = llama.clone();
    let keys = before.config.as_object_mut().unwrap();
    let rope = keys.remove("rope_parameters").unwrap();
    keys.insert("rope_theta".into(), rope["rope_theta"].clone());
    let set = |parts: &Parts, key: &str, value: Value| {
        let mut parts = parts.clone();
        parts.config[key] = value;
        of_folder(&parts.write()).unwrap_err()
    };
    let numbers = json!({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0});
    let typed = |a: &str, b: &str| json!({"rope_type": a, "type": b, "factor": 8.0});
    for (found, says) in [
        (set(&before, "rope_scaling", numbers.clone()), "key `rope_scaling.rope_type`: is missing"),
        (set(&before, "rope_scaling", json!({})), "key `rope_scaling.rope_type`: is missing"),
        (
            set(&before, "rope_scaling", json!({"type": "yarn"})),
            "key `rope_scaling.factor`: is miss",
        ),
        (set(&before, "rope_scaling", json!({"type": "linear"})), "`rope_scaling.factor`: is miss"),
        (set(&before, "rope_scaling", typed("linear", "yarn")), "contradicts `rope_type`"),
        (set(&before, "rope_scaling", typed("default", "default")), "`rope_scaling.factor`: 8.0"),
        (
            set(&llama, "original_max_position_embeddings", json!(4096)),
            "`original_max_position_embeddings`: 4096 is refused: it contradicts",
        ),
        (set(&llama, "rope_scaling", numbers), "`rope_scaling`: "),
        (set(&llama, "rope_theta", json!(1.0)), "`rope_theta`: 1.0 is refused: it contradicts"),
    ] {
        assert!(found.contains(says), "{says} is not in: {found}");
    }
    // A value beside the scaling is the one inside where there is none.
    let mut beside = llama.clone();
    let rope = beside.config["rope_parameters"].as_object_mut().unwrap();
    let original = rope.remove("original_max_position_embeddings").unwrap();
    assert!(of_folder(&beside.write()).unwrap_err().contains("original_max_position_embeddings"));
    beside.config["original_max_position_embeddings"] = original;
    assert_eq!(of_folder(&beside.write()), of_folder(&llama.write()));
    let text = Parts::golden("gemma3-tiny-f16");
    let mut images = text.clone();
    images.config = json!({"model_type": "gemma3", "text_config": text.config});
    images.config["text_config"]["tie_word_embeddings"] = json!(true);
    let error = set(&images, "tie_word_embeddings", json!(false));
    assert!(error.contains("`tie_word_embeddings`: false is refused: it contradicts"), "{error}");
    let model = gguf::Parts::smallest("llama").set(".rope.scaling.type", "str linear");
    let error = of_gguf(&model).unwrap_err();
    assert!(error.contains("there is no `rope.scaling.factor`"), "{error}");
    let model = model.set(".rope.scaling.factor", "f32 8").set(".rope.scale_linear", "f32 4");
    assert!(of_gguf(&model).unwrap_err().contains("contradicts"));
}

#[test]
fn a_pattern_of_windows_may_be_a_list() {
    let pattern = |values: &str| {
        let model = gguf::Parts::smallest("gemma3");
        of_gguf(&model.set(".attention.sliding_window_pattern", &format!("i32s {values}")))
    };
    assert_eq!(pattern("[0]").unwrap().layer_window(0), None);
    assert_eq!(pattern("[1]").unwrap().layer_window(0), Some(4));
    assert!(pattern("[1, 1]").unwrap_err().contains("2 entries for 1 layers"));
}

#[test]
fn tokens_that_end_a_text_are_found_by_their_spelling() {
    for (tokens, types, ends) in [
        (
            r#"["a", "<eos>", "b", "<end_of_turn>", "<start_of_turn>", "</s>"]"#,
            "[1,3,1,1,3,4]",
            vec![1, 3],
        ),
        (
            r#"["a", "b", "<|end|>", "<|return|>", "<|call|>", "</s>"]"#,
            "[1,1,3,3,3,3]",
            vec![1, 3, 4, 5],
        ),
        (r#"["a", "b", "<|end|>", "c", "d", "<|eom_id|>"]"#, "[1,1,3,1,1,3]", vec![1, 2, 5]),
    ] {
        let model =
            gguf::Parts::smallest("gemma3").set("tokenizer.ggml.tokens", &format!("strs {tokens}"));
        let model = model.set("tokenizer.ggml.token_type", &format!("i32s {types}"));
        assert_eq!(of_gguf(&model).unwrap().end_tokens, ends, "{tokens}");
    }
}

#[test]
fn split_files_open_whole_by_any_part() {
    let whole = gguf::Parts::smallest("llama").tensor("rope_freqs.weight", &[2]);
    let mut whole = whole;
    whole.tensors.last_mut().unwrap().data = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
    let folder = Folder::empty();
    let part = |number: usize, count: usize, all: usize| {
        let mut part = whole.clone();
        if number > 0 {
            part.metadata.truncate(1);
        }
        let tensors = whole.tensors.iter().skip(number).step_by(3).cloned();
        part.tensors = tensors.collect();
        let part = part.set("split.no", &format!("u32 {number}"));
        let part = part.set("split.count", &format!("u32 {count}"));
        part.set("split.tensors.count", &format!("u32 {all}")).bytes()
    };
    let (name, all) = (|n: usize| format!("x-0000{n}-of-00003.gguf"), whole.tensors.len());
    for number in 0..3 {
        folder.put(&name(number + 1), &part(number, 3, all));
    }
    let contradicting = |key: &str, value: &str| {
        let mut part = whole.clone();
        part.metadata.truncate(1);
        part.tensors = whole.tensors.iter().skip(2).step_by(3).cloned().collect();
        let numbers = [("no", 2), ("count", 3), ("tensors.count", all)];
        let part = numbers
            .iter()
            .fold(part, |part, (key, n)| part.set(&format!("split.{key}"), &format!("u32 {n}")));
        part.set(key, value).bytes()
    };
    let open = |n: usize| {
        let file = ModelFile::open(folder.join(&name(n))).map_err(|e| e.to_string())?;
        assert_eq!((file.files().len(), file.tensors().len()), (3, all));
        file.config().map_err(|e| e.to_string())
    };
    for n in 1..=3 {
        assert_eq!(open(n), of_gguf(&whole), "part {n}");
    }
    for (bytes, says) in [
        (part(1, 3, all), "split.no"),
        (part(2, 4, all), "split.count"),
        (part(2, 3, all + 1), "split.tensors.count"),
        (contradicting(".rope.freq_base", "f32 5"), "llama.rope.freq_base`: f32 5 is refused"),
        (contradicting(".logit_scale", "f32 5"), "another value or none"),
        (gguf::Parts::smallest("llama").bytes(), "metadata `split.no`: is missing"),
    ] {
        folder.put(&name(3), &bytes);
        let error = open(1).unwrap_err();
        assert!(error.contains("x-00003-of-00003.gguf: ") && error.contains(says), "{error}");
    }
    std::fs::remove_file(folder.join(&name(3))).unwrap();
    assert!(open(1).unwrap_err().contains("x-00003-of-00003.gguf: cannot open"));
    std::fs::rename(folder.join(&name(1)), folder.join("other.gguf")).unwrap();
    let error = ModelFile::open(folder.join("other.gguf")).unwrap_err().to_string();
    assert!(error.contains("must end in -00001-of-00003.gguf"), "{error}");
}

#[test]
fn the_file_that_is_read_is_said() {
    let parts = Parts::golden("llama-tiny-f16");
    let folder = parts.shards();
    assert!(ModelFile::open(folder.path()).unwrap().notes().is_empty());
    folder.put("model.safetensors", &Parts::file(&parts.tensors));
    let file = ModelFile::open(folder.path()).unwrap();
    let [note] = file.notes() else { panic!("{:?}", file.notes()) };
    assert!(note.contains("model.safetensors is read") && note.contains(INDEX), "{note}");
}
