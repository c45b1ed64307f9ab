//! Tells the binary which commit it was built from, for records, whether anything that it is made
//! of differs from that commit, and what compiled it how.

use std::process::Command;

/// What the command is made of, seen from here.
const SOURCES: &[&str] = &[
    "src",
    "build.rs",
    "Cargo.toml",
    "../../Cargo.lock",
    "../../Cargo.toml",
    "../../cli/Cargo.toml",
    "../../cli/src",
    "../../kernels/build",
    "../../kernels/ops",
    "../../kernels/src",
    "../../kernels/wgsl",
    "../../reference/src",
    "../decode/src",
    "../model/src",
    "../record/src",
    "../report/src",
    "../src",
];

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    // A commit moves the log; an edit, a new file too, moves one of the sources.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let sources = SOURCES.iter().filter(|path| std::path::Path::new(path).exists());
    for path in sources.clone() {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_default();
    let status = ["status", "--porcelain", "--untracked-files=all", "--"];
    let dirty = git(&status.into_iter().chain(sources.copied()).collect::<Vec<_>>())
        .map(|changes| if changes.is_empty() { "false" } else { "true" }.to_owned())
        .unwrap_or_default();
    println!("cargo::rustc-env=LATHE_COMMIT={commit}");
    println!("cargo::rustc-env=LATHE_DIRTY={dirty}");
    let told = |name: &str| std::env::var(name).unwrap_or_default();
    let rustc = Command::new(told("RUSTC")).arg("--version").output();
    let rustc = rustc.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=LATHE_RUSTC={}", rustc.unwrap_or_default());
    println!("cargo::rustc-env=LATHE_BUILD={}, opt-level {}", told("PROFILE"), told("OPT_LEVEL"));
}
