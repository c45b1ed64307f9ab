//! What a published crate would hold, and that one naga validates and compiles.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(workspace().join(file)).unwrap()
}

/// Versions that the lock file has of a package.
fn locked(lock: &str, name: &str) -> Vec<String> {
    let lines: Vec<&str> = lock.lines().collect();
    let version = |pair: &[&str]| {
        let is = pair[0] == format!("name = {name:?}");
        is.then(|| pair[1].trim_start_matches("version = ").trim_matches('"').to_owned())
    };
    lines.windows(2).filter_map(version).collect()
}

/// The manifests ask for 30.0.x, so that an application may share another one; here the lock file
/// pins the pair that records and findings speak of.
#[test]
fn the_lock_file_has_one_pair_of_wgpu_and_naga() {
    let lock = read("Cargo.lock");
    let (naga, wgpu) = (locked(&lock, "naga"), locked(&lock, "wgpu"));
    assert_eq!(naga, wgpu, "what the build script validates is what the device compiles");
    assert_eq!(wgpu, [lathe_harness::gpu::WGPU_VERSION]);
    assert_eq!(naga, [lathe_harness::gpu::NAGA_VERSION]);
    assert!(wgpu[0].starts_with("30.0."));
    for name in ["naga", "wgpu"] {
        let manifest = read("Cargo.toml");
        let line = manifest.lines().find(|l| l.starts_with(&format!("{name} = "))).unwrap();
        assert!(!line.contains("\"="), "a library that pins cannot share its tree: {line}");
    }
}

/// naga takes a third of the CPU time of a clean build. The build script of lathe-kernels and the
/// library share it while all that it needs has one optimisation for both.
#[test]
fn naga_is_compiled_once() {
    let manifest: Table = toml::from_str(&read("Cargo.toml")).unwrap();
    let profiles = manifest["profile"]["release"]["package"].as_table().unwrap();
    let lock: Table = toml::from_str(&read("Cargo.lock")).unwrap();
    let needs = |name: &str| -> Vec<String> {
        let packages = lock["package"].as_array().unwrap().iter();
        packages
            .filter(|package| package["name"].as_str() == Some(name))
            .filter_map(|package| package.get("dependencies")?.as_array())
            .flatten()
            .map(|needed| needed.as_str().unwrap().split(' ').next().unwrap().to_owned())
            .collect()
    };
    // Those of macros and build scripts, which no code links with, and of features that are off.
    let apart =
        ["autocfg", "cfg_aliases", "crunchy", "proc-macro2", "quote", "serde", "serde_core"];
    let is_apart = |name: &str| {
        let is_macro = ["_derive", "-derive", "-impl"].iter().any(|end| name.ends_with(end));
        apart.contains(&name) || is_macro || name == "syn"
    };
    let (mut seen, mut next) = (BTreeSet::new(), vec!["naga".to_owned()]);
    while let Some(name) = next.pop() {
        if is_apart(&name) || !seen.insert(name.clone()) {
            continue;
        }
        let level = profiles.get(&name).and_then(|profile| profile.get("opt-level"));
        let level = level.and_then(toml::Value::as_integer);
        assert_eq!(level, Some(3), "Cargo.toml: no opt-level for {name}, which naga needs");
        next.extend(needs(&name));
    }
    assert!(seen.len() > 20, "{seen:?}");
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
        (
            "lathe-harness",
            &[
                "build.rs",
                "src/measure/copy.wgsl",
                "src/report/browser.html",
                "examples/generate.rs",
            ],
        ),
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
