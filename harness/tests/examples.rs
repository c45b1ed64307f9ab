//! The examples run and say what they should. `cargo test` builds them first, unless it was asked
//! for single targets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;

/// Standard output of an example.
fn run(name: &str, arguments: &[&str]) -> Option<String> {
    common::gpu()?;
    let folder = Path::new(env!("CARGO_BIN_EXE_lathe")).parent().unwrap().join("examples");
    let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let output = Command::new(&program).args(arguments).output();
    let output = output.unwrap_or_else(|e| {
        panic!("{}: {e}; `cargo build --release --examples` makes it", program.display())
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_kernel_runs_in_an_applications_own_device() {
    let Some(text) = run("own_device", &[]) else { return };
    assert!(text.contains("off the reference"), "{text}");
}

#[test]
fn a_small_checkpoint_is_decoded() {
    let Some(text) = run("generate", &[]) else { return };
    assert_eq!(text.lines().filter(|l| l.starts_with("token ")).count(), 8, "{text}");
}

#[test]
fn an_own_operation_is_checked_and_known_to_the_command() {
    let Some(text) = run("own_operation", &[]) else { return };
    assert_eq!(text.lines().filter(|l| l.contains(": Passed")).count(), 8, "{text}");
    let text = run("own_operation", &["check", "scale", "--cases", "2"]).unwrap();
    assert!(text.contains(": 6 passed, 0 failed, 0 unavailable"), "{text}");
    let text = run("own_operation", &["bench", "scale", "--json"]).unwrap();
    assert!(text.contains("\"scale\""), "{text}");
}
