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

#[test]
fn recorded_verdicts_are_those_of_tint() {
    if std::env::var_os("LATHE_WEBGPU").is_none() {
        return unavailable("LATHE_WEBGPU names no npm package webgpu");
    }
    let all = snippets();
    let texts: Vec<_> = all.iter().map(|(_, _, text)| text.as_str()).collect();
    let said = Browser::find().unwrap().ask(&texts).unwrap();
    for ((verdict, name, _), messages) in all.iter().zip(said) {
        let errors: Vec<_> = messages.iter().filter(|m| m.kind == "error").collect();
        let own = match errors.as_slice() {
            [] => "accepted".to_owned(),
            [first, ..] => format!("refused {}", first.line),
        };
        assert_eq!(own, *verdict, "{name}: {errors:?}");
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
