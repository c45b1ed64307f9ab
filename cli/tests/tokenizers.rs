//! Tokenizers of `tokenizer.json` files: ids are those of the `tokenizers` library, and streamed
//! text too. A trained one (goldens/rusty), and the fuzz corpus has the kinds that models have.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use lathe_harness::model::tokenizer::Tokenizer;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::Tokenizer as Library;

use crate::common;

static HELD_OUT: LazyLock<String> =
    LazyLock::new(|| std::fs::read_to_string(common::golden("rusty/held-out.txt")).unwrap());

static KINDS: LazyLock<Vec<(&str, Tokenizer, Library)>> = LazyLock::new(|| {
    let names = ["rusty", "gemma", "llama", "metaspace", "prefixed", "qwen"];
    let kinds = names.map(|name| {
        let path = match name {
            "rusty" => common::golden("rusty/tokenizer.json"),
            _ => common::repository(&format!("fuzz/corpus/tokenizer/{name}.json")).into(),
        };
        (name, Tokenizer::open(&path).unwrap(), Library::from_file(path).unwrap())
    });
    kinds.into()
});

fn agrees(name: &str, ours: &Tokenizer, library: &Library, text: &str) -> Result<(), String> {
    for around in [false, true] {
        let expected = library.encode(text, around).unwrap().get_ids().to_vec();
        let ids = match around {
            true => ours.encode(text, true).unwrap(),
            false => ours.encode_markup(text).unwrap(),
        };
        // A BOS that the text spells already is not added again.
        let twice = around && expected.len() > 1 && expected[0] == expected[1];
        if ids != expected && !(twice && ids == expected[1..]) {
            return Err(format!("{name}: {text:?}: {ids:?}, expected {expected:?}"));
        }
        let (decoded, expected) = (ours.decode(&ids), library.decode(&ids, true).unwrap());
        if decoded != expected {
            return Err(format!("{name}: {ids:?}: {decoded:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// Prose, code, runs of white space, combining characters, special tokens, and anything.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => (0..HELD_OUT.len() - 200, 1..40usize).prop_map(|(at, len)| {
            let from = HELD_OUT.ceil_char_boundary(at);
            HELD_OUT[from..].chars().take(len).collect()
        }),
        3 => proptest::sample::select(vec![
            "Vec<Option<&'a str>>", "0x1F_u8 1234567", "don't WE'LL", "日本語", "<|im_start|>",
            "<|im_end|>", "<bos>", "<start_of_turn>", "<tool>", "\n\n", "<0x41>", "<|im_",
        ]).prop_map(str::to_owned),
        2 => "[ \t\n\r\u{a0}\u{3000}▁]{1,12}",
        2 => "[a-eé]?[\u{300}-\u{36f}]{1,4}|[가-힣ᄀ-ᄒ\u{1161}-\u{1175}\u{11a8}-\u{11c2}]{1,4}|[ÅΩﬁ①½]",
        1 => "[\u{1F300}-\u{1F64F}]|[\u{0}-\u{e8}]|[\u{3040}-\u{30ff}\u{4e00}-\u{9fff}]{1,5}|👩\u{200d}👩",
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn texts_are_encoded_and_streamed_as_by_the_library(text in text()) {
        for (name, ours, library) in KINDS.iter() {
            prop_assert_eq!(agrees(name, ours, library, &text), Ok(()));
        }
    }
}

#[test]
fn a_long_text_takes_well_below_a_second() {
    for (name, ours, library) in KINDS.iter() {
        let begun = Instant::now();
        let ids = ours.encode(&HELD_OUT, false).unwrap();
        ours.decode(&ids);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{name}: {took:?}");
        assert_eq!(agrees(name, ours, library, &HELD_OUT), Ok(()));
    }
}

#[test]
fn broken_files_are_errors_with_their_name() {
    let rusty = std::fs::read(common::golden("rusty/tokenizer.json")).unwrap();
    let rusty: Value = serde_json::from_slice(&rusty).unwrap();
    let template = json!({
        "type": "TemplateProcessing", "pair": [], "special_tokens": {"x": {"id": "x", "ids": [9999], "tokens": ["x"]}},
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    });
    let changed = [
        ("/model/dropout", json!(0.1), "model.dropout: is not supported"),
        (
            "/truncation",
            json!({"direction": "Right", "max_length": 512, "strategy": "LongestFirst",
            "stride": 0}),
            "truncation: is not supported",
        ),
        ("/added_tokens/1/id", json!(5000), "added_tokens: \"<|im_start|>\" has id 5000"),
        ("/post_processor", template, "post_processor: there is no token 9999"),
        ("/decoder", Value::Null, "decoder: there is none"),
        ("/model/type", json!("Bigram"), "the tokenizers library: "),
        ("/model/merges/5", json!(["a", "日"]), "the tokenizers library: Token `日` out of"),
        ("/normalizer/type", json!("Lowcase"), "the tokenizers library: "),
        ("/pre_tokenizer/pretokenizers/0/pattern/Regex", json!("(a"), "the tokenizers library: "),
    ];
    let changed = changed.map(|(pointer, value, says)| {
        let mut file = rusty.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match file.pointer_mut(parent).unwrap() {
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
            other => other[key] = value,
        }
        (serde_json::to_vec(&file).unwrap(), says)
    });
    // Nested deeper than any tokenizer is.
    let deep = format!(r#"{{"normalizer": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let bytes: [(&[u8], _); 4] = [
        (b"", "is no tokenizer.json: EOF while parsing"),
        (b"\xff\xfe", "is no tokenizer.json: expected value"),
        (b"{}", "the tokenizers library: "),
        (deep.as_bytes(), "the tokenizers library: "),
    ];
    let bytes = bytes.map(|(bytes, says)| (bytes.to_vec(), says));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    for (bytes, says) in changed.into_iter().chain(bytes) {
        std::fs::write(&path, bytes).unwrap();
        let error = Tokenizer::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("tokenizer.json: {says}")), "{says}: {error}");
    }
    std::fs::remove_file(&path).unwrap();
    let absent = Tokenizer::open(&path).unwrap_err().to_string();
    assert!(absent.contains("tokenizer.json: cannot open"), "{absent}");
}
