//! The corpus of the fuzz target `gguf`, and mutations of it, through the target's oracle.

#[path = "common/corpus.rs"]
mod corpus;
#[path = "../../fuzz/src/oracle.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz target")]
mod oracle;

use std::panic::{AssertUnwindSafe, catch_unwind};

use corpus::Random;
use lathe_harness::model::Gguf;

#[test]
fn corpus_is_read_as_the_oracle_reads_it() {
    let mut accepted = 0;
    let files = corpus::files("gguf");
    for (name, bytes) in &files {
        let result = oracle::agree(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        accepted += usize::from(result);
    }
    assert!(accepted >= 4 && accepted < files.len(), "{accepted} of {} accepted", files.len());
}

#[test]
fn the_oracle_tells_files_apart() {
    // Of any two accepted files, what the reader sees in one is not what the oracle sees in the
    // other: the comparison compares something.
    let accepted: Vec<_> =
        corpus::files("gguf").into_iter().filter(|(_, bytes)| Gguf::parse(bytes).is_ok()).collect();
    for (a, (name_a, bytes_a)) in accepted.iter().enumerate() {
        for (b, (name_b, bytes_b)) in accepted.iter().enumerate() {
            let seen = oracle::plainly(&Gguf::parse(bytes_a).unwrap());
            let same = oracle::read(bytes_b).unwrap() == seen;
            assert_eq!(same, a == b, "{name_a} against {name_b}");
        }
    }
}

#[test]
fn mutations_are_read_as_the_oracle_reads_them() {
    const MUTATIONS: u64 = 200_000;
    let files = corpus::files("gguf");
    let mut accepted = 0;
    for seed in 0..MUTATIONS {
        let (from, bytes) = mutation(&files, seed);
        let report = |what: &str| -> ! {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            panic!("mutation {seed} of {from}: {what}\n{hex}")
        };
        match catch_unwind(AssertUnwindSafe(|| oracle::agree(&bytes))) {
            Ok(Ok(result)) => accepted += u64::from(result),
            Ok(Err(difference)) => report(&difference),
            Err(_) => report("a panic, see above"),
        }
    }
    // Were all refused for the same early reason, little would have been compared.
    assert!(accepted > MUTATIONS / 20, "only {accepted} of {MUTATIONS} accepted");
    assert!(accepted < MUTATIONS / 2, "{accepted} of {MUTATIONS} accepted");
}

/// One to three changes to a file of the corpus.
fn mutation(files: &[(String, Vec<u8>)], seed: u64) -> (&str, Vec<u8>) {
    let mut random = Random::of(seed);
    let pick = random.below(files.len());
    let (name, mut bytes) = (files[pick].0.as_str(), files[pick].1.clone());
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let end = at + random.below(bytes.len() - at).min(48);
        match random.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            5 => {
                let other = &files[random.below(files.len())].1;
                let from = random.below(other.len());
                let until = from + random.below(other.len() - from).min(64);
                bytes.splice(at..end, other[from..until].iter().copied());
            }
            6 => {
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
            _ => bytes.resize(bytes.len() + random.below(64), 0),
        }
    }
    (name, bytes)
}
