//! Files of other engines through their mappings, those of the folder `foreign`: right ones pass
//! the sweep, are timed and compared, wrong ones fail, and faults are named.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use lathe_harness::plan::backend_text::generous;
use lathe_harness::plan::select::{Hint, Hints, select};
use lathe_harness::plan::{Plan, PlanError, Subject};
use lathe_kernels::Capabilities;
use serde::Deserialize;

use crate::common::{
    self, Folder, assert_ends, code, document, ended, golden_name, json, lathe_in, printed, stderr,
};

/// A mapping of the folder, and the WGSL that it names.
#[derive(Deserialize)]
struct Files {
    name: String,
    kernel: String,
    shape: String,
    /// Changes that make them wrong.
    wrong: Vec<Change>,
    #[serde(default)]
    fault: Vec<Fault>,
    #[serde(skip)]
    mapping: String,
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

fn foreign() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign")
}

fn read(name: &str) -> String {
    fs::read_to_string(foreign().join(name)).unwrap()
}

fn all() -> Vec<Files> {
    #[derive(Deserialize)]
    struct Cases {
        case: Vec<Files>,
    }
    let Cases { mut case } = toml::from_str(&read("cases.toml")).unwrap();
    for files in &mut case {
        files.mapping = read(&format!("{}.toml", files.name));
    }
    case
}

fn named(name: &str) -> Files {
    all().into_iter().find(|files| files.name == name).unwrap()
}

/// The files that this adapter can run, where there is one.
fn here() -> Vec<Files> {
    let Some(gpu) = common::gpu() else { return Vec::new() };
    let runs = |files: &Files| gpu.caps.f16 || files.name != "theirs";
    all().into_iter().filter(runs).collect()
}

/// The file of this name, if the adapter can run it.
fn here_named(name: &str) -> Option<Files> {
    here().into_iter().find(|files| files.name == name)
}

impl Files {
    /// WGSL that the mapping names, with its names.
    fn texts(&self) -> Vec<(String, String)> {
        let names = self.mapping.lines().filter_map(|line| line.strip_prefix("file = \""));
        let names = names.map(|name| name.strip_suffix('"').unwrap());
        names.map(|name| (name.to_owned(), read(name))).collect()
    }

    /// The files in a folder, after a change to each that it concerns.
    fn folder(&self, from: &str, to: &str) -> Folder {
        let folder = Folder::new();
        let mut found = false;
        for (name, text) in
            self.texts().into_iter().chain([("theirs.toml".into(), self.mapping.clone())])
        {
            found |= text.contains(from);
            folder.write(&name, if from.is_empty() { text } else { text.replacen(from, to, 1) });
        }
        assert!(found, "{}: no `{from}`", self.name);
        folder
    }

    fn changed(&self, from: &str, to: &str, args: &[&str]) -> Output {
        let folder = self.folder(from, to);
        lathe_in(&folder, args)
    }

    fn lathe(&self, args: &[&str]) -> Output {
        self.changed("", "", args)
    }

    /// `lathe check` of the files after a change.
    fn check(&self, from: &str, to: &str, args: &[&str]) -> Output {
        let check = ["check", &self.kernel, "--mapping", "theirs.toml"];
        self.changed(from, to, &[&check[..], args].concat())
    }

    fn plan(&self, (from, to): &Change, shape: &str) -> Result<Plan, PlanError> {
        let folder = self.folder(from, to);
        let kernel = lathe_kernels::kernel(&self.kernel).unwrap();
        let problem = common::problem(kernel, &self.shape);
        let problem = kernel.parse_over(&problem, shape).unwrap();
        let subject = Subject::compile(&folder.join("theirs.toml"), kernel, &kernel.variants[0]);
        subject?.plan(&problem, &generous())
    }
}

#[test]
fn right_files_pass_the_sweep_and_wrong_ones_fail() {
    for files in here() {
        let said = printed(&files.check("", "", &["--cases", "4"]));
        assert!(said.contains(", 0 failed, 0 unavailable"), "{}: {said}", files.name);
        for (from, to) in &files.wrong {
            let output = files.check(from, to, &["--cases", "4", "--fail-fast"]);
            assert_eq!(code(&output), 1, "{}: {to}: {}", files.name, stderr(&output));
        }
    }
}

/// Outputs are judged after they are timed: cold, overlapping, and against a variant or another file
/// over the same inputs.
#[test]
fn files_are_timed_and_compared() {
    for (i, files) in here().into_iter().enumerate().filter(|(_, files)| files.name != "state") {
        let shape = ["--shape", &files.shape, "--json"];
        let bench = ["bench", &files.kernel, "--wgsl", "theirs.toml", "--overlapped"];
        let case = document(&files.lathe(&[&bench[..], &shape].concat()))["cases"][0].clone();
        assert!(case["overlapped"]["median_us"].as_f64().unwrap() > 0.0, "{case}");
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
        for (name, own) in files.texts() {
            assert!(text.contains(own.lines().nth(1).unwrap()), "{name}: {report}");
        }
    }
}

/// Planning alone, which needs no device, finds every fault.
#[test]
fn faults_are_said_with_what_they_concern() {
    for files in all() {
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

#[test]
fn faults_are_said_all_at_once() {
    let mapping = r#"file = "theirs.wgsl"
[[stage]]
entry = "gemv_mian"
workgroups = 1
[[stage]]
entry = "gemv_main"
workgroups = ["ROWS", "FOO"]
[bindings]
W = "weight"
results = "y"
[overrides]
TILE = 3
"#;
    let files = Files { mapping: mapping.into(), ..named("theirs") };
    let said = files.plan(&Change::default(), "").unwrap_err().to_string();
    for fault in [
        "9 faults",
        "nothing is bound to `y`, which gemv changes",
        "has no override `TILE`",
        "no entry point `gemv_mian`; there are `gemv_main`, `other`",
        "no `FOO`; there are ACT_FORMAT, BETA, K, ",
        "uniform `params` needs a section [uniforms.params]",
        "buffer `W` is mapped to `weight`, which is no binding of gemv; it has weights, x, y",
        "buffer `input` is no binding of gemv",
        "the mapping names `results`, which it lacks",
    ] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
}

/// The command ends as a plan does, and goes on after a case that fails alone.
#[test]
fn faults_have_their_exit_codes() {
    let files = named("split");
    if common::gpu().is_none() {
        return;
    }
    for (size, expected) in [("ROWS / 3", 1), ("ROWS * 1099511627776", 3), ("FOO", 2)] {
        let output = files.check("ROWS * 4 * 3", size, &["--shape", &files.shape]);
        assert_eq!(code(&output), expected, "{}", stderr(&output));
    }
    let output = files.check("= [\"ROWS\",", "= [\"ROWS - 1\",", &["--json"]);
    assert_eq!(code(&output), 1);
    let report = json(&output);
    assert!(report["failed"].as_u64().unwrap() > 0, "{report}");
    let lone = report["cases"].as_array().unwrap().iter();
    let lone = lone.filter(|case| case["reason"] == "theirs.toml: 0 workgroups of main");
    assert!(lone.count() > 0, "{report}");
    // Without a mapping nobody knows what its buffers are; one that names its WGSL is named itself.
    ended(&files.lathe(&["check", "gemv", "--wgsl", "parts.wgsl"]), 2);
    let folder = files.folder("", "");
    folder.write("theirs.wgsl", read("parts.wgsl"));
    let output = lathe_in(&folder, &["check", "gemv", "--wgsl", "theirs.wgsl"]);
    assert_ends(&output, 2, "name the mapping itself");
}

#[test]
fn the_sweep_draws_inside_what_a_file_takes() {
    if let Some(files) = here_named("theirs") {
        let report = document(&files.check("", "", &["--json", "--cases", "24"]));
        let cases = report["cases"].as_array().unwrap();
        assert!(cases.len() > 30, "{}", cases.len());
        let shapes: Vec<_> = cases.iter().map(|case| case["shape"].as_str().unwrap()).collect();
        assert!(shapes.iter().all(|shape| shape.contains("WEIGHT=f16,ACT_FORMAT=f32")));
        // Sizes still vary, at the edges of tiles too.
        let sizes = shapes.iter().map(|shape| shape.split(",WEIGHT").next().unwrap());
        let sizes: BTreeSet<_> = sizes.collect();
        assert!(sizes.len() > 20, "{sizes:?}");
        // What a shape does not name is what the file takes.
        let report = document(&files.check("", "", &["--json", "--shape", "ROWS=[5,9]"]));
        for (nth, rows) in ["ROWS=5,", "ROWS=9,"].into_iter().enumerate() {
            let shape = report["cases"][nth]["shape"].as_str().unwrap();
            assert!(shape.starts_with(rows) && shape.contains("WEIGHT=f16"), "{report}");
        }
    }
}

#[test]
fn a_tolerance_of_its_own_holds_and_is_said() {
    if let Some(files) = here_named("theirs") {
        let off = files.mapping.replace("\"WEIGHT == f16\"", "1.0001");
        let off = Files { mapping: off, ..named("theirs") };
        let check = |own: &str, args: &[&str]| {
            off.check("[takes]", own, &[&["--shape", &files.shape], args].concat())
        };
        assert_eq!(code(&check("[takes]", &[])), 1);
        let own = "tolerance = { nmse = 1e-6, k = 20000 }\n[takes]";
        let said = printed(&check(own, &[]));
        assert!(said.contains("held to the tolerance of its mapping"), "{said}");
        assert_eq!(document(&check(own, &["--json"]))["own_tolerance"], true);
        // A variant's is nearer.
        assert_eq!(code(&check("tolerance = \"naive\"\n[takes]", &[])), 1);
    }
}

/// A file that takes nothing else cannot be told from one for the one shape.
#[test]
fn a_file_that_takes_one_shape_is_marked() {
    if let Some(files) = here_named("theirs") {
        let change = ("K = \"multiple of 4\"", "K = 128\nROWS = 70");
        for ((from, to), is_marked) in [(change, true), (("", ""), false)] {
            let bench =
                ["bench", "gemv", "--wgsl", "theirs.toml", "--shape", &files.shape, "--json"];
            let flags = document(&files.changed(from, to, &bench))["cases"][0]["flags"].to_string();
            assert_eq!(flags.contains("one shape"), is_marked, "{flags}");
        }
    }
}

#[test]
fn the_state_of_a_sequence_is_a_name_where_a_problem_has_one() {
    if let Some(files) = here_named("state") {
        let states = |from: &str, to: &str| -> Vec<(usize, usize)> {
            let report = document(&files.check(from, to, &["--json", "--cases", "12"]));
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
        // The sweep draws positions before and after a ring is full.
        let sizes = states("", "");
        assert!(sizes.iter().any(|(seen, size)| seen < size), "{sizes:?}");
        assert!(sizes.iter().any(|(seen, size)| seen > size), "{sizes:?}");
        // A condition on the state is met by states up to its end, not by the first alone.
        let met = states("[takes]", "[takes]\nwhen = \"N_KV <= 40\"");
        let met: BTreeSet<_> = met.into_iter().map(|(seen, _)| seen).collect();
        assert!(met.last() == Some(&40) && met.len() > 4, "{met:?}");
        // It is timed at the position that is asked for; another length is other code.
        let sources = ["N_KV=100", "N_KV=200"].map(|state| {
            let shape = format!("{},{state}", files.shape);
            let bench =
                ["bench", &files.kernel, "--wgsl", "theirs.toml", "--json", "--shape", &shape];
            let case = document(&files.lathe(&bench))["cases"][0].clone();
            assert!(case["shape"].as_str().unwrap().ends_with(state), "{case}");
            case["source"].clone()
        });
        assert_ne!(sources[0], sources[1]);
        // A recorded step is the same for all positions.
        let model = golden_name("llama-tiny-f16.gguf");
        let decode = ["decode", "--model", &model, "--prompt-tokens", "2,5", "-n", "2"];
        let hint = ["--kv", "f32", "--hint", "attention_decode=theirs.toml"];
        let output = files.lathe(&[&decode[..], &hint].concat());
        assert_ends(&output, 2, "`N_KV` changes from step to step");
        assert!(stderr(&output).contains("uniform field `length`"), "{}", stderr(&output));
    }
}

/// The weights of a whole step are other operations' too.
#[test]
fn whole_steps_refuse_layouts() {
    let folder = named("columns").folder("", "");
    let (name, hint) = Hint::parse(&format!("gemv={}", folder.path("theirs.toml"))).unwrap();
    let kernel = lathe_kernels::kernel("gemv").unwrap();
    let problem = common::problem(kernel, "WEIGHT=f32,ROWS=64,K=64");
    let hints: Hints = [(name, hint)].into_iter().collect();
    let refused = select(kernel, &problem.shape, &Capabilities::minimal(), &hints, None);
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("its mapping lays weights or caches out"), "{refused}");
}

#[test]
fn a_template_is_named_as_one() {
    let folder = Folder::new();
    let theirs = read("theirs.wgsl");
    let text = format!("{theirs}\n  # ifdef USE_SUBGROUPS\nconst LANES = 32u;\n#endif\n");
    folder.write("theirs.wgsl", text);
    for args in [&["map", "theirs.wgsl", "gemv"][..], &["validate", "theirs.wgsl"]] {
        let said = ended(&lathe_in(&folder, args), 2);
        let line = theirs.lines().count() + 2;
        assert!(said.contains(&format!("line {line}: `# ifdef USE_SUBGROUPS` is for")), "{said}");
        assert!(said.contains("instantiate.py text FILE"), "{said}");
    }
}

#[test]
fn a_skeleton_is_written_once_and_asks_for_the_rest() {
    let folder = Folder::new();
    folder.write("theirs.wgsl", read("theirs.wgsl"));
    let lathe = |args: &[&str]| lathe_in(&folder, args);
    assert!(printed(&lathe(&["map", "theirs.wgsl", "gemv"])).starts_with("theirs.toml: "));
    let text = folder.read("theirs.toml");
    // Values that are not filled in are asked for by name.
    let kernel = lathe_kernels::kernel("gemv").unwrap();
    let path = folder.join("theirs.toml");
    let subject = Subject::compile(&path, kernel, &kernel.variants[0]).unwrap();
    let said = subject.plan(&kernel.default_problem(), &generous()).unwrap_err().to_string();
    for words in ["workgroups of gemv_main: `?`: expected", "[takes] WEIGHT=?: expected one of"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // Nothing of the user's is overwritten.
    let output = lathe(&["map", "theirs.wgsl", "gemv"]);
    assert_ends(&output, 2, "theirs.toml is there, and is not overwritten: --print");
    assert_eq!(folder.read("theirs.toml"), text);
    assert_eq!(printed(&lathe(&["map", "theirs.wgsl", "gemv", "--print"])), text);
}

#[test]
fn any_file_validates_without_a_device() {
    let folder = Folder::new();
    folder.write("theirs.wgsl", read("theirs.wgsl"));
    folder.write("bad.wgsl", "fn main() { let a = b; }\n");
    folder.write("none.wgsl", "fn main() {}\n");
    let tile = "override TILE: u32;\n@compute @workgroup_size(TILE)\nfn main() {}\n";
    folder.write("tile.wgsl", tile);
    let validate = |args: &[&str]| lathe_in(&folder, &[&["validate"], args].concat());
    let report = document(&validate(&["theirs.wgsl", "--json"]));
    let entry = &report["rows"][0];
    assert_eq!(entry["needs"], serde_json::json!(["shader-f16"]));
    assert_eq!((&entry["name"], &entry["workgroup_memory"]), (&"gemv_main".into(), &256.into()));
    assert_eq!(entry["back_ends"], serde_json::json!(["SPIR-V", "MSL", "HLSL", "WGSL"]));
    assert!(printed(&validate(&["tile.wgsl", "--set", "TILE=96"])).contains(" 96 |"));
    for (args, expected, words) in [
        (&["tile.wgsl"][..], 2, "--set NAME=VALUE"),
        (&["tile.wgsl", "--set", "TILE=x"], 2, "expected NAME=NUMBER"),
        (&["tile.wgsl", "--set", "WG=3"], 2, "no override `WG`; there are TILE"),
        (&["bad.wgsl"], 2, "bad.wgsl:1:21"),
        (&["none.wgsl"], 1, "has no entry point"),
        (&["theirs.toml"], 2, "a mapping; validate the WGSL"),
        (&["gemv", "--set", "A=1"], 2, "--set goes with a WGSL file"),
    ] {
        assert_ends(&validate(args), expected, words);
    }
    for args in [&["show", "theirs.wgsl"][..], &["check", "theirs.wgsl"], &["tune", "theirs.wgsl"]]
    {
        if args[0] == "show" || common::gpu().is_some() {
            let args = [args, if args[0] == "tune" { &["--allow-software"] } else { &[] }].concat();
            assert_ends(&lathe_in(&folder, &args), 2, "is a file and no kernel");
        }
    }
}
