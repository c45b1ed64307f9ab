//! Broken models of one table, `broken.txt`: each is refused with a message that names file, offset,
//! key or tensor.
//!
//! ```text
//! == gguf ARCH           the smallest GGUF model of an architecture
//! == folder GOLDEN       a golden's folder: its `config.json`, tensors and files
//! == shards GOLDEN       the same in three shards: pointers are those of the index
//! == entry GOLDEN        the same: a row is an entry of the header
//! == tokenizer GOLDEN    its `tokenizer.json`
//! == export GOLDEN       a folder with a `tokenizer.json`, as `quantize` reads it
//! CHANGE; CHANGE ? WORDS && WORDS
//! KEY = TYPE VALUE       metadata of a GGUF file
//! /POINTER in [JSON, …]  values of a JSON file, each a case of its own
//! + TENSOR DIMS DTYPE    a tensor of zeros, or one that is there with other dimensions or type
//! - NAME                 without this metadata, tensor or pointer
//! FILE := TEXT           another file; without TEXT there is none
//! ```
//!
//! A message about a GGUF file begins with the last change's key or tensor and its offset, unless
//! the words say how it begins. Without words the message names a key of `config.json`, the changed
//! one.

use lathe_harness::decode::Model;
use lathe_harness::model::export::ExportSpec;
use lathe_harness::model::tokenizer::Tokenizer;
use lathe_harness::model::{Config, Gguf};
use lathe_kernels::Format;
use serde_json::Value;

use crate::common::{self, escaped};
use crate::folder::{Folder, Parts, Stored, raw};
use crate::gguf::{self, find_name};
use crate::quantize::{export, spec, tokenizer_json};

pub(crate) const INDEX: &str = "model.safetensors.index.json";

#[test]
fn broken_models_are_refused_by_file_offset_key_or_tensor() {
    let (mut section, mut wrong, mut cases) = (("", ""), Vec::new(), 0);
    for line in include_str!("broken.txt").lines() {
        if let Some(title) = line.strip_prefix("== ") {
            section = title.split_once(' ').unwrap();
        } else if !line.is_empty() && !line.starts_with('#') {
            // Without words the message has the key of the configuration.
            let (changes, says) = line.split_once(" ?").unwrap_or((line, "config.json: key `"));
            let words: Vec<_> = says.split(" && ").map(str::trim_start).collect();
            // A row with several values is a case for each.
            let (changes, values) = changes.split_once(" in ").unwrap_or((changes, "[null]"));
            for value in serde_json::from_str::<Vec<Value>>(values).unwrap() {
                let (begins, message) = match section {
                    ("gguf", arch) => of_gguf(arch, changes, words[0]),
                    (kind @ ("export" | "tokenizer"), _) => of_tokenizer(kind, changes, &value),
                    (kind, golden) => of_folder(kind, golden, changes, &value),
                };
                let rest = message.strip_prefix(&begins);
                if !rest.is_some_and(|rest| words.iter().all(|words| rest.contains(words))) {
                    wrong.push(format!("{line}, {value}: `{message}`, not `{begins}…`"));
                }
                cases += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases > 200, "{cases}");
}

/// The beginning of the message that refuses a GGUF model, unless `words` are that, and the message.
fn of_gguf(arch: &str, changes: &str, words: &str) -> (String, String) {
    let mut model = gguf::Parts::smallest(arch);
    let mut site = String::new();
    for change in changes.split("; ") {
        let (verb, rest) = change.split_once(' ').unwrap();
        (model, site) = match verb {
            "-" => (model.unset(rest).without(rest), String::new()),
            "+" => {
                let (name, dims) = rest.split_once(' ').unwrap();
                let dims: Vec<u64> = serde_json::from_str(dims).unwrap();
                (model.tensor(name, &dims), format!("tensor `{name}`: "))
            }
            _ => {
                let model = model.set(verb, rest.strip_prefix("= ").unwrap());
                let (key, bytes) = (model.full(verb), model.bytes());
                (model, format!("byte {}, metadata `{key}`: ", find_name(&bytes, &key)))
            }
        };
    }
    let bytes = model.bytes();
    let gguf = Gguf::parse(&bytes).expect("the index is sound");
    let refused = Config::from_gguf(&gguf, &bytes).map(|_| String::new());
    let is_whole = ["byte ", "metadata ", "tensor "].iter().any(|site| words.starts_with(site));
    let site = if is_whole { String::new() } else { site };
    (site, refused.unwrap_or_else(|error| error.to_string()))
}

/// The beginning of the message that refuses a folder, where the change has one, and the message.
fn of_folder(kind: &str, golden: &str, change: &str, value: &Value) -> (String, String) {
    let mut parts = Parts::golden(golden);
    let (verb, rest) = change.split_once(' ').unwrap_or((change, ""));
    let (name, more) = rest.split_once(' ').unwrap_or((rest, ""));
    let (mut begins, mut index) = (String::new(), None);
    match (kind, verb) {
        ("folder", "-") => parts.tensors.retain(|tensor| tensor.name != rest),
        ("folder", "+") => {
            let (dims, dtype) = more.rsplit_once(' ').unwrap();
            let shape: Vec<u64> = serde_json::from_str(dims).unwrap();
            match parts.tensors.iter_mut().find(|tensor| tensor.name == name) {
                Some(tensor) => (tensor.shape, tensor.dtype) = (shape, dtype.to_owned()),
                None => {
                    let data = vec![0; 4 * shape.iter().product::<u64>() as usize];
                    let (name, dtype) = (name.to_owned(), dtype.to_owned());
                    parts.tensors.push(Stored { name, dtype, shape, data });
                }
            }
        }
        ("shards", "-") => index = Some((rest, None)),
        ("shards", _) if verb.starts_with('/') => index = Some((verb, Some(value))),
        ("folder", _) if verb.starts_with('/') => set(&mut parts.config, verb, Some(value)),
        _ => {}
    }
    let folder = if kind == "shards" { parts.shards() } else { parts.write() };
    if let Some((pointer, value)) = index {
        // A sound one, which an index may not name.
        std::fs::write(folder.outside().join("secret.safetensors"), Parts::file(&parts.tensors))
            .unwrap();
        let mut index: Value =
            serde_json::from_slice(&std::fs::read(folder.join(INDEX)).unwrap()).unwrap();
        set(&mut index, pointer, value);
        folder.index(&index);
    } else if kind == "entry" {
        let header = format!(r#"{{"model.norm.weight": {change}}}"#);
        folder.put("model.safetensors", &raw(&header, &[0; 64]));
        let file = folder.join("model.safetensors");
        begins = format!("{}: ", file.display());
    } else if name == ":=" {
        folder.put(verb, &escaped(more));
        if more.is_empty() {
            std::fs::remove_file(folder.join(verb)).unwrap();
        }
    }
    let message = refusal(&folder);
    let named = match kind {
        "entry" => "model.norm.weight",
        "folder" if verb.starts_with('/') && message.contains("config.json: key `") => {
            verb.rsplit('/').next().unwrap()
        }
        _ => "",
    };
    assert!(named.is_empty() || message.contains(&format!("{named}`")), "{change}: {message}");
    (begins, message)
}

/// Sets or removes a value.
fn set(document: &mut Value, pointer: &str, value: Option<&Value>) {
    let (object, key) = pointer.rsplit_once('/').unwrap();
    match (document.pointer_mut(object).unwrap(), value) {
        (Value::Array(list), Some(value)) => list[key.parse::<usize>().unwrap()] = value.clone(),
        (object, Some(value)) => object[key] = value.clone(),
        (object, None) => drop(object.as_object_mut().unwrap().remove(key)),
    }
}

/// The message that refuses a `tokenizer.json`, where it is read or has to go along.
fn of_tokenizer(kind: &str, change: &str, value: &Value) -> (String, String) {
    let folder = Parts::golden("qwen3-tiny-bf16").write();
    let mut tokenizer = match kind {
        "export" => tokenizer_json(),
        _ => {
            let trained = std::fs::read(common::golden("rusty/tokenizer.json")).unwrap();
            serde_json::from_slice(&trained).unwrap()
        }
    };
    if let Some((file, text)) = change.split_once(" := ") {
        folder.put(file, &escaped(text));
    } else {
        set(&mut tokenizer, change, Some(value));
        folder.put("tokenizer.json", tokenizer.to_string().as_bytes());
    }
    let (path, out) = (folder.join("tokenizer.json"), folder.outside().join("out.gguf"));
    let refused = if kind == "export" {
        let spec = ExportSpec { without_tokenizer: false, ..spec(Format::Q8_0) };
        export(&folder.path(), &out, &spec).map(drop).map_err(|error| error.to_string())
    } else {
        Tokenizer::open(path).map(drop).map_err(|error| error.to_string())
    };
    assert!(!out.exists(), "{change}");
    (String::new(), refused.err().unwrap_or_default())
}

/// The message with which a folder is refused as a bad model, or nothing.
pub(crate) fn refusal(folder: &Folder) -> String {
    let Err(error) = Model::open(folder.path()) else { return String::new() };
    assert_eq!(error.exit_code(), 5, "{error}");
    error.to_string()
}
