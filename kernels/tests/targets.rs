//! One benchmark target a kernel: its lines in `benches/Cargo.toml` and its file say nothing but
//! the name, so both follow from the registry. `LATHE_BLESS=1` writes them anew.
//!
//! Cargo wants each target spelt out: one without libtest needs a `[[bench]]` of its own, and
//! several that share a `path` draw a warning.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

const BLESS: &str = "LATHE_BLESS=1 cargo test --release -p lathe-kernels --test targets";

/// Stands before the list in `benches/Cargo.toml`, whose last part it is.
const MARK: &str = "# One target a kernel, from the registry; see kernels/tests/targets.rs.\n";

/// The file of any kernel's target.
const FILE: &str = "\
//! GPU time of the kernel that this target is named after, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel(env!(\"CARGO_CRATE_NAME\"));
}
";

/// The manifest with the targets of some kernels.
fn manifest(now: &str, kernels: &[&str]) -> String {
    let (kept, _) = now.split_once(MARK).expect("the mark in benches/Cargo.toml");
    let targets =
        kernels.iter().map(|name| format!("\n[[bench]]\nname = \"{name}\"\nharness = false\n"));
    format!("{kept}{MARK}{}", targets.collect::<String>())
}

/// What has to change so that `files`, by name, are the targets of these kernels and nothing else:
/// new texts, or none for a file that must go. The target of whole decodes is written by hand.
fn changes<'a>(
    files: &'a BTreeMap<String, String>,
    kernels: &'a [&str],
) -> Vec<(&'a str, Option<&'static str>)> {
    let stale = |name: &str| name != "decode" && !kernels.contains(&name);
    let gone = files.keys().filter(|name| stale(name)).map(|name| (name.as_str(), None));
    let wrong = |name: &&str| files.get(*name).is_none_or(|text| text != FILE);
    kernels.iter().copied().filter(wrong).map(|name| (name, Some(FILE))).chain(gone).collect()
}

#[test]
fn every_kernel_has_its_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("benches");
    let bless = std::env::var_os("LATHE_BLESS").is_some();
    let kernels: Vec<_> = lathe_kernels::kernels().iter().map(|kernel| kernel.name).collect();
    let path = |name: &str| root.join("benches").join(format!("{name}.rs"));
    // A checkout may end lines otherwise.
    let read = |path: &Path| std::fs::read_to_string(path).unwrap().replace("\r\n", "\n");
    let files = std::fs::read_dir(root.join("benches")).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        (path.file_stem().unwrap().to_string_lossy().into_owned(), read(&path))
    });
    let files = files.collect();
    let changes = changes(&files, &kernels);
    let now = read(&root.join("Cargo.toml"));
    let due = manifest(&now, &kernels);
    if bless {
        for (name, text) in changes {
            match text {
                Some(text) => std::fs::write(path(name), text).unwrap(),
                None => std::fs::remove_file(path(name)).unwrap(),
            }
        }
        std::fs::write(root.join("Cargo.toml"), due).unwrap();
        return;
    }
    let names: Vec<_> = changes.iter().map(|(name, _)| *name).collect();
    assert!(names.is_empty(), "benches/benches is not up to date for {names:?}; {BLESS}");
    assert!(now == due, "the targets in benches/Cargo.toml are not the registry's; {BLESS}");
}

#[test]
fn missing_stale_and_altered_targets_are_seen() {
    let text = |text: &str| text.to_owned();
    let files = BTreeMap::from([
        (text("decode"), text("by hand")),
        (text("rope"), text(FILE)),
        (text("glu"), text("altered")),
        (text("attic"), text(FILE)),
    ]);
    let changes = changes(&files, &["scale", "rope", "glu"]);
    assert_eq!(changes, [("scale", Some(FILE)), ("glu", Some(FILE)), ("attic", None)]);
    let due = manifest(&format!("[package]\n{MARK}\n[[bench]]\nname = \"attic\"\n"), &["rope"]);
    assert_eq!(due, format!("[package]\n{MARK}\n[[bench]]\nname = \"rope\"\nharness = false\n"));
}
