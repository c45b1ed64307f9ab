//! `lathe validate` against compilers: of browsers, Direct3D and Khronos. They run where this
//! machine has them: `LATHE_WEBGPU` names the folder of the npm package `webgpu`, `LATHE_DXC` DXC's
//! library; `spirv-val` is looked for on the path.

use std::process::Command;

use lathe_harness::plan::compilers::Browser;
use serde_json::Value;

use crate::common::{Folder, document, ended, json, lathe, lathe_in};

/// Verdicts of Tint, recorded.
const SNIPPETS: &str = include_str!("../../kernels/tests/uniformity.txt");

/// Verdict, name and text of each snippet.
fn snippets() -> Vec<(String, String, String)> {
    let parts = SNIPPETS.split("\n#### ").skip(1).filter_map(|part| part.split_once('\n'));
    let mut parts: Vec<_> = parts.collect();
    let (_, declarations) = parts.pop().unwrap();
    let snippet = |(title, text): (&str, &str)| {
        let (verdict, name) = title.split_once(": ").unwrap();
        (verdict.to_owned(), name.to_owned(), format!("{text}\n{declarations}"))
    };
    parts.into_iter().map(snippet).collect()
}

fn unavailable(what: &str) {
    eprintln!("UNAVAILABLE, not tested: {what}");
}

#[test]
fn files_get_the_verdict_of_tint() {
    let folder = Folder::new();
    for (verdict, name, text) in snippets() {
        // naga refuses what Tint takes, and so do wgpu and Firefox.
        let is_refused = text.contains("ptr<workgroup");
        // naga needs no directive.
        folder.write("mine.wgsl", text);
        let output = lathe_in(&folder, &["validate", "mine.wgsl", "--json"]);
        if is_refused {
            let errors = ended(&output, 2);
            assert!(errors.contains("points to workgroup memory"), "{name}: {errors}");
            continue;
        }
        let (code, found) = match verdict.strip_prefix("refused ") {
            None => (0, String::new()),
            Some(line) => (1, format!("mine.wgsl:{line}")),
        };
        ended(&output, code);
        let violations = json(&output)["violations"].as_array().unwrap().clone();
        let places: Vec<_> = violations.iter().map(|v| v["place"].as_str().unwrap()).collect();
        assert_eq!(places.join(" "), found, "{name}");
    }
}

/// True if Node is here and the program that answers with this version.
fn has(program: &str) -> bool {
    let ran = |program: &str| Command::new(program).arg("--version").output().is_ok();
    ran("node") && ran(program)
}

fn has_chromium() -> bool {
    let named = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
    has(&named)
}

fn verdicts_are_those_of(browser: Browser) {
    let all = snippets();
    let texts: Vec<_> = all.iter().map(|(_, _, text)| text.as_str()).collect();
    let said = browser.ask(&texts).unwrap();
    let mut compiled = 0;
    for ((verdict, name, _), messages) in all.iter().zip(said) {
        if messages.iter().any(|m| m.kind == "unavailable") {
            continue;
        }
        compiled += 1;
        let errors: Vec<_> = messages.iter().filter(|m| m.kind == "error").collect();
        let own = match errors.as_slice() {
            [] => "accepted".to_owned(),
            [first, ..] => format!("refused {}", first.line),
        };
        assert_eq!(own, *verdict, "{name}: {errors:?}");
    }
    assert!(compiled > 100, "{compiled}");
}

#[test]
fn recorded_verdicts_are_those_of_tint() {
    match std::env::var_os("LATHE_WEBGPU") {
        Some(_) => verdicts_are_those_of(Browser::package().unwrap()),
        None => unavailable("LATHE_WEBGPU names no npm package webgpu"),
    }
}

#[test]
fn recorded_verdicts_are_those_of_chromium() {
    match has_chromium() {
        true => verdicts_are_those_of(Browser::chromium().unwrap()),
        false => unavailable("node or Chromium is not here"),
    }
}

/// A file's error has the line and the column of the file.
#[test]
fn browsers_name_the_place() {
    let folder = Folder::new();
    // naga needs no directive.
    folder.write(
        "mine.wgsl",
        "@compute @workgroup_size(32)\nfn main() {\n  let sum = subgroupAdd(1u);\n}\n",
    );
    folder.write("good.wgsl", "@compute @workgroup_size(1)\nfn main() {\n}\n");
    let all = [
        ("--browser=chromium", has_chromium()),
        ("--browser", has("node") && std::env::var_os("LATHE_WEBGPU").is_some()),
    ];
    for (browser, is_here) in all {
        if !is_here {
            unavailable(browser);
            continue;
        }
        ended(&lathe_in(&folder, &["validate", "good.wgsl", browser]), 0);
        let output = lathe_in(&folder, &["validate", "mine.wgsl", browser, "--json"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &ended(&output, 1);
        assert!(text.contains("mine.wgsl:3:13: "), "{text}");
    }
}

/// Every stage of every variant is taken, but for those that are no text of the compiler's.
fn takes_all(args: &[&str], compiler: &str, least: usize) {
    let document = document(&lathe(&[&["validate", "--json"], args].concat()));
    assert_eq!(document["failed"], 0, "{document}");
    let rows = document["rows"].as_array().unwrap();
    let told = rows.iter().flat_map(|row| row["compilers"].as_array().unwrap());
    let told: Vec<&Value> = told.filter(|told| told["compiler"] == compiler).collect();
    let taken = told.iter().filter(|told| told["takes"] == true).count();
    assert!(taken >= least, "{taken} of {}", told.len());
    let others = told.iter().filter(|told| told["takes"] != true);
    for told in others {
        assert!(told["message"].as_str().unwrap().contains("atri"), "{told}");
    }
}

#[test]
fn dxc_takes_every_stage() {
    match std::env::var("LATHE_DXC") {
        Ok(library) => takes_all(&["--dxc", &library], "DXC", 172),
        Err(_) => unavailable("LATHE_DXC names no library of DXC"),
    }
}

#[test]
fn spirv_val_takes_every_stage() {
    match Command::new("spirv-val").arg("--version").output() {
        Ok(_) => takes_all(&["--spirv-val"], "spirv-val", 171),
        Err(_) => unavailable("spirv-val is not installed"),
    }
}

#[test]
fn tint_takes_every_stage() {
    match std::env::var_os("LATHE_WEBGPU") {
        Some(_) => takes_all(&["--browser"], "Tint", 159),
        None => unavailable("LATHE_WEBGPU names no npm package webgpu"),
    }
}
