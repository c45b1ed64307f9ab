//! The mappings of the folder `mappings`, each over a kernel of our own (`engines/ENGINE`) that has
//! the buffers, the uniforms and the entry points of the engine's and computes the same in the
//! dullest way. What makes a mapping wrong is said in the kernel's first lines.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{self, Folder, printed, said};

/// A mapping, and what of it makes it wrong when it is changed.
struct Case {
    engine: String,
    /// Its name in the engine's folder, without an ending.
    name: String,
    kernel: String,
    text: String,
    from: String,
    to: String,
}

fn mappings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../mappings")
}

fn look_alikes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines")
}

/// The files of each folder in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let inside = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        inside(folder).filter(|path| path.is_dir()).flat_map(|path| inside(&path)).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// A kernel with the texts of the engine's folder `parts` that its line `// with NAME, NAME` asks
/// for.
fn whole(path: &Path) -> String {
    let mut text = fs::read_to_string(path).unwrap();
    let names = text.lines().find_map(|line| line.strip_prefix("// with ")).unwrap_or_default();
    let names: Vec<_> =
        names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    for name in names {
        let part = path.with_file_name("parts").join(format!("{name}.wgsl"));
        text.push_str(&fs::read_to_string(&part).unwrap_or_else(|e| panic!("{part:?}: {e}")));
    }
    // Directives stand before all else.
    let (enable, rest): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with("enable "));
    [enable, rest].concat().join("\n") + "\n"
}

fn named(path: &Path) -> (String, String) {
    let engine = path.parent().unwrap().file_name().unwrap().to_string_lossy();
    (engine.into_owned(), path.file_stem().unwrap().to_string_lossy().into_owned())
}

/// Lines `// wrong MAPPING: FROM => TO` of the kernels, by engine and mapping.
fn changes() -> BTreeMap<(String, String), (String, String)> {
    let mut changes = BTreeMap::new();
    for path in files(&look_alikes()) {
        let (engine, _) = named(&path);
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().map_while(|line| line.strip_prefix("// wrong ")) {
            let (name, change) = line.split_once(": ").unwrap();
            let (from, to) = change.split_once(" =>").unwrap();
            let change = [from, to.trim_start()].map(|part| part.replace("\\n", "\n"));
            let [from, to] = change;
            let before = changes.insert((engine.clone(), name.to_owned()), (from, to));
            assert!(before.is_none(), "{engine}/{name}: two changes");
        }
    }
    changes
}

fn cases() -> Vec<Case> {
    let mut changes = changes();
    let case = |path: &PathBuf| {
        let (engine, name) = named(path);
        let text = fs::read_to_string(path).unwrap();
        let first = text.lines().next().unwrap();
        let kernel = first.strip_prefix("# lathe check ").and_then(|rest| rest.split_once(' '));
        let (kernel, rest) = kernel.unwrap_or_else(|| panic!("{engine}/{name}: {first}"));
        assert_eq!(rest, format!("--mapping {name}.toml"), "{engine}/{name}");
        let (kernel, key) = (kernel.to_owned(), (engine.clone(), name.clone()));
        let (from, to) = changes.remove(&key).unwrap_or_else(|| panic!("{key:?}: nothing wrong"));
        assert!(text.contains(&from), "{engine}/{name}: {from}");
        Case { engine, name, kernel, text, from, to }
    };
    let cases = files(&mappings()).iter().map(case).collect();
    assert!(changes.is_empty(), "no mapping: {:?}", changes.keys());
    cases
}

fn check(case: &Case, mapping: &str, options: &[&str]) -> Output {
    let folder = Folder::new();
    for path in files(&look_alikes()).iter().filter(|path| named(path).0 == case.engine) {
        folder.write(&path.file_name().unwrap().to_string_lossy(), whole(path));
    }
    folder.write("theirs.toml", mapping);
    let check = ["check", &case.kernel, "--mapping", "theirs.toml", "--cases", "2"];
    common::lathe_in(&folder, &[&check[..], options].concat())
}

/// The texts that a mapping names.
fn texts(mapping: &str) -> Vec<String> {
    let table: toml::Table = toml::from_str(mapping).unwrap();
    let own = table.get("file").into_iter();
    let stages = table.get("stage").and_then(|stages| stages.as_array()).into_iter().flatten();
    own.chain(stages.filter_map(|stage| stage.get("file")))
        .map(|file| file.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_mapping_is_tried() {
    let (mut used, mut there) = (BTreeSet::new(), BTreeSet::new());
    for case in cases() {
        let texts = texts(&case.text);
        assert!(!texts.is_empty(), "{}/{}", case.engine, case.name);
        used.extend(texts.into_iter().map(|text| (case.engine.clone(), text)));
    }
    for path in files(&look_alikes()) {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        there.insert((named(&path).0, file));
    }
    assert_eq!(used, there);
}

#[test]
fn mappings_pass_the_sweep_and_wrong_ones_fail() {
    let Some(gpu) = common::gpu() else { return };
    for case in common::share(&gpu, 12, 0, cases()) {
        let shown = format!("{}/{}", case.engine, case.name);
        let needs_f16 = texts(&case.text).iter().any(|text| {
            let path = look_alikes().join(&case.engine).join(text);
            whole(&path).contains("enable f16;")
        });
        if needs_f16 && !gpu.caps.f16 {
            continue;
        }
        let output = check(&case, &case.text, &[]);
        // Some take nothing on an adapter with wide subgroups, or with none.
        let is_wide = gpu.caps.subgroup.is_none_or(|(_, most)| most > 32);
        if is_wide && output.status.code() == Some(3) && case.text.contains("adapter.") {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{shown}: {}", said(&output));
        assert!(printed(&output).contains(", 0 failed, 0 unavailable"), "{shown}");
        let output = check(&case, &case.text.replace(&case.from, &case.to), &["--fail-fast"]);
        assert_eq!(output.status.code(), Some(1), "{shown}: {}", case.to);
    }
}

/// `mappings/compare.py` leaves a record of a mapping without the engine's text, skips one that is
/// there, and ends what takes longer than its limit, with every process that measures.
#[test]
fn the_script_that_compares_keeps_records_without_their_text() {
    let python = std::env::var("LATHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_python = Command::new(&python).arg("--version").output();
    // The script ends whole groups of processes, as Unix has them.
    if common::gpu().is_none() || cfg!(windows) || !has_python.is_ok_and(|o| o.status.success()) {
        eprintln!("UNAVAILABLE, not tested: needs {python} on Unix and an adapter");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("out/wgml")).unwrap();
    for file in ["rms_norm.wgsl", "rms_norm.toml"] {
        let from = if file.ends_with("toml") { mappings() } else { look_alikes() };
        fs::copy(from.join("wgml").join(file), path("out/wgml").join(file)).unwrap();
    }
    let compare = |records: &str, limit: &str| {
        let output = Command::new(&python)
            .arg(mappings().join("compare.py"))
            .args([path("out"), path(records)])
            .args(["--limit", limit, "--allow-software", "--time-out", "2"])
            .env("LATHE", env!("CARGO_BIN_EXE_lathe"))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = compare("records", "300");
    assert_eq!(code, Some(0), "{said}");
    let records: Vec<_> = fs::read_dir(path("records")).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(records.len(), 1, "{said}");
    let record = records[0].path();
    let name = record.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.ends_with("-engine-wgml.rms_norm.json"), "{name}");
    let read = || -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap()
    };
    let first = read();
    assert!(first["b_side"]["wgsl"].is_null(), "{first}");
    assert!(first["b_side"]["source"].is_string() && first["kernel"] == "rms_norm", "{first}");
    let command = first["environment"]["command"].as_str().unwrap();
    assert!(command.starts_with("lathe ab rms_norm --a selected --b rms_norm.toml"), "{command}");
    assert!(
        command.ends_with(&format!("--save {name} --allow-software --time-out 2")),
        "{command}"
    );
    // One that was interrupted before the text was taken out.
    let mut with_text = first.clone();
    with_text["b_side"]["wgsl"] = "theirs".into();
    fs::write(&record, with_text.to_string()).unwrap();
    let (code, said) = compare("records", "300");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(read(), first, "it was measured again, or kept the text");
    let (code, said) = compare("others", "0.05");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no record of wgml/rms_norm (longer than 0 s)"), "{said}");
    assert_eq!(fs::read_dir(path("others")).unwrap().count(), 0);
}
