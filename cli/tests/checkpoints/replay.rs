//! Seeds of the fuzz targets and mutations of them, through the oracle of each target, without a
//! fuzzer.

#[path = "../../../fuzz/src/checkpoint.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz targets")]
mod checkpoint;
#[path = "../../../fuzz/src/oracle.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz targets")]
mod oracle;
#[path = "../../../fuzz/src/safetensors.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz targets")]
mod safetensors;
#[path = "../../../fuzz/src/text.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz targets")]
mod text;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use lathe_harness::model::Gguf;
use lathe_harness::model::chat::{ChatTemplate, Conversation};

use crate::corpus::{self, Random};
use crate::{gguf_broken, gguf_read};

/// Small seeds fuzz faster; larger cases are tests only.
const LARGEST: usize = 4096;

type Seeds = Vec<(String, Vec<u8>)>;

/// Seeds of the target `gguf`: every case of at most [`LARGEST`] bytes.
fn gguf_seeds() -> Seeds {
    let mut seeds = gguf_broken::seeds();
    seeds.extend(gguf_read::sound().map(|(name, bytes)| (name.to_owned(), bytes)));
    seeds.retain(|(_, bytes)| bytes.len() <= LARGEST);
    seeds
}

/// Words that a number of a configuration or a header may become.
const WORDS: [&str; 9] =
    ["0", "-1", "1e308", "0.5", "4294967295", "18446744073709551615", "null", "[]", "\"F32\""];

#[derive(Clone, Copy)]
enum Change {
    FlipBit,
    SetByte,
    Cut,
    Remove,
    Repeat,
    /// Bytes of another seed.
    Splice,
    /// A number at the edge of a width or of the file.
    Number,
    /// A number in text becomes another value, of as many bytes or of others.
    Word,
    /// A byte becomes one of JSON's.
    Mark,
    Grow,
}
use Change::{Cut, FlipBit, Grow, Mark, Number, Remove, Repeat, SetByte, Splice, Word};

const BINARY: &[Change] = &[FlipBit, SetByte, Cut, Remove, Repeat, Splice, Number, Grow];
const TEXT: &[Change] = &[FlipBit, Cut, Remove, Repeat, Word];
const TOKENIZER: &[Change] = &[FlipBit, Mark, Cut, Remove, Repeat, Number];
const TEMPLATE: &[Change] = &[FlipBit, Mark, Cut, Remove, Repeat, Number, Splice];

/// Applies one to three changes to a copy of a seed.
fn changed<'a>(
    kinds: &'a [Change],
    seeds: &'a Seeds,
) -> impl Fn(&mut Random, &[u8]) -> Vec<u8> + 'a {
    |random, bytes| {
        let mut bytes = bytes.to_vec();
        mutate(random, kinds, &mut bytes, seeds);
        bytes
    }
}

fn mutate(random: &mut Random, kinds: &[Change], bytes: &mut Vec<u8>, others: &Seeds) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let end = at + random.below(bytes.len() - at).min(48);
        match kinds[random.below(kinds.len())] {
            FlipBit if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            SetByte if !bytes.is_empty() => bytes[at] = random.next() as u8,
            Cut => bytes.truncate(at),
            Remove => drop(bytes.drain(at..end)),
            Repeat => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            Splice => {
                let other = &others[random.below(others.len())].1;
                let from = random.below(other.len());
                let until = from + random.below(other.len() - from).min(64);
                bytes.splice(at..end, other[from..until].iter().copied());
            }
            Number => {
                let len = bytes.len() as u64;
                let numbers = [0, 1, 2, 4, 9, 31, 32, 255, 1 << 31, 1 << 32, 1 << 62, 1 << 63];
                let edges = [u64::MAX, u64::MAX - 31, len, len.wrapping_sub(24), len / 14];
                let edge = random.below(numbers.len() + edges.len());
                let number = numbers.iter().chain(&edges).nth(edge).copied().unwrap_or_default();
                let width = if random.below(2) == 0 { 4 } else { 8 };
                for (byte, new) in bytes.iter_mut().skip(at).zip(&number.to_le_bytes()[..width]) {
                    *byte = *new;
                }
            }
            Word => {
                let digit = bytes[at..].iter().position(u8::is_ascii_digit);
                let Some(from) = digit.map(|skip| at + skip) else { continue };
                let digits = bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                bytes.splice(from..from + digits, WORDS[random.below(WORDS.len())].bytes());
            }
            Mark if !bytes.is_empty() => bytes[at] = b"\"{}[]:,0a%\\|- "[random.below(14)],
            FlipBit | SetByte | Mark | Grow => bytes.resize(bytes.len() + random.below(64), 0),
        }
    }
}

/// Puts mutations through an oracle and returns how many were accepted, by each of its two
/// measures.
///
/// # Panics
/// If the oracle objects or the reader panics; the message has seed and input.
fn accepted(
    seeds: &Seeds,
    mutations: u64,
    mutated: impl Fn(&mut Random, &[u8]) -> Vec<u8>,
    oracle: impl Fn(&[u8]) -> Result<(bool, bool), String>,
) -> (u64, u64) {
    let mut accepted = (0, 0);
    for seed in 0..mutations {
        let random = &mut Random::of(seed);
        let (name, bytes) = &seeds[random.below(seeds.len())];
        let input = mutated(random, bytes);
        let verdict = catch_unwind(AssertUnwindSafe(|| oracle(&input)));
        let verdict = verdict.unwrap_or_else(|_| Err("a panic, see above".to_owned()));
        let (first, second) = verdict.unwrap_or_else(|wrong| {
            panic!("mutation {seed} of {name}: {wrong}\n{}", input.escape_ascii())
        });
        accepted.0 += u64::from(first);
        accepted.1 += u64::from(second);
    }
    accepted
}

fn agree(bytes: &[u8]) -> Result<(bool, bool), String> {
    oracle::agree(bytes).map(|accepted| (accepted, accepted))
}

#[test]
fn gguf_is_read_as_the_oracle_reads_it() {
    const MUTATIONS: u64 = 200_000;
    let seeds = gguf_seeds();
    let sound = seeds
        .iter()
        .filter(|(name, bytes)| oracle::agree(bytes).unwrap_or_else(|e| panic!("{name}: {e}")));
    assert_eq!((seeds.len(), sound.count()), (63, 9));
    let (accepted, _) = accepted(&seeds, MUTATIONS, changed(BINARY, &seeds), agree);
    // Were all refused for the same early reason, little would have been compared.
    assert!(accepted > MUTATIONS / 20 && accepted < MUTATIONS / 2, "{accepted} of {MUTATIONS}");
}

/// For any two sound files, the reader's view of one differs from the oracle's view of the other.
#[test]
fn the_oracle_tells_files_apart() {
    let seeds = gguf_seeds();
    let sound: Vec<_> = seeds.iter().filter(|(_, bytes)| Gguf::parse(bytes).is_ok()).collect();
    for (name_a, a) in &sound {
        let seen = oracle::plainly(&Gguf::parse(a).unwrap());
        for (name_b, b) in &sound {
            let same = oracle::read(b).unwrap() == seen;
            assert_eq!(same, name_a == name_b, "{name_a} against {name_b}");
        }
    }
}

/// A fuzzer begins from these in a fresh clone; `write_seeds` adds all others.
#[test]
fn the_committed_seeds_are_cases() {
    let seeds = gguf_seeds();
    for (name, bytes) in corpus::files("gguf") {
        assert!(seeds.contains(&(name.replace('_', " "), bytes)), "{name} differs from its case");
    }
}

#[test]
#[ignore = "writes fuzz/target/corpus/gguf"]
fn write_seeds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/target/corpus/gguf");
    std::fs::create_dir_all(folder).unwrap();
    for (name, bytes) in gguf_seeds() {
        std::fs::write(format!("{folder}/{}", name.replace(' ', "_")), bytes).unwrap();
    }
}

#[test]
fn safetensors_keep_to_the_rules() {
    const MUTATIONS: u64 = 60_000;
    let seeds = corpus::files("safetensors");
    assert_eq!(seeds.len(), 3);
    for (name, input) in &seeds {
        assert_eq!(safetensors::hold(input), Ok((true, true)), "{name}");
        assert!(safetensors::split(input).0.starts_with(b"{"), "{name}");
    }
    let (weights, both) = accepted(&seeds, MUTATIONS, changed(TEXT, &seeds), safetensors::hold);
    assert!(weights > MUTATIONS / 20 && weights < MUTATIONS, "{weights} of {MUTATIONS}");
    assert!(both > MUTATIONS / 100 && both < weights, "{both} of {MUTATIONS}");
}

#[test]
fn sharded_checkpoints_keep_to_the_rules() {
    const MUTATIONS: u64 = 4_000;
    let folder = checkpoint::Folder::temporary();
    let seeds = corpus::files("checkpoint");
    assert_eq!(seeds.len(), 4);
    for (name, input) in &seeds {
        // Its index names a shard beside the folder, which is there.
        let understood = name != "outside";
        assert_eq!(checkpoint::holds(&folder, input), Ok((understood, understood)), "{name}");
        assert!(folder.folder().with_file_name("outside.safetensors").is_file());
    }
    // One file of the four, so that the others can still be read.
    let changed = |random: &mut Random, input: &[u8]| {
        let mut files = checkpoint::split(input).map(<[u8]>::to_vec);
        let changed = random.below(4);
        mutate(random, TEXT, &mut files[changed], &seeds);
        let [others @ .., last] = &files;
        let behind_lengths = others.iter().flat_map(|file| {
            let len = u16::try_from(file.len()).unwrap().to_le_bytes();
            [&len[..], file].concat()
        });
        behind_lengths.chain(last.iter().copied()).collect()
    };
    let oracle = |input: &[u8]| checkpoint::holds(&folder, input);
    let (opened, models) = accepted(&seeds, MUTATIONS, changed, oracle);
    assert!(opened > MUTATIONS / 20 && opened < MUTATIONS, "{opened} of {MUTATIONS}");
    assert!(models > MUTATIONS / 100 && models <= opened, "{models} of {MUTATIONS}");
}

#[test]
fn corpora_of_texts_hold_what_is_accepted_and_what_is_not() {
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
    let bos = vec![("bos_token".to_owned(), "<bos>".to_owned())];
    let all = corpus::files("chat_template");
    let render = |name: &str, texts: &[(&str, &str)]| {
        let source = &all.iter().find(|file| file.0 == name).unwrap().1;
        let source = String::from_utf8(source.clone()).unwrap();
        let template = ChatTemplate::new(&source, bos.clone()).unwrap();
        let mut conversation = Conversation::of(texts);
        // Llama's template takes the day of the clock where nobody tells it one.
        conversation.set("date_string", "\"26 Jul 2024\"").unwrap();
        template.render(&conversation).map_err(|error| error.to_string())
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

#[test]
fn mutated_tokenizers_are_refused_or_sound() {
    const MUTATIONS: u64 = 10_000;
    let seeds = corpus::files("tokenizer");
    let oracle = |bytes: &[u8]| text::tokenizes(bytes).map(|accepted| (accepted, accepted));
    let (accepted, _) = accepted(&seeds, MUTATIONS, changed(TOKENIZER, &seeds), oracle);
    assert!(accepted > MUTATIONS / 40 && accepted < MUTATIONS * 9 / 10, "{accepted}");
}

#[test]
fn mutated_templates_end() {
    const MUTATIONS: u64 = 1500;
    let seeds = corpus::files("chat_template");
    let oracle = |bytes: &[u8]| {
        let (begun, rendered) = (Instant::now(), text::renders(bytes));
        let took = begun.elapsed();
        if took > Duration::from_secs(10) {
            Err(format!("{took:?}"))
        } else {
            Ok((rendered, false))
        }
    };
    let (rendered, _) = accepted(&seeds, MUTATIONS, changed(TEMPLATE, &seeds), oracle);
    assert!(rendered > MUTATIONS / 40 && rendered < MUTATIONS * 9 / 10, "{rendered}");
}
