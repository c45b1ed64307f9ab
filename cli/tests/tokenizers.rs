//! Tokenizers of `tokenizer.json` files, and of GGUF files made of them: ids are those of the
//! `tokenizers` library, and streamed text too. A trained one (goldens/rusty), and the fuzz corpus
//! has the kinds that models have.

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use lathe_harness::model::tokenizer::{Tables, Tokenizer, Vocabulary};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::normalizers::NFC;
use tokenizers::{NormalizedString, Normalizer as _, Tokenizer as Library};

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

const FAMILIES: [&str; 4] = ["gemma3", "llama3.1", "qwen3", "smollm2"];

/// The trained vocabulary as other families have it: a `tokenizer.json` with their rules, and the
/// vocabulary of a GGUF made of it as by llama.cpp's converter.
fn family(name: &str) -> (Vocabulary, Library) {
    let trained = std::fs::read(common::golden("rusty/tokenizer.json")).unwrap();
    let mut file: Value = serde_json::from_slice(&trained).unwrap();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let pre = match name {
        "qwen3" => "qwen2",
        "llama3.1" => {
            let words = &mut file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
            *words = json!(words.as_str().unwrap().replace(r"|\p{N}|", r"|\p{N}{1,3}|"));
            file["normalizer"] = Value::Null;
            file["model"]["ignore_merges"] = json!(true);
            file["post_processor"] = begins_with("<|im_start|>", id_of(&file, "<|im_start|>"));
            "llama-bpe"
        }
        "smollm2" => {
            let mut words = bytes;
            words["use_regex"] = json!(true);
            let digits = json!({"type": "Digits", "individual_digits": true});
            file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [digits, words]});
            file["normalizer"] = Value::Null;
            "smollm"
        }
        _ => {
            file = sentencepiece(&file);
            "default"
        }
    };
    let scored = name == "gemma3";
    let mut tokens: Vec<(u32, String)> =
        serde_json::from_value::<HashMap<String, u32>>(file["model"]["vocab"].clone())
            .unwrap()
            .into_iter()
            .map(|(piece, id)| (id, piece))
            .collect();
    let added = file["added_tokens"].as_array().unwrap();
    let number = |token: &Value| token["id"].as_u64().unwrap() as u32;
    let content = |token: &Value| token["content"].as_str().unwrap().to_owned();
    tokens.extend(added.iter().map(|token| (number(token), content(token))));
    tokens.sort();
    tokens.dedup();
    let ty = |id: u32, piece: &str| match added.iter().find(|token| number(token) == id) {
        _ if scored && piece == "<unk>" => 2,
        Some(token) if token["special"] == true => 3,
        Some(_) => 4,
        None if scored && piece.starts_with("<0x") => 6,
        None => 1,
    };
    let bos = ["<bos>", "<|im_start|>"].map(|bos| tokens.iter().find(|token| token.1 == bos));
    let merge = |merge: &Value| match merge.as_array() {
        Some(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        None => merge.as_str().unwrap().to_owned(),
    };
    let spelled =
        |ty, piece: &str| if ty == 4 { piece.replace('▁', " ") } else { piece.to_owned() };
    let token_types: Vec<i32> = tokens.iter().map(|(id, piece)| ty(*id, piece)).collect();
    let vocabulary = Vocabulary {
        model: if scored { "llama" } else { "gpt2" }.to_owned(),
        pre: Some(pre.to_owned()),
        scores: if scored {
            tokens.iter().map(|token| -(token.0 as f32)).collect()
        } else {
            vec![]
        },
        merges: file["model"]["merges"].as_array().unwrap().iter().map(merge).collect(),
        bos: bos.into_iter().flatten().next().map(|token| token.0),
        add_bos: Some(!file["post_processor"].is_null() && name != "qwen3"),
        add_space_prefix: Some(false),
        tokens: tokens
            .iter()
            .zip(&token_types)
            .map(|((_, piece), ty)| spelled(*ty, piece))
            .collect(),
        token_types,
        ..Vocabulary::default()
    };
    (vocabulary, Library::from_bytes(file.to_string()).unwrap())
}

fn id_of(file: &Value, content: &str) -> u64 {
    let added = file["added_tokens"].as_array().unwrap();
    added.iter().find(|token| token["content"] == content).unwrap()["id"].as_u64().unwrap()
}

fn begins_with(bos: &str, id: u64) -> Value {
    let [token, text] = [
        json!({"SpecialToken": {"id": bos, "type_id": 0}}),
        json!({"Sequence": {"id": "A", "type_id": 0}}),
    ];
    json!({
        "type": "TemplateProcessing", "single": [token, text], "pair": [text, text],
        "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}},
    })
}

/// A byte-level vocabulary as Gemma 3 would have it: pieces of text in the order of their scores,
/// runs of white space matched as they are, and bytes for the rest.
fn sentencepiece(bytes: &Value) -> Value {
    let library = Library::from_bytes(bytes.to_string()).unwrap();
    let text = |id: u32| library.decode(&[id], true).unwrap().replace(' ', "▁");
    let mut pieces: Vec<String> = ["<pad>", "<eos>", "<bos>", "<unk>"].map(str::to_owned).to_vec();
    let runs = (2..=31).rev().map(|n| "▁".repeat(n)).chain((2..=8).rev().map(|n| "\n".repeat(n)));
    pieces.extend(runs);
    let literals = pieces.len();
    pieces.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    let trained = (0..library.get_vocab_size(false) as u32).map(text);
    let (single, several): (Vec<String>, Vec<_>) = trained
        .filter(|piece| !piece.is_empty() && !piece.contains('\u{fffd}'))
        .partition(|piece| piece.chars().count() == 1);
    // Merges begin with characters: each has a token.
    let known: HashSet<char> = single.iter().flat_map(|piece| piece.chars()).collect();
    let several = several.into_iter().filter(|piece| piece.chars().all(|c| known.contains(&c)));
    let single = single.iter().cloned();
    let mut seen: HashSet<String> = pieces.iter().cloned().collect();
    pieces.extend(several.chain(single).filter(|piece| seen.insert(piece.clone())));
    let ids: HashMap<&str, usize> = pieces.iter().map(String::as_str).zip(0..).collect();
    let mut merges = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.starts_with('<') || piece.len() < 3) {
        let cuts = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
        let mut pairs: Vec<_> =
            cuts.filter_map(|(a, b)| Some((ids.get(a)?, ids.get(b)?, [a, b]))).collect();
        pairs.sort();
        merges.extend(pairs.into_iter().map(|(.., pair)| pair));
    }
    let added = pieces[..literals].iter().zip(0..).map(|(content, id)| {
        json!({
            "id": id, "content": content, "special": id < 4, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    });
    let decoders = json!([
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
    ]);
    json!({
        "version": "1.0", "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": null, "post_processor": begins_with("<bos>", 2),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": ids, "merges": merges,
        },
    })
}

/// Texts of all scripts, with marks, spaces, digits, controls and parts of literals.
fn texts(count: usize) -> Vec<String> {
    let mut state = 54u32;
    let mut draw = move |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % n
    };
    let literals = ["<|im_start|>", "<|im_end|>", "<bos>", "<pad>", "<0x41>", "don't", "WE'LL"];
    let spaces =
        [" ", "  ", "\t", "\n", "\n\n\n", "\r\n", "\u{a0}", "\u{3000}", "▁", "▁▁", "\u{85}"];
    let mut texts: Vec<String> =
        ["", " ", "▁", " ▁ ▁a", "\u{0}", "\u{1d}", "é", "e\u{301}"].map(str::to_owned).to_vec();
    while texts.len() < count {
        let mut text = String::new();
        for _ in 0..=draw(10) {
            match draw(6) {
                0 => {
                    let from =
                        HELD_OUT.ceil_char_boundary(draw(HELD_OUT.len() as u32 - 200) as usize);
                    text.extend(HELD_OUT[from..].chars().take(draw(40) as usize));
                }
                1 | 2 => {
                    // Letters of a block of Unicode, which is a script or a part of one.
                    let block = 128 * draw(0x1f800 / 128);
                    text.extend((0..draw(9)).filter_map(|_| char::from_u32(block + draw(128))));
                }
                3 => {
                    let literal = literals[draw(7) as usize];
                    let cut =
                        literal.len() - draw(2) as usize * draw(literal.len() as u32) as usize;
                    text += &literal[..cut];
                }
                4 => (0..=draw(3)).for_each(|_| text += spaces[draw(11) as usize]),
                _ => {
                    text += &(draw(1 << 24) >> draw(24)).to_string();
                    text.extend(char::from_u32(0x300 + draw(0x70)));
                }
            }
        }
        texts.push(text);
    }
    texts
}

#[test]
fn a_gguf_vocabulary_has_the_ids_of_the_tokenizer_it_was_made_of() {
    let texts = texts(500);
    for name in FAMILIES {
        let (vocabulary, library) = family(name);
        let ours = Tokenizer::new(vocabulary).unwrap();
        for text in &texts {
            assert_eq!(agrees(name, &ours, &library, text), Ok(()));
        }
    }
}

/// Encodes texts by tables, but for those with characters that this Node does not know, or that it
/// composes otherwise than the library: their tables of Unicode are of different years.
const IN_JAVASCRIPT: &str = "
import fs from 'node:fs';
const [, folder, modules] = process.argv;
const { Tokenizer } = await import(`${modules}/tokenizer.js`);
const texts = JSON.parse(fs.readFileSync(`${folder}/texts.json`));
const tokenizer = await Tokenizer.of({ read: async () => fs.readFileSync(`${folder}/tables.json`) });
const isKnown = ([text, composed]) => !/\\p{Cn}/u.test(text) && text.normalize('NFC') === composed;
const ids = texts.map((pair) => (isKnown(pair) ? tokenizer.encode(pair[0]) : null));
fs.writeFileSync(`${folder}/ids.json`, JSON.stringify(ids));
";

/// The tokenizer of exported pages: families' vocabularies, and all rules that split text.
#[test]
fn pages_have_the_ids_of_the_command() {
    if Command::new("node").arg("--version").output().is_err() {
        eprintln!("UNAVAILABLE, not tested: node is not here");
        return;
    }
    let folder = common::Folder::new();
    let modules = format!("file://{}", common::repository("web"));
    let compare = |what: &str, vocabulary: Vocabulary, texts: &[String]| {
        let tables = Tables::new(vocabulary.clone()).unwrap();
        folder.write("tables.json", serde_json::to_vec(&tables).unwrap());
        let composed = texts.iter().map(|text| {
            let mut own = NormalizedString::from(text.as_str());
            NFC.normalize(&mut own).unwrap();
            (text, own.get().to_owned())
        });
        let composed: Vec<_> = composed.collect();
        folder.write("texts.json", serde_json::to_vec(&composed).unwrap());
        let ran = Command::new("node")
            .args(["--input-type=module", "-e", IN_JAVASCRIPT, &folder.path(""), &modules])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{what}: {}", String::from_utf8_lossy(&ran.stderr));
        let all: Vec<Option<Vec<u32>>> = serde_json::from_str(&folder.read("ids.json")).unwrap();
        let ours = Tokenizer::new(vocabulary).unwrap();
        let mut compared = 0;
        for (text, ids) in texts.iter().zip(all) {
            let Some(ids) = ids else { continue };
            assert_eq!(ids, ours.encode(text, true).unwrap(), "{what}: {text:?}");
            compared += 1;
        }
        assert!(2 * compared > texts.len(), "{what}: {compared}");
    };
    let (many, few) = (texts(6000), texts(500));
    for name in FAMILIES {
        compare(name, family(name).0, &many);
    }
    let prefixed = Vocabulary { add_space_prefix: None, ..family("gemma3").0 };
    compare("with a space before", prefixed, &few);
    for pre in [
        "deepseek-r1-qwen",
        "smaug-bpe",
        "gpt-2",
        "tekken",
        "gpt-4o",
        "deepseek-llm",
        "deepseek-coder",
        "deepseek-v3",
        "falcon",
        "viking",
        "seed-coder",
        "minicpm5",
        "default",
    ] {
        compare(pre, Vocabulary { pre: Some(pre.to_owned()), ..family("qwen3").0 }, &few);
    }
}
