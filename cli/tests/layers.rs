//! Who may know whom inside the harness: rooms are the modules at the top of `harness/src`, arrows
//! are what their sources name of each other, and nobody knows anybody who knows him. Tests inside
//! sources may name what they like.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// Each room and whom it may know. A room that is missing here may not exist; an arrow that no
/// source has any more must go.
const ALLOWED: &[(&str, &[&str])] = &[
    ("data", &["error", "files"]),
    ("decode", &["data", "error", "execute", "files", "gpu", "model", "plan"]),
    ("error", &["model"]),
    ("files", &[]),
    ("execute", &["error", "gpu", "plan"]),
    ("gpu", &["data", "error", "plan"]),
    ("judge", &["data", "error", "execute", "gpu", "plan"]),
    ("measure", &["data", "error", "execute", "gpu", "judge", "plan"]),
    ("model", &["files"]),
    ("plan", &["data", "error", "files", "model"]),
    ("report", &["data"]),
];

/// Rooms of plain data: they name neither wgpu nor the room that wraps it, nor know anyone who
/// does.
const WITHOUT_DEVICE: &[&str] = &["data", "model", "plan", "report"];

/// Rooms that name the reference: where operations are computed and judged by it; `decode` compares
/// and draws tokens with it, `model` decodes blocks, `plan` holds what a user's operation expects.
const WITH_REFERENCE: &[&str] = &["decode", "execute", "judge", "model", "plan"];

/// A room named in a source of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrow {
    from: String,
    to: String,
    file: String,
    line: usize,
}

impl fmt::Display for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, file, line } = self;
        write!(f, "{file}:{line}: {from} -> {to}")
    }
}

/// The source without comments, line for line, up to its tests.
fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    code.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Each place where `word` stands alone, as a byte offset.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !code[..*at].ends_with(part) && !code[at + word.len()..].starts_with(part)
    })
}

/// The first names of what stands behind a `::`, and where: one, or those of a list in braces.
fn first_names(code: &str, at: usize) -> Vec<(String, usize)> {
    let name = |from: usize| {
        let rest = &code[from..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (rest[..end].to_owned(), from)
    };
    if !code[at..].starts_with('{') {
        return vec![name(at)];
    }
    let (mut depth, mut names, mut due) = (0, Vec::new(), false);
    for (i, c) in code[at..].char_indices() {
        match c {
            '{' => (depth, due) = (depth + 1, depth == 0),
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => due = depth == 1,
            c if due && !c.is_whitespace() => {
                names.push(name(at + i));
                due = false;
            }
            _ => {}
        }
    }
    names
}

/// The arrows of one file, whose path is relative to `harness/src`.
fn arrows(file: &str, source: &str) -> Vec<Arrow> {
    let code = code(source);
    let from = room(file);
    let mut found = Vec::new();
    for root in ["crate", "lathe_harness", "wgpu"] {
        for at in words(&code, root) {
            let behind = at + root.len();
            let path = code[behind..].starts_with("::");
            let names = match root {
                // A field may be called wgpu; what is imported or walked through is the crate.
                "wgpu" if path || code[..at].ends_with("use ") => vec![(root.to_owned(), at)],
                "crate" | "lathe_harness" if path => first_names(&code, behind + 2),
                _ => continue,
            };
            for (name, at) in names {
                let to = match name.as_str() {
                    "Error" | "Result" => "error".to_owned(),
                    _ => name,
                };
                if to != from {
                    let line = 1 + code[..at].matches('\n').count();
                    found.push(Arrow { from: from.clone(), to, file: file.to_owned(), line });
                }
            }
        }
    }
    found
}

/// The room of a file.
fn room(file: &str) -> String {
    let first = file.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

/// What is wrong with some arrows, one line each.
fn forbidden(arrows: &[Arrow], allowed: &[(&str, &[&str])], plain: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for arrow in arrows {
        let row = allowed.iter().find(|(from, _)| *from == arrow.from);
        let Some((_, may)) = row else {
            wrong.push(format!("{arrow}: the room {} is not in the table", arrow.from));
            continue;
        };
        if arrow.to == "wgpu" {
            if plain.contains(&arrow.from.as_str()) {
                wrong.push(format!("{arrow}: {} is plain data without a device", arrow.from));
            }
        } else if !may.contains(&arrow.to.as_str()) {
            let may = if may.is_empty() { "nobody".to_owned() } else { may.join(", ") };
            wrong.push(format!("{arrow}: {} may know {may}", arrow.from));
        }
    }
    wrong
}

/// A way from a room back to itself, if the table has one.
fn circle(allowed: &[(&str, &[&str])]) -> Option<String> {
    let next: BTreeMap<&str, &[&str]> = allowed.iter().copied().collect();
    fn walk<'a>(path: &mut Vec<&'a str>, next: &BTreeMap<&'a str, &[&'a str]>) -> Option<String> {
        for to in *next.get(path.last()?)? {
            if let Some(at) = path.iter().position(|room| room == to) {
                return Some([&path[at..], &[to]].concat().join(" -> "));
            }
            path.push(to);
            let found = walk(path, next);
            if found.is_some() {
                return found;
            }
            path.pop();
        }
        None
    }
    next.keys().find_map(|room| walk(&mut vec![room], &next))
}

/// Everyone a room knows, over others too.
fn reach<'a>(allowed: &[(&'a str, &'a [&'a str])], room: &'a str) -> BTreeSet<&'a str> {
    let mut known = BTreeSet::new();
    let mut ask = vec![room];
    while let Some(room) = ask.pop() {
        let may = allowed.iter().find(|(from, _)| *from == room).map_or(&[][..], |(_, may)| *may);
        ask.extend(may.iter().filter(|to| known.insert(**to)));
    }
    known
}

/// Every source by its path, but that of the crate.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/src");
    let mut files = Vec::new();
    read(&root, &root, &mut files);
    files.retain(|(file, _)| file != "lib.rs");
    files
}

fn read(folder: &Path, root: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "tests") {
            read(&path, root, into);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            let file = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            into.push((file, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn sources_have_the_arrows_of_the_table_and_no_others() {
    let files = sources();
    let arrows: Vec<_> = files.iter().flat_map(|(file, source)| arrows(file, source)).collect();
    let wrong = forbidden(&arrows, ALLOWED, WITHOUT_DEVICE);
    assert!(wrong.is_empty(), "forbidden arrows:\n{}", wrong.join("\n"));
    let rooms: BTreeSet<_> = files.iter().map(|(file, _)| room(file)).collect();
    let table: BTreeSet<_> = ALLOWED.iter().map(|(from, _)| (*from).to_owned()).collect();
    assert_eq!(rooms, table, "rooms of harness/src and of the table");
    for (from, may) in ALLOWED {
        for to in *may {
            let used = arrows.iter().any(|arrow| arrow.from == *from && arrow.to == *to);
            assert!(used, "{from} -> {to} is allowed but nowhere to be found");
        }
    }
}

/// What a cell of a Markdown table names as code.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn architecture_shows_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/architecture.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.split("| room | knows |\n|---|---|\n").nth(1).unwrap().lines();
    let mut shown = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let (rooms, knows) = row.trim_matches('|').split_once('|').unwrap();
        for room in names(rooms) {
            shown.insert(room, names(knows).collect());
        }
    }
    let table = ALLOWED.iter().map(|(from, may)| (*from, may.iter().copied().collect()));
    assert_eq!(shown, BTreeMap::<&str, BTreeSet<&str>>::from_iter(table));
}

#[test]
fn the_reference_is_named_where_it_may_be() {
    let mut files = sources();
    files.retain(|(_, source)| words(&code(source), "lathe_reference").next().is_some());
    let rooms: BTreeSet<_> = files.iter().map(|(file, _)| room(file)).collect();
    assert_eq!(Vec::from_iter(rooms), WITH_REFERENCE);
}

#[test]
fn the_table_has_no_circle_and_plain_data_never_reaches_the_device() {
    assert_eq!(circle(ALLOWED), None);
    for room in WITHOUT_DEVICE {
        let known = reach(ALLOWED, room);
        assert!(!known.contains("gpu"), "{room} knows gpu by way of {known:?}");
    }
}

const MADE_UP: &str = "\
//! Knows crate::measure only in words.
use crate::{
    error::Result,
    gpu::{Gpu, Span},
};
use crate::data::Ratio; // and crate::decode
fn f() -> lathe_harness::report::Page { crate::Error::new(wgpu_like, wgpu::Device, wgpu) }
#[cfg(test)]
mod tests {
    use crate::measure::Bench;
}
";

#[test]
fn a_forbidden_arrow_is_found_with_file_and_line() {
    let mut arrows = arrows("data/made_up.rs", MADE_UP);
    arrows.sort_by_key(|arrow| (arrow.line, arrow.to.clone()));
    let found: Vec<_> = arrows.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "data/made_up.rs:3: data -> error",
            "data/made_up.rs:4: data -> gpu",
            "data/made_up.rs:7: data -> error",
            "data/made_up.rs:7: data -> report",
            "data/made_up.rs:7: data -> wgpu",
        ]
    );
    assert_eq!(
        forbidden(&arrows, ALLOWED, WITHOUT_DEVICE),
        [
            "data/made_up.rs:4: data -> gpu: data may know error, files",
            "data/made_up.rs:7: data -> report: data may know error, files",
            "data/made_up.rs:7: data -> wgpu: data is plain data without a device",
        ]
    );
    let elsewhere = self::arrows("attic.rs", "use crate::gpu::Gpu;\n");
    assert_eq!(
        forbidden(&elsewhere, ALLOWED, WITHOUT_DEVICE),
        ["attic.rs:1: attic -> gpu: the room attic is not in the table"]
    );
}

#[test]
fn a_circle_is_found() {
    let table: &[(&str, &[&str])] = &[("a", &["b"]), ("b", &["c", "d"]), ("c", &[]), ("d", &["b"])];
    assert_eq!(circle(table).as_deref(), Some("b -> d -> b"));
    assert_eq!(circle(&[("a", &["a"])]).as_deref(), Some("a -> a"));
    assert_eq!(circle(&table[..3]), None);
    assert!(reach(table, "a").contains("d") && !reach(table, "c").contains("a"));
}
