//! Tells the binary which commit it was built from, for records.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=../.git/logs/HEAD");
    println!("cargo::rerun-if-changed=src");
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_default();
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])
        .map(|changes| if changes.is_empty() { "false" } else { "true" }.to_owned())
        .unwrap_or_default();
    println!("cargo::rustc-env=LATHE_COMMIT={commit}");
    println!("cargo::rustc-env=LATHE_DIRTY={dirty}");
}
