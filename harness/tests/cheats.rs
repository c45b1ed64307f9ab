//! Kernels that cheat are caught by every command that prints a time or a verdict; the same kernel
//! without the cheat passes. `docs/measuring.md` lists them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{self, lathe, said};

/// What the first line of a file ends with that computes rightly while it is checked alone.
const TIMED: &str = ", when it is timed";

/// The files with what each stands in the place of, which its first line says.
fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cheats");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let place = text.lines().next().unwrap().trim_start_matches("// ").to_owned();
            (path, place)
        })
        .collect();
    files.sort();
    files
}

fn shape(kernel: &str) -> &'static str {
    match kernel {
        "argmax" => "N=40000,N_KV=2,PROMPT_LEN=1",
        "gemv" => "ROWS=128,K=320",
        "gemv_q" => "ROWS=128,K=512,WEIGHT=q4_k",
        "residual_add" | "glu" => "N=2048",
        "attention_append" => "Q_PER_KV=2,KV_HEADS=2,HEAD_DIM=64,KV_SIZE=256,N_KV=200",
        "attention_decode" => "Q_PER_KV=2,KV_HEADS=2,HEAD_DIM=64,KV_SIZE=128,N_KV=128",
        other => panic!("no shape for {other}"),
    }
}

/// Runs a command over every file; it fails where the file cheats.
fn all_caught(command: impl Fn(&str, &str, &str, &str) -> Output) {
    let Some(_) = common::gpu() else { return };
    let mut honest = 0;
    for (path, place) in files() {
        let (kernel, variant) = place.trim_end_matches(TIMED).split_once('/').unwrap();
        let file = path.display().to_string();
        let output = command(kernel, variant, &file, shape(kernel));
        let said = said(&output);
        let code = output.status.code();
        if path.file_stem().unwrap() == "honest" {
            honest += 1;
            assert!(matches!(code, Some(0 | 6)), "{said}");
            assert!(!said.contains("wrong"), "{said}");
        } else {
            assert_eq!(code, Some(1), "{file} is not caught: {said}");
            assert!(said.contains("wrong") || said.contains("FAILED"), "{file}: {said}");
        }
    }
    assert_eq!(honest, 1);
}

#[test]
fn check_catches_every_cheat() {
    let check = |kernel: &str, variant: &str, file: &str, _: &str| {
        let place = format!("{kernel}/{variant}");
        lathe(&["check", &place, "--wgsl", file, "--cases", "2", "--fail-fast"])
    };
    all_caught(check);
}

#[test]
fn bench_catches_every_cheat() {
    let bench = |kernel: &str, variant: &str, file: &str, shape: &str| {
        let place = format!("{kernel}/{variant}");
        lathe(&["bench", &place, "--wgsl", file, "--shape", shape, "--overlapped"])
    };
    all_caught(bench);
}

/// Without the check on other shapes and between guard words: what was timed gives them away.
#[test]
fn what_timed_invocations_left_gives_cheats_away() {
    let bench = |kernel: &str, variant: &str, file: &str, shape: &str| {
        // The cheat of one shape is right for this one.
        let shape = if file.contains("one_shape") { "ROWS=64,K=640" } else { shape };
        let place = format!("{kernel}/{variant}");
        lathe(&["bench", &place, "--wgsl", file, "--shape", shape, "--one-shape"])
    };
    all_caught(bench);
}

#[test]
fn ab_catches_every_cheat_on_either_side() {
    for cheat_is_a in [false, true] {
        let ab = |kernel: &str, variant: &str, file: &str, shape: &str| {
            let placed = format!("{variant}={file}");
            let (a, b) = if cheat_is_a { (&*placed, variant) } else { (variant, &*placed) };
            lathe(&[
                "ab",
                kernel,
                "--a",
                a,
                "--b",
                b,
                "--shape",
                shape,
                "--allow-software",
                "--time-out",
                "1",
            ])
        };
        all_caught(ab);
    }
}

/// All files for a place are candidates of one search, which goes on without those that cheat.
#[test]
fn tune_rejects_every_cheat() {
    let Some(_) = common::gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("tuned.json").display().to_string();
    let mut searches: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, place) in files() {
        // What cheats when it is timed alone may come into the proof, and end it.
        let alone = if place.ends_with(TIMED) { path.display().to_string() } else { String::new() };
        searches.entry(format!("{place} {alone}")).or_default().push(path.display().to_string());
    }
    let mut honest = 0;
    for (place, files) in searches {
        let is_timed = place.contains(TIMED);
        let place = place.split([',', ' ']).next().unwrap();
        let (kernel, variant) = place.split_once('/').unwrap();
        let mut args = vec!["tune", place, "--shape", shape(kernel), "--allow-software"];
        args.extend(["--store", &store]);
        let candidates: Vec<_> = files.iter().map(|file| format!("{variant}={file}")).collect();
        args.extend(candidates.iter().flat_map(|candidate| ["--candidate", candidate]));
        let output = lathe(&args);
        let said = said(&output);
        // Where the proof finds what the trials did not, nothing is stored.
        let refused = is_timed && output.status.code() == Some(1) && said.contains("wrong");
        assert!(refused || output.status.code() == Some(0), "{place}: {said}");
        for file in files {
            let rejected = said.contains(&format!("rejected {file}"));
            if file.ends_with("honest.wgsl") {
                honest += 1;
                assert!(!rejected, "{said}");
                continue;
            }
            let stem = Path::new(&file).file_stem().unwrap().to_string_lossy();
            // What is no finalist is not timed as one: what wins is.
            let lost = is_timed && !said.contains(&*stem);
            assert!(refused || lost || rejected, "{file}: {said}");
        }
    }
    assert_eq!(honest, 1);
}

/// A dispatch that is repeated alone has a time where it goes on working.
#[test]
fn a_dispatch_that_idles_alone_has_no_time() {
    let Some(_) = common::gpu() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cheats/alone");
    let file = folder.join("spends_its_input.wgsl").display().to_string();
    let bench = |more: &[&str]| {
        let shape = ["--shape", "N=40000,N_KV=2,PROMPT_LEN=1", "--stages"];
        let output = lathe(&[&["bench", "argmax/two_pass"], &shape[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        said(&output)
    };
    let honest = bench(&[]);
    assert!(honest.contains("each dispatch alone: slices"), "{honest}");
    assert!(!honest.contains("no time"), "{honest}");
    let cheat = bench(&["--wgsl", &file, "--one-shape"]);
    let at = |what: &str| cheat.find(what).unwrap_or_else(|| panic!("no `{what}`: {cheat}"));
    assert!(at("choose no time") > at("slices "), "{cheat}");
    assert!(!cheat.contains("slices no time"), "{cheat}");
}
