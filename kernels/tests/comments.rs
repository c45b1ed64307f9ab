//! Comments keep to a width, name files that are there, and codes by their names: no compiler reads
//! them, and nothing formats WGSL.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, unreachable_pub, reason = "only the constants are of use here")]
#[path = "../src/codes.rs"]
mod codes;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use lathe_kernels::ParamKind;

/// Widest comment line by the end of a file's name.
const WIDEST: [(&str, usize); 2] = [("rs", 100), ("wgsl", 110)];

/// Folders with sources.
const FOLDERS: [&str; 6] = ["benches", "cli", "fuzz", "harness", "kernels", "reference"];

/// Lines of a source that are comments alone and too wide.
fn too_wide(source: &str, widest: usize) -> Vec<usize> {
    let wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > widest;
    (1..).zip(source.lines()).filter(|(_, line)| wide(line)).map(|(at, _)| at).collect()
}

/// WGSL files that comments name, with their lines. A name in capitals stands for any file.
fn named_files(source: &str) -> Vec<(usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    (1..)
        .zip(source.lines())
        .filter(|(_, line)| line.trim_start().starts_with("//"))
        .flat_map(|(at, line)| line.split(move |c| !is_part(c)).map(move |word| (at, word)))
        .map(|(at, word)| (at, word.trim_end_matches('.')))
        .filter(|(_, name)| name.len() > ".wgsl".len() && name.ends_with(".wgsl"))
        .filter(|(_, name)| !name.contains(char::is_uppercase))
        .collect()
}

/// A line with a comment says what `0:` or `1:` is, and names a code.
fn explains_a_number(line: &str, codes: &HashSet<String>) -> bool {
    let Some((_, comment)) = line.split_once("//") else { return false };
    let is_number = |word: &str| {
        let number = word.trim_start_matches('(').strip_suffix(':');
        number.is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let mut words = line.split(|c: char| c != '_' && !c.is_alphanumeric());
    comment.split_whitespace().any(is_number) && words.any(|word| codes.contains(word))
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

/// All sources below [`FOLDERS`]: path from the root of the repository, and text.
fn all() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in FOLDERS {
        sources(&root.join(folder), &mut found);
    }
    assert!(found.len() > 300, "{}", found.len());
    let read = |path: PathBuf| {
        (path.strip_prefix(root).unwrap().to_owned(), fs::read_to_string(&path).unwrap())
    };
    found.into_iter().map(read).collect()
}

#[test]
fn comments_keep_to_their_width() {
    let mut wide = Vec::new();
    for (path, text) in all() {
        let widest = WIDEST.iter().find(|(e, _)| path.extension().unwrap() == *e).unwrap().1;
        let lines = too_wide(&text, widest);
        let shown = path.display();
        wide.extend(lines.iter().map(|line| format!("{shown}:{line}: wider than {widest}")));
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn wgsl_files_that_comments_name_are_there() {
    let all = all();
    let mut gone = Vec::new();
    for (path, text) in &all {
        for (line, name) in named_files(text) {
            if !all.iter().any(|(path, _)| path.ends_with(name)) {
                gone.push(format!("{}:{line}: there is no {name}", path.display()));
            }
        }
    }
    assert!(gone.is_empty(), "{gone:#?}");
}

#[test]
fn comments_of_kernels_say_codes_by_name() {
    let params = lathe_kernels::kernels().iter().flat_map(|kernel| kernel.params);
    let choices = params.filter(|p| matches!(p.kind, ParamKind::Choice { .. }));
    let constants = codes::code_constants().into_iter().map(|(name, _)| name);
    let codes = choices.map(|p| p.name.to_owned()).chain(constants).collect();
    let mut numbers = BTreeSet::new();
    for source in lathe_kernels::sources() {
        let lines = source.text.lines().filter(|line| explains_a_number(line, &codes));
        numbers.extend(lines.map(|line| format!("{}: {line}", source.file)));
    }
    assert!(numbers.is_empty(), "{numbers:#?}");
}

#[test]
fn a_wide_comment_is_found_and_wide_code_is_not() {
    let wide = "x".repeat(120);
    let source = format!("let {wide} = 1; // {wide}\n    // {wide}\n// short\n/// {wide}\n");
    assert_eq!(too_wide(&source, 100), [2, 4]);
}

#[test]
fn a_file_is_found_in_a_comment_alone() {
    let source =
        "// see rows/soa.wgsl.\nlet a = \"b.wgsl\";\n    /// `c.wgsl`, FILE.wgsl, *.wgsl\n";
    assert_eq!(named_files(source), [(1, "rows/soa.wgsl"), (3, "c.wgsl")]);
}

#[test]
fn a_number_that_stands_for_a_code_is_found() {
    let codes = ["NORM", "ROPE_NEOX"].map(str::to_owned).into();
    for line in [
        "override NORM: u32; // 1: normed",
        "//   ROPE_NEOX: halves; 0: pairs",
        "// NORM (0: none)",
    ] {
        assert!(explains_a_number(line, &codes), "{line}");
    }
    for line in ["override TOP: u32; // 0: all", "//   ROPE_NEOX: pairs (i, i + 64)", "NORM == 1u;"]
    {
        assert!(!explains_a_number(line, &codes), "{line}");
    }
}
