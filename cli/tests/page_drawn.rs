//! The HTML page as a browser draws it: committed records in Chromium, at the width of a desktop
//! and of a telephone, light and dark. Nothing may reach over the page's edge, be empty, lie over
//! something else or be too small or too pale to read. `page_drawn.js` looks.
//!
//! Where no Chromium is installed these tests say so and pass; LATHE_CHROMIUM names one that is not
//! on the path.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use lathe_harness::data::record::Record;
use lathe_harness::report::html::render;

/// A Chromium, or `None` after saying that there is none.
fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LATHE_CHROMIUM") {
        return Some(named.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!("skipped: no Chromium on the path ({}), so nothing draws", names.join(", "));
    }
    found
}

fn records(names: &[&str]) -> Vec<(String, Record)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records");
    let read = |name: &&str| {
        let file = format!("{name}.json");
        let record = Record::read(&folder.join(&file)).unwrap();
        (file, record)
    };
    names.iter().map(read).collect()
}

/// What a browser finds wrong with pages drawn at these widths, and what it drew.
fn drawn(chromium: &Path, pages: &[(&str, String)], dark: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    // Nothing in a script may look like its end.
    let pages = serde_json::to_string(pages).unwrap().replace("</", "<\\/");
    let script = include_str!("page_drawn.js");
    let html = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body><script>const WIDTHS = [1280, 400];\n\
         const PAGES = {pages};\n{script}</script></body>"
    );
    let file = folder.path().join("drawn.html");
    std::fs::write(&file, html).unwrap();
    let output = Command::new(chromium)
        // A sandbox needs privileges that containers lack; the page is our own.
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"])
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<String> = dom
        .lines()
        .map(|line| line.rsplit_once("<pre>").map_or(line, |(_, rest)| rest))
        .map(|line| line.split("</pre>").next().unwrap_or_default())
        .filter(|line| line.starts_with("FOUND ") || line.starts_with("DRAWN "))
        .map(str::to_owned)
        .collect();
    let way = if dark { "dark" } else { "light" };
    let all = format!("DRAWN 1280 {way}, 400 {way}");
    let shown: String = dom.chars().take(2000).collect();
    assert_eq!(lines.last(), Some(&all), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    lines
}

#[test]
fn pages_of_committed_records_are_readable_wide_and_narrow_light_and_dark() {
    let Some(chromium) = chromium() else { return };
    let all = [
        "2026-11-22-profile-llama3.2-1b-bf16",
        "2026-11-22-ladder-gemv_q",
        "2026-11-27-aa-gemv",
        "2026-11-27-aa-rms_norm",
        "2026-11-23-few-tokens",
        "2026-11-23-suite-4bit",
    ];
    let mut pages = vec![("many records", render(&records(&all)))];
    pages.extend(all[..5].iter().map(|name| (*name, render(&records(&[name])))));
    let mut found = Vec::new();
    for dark in [false, true] {
        found.extend(drawn(&chromium, &pages, dark));
    }
    found.retain(|line| line.starts_with("FOUND "));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_is_wrong_with_a_page_is_found() {
    let Some(chromium) = chromium() else { return };
    let page = "<!DOCTYPE html><html><body style=\"background:#fff\">\
        <p style=\"width:900px\">wide</p><p style=\"color:#ccc\">pale</p><p></p>\
        <figure><h3>lonely</h3></figure><dl><dd>– GB/s</dd></dl>\
        <table><thead><tr><th>a</th><th>void</th></tr></thead>\
        <tbody><tr><th>x</th><td>–</td></tr></tbody></table>\
        <svg viewBox=\"0 0 1000 20\" width=\"100\"><text x=\"0\" y=\"15\">one</text>\
        <text x=\"2\" y=\"15\">two</text></svg></body></html>";
    let found = drawn(&chromium, &[("bad", page.to_owned())], false).join("\n");
    for what in [
        "the page is",
        "reaches to",
        "contrast 1.6",
        "empty: ",
        "nothing below",
        "no value",
        "a column of nothing, void",
        "over each other",
        "letters of 1.",
    ] {
        assert!(found.contains(what), "{what} in\n{found}");
    }
}
