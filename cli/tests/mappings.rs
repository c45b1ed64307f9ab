//! Files of other engines through their mappings: right ones pass the sweep, are timed and compared,
//! wrong ones fail, and faults are named. Those of the folder `foreign` are of the tests alone;
//! those of the folder `mappings` are each over a kernel of our own (`engines/ENGINE`) that has the
//! buffers, the uniforms and the entry points of the engine's and computes the same in the dullest
//! way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lathe_harness::plan::backend_text::generous;
use lathe_harness::plan::select::{parse_hints, select};
use lathe_harness::plan::{Plan, PlanError, Subject};
use lathe_kernels::Capabilities;
use serde::Deserialize;
use serde_json::Value;

use crate::common::{self, Folder, document, json, lathe_in, said, stderr};

/// A mapping and the WGSL that it names.
#[derive(Deserialize)]
struct Files {
    /// Its name, after that of its engine where it has one.
    name: String,
    kernel: String,
    #[serde(default)]
    shape: String,
    /// Changes that make them wrong.
    #[serde(default)]
    wrong: Vec<Change>,
    #[serde(default)]
    fault: Vec<Fault>,
    #[serde(skip)]
    mapping: String,
    #[serde(skip)]
    texts: Vec<(String, String)>,
}

/// Text that is replaced, and its replacement.
type Change = (String, String);

/// A fault because of which there is no plan.
#[derive(Deserialize)]
struct Fault {
    /// Differences from the files' own.
    #[serde(default)]
    shape: String,
    #[serde(default)]
    change: Change,
    /// The exit code of a command.
    code: i32,
    says: Vec<String>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The files of the folder `foreign`.
fn foreign() -> Vec<Files> {
    #[derive(Deserialize)]
    struct Cases {
        case: Vec<Files>,
    }
    let read = |name: &str| fs::read_to_string(folder("foreign").join(name)).unwrap();
    let Cases { mut case } = toml::from_str(&read("cases.toml")).unwrap();
    for files in &mut case {
        files.mapping = read(&format!("{}.toml", files.name));
        files.read(read);
    }
    case
}

fn named(name: &str) -> Files {
    foreign().into_iter().find(|files| files.name == name).unwrap()
}

impl Files {
    /// Reads the texts that the mapping names.
    fn read(&mut self, read: impl Fn(&str) -> String) {
        let table: toml::Table = toml::from_str(&self.mapping).unwrap();
        let stages = table.get("stage").and_then(|stages| stages.as_array()).into_iter().flatten();
        let files = table.get("file").into_iter().chain(stages.filter_map(|s| s.get("file")));
        let names = files.map(|file| file.as_str().unwrap().to_owned());
        self.texts = names.map(|name| (name.clone(), read(&name))).collect();
    }

    /// Returns true if the adapter can run them.
    fn run_here(&self) -> bool {
        let needs_f16 = self.texts.iter().any(|(_, text)| text.contains("enable f16;"));
        common::gpu().is_some_and(|gpu| gpu.caps.f16 || !needs_f16)
    }

    /// The files in a folder, after a change to each that it concerns.
    fn folder(&self, (from, to): &Change) -> Folder {
        let folder = Folder::new();
        let mut found = false;
        let mapping = [("theirs.toml".to_owned(), self.mapping.clone())];
        for (name, text) in self.texts.iter().chain(&mapping) {
            found |= text.contains(from);
            let text = if from.is_empty() { text.clone() } else { text.replacen(from, to, 1) };
            folder.write(name, text);
        }
        assert!(found, "{}: no `{from}`", self.name);
        folder
    }

    fn lathe(&self, args: &[&str]) -> Output {
        let folder = self.folder(&Change::default());
        lathe_in(&folder, args)
    }

    /// `lathe check` of the files after a change.
    fn check(&self, change: &Change, args: &[&str]) -> Output {
        let check = ["check", &self.kernel, "--mapping", "theirs.toml"];
        let folder = self.folder(change);
        lathe_in(&folder, &[&check[..], args].concat())
    }

    fn plan(&self, change: &Change, shape: &str) -> Result<Plan, PlanError> {
        let folder = self.folder(change);
        let kernel = lathe_kernels::kernel(&self.kernel).unwrap();
        let problem = common::problem(kernel, &self.shape);
        let problem = kernel.parse_over(&problem, shape).unwrap();
        let subject = Subject::compile(&folder.join("theirs.toml"), kernel, &kernel.variants[0]);
        subject?.plan(&problem, &generous())
    }

    /// Right as they are, and wrong after each of their changes.
    fn hold(&self, cases: &str) {
        if !self.run_here() {
            return;
        }
        let output = self.check(&Change::default(), &["--cases", cases]);
        // Some take nothing on an adapter with wide subgroups, or with none.
        let subgroup = common::gpu().unwrap().caps.subgroup;
        let is_wide = subgroup.is_none_or(|(_, most)| most > 32);
        if is_wide && output.status.code() == Some(3) && self.mapping.contains("adapter.") {
            return;
        }
        let passed = said(&output).contains(", 0 failed, 0 unavailable");
        assert!(passed && output.status.success(), "{}: {}", self.name, said(&output));
        for change in &self.wrong {
            let output = self.check(change, &["--cases", cases, "--fail-fast"]);
            assert_eq!(output.status.code(), Some(1), "{}: {change:?}", self.name);
        }
    }
}

#[test]
fn right_files_pass_the_sweep_and_wrong_ones_fail() {
    foreign().iter().filter(|files| !files.wrong.is_empty()).for_each(|files| files.hold("4"));
}

/// Outputs are judged after they are timed: cold and warm, and against a variant or another file
/// over the same inputs.
#[test]
fn files_are_timed_and_compared() {
    let is_timed = |files: &Files| !files.wrong.is_empty() && files.name != "state";
    let all = foreign().into_iter().filter(|files| is_timed(files) && files.run_here());
    for (i, files) in all.enumerate() {
        let shape = ["--shape", &files.shape, "--json"];
        let bench = ["bench", &files.kernel, "--wgsl", "theirs.toml"];
        let case = document(&files.lathe(&[&bench[..], &shape].concat()))["cases"][0].clone();
        assert!(case["warm"]["median_us"].as_f64().unwrap() > 0.0, "{case}");
        // A file is A and B in turns.
        let mut sides = ["naive", "theirs.toml"];
        sides.rotate_left(i % 2);
        let ab = ["ab", &files.kernel, "--a", sides[0], "--b", sides[1], "--allow-software"];
        let output = files.lathe(&[&ab[..], &["--time-out", "1"], &shape].concat());
        assert!(matches!(output.status.code(), Some(0 | 6)), "{}: {}", files.name, stderr(&output));
        let report = json(&output);
        for side in ["a_side", "b_side"] {
            assert!(report[side]["nmse"].as_f64().unwrap() < 1e-6, "{report}");
        }
        let theirs = if i % 2 == 0 { "b_side" } else { "a_side" };
        let text = report[theirs]["wgsl"].as_str().unwrap();
        for (name, own) in &files.texts {
            assert!(text.contains(own.lines().nth(1).unwrap()), "{name}: {report}");
        }
    }
}

/// Planning alone, which needs no device, finds every fault.
#[test]
fn faults_are_said_with_what_they_concern() {
    for files in foreign() {
        for Fault { shape, change, code, says } in &files.fault {
            let error = files.plan(change, shape).map(|_| ()).expect_err(&files.name);
            let (own, said) = (exit_code(&error), error.to_string());
            assert_eq!(own, *code, "{}: {change:?}: {said}", files.name);
            for words in says {
                assert!(said.contains(words), "{}: {change:?}: {words}: {said}", files.name);
            }
        }
    }
}

/// The exit code of `lathe check` where no case can be planned.
fn exit_code(error: &PlanError) -> i32 {
    match error {
        PlanError::Shape(_) => 1,
        PlanError::Reflect(_) => 2,
        PlanError::Unavailable(_) => 3,
    }
}

/// The sweep draws positions before and after a ring is full, and a condition on the state is met by
/// states up to its end, not by the first alone.
#[test]
fn the_state_of_a_sequence_is_a_name_where_a_problem_has_one() {
    let files = named("state");
    if !files.run_here() {
        return;
    }
    let states = |from: &str, to: &str| -> Vec<(usize, usize)> {
        let change = (from.to_owned(), to.to_owned());
        let report = document(&files.check(&change, &["--json", "--cases", "12"]));
        let cases = report["cases"].as_array().unwrap().iter().map(|case| {
            let shape = case["shape"].as_str().unwrap();
            let value = |name: &str| {
                let rest = shape.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
                rest.parse().unwrap()
            };
            (value("N_KV="), value("KV_SIZE="))
        });
        cases.collect()
    };
    let sizes = states("", "");
    assert!(sizes.iter().any(|(seen, size)| seen < size), "{sizes:?}");
    assert!(sizes.iter().any(|(seen, size)| seen > size), "{sizes:?}");
    let met = states("[takes]", "[takes]\nwhen = \"N_KV <= 40\"");
    let met: BTreeSet<_> = met.into_iter().map(|(seen, _)| seen).collect();
    assert!(met.last() == Some(&40) && met.len() > 4, "{met:?}");
}

/// The weights of a whole step are other operations' too.
#[test]
fn whole_steps_refuse_layouts() {
    let folder = named("columns").folder(&Change::default());
    let hints = parse_hints(&[format!("gemv={}", folder.path("theirs.toml"))]).unwrap();
    let kernel = lathe_kernels::kernel("gemv").unwrap();
    let problem = common::problem(kernel, "WEIGHT=f32,ROWS=64,K=64");
    let refused = select(kernel, &problem.shape, &Capabilities::minimal(), &hints, None);
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("its mapping lays weights or caches out"), "{refused}");
}

/// The files of each folder in a folder.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let all = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        all(folder).filter(|path| path.is_dir()).flat_map(|path| all(&path)).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// Returns the kernel that stands for a text, and its file: named as the text, or as the beginning
/// of its name, in which `{}` then stands for the rest.
fn look_alike(engine: &str, name: &str) -> (PathBuf, String) {
    let folder = folder("engines").join(engine);
    let stem = name.strip_suffix(".wgsl").unwrap();
    let ends = stem.rmatch_indices('_').map(|(at, _)| (&stem[..at], &stem[at + 1..]));
    for (begin, rest) in [(stem, "")].into_iter().chain(ends) {
        let path = folder.join(format!("{begin}.wgsl"));
        if let Ok(text) = fs::read_to_string(&path) {
            let text = with_parts(text.replace("{}", rest), &folder.join("parts"));
            // Directives stand before all else.
            let (enable, rest): (Vec<_>, Vec<_>) =
                text.lines().partition(|line| line.starts_with("enable "));
            return (path, [enable, rest].concat().join("\n") + "\n");
        }
    }
    panic!("{engine}/{name}: no kernel in its place");
}

/// A text with the parts that its line `// with NAME, NAME` asks for, and theirs.
fn with_parts(mut text: String, parts: &Path) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("// with ")).unwrap_or_default();
    let names: Vec<_> = line.split(", ").filter(|name| !name.is_empty()).collect();
    let read = |name: &&str| {
        let path = parts.join(format!("{name}.wgsl"));
        let part = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        with_parts(part, parts)
    };
    let more: String = names.iter().map(read).collect();
    text.push_str(&more);
    text
}

fn templates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../mappings")
}

/// The mappings of a template: one for each value of the lists in its sections `[[for]]`. The first
/// has the change that makes it wrong.
fn of_template(path: &Path, wrong: &Change) -> Vec<Files> {
    type Row = serde_json::Map<String, Value>;
    let whole = fs::read_to_string(path).unwrap();
    let engine = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let (text, rows) = whole.split_once("\n[[for]]").unwrap_or((&whole, "\n"));
    let rows = rows.split("\n[[for]]").map(|row| toml::from_str::<Row>(row).unwrap());
    let mut all = Vec::new();
    for row in rows {
        let count = row.values().filter_map(|v| v.as_array()).map(Vec::len).max().unwrap_or(1);
        for i in 0..count {
            let mut mapping = text.to_owned();
            for (key, value) in &row {
                let value = value.as_array().map_or(value, |list| &list[i]);
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                mapping = mapping.replace(&format!("{{{key}}}"), &value);
            }
            // The first line is `# lathe check KERNEL --mapping NAME.toml`.
            let words: Vec<_> = mapping.lines().next().unwrap().split(' ').collect();
            let ["#", "lathe", "check", kernel, "--mapping", name] = words[..] else {
                panic!("{}: {words:?}", path.display())
            };
            let name = format!("{engine}/{}", name.strip_suffix(".toml").unwrap());
            let (kernel, shape) = (kernel.to_owned(), String::new());
            let wrong = if all.is_empty() { vec![wrong.clone()] } else { Vec::new() };
            let (fault, texts) = (Vec::new(), Vec::new());
            let mut files = Files { name, kernel, shape, wrong, fault, mapping, texts };
            files.read(|name| look_alike(&engine, name).1);
            all.push(files);
        }
    }
    all
}

/// All mappings of the folder `mappings`. Every template has a change that makes it wrong.
fn mappings() -> Vec<Files> {
    let wrong = fs::read_to_string(folder("engines/wrong.toml")).unwrap();
    let mut wrong: BTreeMap<String, Change> = toml::from_str(&wrong).unwrap();
    let templates = inside(&templates());
    let all = templates.iter().flat_map(|path| {
        let name = path.with_extension("");
        let parts = name.iter().rev().take(2).map(|part| part.to_str().unwrap());
        let [name, engine] = parts.collect::<Vec<_>>()[..] else { unreachable!() };
        let change = wrong.remove(&format!("{engine}/{name}"));
        of_template(path, &change.unwrap_or_else(|| panic!("no change of {engine}/{name}")))
    });
    let all = all.collect();
    assert!(wrong.is_empty(), "no templates: {wrong:?}");
    all
}

/// Every mapping names kernels and bindings that are there, at every case that it takes.
#[test]
fn every_mapping_makes_plans() {
    let (mut used, mut names) = (BTreeSet::new(), BTreeSet::new());
    let caps = generous();
    for files in mappings() {
        assert!(names.insert(files.name.clone()), "{} twice", files.name);
        let (engine, _) = files.name.split_once('/').unwrap();
        used.extend(files.texts.iter().map(|(name, _)| look_alike(engine, name).0));
        let folder = files.folder(&Change::default());
        let kernel = lathe_kernels::kernel(&files.kernel).unwrap();
        let path = folder.join("theirs.toml");
        let subject = Subject::compile(&path, kernel, &kernel.variants[0]).unwrap();
        let cases = kernel.cases().into_iter().filter_map(|p| subject.within(p, &caps, &mut |_| 0));
        let mut planned = 0;
        for problem in cases {
            match subject.plan(&problem, &caps) {
                Ok(_) => planned += 1,
                Err(PlanError::Unavailable(_)) => {}
                Err(e) => panic!("{} {}: {e}", files.name, kernel.show(&problem)),
            }
        }
        assert!(planned > 0, "{} takes no case", files.name);
    }
    assert_eq!(names.len(), 68);
    assert_eq!(used, inside(&folder("engines")).into_iter().collect());
}

/// The first mapping of each template is right, and wrong with a change to it.
#[test]
fn mappings_pass_the_sweep_and_wrong_ones_fail() {
    mappings().iter().filter(|files| !files.wrong.is_empty()).for_each(|files| files.hold("2"));
}

/// `mappings/instantiate.py` makes the same mappings of the templates as are tried here.
#[test]
fn the_script_makes_the_mappings_that_are_tried() {
    let python = std::env::var("LATHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let folder = tempfile::tempdir().unwrap();
    let mut script = Command::new(&python);
    script.arg(templates().join("instantiate.py")).arg("mappings").arg(folder.path());
    let Ok(output) = script.output() else {
        eprintln!("UNAVAILABLE, not tested: needs {python}");
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
    let made = inside(folder.path());
    assert_eq!(made.len(), mappings().len());
    for Files { name, mapping, .. } in mappings() {
        let path = folder.path().join(format!("{name}.toml"));
        assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), mapping.trim_end(), "{path:?}");
    }
}

/// `mappings/compare.py` leaves a record of a mapping without the engine's text, skips a record
/// that is there, and ends a measurement beyond its limit with all its processes.
#[test]
fn the_script_that_compares_keeps_records_without_their_text() {
    let python = std::env::var("LATHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_python = Command::new(&python).arg("--version").output();
    // The script ends whole groups of processes, as Unix has them.
    if common::gpu().is_none() || cfg!(windows) || !has_python.is_ok_and(|o| o.status.success()) {
        eprintln!("UNAVAILABLE, not tested: needs {python} on Unix and an adapter");
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    fs::create_dir_all(path("out/wgml")).unwrap();
    for name in ["rms_norm.wgsl", "rms_norm.toml"] {
        let from = if name.ends_with("toml") { templates() } else { folder("engines") };
        fs::copy(from.join("wgml").join(name), path("out/wgml").join(name)).unwrap();
    }
    let compare = |records: &str, limit: &str| {
        let output = Command::new(&python)
            .arg(templates().join("compare.py"))
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
