//! The mappings of the folder `mappings`, each over a kernel of our own (`engines/ENGINE`) that has
//! the buffers, the uniforms and the entry points of the engine's and computes the same in the
//! dullest way.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lathe_harness::plan::backend_text::generous;
use lathe_harness::plan::{PlanError, Subject};

use crate::common::{self, Folder, printed, said};

/// A change to each template that makes its first mapping wrong.
const WRONG: [(&str, &str, &str); 23] = [
    ("doppler/attention_decode", "\"N_KV - 1\"", "0"),
    ("doppler/dequant", "output_offset = 0", "output_offset = 1"),
    ("doppler/fused_ffn_f16", "from = \"N\"", "from = 0"),
    ("doppler/gemv", "packing = \"file\"", ""),
    ("doppler/gemv_subgroup", "packing = \"file\"", ""),
    ("doppler/matmul_f16_tiled", "packing = \"file\"", ""),
    ("doppler/matmul_q4", "\"ceil(K / 256)\"", "1"),
    ("doppler/matmul_q4_widetile", "\"ceil(K / 256)\"", "\"floor(K / 256)\""),
    ("doppler/matmul_rmsnorm_medium", "transpose_b = 1", "transpose_b = 0"),
    ("doppler/rms_norm", "\"WEIGHT_OFFSET == gemma\"", "0"),
    ("doppler/rope_compute_freqs", "\"N_KV - 1\"", "\"N_KV\""),
    ("doppler/silu", "USE_SPLIT = 1", "USE_SPLIT = 0"),
    (
        "ggml-webgpu/flash_attn_vec",
        "K = { of = \"k_cache\", order = \"tokens\" }",
        "K = \"k_cache\"",
    ),
    ("ggml-webgpu/get_rows", "offset_idx = \"N_KV - 1\"", "offset_idx = \"N_KV\""),
    ("ggml-webgpu/glu", "swapped = 0", "swapped = 1"),
    ("ggml-webgpu/mmvq", "ne0 = \"K\"", "ne0 = \"K / 2\""),
    ("ggml-webgpu/mul_mat_reg_tile", "n = \"N_TOKENS\"", "n = 5"),
    ("ggml-webgpu/mul_mat_vec", "packing = \"file\"", ""),
    ("ggml-webgpu/rms_norm_mul", "eps = \"EPS\"", "eps = 1"),
    ("ggml-webgpu/rope", "ROPE_STYLE == neox", "ROPE_STYLE == interleaved"),
    ("onnxruntime-web/matmul_nbits", "{ of = \"weights\", field = \"codes\" }", "\"weights\""),
    ("wgml/gemv", "stride = \"K / 256\"", "stride = 1"),
    ("wgml/rms_norm", "v = \"x\"\nw = \"weight\"", "w = \"x\"\nv = \"weight\""),
];

/// One mapping of a template.
struct Mapping {
    engine: String,
    /// The template's name, without an ending.
    template: String,
    kernel: String,
    name: String,
    text: String,
}

impl Mapping {
    /// The kernels of our own in the place of the texts that it names.
    fn texts(&self) -> Vec<(String, String)> {
        let table: toml::Table = toml::from_str(&self.text).unwrap();
        let stages = table.get("stage").and_then(|stages| stages.as_array()).into_iter().flatten();
        let files = table.get("file").into_iter().chain(stages.filter_map(|s| s.get("file")));
        let names = files.map(|file| file.as_str().unwrap().to_owned());
        names.map(|name| (name.clone(), look_alike(&self.engine, &name).1)).collect()
    }

    /// A folder with the mapping, where `from` stands `to`, and those kernels.
    fn folder(&self, from: &str, to: &str) -> Folder {
        assert!(self.text.contains(from), "{}/{}: {from}", self.engine, self.name);
        let folder = Folder::new();
        for (name, text) in self.texts() {
            folder.write(&name, text);
        }
        folder.write("theirs.toml", self.text.replace(from, to));
        folder
    }
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

/// Returns the kernel that stands for a text, and its file: named as the text, or as the beginning
/// of its name, in which `{}` then stands for the rest.
fn look_alike(engine: &str, name: &str) -> (PathBuf, String) {
    let folder = look_alikes().join(engine);
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

/// The mappings of a template: one for each value of the lists in its sections `[[for]]`.
fn of_template(path: &Path) -> Vec<Mapping> {
    let whole = fs::read_to_string(path).unwrap();
    let engine = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let template = path.file_stem().unwrap().to_string_lossy().into_owned();
    let (text, rows) = whole.split_once("\n[[for]]").unwrap_or((&whole, "\n"));
    type Row = serde_json::Map<String, serde_json::Value>;
    let rows = rows.split("\n[[for]]").map(|row| toml::from_str::<Row>(row).unwrap());
    let mut all = Vec::new();
    for row in rows {
        let count = row.values().filter_map(|v| v.as_array()).map(Vec::len).max().unwrap_or(1);
        for i in 0..count {
            let mut text = text.to_owned();
            for (key, value) in &row {
                let value = value.as_array().map_or(value, |list| &list[i]);
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                text = text.replace(&format!("{{{key}}}"), &value);
            }
            // The first line is `# lathe check KERNEL --mapping NAME.toml`.
            let words: Vec<_> = text.lines().next().unwrap().split(' ').collect();
            let ["#", "lathe", "check", kernel, "--mapping", name] = words[..] else {
                panic!("{engine}/{template}: {words:?}")
            };
            let (kernel, name) = (kernel.to_owned(), name.strip_suffix(".toml").unwrap().into());
            let (engine, template) = (engine.clone(), template.clone());
            all.push(Mapping { engine, template, kernel, name, text });
        }
    }
    all
}

fn all() -> Vec<Mapping> {
    files(&mappings()).iter().flat_map(|path| of_template(path)).collect()
}

/// Every mapping names kernels and bindings that are there, at every case that it takes.
#[test]
fn every_mapping_makes_plans() {
    let (mut used, mut names) = (BTreeSet::new(), BTreeSet::new());
    let caps = generous();
    for mapping in all() {
        let shown = format!("{}/{}", mapping.engine, mapping.name);
        assert!(names.insert(shown.clone()), "{shown} twice");
        for (name, _) in mapping.texts() {
            used.insert(look_alike(&mapping.engine, &name).0);
        }
        let folder = mapping.folder("", "");
        let kernel = lathe_kernels::kernel(&mapping.kernel).unwrap();
        let path = folder.join("theirs.toml");
        let file = Subject::compile(&path, kernel, &kernel.variants[0]).unwrap();
        let cases = kernel.cases().into_iter().filter_map(|p| file.within(p, &caps, &mut |_| 0));
        let mut planned = 0;
        for problem in cases {
            match file.plan(&problem, &caps) {
                Ok(_) => planned += 1,
                Err(PlanError::Unavailable(_)) => {}
                Err(e) => panic!("{shown} {}: {e}", kernel.show(&problem)),
            }
        }
        assert!(planned > 0, "{shown} takes no case");
    }
    assert_eq!(names.len(), 68);
    assert_eq!(used, files(&look_alikes()).into_iter().collect());
}

/// The first mapping of each template is right, and wrong with a change to it.
#[test]
fn mappings_pass_the_sweep_and_wrong_ones_fail() {
    let Some(gpu) = common::gpu() else { return };
    let check = |folder: &Folder, kernel: &str, options: &[&str]| {
        let check = ["check", kernel, "--mapping", "theirs.toml", "--cases", "2"];
        common::lathe_in(folder, &[&check[..], options].concat())
    };
    let templates: BTreeSet<_> =
        all().iter().map(|m| format!("{}/{}", m.engine, m.template)).collect();
    assert_eq!(templates, WRONG.iter().map(|(name, ..)| (*name).to_owned()).collect());
    let mut mappings = all();
    mappings.dedup_by(|b, a| (&a.engine, &a.template) == (&b.engine, &b.template));
    for mapping in mappings {
        let template = format!("{}/{}", mapping.engine, mapping.template);
        let shown = format!("{}/{}", mapping.engine, mapping.name);
        let needs_f16 = mapping.texts().iter().any(|(_, text)| text.contains("enable f16;"));
        if needs_f16 && !gpu.caps.f16 {
            continue;
        }
        let output = check(&mapping.folder("", ""), &mapping.kernel, &[]);
        // Some take nothing on an adapter with wide subgroups, or with none.
        let is_wide = gpu.caps.subgroup.is_none_or(|(_, most)| most > 32);
        if is_wide && output.status.code() == Some(3) && mapping.text.contains("adapter.") {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{shown}: {}", said(&output));
        assert!(printed(&output).contains(", 0 failed, 0 unavailable"), "{shown}");
        let (_, from, to) = WRONG.iter().find(|(name, ..)| *name == template).unwrap();
        let output = check(&mapping.folder(from, to), &mapping.kernel, &["--fail-fast"]);
        assert_eq!(output.status.code(), Some(1), "{shown}: {to}");
    }
}

/// `mappings/instantiate.py` makes the same mappings of the templates as are tried here.
#[test]
fn the_script_makes_the_mappings_that_are_tried() {
    let python = std::env::var("LATHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let folder = tempfile::tempdir().unwrap();
    let mut script = Command::new(&python);
    script.arg(mappings().join("instantiate.py")).arg("mappings").arg(folder.path());
    let Ok(output) = script.output() else {
        eprintln!("UNAVAILABLE, not tested: needs {python}");
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
    let made = files(folder.path());
    assert_eq!(made.len(), all().len());
    for Mapping { engine, name, text, .. } in all() {
        let path = folder.path().join(&engine).join(format!("{name}.toml"));
        assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), text.trim_end(), "{path:?}");
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
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("out/wgml")).unwrap();
    for name in ["rms_norm.wgsl", "rms_norm.toml"] {
        let from = if name.ends_with("toml") { mappings() } else { look_alikes() };
        fs::copy(from.join("wgml").join(name), path("out/wgml").join(name)).unwrap();
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
