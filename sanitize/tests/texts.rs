//! Every file of `faults` has exactly the findings that its comments announce; every file of `clean` has none, and
//! the same results in every order; those of a file of `schedules` differ.
//!
//! The first line gives the dispatch: `// width 8, grid 2, in x 64, out y 64`. A line that ends in `// <- race` is
//! where a race is found.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lathe_sanitize::{Buffer, Finding, Options, Program, line, run};
use naga::valid::{Capabilities, ValidationFlags, Validator};

fn program(text: &str, path: &Path) -> Program {
    let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|e| {
        panic!("{}", e.emit_to_string_with_path(text, &path.to_string_lossy()))
    });
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module);
    let info = info.unwrap_or_else(|e| {
        panic!("{}", e.emit_to_string_with_path(text, &path.to_string_lossy()))
    });
    Program::of(&module, &info, "main").unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs the dispatch of a file's first line: findings, and what it leaves.
fn findings(text: &str, path: &Path, seed: u64) -> (Vec<Finding>, Vec<Vec<u32>>) {
    let program = program(text, path);
    let head = text.lines().next().unwrap().trim_start_matches("// ");
    let (mut options, mut grid) =
        (Options { seed, rounds: 20_000, ..Options::default() }, [1, 1, 1]);
    let mut buffers: Vec<(String, Buffer)> = Vec::new();
    for part in head.split(',') {
        let words: Vec<&str> = part.split_whitespace().collect();
        let number = words.last().unwrap().parse::<u32>().unwrap();
        let words_of = |n: u32| (0..n).map(|i| i % 7).collect::<Vec<u32>>();
        match words[0] {
            "width" => options.width = number,
            "grid" => grid[0] = number,
            "in" => buffers.push((words[1].into(), Buffer::filled(words_of(number)))),
            "zeros" => buffers.push((words[1].into(), Buffer::filled(vec![0; number as usize]))),
            "out" => {
                buffers
                    .push((words[1].into(), Buffer::unwritten(vec![0x7fc0_0bad; number as usize])));
            }
            other => panic!("{}: {other}", path.display()),
        }
    }
    let mut bound: Vec<&mut Buffer> = Vec::new();
    let mut rest: Vec<_> = buffers.iter_mut().collect();
    for used in program.buffers() {
        let at = rest.iter().position(|(name, _)| *name == used.name);
        bound.push(&mut rest.swap_remove(at.unwrap_or_else(|| panic!("no {}", used.name))).1);
    }
    let found = run(&program, grid, &mut bound, options).unwrap();
    (found, bound.iter().map(|buffer| buffer.words.clone()).collect())
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn each_planted_fault_is_found_at_its_line() {
    let mut wrong = String::new();
    for path in files("faults") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut wanted: Vec<(u32, String)> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            if let Some((_, fault)) = line.split_once("// <- ") {
                wanted.push((i as u32 + 1, fault.trim().to_owned()));
            }
        }
        assert!(!wanted.is_empty(), "{} plants nothing", path.display());
        for seed in 0..4 {
            let (found, _) = findings(&text, &path, seed);
            let mut got: Vec<(u32, String)> =
                found.iter().map(|f| (line(&text, f.at), f.fault.name().to_owned())).collect();
            got.sort();
            got.dedup();
            if got != wanted {
                let _ = writeln!(wrong, "{}: {found:#?}\nwanted {wanted:?}", path.display());
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn kernels_without_faults_have_no_finding() {
    let mut wrong = String::new();
    for path in files("clean") {
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, first) = findings(&text, &path, 0);
        for seed in 0..8 {
            let (found, left) = findings(&text, &path, seed);
            if !found.is_empty() || left != first {
                let _ = writeln!(wrong, "{}: {found:#?} {first:?} {left:?}", path.display());
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn results_that_depend_on_the_order_differ_by_seed() {
    for path in files("schedules") {
        let text = std::fs::read_to_string(&path).unwrap();
        let all: Vec<_> = (0..16).map(|seed| findings(&text, &path, seed)).collect();
        assert!(all.iter().all(|(found, _)| found.is_empty()), "{}: {all:?}", path.display());
        assert!(all.iter().any(|(_, left)| *left != all[0].1), "{}", path.display());
    }
}
