//! Contents of the published crates, and the one version of wgpu and naga that they share.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Versions of a package in the lock file.
fn locked(lock: &str, name: &str) -> Vec<String> {
    let lines: Vec<&str> = lock.lines().collect();
    let version = |pair: &[&str]| {
        let is = pair[0] == format!("name = {name:?}");
        is.then(|| pair[1].trim_start_matches("version = ").trim_matches('"').to_owned())
    };
    lines.windows(2).filter_map(version).collect()
}

#[test]
fn the_lock_file_has_one_pair_of_wgpu_and_naga() {
    let lock = std::fs::read_to_string(workspace().join("Cargo.lock")).unwrap();
    let (naga, wgpu) = (locked(&lock, "naga"), locked(&lock, "wgpu"));
    assert_eq!(naga, wgpu, "what the build script validates is what the device compiles");
    assert_eq!(wgpu, [lathe_harness::gpu::WGPU_VERSION]);
    assert_eq!(naga, [lathe_harness::gpu::NAGA_VERSION]);
}

#[test]
fn packages_hold_what_they_build_from() {
    for (package, needed) in [
        (
            "lathe-kernels",
            &[
                "build/main.rs",
                "build/wgsl.rs",
                "src/link.rs",
                "ops/rope/mod.rs",
                "ops/rope/naive.wgsl",
                "wgsl/grid.wgsl",
            ][..],
        ),
        ("lathe-reference", &["src/compare.rs"]),
        ("lathe-record", &["src/paired.rs"]),
        ("lathe-model", &["src/gguf/parse.rs"]),
        ("lathe-device", &["build.rs", "src/measure/copy.wgsl"]),
        ("lathe-decode", &["src/graph/step.rs"]),
        ("lathe-report", &["src/browser.html"]),
        ("lathe-harness", &["examples/generate.rs"]),
        ("lathe-cli", &["src/main.rs", "examples/own_operation/main.rs"]),
    ] {
        let listed = Command::new(env!("CARGO"))
            .args(["package", "--list", "--locked", "--offline", "--allow-dirty", "-p", package])
            .current_dir(workspace())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&listed.stderr);
        assert!(listed.status.success(), "{package}: {errors}");
        let files = String::from_utf8_lossy(&listed.stdout).replace('\\', "/");
        for file in
            needed.iter().chain(&["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"])
        {
            assert!(files.lines().any(|f| f == *file), "{package} lacks {file}");
        }
        assert!(!files.contains("goldens"), "{package} carries the repository's test data");
    }
}
