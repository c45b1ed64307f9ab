//! The corpora of the fuzz targets `tokenizer` and `chat_template`, and mutations of them, through
//! the targets' oracle.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/corpus.rs"]
mod corpus;
#[path = "../../fuzz/src/text.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz target")]
mod text;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use corpus::Random;

#[test]
fn corpora_hold_what_is_accepted_and_what_is_not() {
    let tokenizers = corpus::files("tokenizer");
    assert!(tokenizers.len() >= 7);
    for (name, bytes) in &tokenizers {
        assert_eq!(text::tokenizes(bytes), Ok(true), "{name}");
    }
    let (rendered, refused): (Vec<_>, Vec<_>) =
        corpus::files("chat_template").into_iter().partition(|(_, bytes)| text::renders(bytes));
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&rendered), ["gemma", "llama", "methods", "qwen"]);
    assert_eq!(names(&refused), ["doubling", "nested_loops", "recursion", "refuses"]);
}

#[test]
fn templates_of_models_spell_conversations() {
    use lathe_harness::model::chat::ChatTemplate;
    let bos = vec![("bos_token".to_owned(), "<bos>".to_owned())];
    let all = corpus::files("chat_template");
    let render = |name: &str, texts: &[(&str, &str)]| {
        let source = &all.iter().find(|file| file.0 == name).unwrap().1;
        let source = String::from_utf8(source.clone()).unwrap();
        let template = ChatTemplate::new(source, bos.clone()).unwrap();
        template.render(texts).map_err(|error| error.to_string())
    };
    let user = [("user", " hi\n")];
    let system = [("system", "Be brief."), ("user", "hi")];
    let two = [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nb"), ("user", "c")];
    for (name, texts, expected) in [
        ("gemma", &user[..], "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"),
        (
            "gemma",
            &system,
            "<bos><start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n<start_of_turn>model\n",
        ),
        // The date that the template has where nobody tells it one.
        (
            "llama",
            &system,
            "<bos><|start_header_id|>system<|end_header_id|>\n\nToday: 26 Jul 2024\n\nBe brief.\
             <|eot_id|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        // Old thoughts are cut out, those after the last question stay.
        (
            "qwen",
            &two,
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n\
             <|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen",
            &two[..2],
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nb\
             <|im_end|>\n<|im_start|>assistant\n",
        ),
    ] {
        assert_eq!(render(name, texts).as_deref(), Ok(expected), "{name}");
    }
    let error = render("gemma", &[("user", "a"), ("user", "b")]).unwrap_err();
    assert!(error.contains("line 11: "), "{error}");
    assert!(error.contains("raise_exception: user and assistant must take turns"), "{error}");
    // A long conversation is no attack.
    let (asked, said) = ("word ".repeat(1000), "<think>\nx\n</think>\n\nword".repeat(20));
    let turns = [("user", asked.as_str()), ("assistant", said.as_str())];
    let many: Vec<_> = (0..200).flat_map(|_| turns).collect();
    for name in ["gemma", "llama", "qwen"] {
        let rendered = render(name, &many).unwrap();
        assert!(rendered.matches("word word word").count() > 200 * 300, "{name}");
    }
}

/// One or two changes to bytes.
fn bytes_changed(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(2) {
        let at = random.below(bytes.len());
        let end = at + random.below(bytes.len() - at).min(48);
        match random.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = b"\"{}[]:,0a%\\|- "[random.below(14)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let number = [0, 1, 2, 3, 6, 9, 255, 1 << 31, u32::MAX][random.below(9)];
                let four = bytes.iter_mut().skip(at).take(4);
                four.zip(number.to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
        }
    }
    bytes
}

#[test]
fn mutated_tokenizers_are_refused_or_sound() {
    const MUTATIONS: u64 = 10_000;
    let files = corpus::files("tokenizer");
    let (mut accepted, begun) = (0, Instant::now());
    for seed in 0..MUTATIONS {
        let mut random = Random::of(seed);
        let (name, bytes) = &files[random.below(files.len())];
        let bytes = bytes_changed(&mut random, bytes.clone());
        let shown = || String::from_utf8_lossy(&bytes).into_owned();
        match catch_unwind(AssertUnwindSafe(|| text::tokenizes(&bytes))) {
            Ok(Ok(result)) => accepted += u64::from(result),
            Ok(Err(wrong)) => panic!("mutation {seed} of {name}: {wrong}\n{}", shown()),
            Err(_) => panic!("mutation {seed} of {name}: a panic, see above\n{}", shown()),
        }
    }
    println!("{accepted} of {MUTATIONS} accepted in {:?}", begun.elapsed());
    // Were all refused for the same early reason, little would have been tried.
    assert!(accepted > MUTATIONS / 40 && accepted < MUTATIONS * 9 / 10, "{accepted}");
}

#[test]
fn mutated_templates_end() {
    const MUTATIONS: u64 = 1500;
    let files = corpus::files("chat_template");
    let (mut rendered, mut slowest) = (0, Duration::ZERO);
    for seed in 0..MUTATIONS {
        let mut random = Random::of(seed);
        let (name, bytes) = &files[random.below(files.len())];
        let mut bytes = bytes_changed(&mut random, bytes.clone());
        if random.below(2) == 0 {
            // A part of another template in the middle.
            let other = &files[random.below(files.len())].1;
            let (at, from) = (random.below(bytes.len()), random.below(other.len()));
            bytes.splice(at..at, other[from..].iter().take(80).copied());
        }
        let begun = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| text::renders(&bytes))) {
            Ok(result) => rendered += u64::from(result),
            Err(_) => panic!("mutation {seed} of {name}\n{}", String::from_utf8_lossy(&bytes)),
        }
        slowest = slowest.max(begun.elapsed());
    }
    println!("{rendered} of {MUTATIONS} rendered, the slowest in {slowest:?}");
    assert!(rendered > MUTATIONS / 40 && rendered < MUTATIONS * 9 / 10, "{rendered}");
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
}
