//! Models that are not implemented, and text that cannot be read: `inspect` says what `decode` will
//! say.

use std::path::Path;

use serde_json::Value;

use crate::common::{self, code, lathe, stderr, stdout};
use crate::folder::{Folder, Parts};
use crate::gguf;

/// The message with which both commands refuse a model.
fn refusal(path: &Path) -> String {
    let path = path.to_str().unwrap();
    let commands = [
        &["inspect", path][..],
        &["decode", path, "--prompt-tokens", "1"],
        &["decode", path, "--prompt", "a", "--no-verify", "--json"],
    ];
    let [inspected, decoded, text] = commands.map(|args| {
        let output = lathe(args);
        assert_eq!(code(&output), 5, "{args:?}: {}", stderr(&output));
        // What a file holds is shown all the same, and nothing says that it can be decoded.
        assert_eq!(stdout(&output).is_empty(), args[0] == "decode", "{args:?}");
        assert!(!stdout(&output).contains("can be decoded"), "{}", stdout(&output));
        stderr(&output)
    });
    assert_eq!(inspected, decoded);
    assert_eq!(inspected, text);
    inspected
}

#[test]
fn models_that_are_not_implemented_are_refused_alike_by_inspect_and_decode() {
    let golden = Parts::golden("llama-tiny-f16");
    for row in include_str!("refused.txt").lines().filter(|line| !line.starts_with('#')) {
        let [arch, keys, config] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let mut model = gguf::Parts::smallest(arch);
        for (key, value) in keys.split("; ").map(|entry| entry.split_once(" = ").unwrap()) {
            model = model.set(key, value);
        }
        let folder = Folder::empty();
        folder.put("model.gguf", &model.bytes());
        let said = refusal(&folder.join("model.gguf"));
        let words =
            format!("metadata `general.architecture`: `{arch}` is not supported; supported");
        assert!(said.contains(&words), "{row}\n{said}");

        let (own, mut parts): (Value, _) = (serde_json::from_str(config).unwrap(), golden.clone());
        for (key, value) in own.as_object().unwrap() {
            parts.config[key] = value.clone();
        }
        let said = refusal(&parts.write().path());
        let words = format!("config.json: key `model_type`: {} is refused", own["model_type"]);
        assert!(said.contains(&words), "{row}\n{said}");
    }
}

#[test]
fn inspect_says_why_text_and_conversations_cannot_be_read() {
    let sound = gguf::Parts::smallest("llama")
        .set("tokenizer.ggml.model", "str llama")
        .set("tokenizer.ggml.scores", "f32s [0,0,0,0,0,0]")
        .set("tokenizer.ggml.token_type", "i32s [1,1,1,1,1,1]")
        .set("tokenizer.chat_template", "str {{ messages[0].content }}");
    let folder = Folder::empty();
    let path = folder.join("model.gguf");
    let file = path.to_str().unwrap();
    for (key, value, report, option) in [
        ("tokenizer.ggml.scores", "f32s [0,0,0,0,0,0]", "", ""),
        ("tokenizer.ggml.scores", "f32s [0,0,0,0,0]", "text", "--prompt"),
        ("tokenizer.ggml.token_type", "f32s [1,1,1,1,1,1]", "text", "--prompt"),
        ("tokenizer.ggml.token_type", "i32s [1,1,1,1,1]", "text", "--chat"),
        ("tokenizer.ggml.model", "str bert", "text", "--prompt"),
        ("tokenizer.chat_template", "str {% if %}", "chat", "--chat"),
        ("tokenizer.chat_template", "u32 1", "chat", "--chat"),
    ] {
        folder.put("model.gguf", &sound.clone().set(key, value).bytes());
        let inspected = lathe(&["inspect", file, "--json"]);
        let document = common::document(&inspected);
        for field in ["text", "chat"] {
            let why = document[field].as_str();
            assert_eq!(why.is_some(), field == report, "{key} = {value}: {field} {why:?}");
            let Some(why) = why else { continue };
            let decoded = lathe(&["decode", file, option, "a"]);
            assert_eq!(code(&decoded), 5, "{key} = {value}");
            assert_eq!(stderr(&decoded).trim(), format!("lathe: {why}"));
            let printed = stdout(&lathe(&["inspect", file]));
            assert!(printed.contains(&format!("cannot be read: {why}")), "{printed}");
        }
    }
}
