//! The engine before, over vocabularies of GGUF files, gives the same ids and text.

use std::sync::LazyLock;

use proptest::prelude::*;

use crate::model::before::tests::{
    byte_level, reference, sentencepiece, text, with_bytes, with_literals,
};
use crate::model::before::{self, token_type::*};
use crate::model::tokenizer::{Tokenizer, Vocabulary};

type Before = before::Vocabulary;

fn now(v: &Before) -> Vocabulary {
    let before::Vocabulary { model, pre, tokens, scores, token_types, merges, .. } = v.clone();
    Vocabulary {
        model,
        pre,
        tokens,
        scores,
        token_types,
        merges,
        bos: v.bos,
        eos: v.eos,
        unknown: v.unknown,
        add_bos: v.add_bos,
        add_space_prefix: v.add_space_prefix,
    }
}

fn pair(v: &Before) -> (before::Tokenizer, Tokenizer) {
    (before::Tokenizer::new(v.clone()).unwrap(), Tokenizer::new(now(v)).unwrap())
}

static ALL: LazyLock<Vec<(String, before::Tokenizer, Tokenizer)>> = LazyLock::new(|| {
    let literals = [("<tool>", USER_DEFINED), ("<s>", CONTROL), ("e\u{301}", USER_DEFINED)];
    let prefixed = |v| Before { add_space_prefix: Some(true), ..v };
    let level = |pre, literals| {
        with_literals(byte_level(pre, &reference::merges(), &reference::WHOLE_WORDS), literals)
    };
    let mut all = vec![
        ("bytes".to_owned(), with_bytes(&["▁"])),
        ("pieces".to_owned(), with_bytes(&reference::pieces())),
        ("prefix".to_owned(), prefixed(with_bytes(&["▁"]))),
        ("prefix pieces".to_owned(), prefixed(with_bytes(&reference::pieces()))),
        (
            "user".to_owned(),
            with_literals(
                with_bytes(&reference::pieces()[3..]),
                &[("<tool>", USER_DEFINED), ("▁▁", USER_DEFINED)],
            ),
        ),
    ];
    for pre in ["llama-bpe", "qwen2", "gpt-2", "deepseek-r1-qwen"] {
        all.push((pre.to_owned(), level(pre, &literals[..])));
        let mut bos = level(pre, &literals[..2]);
        bos.bos = Some(bos.tokens.len() as u32 - 1);
        bos.add_bos = Some(true);
        all.push((format!("{pre} bos"), bos));
    }
    // Of equal scores the leftmost; pieces with characters that are no tokens; half of the bytes.
    let tied = [
        ("a", -1.0, NORMAL),
        ("b", -1.0, NORMAL),
        ("ab", -1.0, NORMAL),
        ("ba", -1.0, NORMAL),
        ("aba", -1.0, NORMAL),
        ("abab", -1.0, NORMAL),
        ("日本", -2.0, NORMAL),
        ("the", -3.0, NORMAL),
        ("he", -3.0, NORMAL),
        ("<0xC3>", 0.0, BYTE),
        ("<unk>", 0.0, UNKNOWN),
    ];
    all.push(("tied".to_owned(), sentencepiece(&tied)));
    all.into_iter()
        .map(|(name, v)| {
            let (a, b) = pair(&v);
            (name, a, b)
        })
        .collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn oracle_texts(text in prop_oneof![text(), "[ab]{0,24}", "[ab▁ eé\u{301}']{0,12}", any::<String>()]) {
        // Characters that the library's tables of Unicode 9 know.
        let text: String = text.chars().filter(|c| *c < '\u{800}' || ('\u{3000}'..'\u{a000}').contains(c) || ('\u{1f000}'..'\u{1f600}').contains(c)).collect();
        for (name, before, now) in ALL.iter() {
            for special in [false, true] {
                let a = before.encode(&text, special).map_err(|e| e.to_string());
                let b = now.encode(&text, special).map_err(|e| e.to_string());
                prop_assert_eq!(&a, &b, "{} {}", name, special);
                if let Ok(ids) = a {
                    prop_assert_eq!(before.encode_markup(&text).unwrap(), now.encode_markup(&text).unwrap());
                    let lossy = name.starts_with("prefix") && special && text.contains('<');
                    if !lossy {
                        prop_assert_eq!(before.decode(&ids), now.decode(&ids), "{} {:?}", name, ids);
                    }
                }
            }
        }
    }

    #[test]
    fn oracle_ids(ids in proptest::collection::vec(prop_oneof![0..420u32, 195..262u32], 0..12)) {
        for (name, before, now) in ALL.iter() {
            // After a control token a space is taken off no more.
            if name.starts_with("prefix") && ids.iter().any(|id| *id < 3 + 256) { continue }
            let mut a = before.stream();
            let mut b = now.stream();
            for &id in &ids {
                prop_assert_eq!(a.push(id), b.push(id), "{} {:?}", name, ids);
            }
            prop_assert_eq!(a.finish(), b.finish(), "{} {:?}", name, ids);
        }
    }

    #[test]
    fn oracle_hostile(
        gpt2 in any::<bool>(),
        tokens in proptest::collection::vec(
            prop_oneof![
                20 => ("[ab ▁<>]{1,4}", any::<f32>(), 0..6i32),
                2 => ("<0x4[0-9]>", any::<f32>(), Just(6)),
                1 => ("[ab]{0,2}", any::<f32>(), any::<i32>()),
            ],
            0..12,
        ),
        merges in proptest::collection::vec("[ab] [ab]|[ab ]{0,5}", 1..3),
        lost in 0..8usize,
        bos in proptest::option::of(0..12u32),
        unknown in proptest::option::of(0..12u32),
        text in "[ab ▁<>AB]{0,12}",
    ) {
        let mut tokens = tokens;
        let base = ["a", "b", "ab", "ba"].map(|token| (token.to_owned(), 0.0, NORMAL));
        tokens.splice(..0, base.into_iter().filter(|_| gpt2));
        let mut seen = std::collections::HashSet::new();
        tokens.retain(|token| seen.insert(token.0.clone()) || token.0.is_empty());
        let v = Before {
            model: if gpt2 { "gpt2" } else { "llama" }.to_owned(),
            pre: Some("llama-bpe".to_owned()),
            tokens: tokens.iter().map(|token| token.0.clone()).collect(),
            scores: tokens.iter().skip(lost / 7).map(|token| token.1).collect(),
            token_types: tokens.iter().map(|token| token.2).collect(),
            merges, bos, unknown,
            add_space_prefix: Some(false),
            ..Before::default()
        };
        let a = before::Tokenizer::new(v.clone());
        let b = Tokenizer::new(now(&v));
        prop_assert_eq!(a.is_ok(), b.is_ok(), "{:?} {:?}", a.err(), b.err());
        if let (Ok(a), Ok(b)) = (a, b) {
            for special in [false, true] {
                prop_assert_eq!(a.encode(&text, special).ok(), b.encode(&text, special).ok(), "{:?}", v);
            }
        }
    }
}

#[test]
fn oracle_long() {
    for text in ["a".repeat(300_000), " ".repeat(300_000), "the cat ".repeat(40_000)] {
        for (name, a, b) in ALL.iter().filter(|a| a.0 != "tied") {
            let begun = std::time::Instant::now();
            let ids = b.encode(&text, false).unwrap();
            println!("{name}: {:?}", begun.elapsed());
            assert_eq!(a.encode(&text, false).unwrap(), ids);
            assert!(b.decode(&ids) == text);
            println!("{name}: back {:?}", begun.elapsed());
        }
    }
    for n in [400_000, 600_000, 900_000, 990_000, 999_000] {
        let text = " ".repeat(n) + "a";
        let (_, a, b) = ALL.iter().find(|a| a.0 == "qwen2").unwrap();
        let theirs = super::super::guarded(|| {
            let mut parts = b.plain.extract_and_normalize(b.library.get_normalizer(), &text);
            use tokenizers::PreTokenizer as _;
            b.library.get_pre_tokenizer().unwrap().pre_tokenize(&mut parts)?;
            Ok(parts
                .get_splits(tokenizers::OffsetReferential::Original, tokenizers::OffsetType::None)
                .len())
        });
        println!(
            "{n}: {:?} {:?}",
            a.encode(&text, false).map(|i| i.len()).map_err(|e| e.to_string()),
            theirs
        );
    }
}
