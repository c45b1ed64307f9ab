//! Committed pages say what declarations and records say: `docs/kernels/<op>.md`,
//! `benches/records/README.md` and `docs/results.md` are generated again and compared.
//! `LATHE_BLESS=1` rewrites them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lathe_harness::data::record::Record;
use lathe_harness::decode::graph::operations;
use lathe_harness::decode::{Chunks, GraphOptions, Model, Sampling};
use lathe_harness::report::pages::{Measurements, Page, Saved, engines, index, results, stale};

const RECORDS: &str = "benches/records";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file below a folder, as sorted paths from the root.
fn files(folder: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() { folders.push(path) } else { all.push(path) }
        }
    }
    all.sort();
    all
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Hand-written parts by operation: `kernels/ops/…/<op>/page.md`.
fn texts() -> BTreeMap<String, String> {
    let pages = files("kernels/ops").into_iter().filter(|path| path.ends_with("/page.md"));
    pages.map(|path| (path.rsplit('/').nth(1).unwrap().to_owned(), path)).collect()
}

/// All records.
fn measurements() -> Measurements {
    let records = files(RECORDS).into_iter().filter(|path| path.ends_with(".json"));
    let saved = records.map(|path| {
        let file = path.strip_prefix(RECORDS).unwrap().trim_start_matches('/').to_owned();
        Saved { file, record: Record::read(&root().join(&path)).unwrap() }
    });
    Measurements::of(lathe_kernels::kernels(), saved.collect())
}

/// A record by its path below those of all.
fn record(file: &str) -> Result<Record, String> {
    Record::read(&root().join(RECORDS).join(file)).map_err(|e| e.to_string())
}

/// What a step or a chunk of some model may have: the small ones are of every architecture, with
/// dense and with quantised matrices.
fn in_decode() -> BTreeSet<&'static str> {
    let one = GraphOptions::of_step(512);
    let (temperature, top_k, top_p, repeat_penalty, repeat_last_n) = (1.0, 0, 1.0, 1.0, 0);
    let drawn = Sampling { temperature, top_k, top_p, repeat_penalty, repeat_last_n };
    let ways = [
        GraphOptions { chunks: Chunks::with_cache(one.kv), ..one.clone() },
        GraphOptions { sampling: Some(drawn), ..one.clone() },
        GraphOptions { sequences: 2, ..one },
    ];
    let models = files("cli/tests/goldens").into_iter().filter(|path| path.ends_with(".gguf"));
    let models = models.map(|path| Model::open(root().join(path)).unwrap());
    let of = |m: Model| ways.each_ref().map(|way| operations(&m.config, &m.weights, way));
    models.flat_map(of).flatten().collect()
}

/// Every generated file by its path.
fn generated() -> BTreeMap<String, String> {
    let measurements = measurements();
    let (texts, decode) = (texts(), in_decode());
    let mut pages = BTreeMap::new();
    for kernel in lathe_kernels::kernels() {
        let name = kernel.name;
        let text_path = texts.get(name).unwrap_or_else(|| panic!("{name} has no page.md"));
        let text = &read(text_path);
        let in_decode = decode.contains(name);
        let page = Page { kernel, text, text_path, in_decode, measurements: &measurements };
        pages.insert(page.path(), page.markdown());
    }
    let head = format!("{RECORDS}/page.md");
    let kernels = lathe_kernels::kernels();
    let index = index(kernels, &read(&head), &head, &measurements);
    pages.insert(format!("{RECORDS}/README.md"), index);
    let head = format!("{RECORDS}/results.md");
    pages.insert("docs/results.md".into(), results(&read(&head), &head, &mut record).unwrap());
    let head = format!("{RECORDS}/engines.md");
    pages.insert("docs/engines.md".into(), engines(&read(&head), &head, &measurements));
    pages
}

#[test]
fn pages_and_index_are_what_declarations_and_records_say() {
    let bless = std::env::var_os("LATHE_BLESS").is_some();
    let mut wrong = Vec::new();
    for (path, text) in generated() {
        let at = root().join(&path);
        let committed = fs::read_to_string(&at).unwrap_or_default();
        match stale(&path, &committed, &text) {
            Some(_) if bless => fs::write(at, text).unwrap(),
            Some(message) => wrong.push(message),
            None => {}
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// A record of kernels says nothing of whole generations, and a file that is not there is named.
#[test]
fn results_need_records_of_generations() {
    let page = |text: &str| results(text, "results.md", &mut record);
    let kernels = page("{{record: nvidia-h200/2026-11-20-rms_norm.json}}").unwrap_err();
    assert!(
        kernels.contains("2026-11-20-rms_norm.json: a record of bench has no tables"),
        "{kernels}"
    );
    let missing = page("{{record: nvidia-h200/none.json}}").unwrap_err();
    assert!(missing.contains("none.json"), "{missing}");
    assert!(page("no record\n").unwrap().ends_with("\nno record\n"));
}

/// A page of an operation that is gone, or a text without an operation, would never change again.
#[test]
fn every_page_has_its_operation() {
    for (name, path) in texts() {
        assert!(lathe_kernels::kernel(&name).is_some(), "{path}: no operation {name}");
    }
    for path in files("docs/kernels") {
        let name = path.rsplit('/').next().unwrap().trim_end_matches(".md").to_owned();
        assert!(lathe_kernels::kernel(&name).is_some(), "{path}: no operation {name}");
    }
}

/// The figures that a reader meets first are those of the records that their rows link to, each
/// with both sides and verified; the picture has the same.
#[test]
fn the_headline_is_what_its_records_say() {
    let readme = read("README.md");
    let picture = read("docs/decode.svg");
    let mut seen = 0;
    for line in readme.lines().filter(|line| line.starts_with("| [")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [model, ours, theirs, ratio] = cells[..] else { continue };
        let link = model.split(['(', ')']).nth(1).unwrap();
        let record: serde_json::Value = serde_json::from_str(&read(link)).unwrap();
        let test = &record["tests"][0];
        let [a, b] = [test, &test["beside"]].map(|side| side["avg_ts"].as_f64().unwrap());
        let row = [format!("{a:.0}"), format!("{b:.0}"), format!("{:.2}", a / b)];
        assert_eq!([ours, theirs, ratio], row.each_ref().map(String::as_str), "{model}");
        assert!(test["verified"]["positions"].as_u64().unwrap() > 0, "{link}: not verified");
        assert_eq!(record["environment"]["dirty"], false, "{link}");
        for figure in &row[..2] {
            assert!(picture.contains(&format!(">{figure}</text>")), "{model}: {figure}");
        }
        seen += 1;
    }
    assert_eq!(seen, 6);
}

/// The example of a new operation is its files as they are, but for tests.
#[test]
fn the_example_of_an_operation_is_its_files() {
    let page = read("docs/adding-a-kernel.md");
    for file in [
        "reference/src/nll.rs",
        "kernels/ops/nll/naive.wgsl",
        "kernels/ops/nll/mod.rs",
        "harness/device/src/execute/oracle/nll.rs",
    ] {
        let source = read(file);
        let shown = source.split("\n#[cfg(test)]").next().unwrap().trim_end();
        assert!(page.contains(&format!("\n{shown}\n```\n")), "adding-a-kernel.md: {file} differs");
    }
}

/// Pages for people link to what is there, and so do the hand-written parts of generated ones.
#[test]
fn pages_link_to_files_that_exist() {
    let mut pages: Vec<String> = files("docs").into_iter().filter(|f| f.ends_with(".md")).collect();
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned));
    pages.extend(texts().into_values());
    for page in pages {
        let folder = root().join(&page).parent().unwrap().to_path_buf();
        for link in read(&page).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            let elsewhere = file.is_empty() || file.contains("://") || file.contains(' ');
            assert!(elsewhere || folder.join(file).exists(), "{page} links to {link}");
        }
    }
}
