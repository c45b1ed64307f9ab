//! The corpus of the fuzz target `safetensors`, and mutations of it, through the target's rules.

#[path = "../../../fuzz/src/safetensors.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the fuzz target")]
mod rules;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::corpus;

#[test]
fn the_corpus_is_understood() {
    let files = corpus::files("safetensors");
    assert_eq!(files.len(), 3);
    for (name, input) in files {
        assert_eq!(rules::hold(&input), Ok((true, true)), "{name}");
        assert!(rules::split(&input).0.starts_with(b"{"), "{name}");
    }
}

/// Splitmix64, as the synthetic checkpoints have it.
pub(crate) fn random(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 8) as usize
}

/// Words that a configuration or a header may hold in place of a number.
const NUMBERS: [&str; 9] =
    ["0", "-1", "1e308", "0.5", "4294967295", "18446744073709551615", "null", "[]", "\"F32\""];

pub(crate) fn mutate(input: &mut Vec<u8>, state: &mut u64) {
    for _ in 0..=random(state) % 3 {
        let at = random(state) % input.len().max(1);
        match random(state) % 5 {
            0 if !input.is_empty() => input[at] ^= 1 << (random(state) % 8),
            1 => input.truncate(at),
            2 => {
                let end = (at + random(state) % 40).min(input.len());
                drop(input.drain(at..end));
            }
            3 => {
                let end = (at + random(state) % 40).min(input.len());
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            _ => {
                // A run of digits becomes another value of as many bytes or of others.
                let Some(from) = input[at..].iter().position(u8::is_ascii_digit) else { continue };
                let from = at + from;
                let digits = input[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                let word = NUMBERS[random(state) % NUMBERS.len()];
                input.splice(from..from + digits, word.bytes());
            }
        }
    }
}

#[test]
fn mutations_hold_to_the_rules() {
    const MUTATIONS: u64 = 60_000;
    let files = corpus::files("safetensors");
    let (mut weights, mut both) = (0, 0);
    for seed in 0..MUTATIONS {
        let mut state = seed;
        let (name, mut input) = files[random(&mut state) % files.len()].clone();
        mutate(&mut input, &mut state);
        let held = catch_unwind(AssertUnwindSafe(|| rules::hold(&input)));
        let text = || String::from_utf8_lossy(&input).into_owned();
        let held = held.unwrap_or_else(|_| panic!("seed {seed} of {name}: a panic\n{}", text()));
        let held = held.unwrap_or_else(|e| panic!("seed {seed} of {name}: {e}\n{}", text()));
        weights += u64::from(held.0);
        both += u64::from(held.1);
    }
    // Were all refused for one early reason, little would have been tried.
    assert!(weights > MUTATIONS / 20 && weights < MUTATIONS, "{weights} of {MUTATIONS}");
    assert!(both > MUTATIONS / 100 && both < weights, "{both} of {MUTATIONS}");
}
