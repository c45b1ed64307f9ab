//! The examples run with the expected output. `cargo test` builds them first, unless it was asked
//! for single targets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use crate::common;

/// Standard output of an example that ends well.
fn run(name: &str, arguments: &[&str]) -> Option<String> {
    ends(name, arguments, &[0])
}

/// Standard output of an example that ends with one of some exit codes.
fn ends(name: &str, arguments: &[&str], codes: &[i32]) -> Option<String> {
    common::gpu()?;
    let folder = Path::new(env!("CARGO_BIN_EXE_lathe")).parent().unwrap().join("examples");
    let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let output = Command::new(&program).args(arguments).output();
    let output = output.unwrap_or_else(|e| {
        panic!("{}: {e}; `cargo build --release --examples` makes it", program.display())
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(codes.contains(&output.status.code().unwrap_or(-1)), "{name}: {errors}");
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

#[test]
fn an_own_operation_is_tuned_and_compared() {
    let folder = common::Folder::new();
    let store = folder.path("tuned.json");
    let tune = ["tune", "scale", "--within", "60", "--store", &store];
    let always = ["--allow-software", "--json"];
    let Some(text) = run("own_operation", &[&tune[..], &always].concat()) else { return };
    let tuned: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = &tuned["found"][0];
    assert_eq!(found["kernel"], "scale", "{text}");
    assert!(found["ranking"].as_array().unwrap().len() > 1, "{text}");
    assert!(found["rejected"].as_array().unwrap().is_empty(), "{text}");

    let ab = ["ab", "scale", "--a", "naive", "--b", "naive"];
    // One kernel against itself is judged and timed. Which verdict comes out is not this test's:
    // two pipelines of one text may differ within one process of a CPU that others use as well.
    let text = ends("own_operation", &[&ab[..], &always].concat(), &[0, 6]).unwrap();
    let ab: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(ab["kernel"], "scale", "{text}");
    let ratio = ab["ratio"]["median"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&ratio), "{text}");
    assert!(ab["b_side"]["nmse"].as_f64().unwrap() <= 1e-13, "{text}");
}
