//! The tests in one program. Each program compiles and links the whole library anew, and programs
//! run one after the other: apart, the last long test of each would leave a core without work.
//!
//! Programs of their own are those that register operations, which every other test would find, and
//! those that take no device and are run by name after a change.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod cheats;
mod checker;
mod command;
mod command_text;
mod decode;
mod engines;
mod examples;
mod fleet;
mod formats;
mod generation;
mod kernels;
mod layers;
mod layouts;
mod mappings;
mod measure;
mod memory;
mod mistakes;
mod mutated_models;
mod operations;
mod page_drawn;
mod perplexity;
mod runs;
mod rusty;
mod sampling;
mod sequences;
mod tokenizers;

/// Cargo looks for no tests here by itself, so a file that nothing names would never run.
#[test]
fn every_file_runs() {
    let named = |text: &str, line: &str| text.lines().any(|l| l == line);
    let mut files = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let own = named(include_str!("../Cargo.toml"), &format!("path = \"tests/{name}.rs\""));
        let here = named(include_str!("all.rs"), &format!("mod {name};"));
        assert!(own != here, "tests/{name}.rs: either in tests/all.rs or a [[test]] of its own");
        files += 1;
    }
    assert!(files > 30, "{files}");
}
