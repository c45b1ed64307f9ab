//! The corpus of the fuzz target `checkpoint`, and mutations of it, through the target's rules.

#[path = "../../../fuzz/src/checkpoint.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz target")]
mod rules;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::corpus;
use crate::mutations::{mutate, random};

#[test]
fn the_corpus_is_understood() {
    let place = rules::Place::temporary();
    let files = corpus::files("checkpoint");
    assert_eq!(files.len(), 4);
    for (name, input) in files {
        // Its index names a shard beside the folder, which is there.
        let understood = name != "outside";
        assert_eq!(rules::holds(&place, &input), Ok((understood, understood)), "{name}");
        assert!(place.folder().with_file_name("outside.safetensors").is_file());
    }
}

/// An input of these files.
fn joined(files: &[Vec<u8>; 4]) -> Vec<u8> {
    let (last, others) = files.split_last().unwrap();
    let behind_lengths = others.iter().flat_map(|file| {
        let len = u16::try_from(file.len()).unwrap().to_le_bytes();
        len.into_iter().chain(file.iter().copied())
    });
    behind_lengths.chain(last.iter().copied()).collect()
}

#[test]
fn mutations_hold_to_the_rules() {
    const MUTATIONS: u64 = 4_000;
    let place = rules::Place::temporary();
    let files = corpus::files("checkpoint");
    let (mut opened, mut models) = (0, 0);
    for seed in 0..MUTATIONS {
        let mut state = seed;
        let (name, input) = &files[random(&mut state) % files.len()];
        // One file of the four, so that the others can still be read.
        let mut parts = rules::split(input).map(<[u8]>::to_vec);
        mutate(&mut parts[random(&mut state) % 4], &mut state);
        let input = joined(&parts);
        let held = catch_unwind(AssertUnwindSafe(|| rules::holds(&place, &input)));
        let text = || String::from_utf8_lossy(&input).into_owned();
        let held = held.unwrap_or_else(|_| panic!("seed {seed} of {name}: a panic\n{}", text()));
        let held = held.unwrap_or_else(|e| panic!("seed {seed} of {name}: {e}\n{}", text()));
        opened += u64::from(held.0);
        models += u64::from(held.1);
    }
    assert!(opened > MUTATIONS / 20 && opened < MUTATIONS, "{opened} of {MUTATIONS}");
    assert!(models > MUTATIONS / 100 && models <= opened, "{models} of {MUTATIONS}");
}
