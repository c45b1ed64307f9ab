//! Hostile safetensors checkpoints: files that are cut, headers that are none, links; each is refused
//! with a message that names file and key. `broken.txt` has those that a line can tell.

use std::fs;

use serde_json::{Value, json};

use crate::folder::{Folder, Parts, raw};
use crate::table::{INDEX, refusal};

fn parts() -> Parts {
    Parts::golden("llama-tiny-f16")
}

#[track_caller]
fn refused(folder: &Folder, says: &[&str]) {
    let message = refusal(folder);
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

/// Entries of a folder that are no regular files.
#[cfg(unix)]
#[test]
fn folders_and_links_are_no_files() {
    let folder = parts().write();
    fs::remove_file(folder.join("config.json")).unwrap();
    fs::create_dir(folder.join("config.json")).unwrap();
    refused(&folder, &["config.json: cannot read: is a directory"]);
    for (target, says) in [("secret.safetensors", "link out of the folder"), ("", "is no file")] {
        let folder = parts().shards();
        let (secret, odd) = (folder.outside().join(target), folder.join("odd.safetensors"));
        if target.is_empty() {
            fs::create_dir(odd).unwrap();
        } else {
            fs::write(&secret, Parts::file(&parts().tensors)).unwrap();
            std::os::unix::fs::symlink(&secret, odd).unwrap();
        }
        let mut index: Value =
            serde_json::from_slice(&fs::read(folder.join(INDEX)).unwrap()).unwrap();
        index["weight_map"]["model.norm.weight"] = json!("odd.safetensors");
        folder.index(&index);
        refused(&folder, &["index.json: key `weight_map.model.norm.weight`", says]);
    }
}
