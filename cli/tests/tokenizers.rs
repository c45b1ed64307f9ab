//! Tokenizers of `tokenizer.json` files: ids are those of the `tokenizers` library, and streamed
//! text too. A trained one (goldens/rusty), and the fuzz corpus has the kinds that models have.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use lathe_harness::model::tokenizer::Tokenizer;
use proptest::prelude::*;
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

/// Other broken files are in `checkpoints/broken.txt`.
#[test]
fn absent_files_and_those_nested_deeper_than_any_are_errors_with_their_name() {
    let folder = common::Folder::new();
    let path = folder.join("tokenizer.json");
    let message = || Tokenizer::open(&path).unwrap_err().to_string();
    assert!(message().contains("tokenizer.json: cannot open"), "{}", message());
    let deep = format!(r#"{{"normalizer": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    folder.write("tokenizer.json", deep);
    assert!(message().contains("tokenizer.json: the tokenizers library: "), "{}", message());
}
