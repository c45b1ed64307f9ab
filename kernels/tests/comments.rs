//! Comments keep to a width: rustfmt does not see them, and nothing formats WGSL.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Widest comment line by the end of a file's name.
const WIDEST: [(&str, usize); 2] = [("rs", 100), ("wgsl", 110)];

/// Folders with sources.
const FOLDERS: [&str; 5] = ["benches", "fuzz", "harness", "kernels", "reference"];

/// Lines of a source that are comments alone and too wide.
fn too_wide(source: &str, widest: usize) -> Vec<usize> {
    let wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > widest;
    (1..).zip(source.lines()).filter(|(_, line)| wide(line)).map(|(at, _)| at).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_build_output = path.ends_with("target");
        if path.is_dir() && !is_build_output {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| WIDEST.iter().any(|(known, _)| e == *known)) {
            found.push(path);
        }
    }
}

#[test]
fn comments_keep_to_their_width() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in FOLDERS {
        sources(&root.join(folder), &mut found);
    }
    assert!(found.len() > 300, "{}", found.len());
    let mut wide = Vec::new();
    for path in found {
        let widest = WIDEST.iter().find(|(e, _)| path.extension().unwrap() == *e).unwrap().1;
        let lines = too_wide(&fs::read_to_string(&path).unwrap(), widest);
        let shown = path.strip_prefix(root).unwrap().display().to_string();
        wide.extend(lines.iter().map(|line| format!("{shown}:{line}: wider than {widest}")));
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn a_wide_comment_is_found_and_wide_code_is_not() {
    let wide = "x".repeat(120);
    let source = format!("let {wide} = 1; // {wide}\n    // {wide}\n// short\n/// {wide}\n");
    assert_eq!(too_wide(&source, 100), [2, 4]);
}
