//! Files of other engines through their mappings: what they take, what is wrong with them said all
//! at once, what fails at one shape alone, and tolerances of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::process::Output;

use crate::common::{
    self, Folder, assert_ends, code, document, ended, golden_name, json, lathe_in, printed, stderr,
    stdout,
};

/// Rows of f16 by vectors of four, one workgroup a row, every buffer declared `read_write`, with an
/// entry point that nobody dispatches and whose buffer is in another group.
const THEIRS: &str = "
enable f16;
struct Params { n_rows: u32, n_cols: u32, stride: u32, alpha: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> W: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read_write> input: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;
@group(1) @binding(0) var<storage, read_write> unused: array<f32>;
var<workgroup> sums: array<f32, 64>;
@compute @workgroup_size(64)
fn gemv_main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let row = group.x;
    // Workgroup memory begins at zero.
    for (var c = i; c < params.n_cols / 4u; c += 64u) {
        sums[i] += dot(vec4<f32>(W[row * (params.stride / 4u) + c]), input[c]);
    }
    workgroupBarrier();
    if (i == 0u) {
        var all = 0.0;
        for (var s = 0u; s < 64u; s++) { all += sums[s]; }
        result[row] = params.alpha * all;
    }
}
@compute @workgroup_size(64)
fn other(@builtin(local_invocation_index) i: u32) { unused[i] = 1.0; }
";

const TAKES: &str = r#"
[takes]
WEIGHT = "f16"
ACT_FORMAT = "f32"
N_VECTORS = 1
Y_OFFSET = 0
Y_AFTER = 0
BETA = 0
K = "multiple of 4"
when = "ROWS <= 65535"
"#;

const MAPPED: &str = r#"
[[stage]]
entry = "gemv_main"
workgroups = "ROWS"
[bindings]
W = "weights"
input = "x"
result = "y"
[uniforms.params]
n_rows = "ROWS"
n_cols = "K"
stride = "ceil(K / 8) * 8"
alpha = "WEIGHT == f16 && adapter.f16 ? 1.0 : 0.0"
"#;

/// A folder with [`THEIRS`] and its mapping, where there is an adapter with 16-bit floats.
fn folder(mapping: &str) -> Option<Folder> {
    if !common::gpu()?.caps.f16 {
        return None;
    }
    let folder = Folder::new();
    folder.write("theirs.wgsl", THEIRS);
    folder.write("theirs.toml", mapping);
    Some(folder)
}

fn check(folder: &Folder, args: &[&str]) -> Output {
    lathe_in(folder, &[&["check", "gemv", "--wgsl", "theirs.wgsl"], args].concat())
}

#[test]
fn the_sweep_draws_inside_what_a_file_takes() {
    let Some(folder) = folder(&format!("{TAKES}{MAPPED}")) else { return };
    for checks in [&[][..], &["--unchecked-files"]] {
        let report = document(&check(&folder, &[&["--json", "--cases", "24"], checks].concat()));
        assert_eq!((&report["failed"], &report["unavailable"]), (&0.into(), &0.into()));
        let cases = report["cases"].as_array().unwrap();
        assert!(cases.len() > 30, "{}", cases.len());
        let shapes: Vec<_> = cases.iter().map(|case| case["shape"].as_str().unwrap()).collect();
        assert!(shapes.iter().all(|shape| shape.contains("WEIGHT=f16,ACT_FORMAT=f32")));
        // Sizes still vary, at the edges of tiles too.
        let sizes = shapes.iter().map(|shape| shape.split(",WEIGHT").next().unwrap());
        let sizes: BTreeSet<_> = sizes.collect();
        assert!(sizes.len() > 20, "{sizes:?}");
    }
    // What it does not take is unavailable, with the reason.
    let output = check(&folder, &["--shape", "WEIGHT=f16,K=6"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("K=6: it takes a multiple of 4"), "{said}");
    let output = check(&folder, &["--shape", "ROWS=65536"]);
    let said = stdout(&output);
    assert!(said.contains("it takes shapes where ROWS <= 65535"), "{said}");
    // All that it refuses of parameters is said at once, and what is not named is what it takes.
    let output = check(&folder, &["--shape", "WEIGHT=bf16,K=6"]);
    let said = stdout(&output);
    assert!(said.contains("K=6: it takes a multiple of 4; WEIGHT=bf16: it takes f16"), "{said}");
    let report = document(&check(&folder, &["--json", "--shape", "ROWS=[5,9]"]));
    let shape = |nth: usize| report["cases"][nth]["shape"].as_str().unwrap();
    for (nth, rows) in ["ROWS=5,", "ROWS=9,"].into_iter().enumerate() {
        assert!(shape(nth).starts_with(rows) && shape(nth).contains("WEIGHT=f16"), "{report}");
    }
}

#[test]
fn faults_are_said_all_at_once() {
    let mapping = r#"
packing = "split"
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
    let Some(folder) = folder(mapping) else { return };
    let said = ended(&check(&folder, &[]), 2);
    for fault in [
        "theirs.wgsl: 10 faults",
        "nothing is bound to `y`, which gemv changes",
        "has no override `TILE`",
        "no entry point `gemv_mian`; there are `gemv_main`, `other`",
        "no `FOO`; there are ACT_FORMAT, BETA, K, ",
        "uniform `params` needs a section [uniforms.params]",
        "buffer `W` is mapped to `weight`, which is no binding of gemv; it has weights, x, y",
        "buffer `input` is no binding of gemv",
        "the mapping names `results`, which it lacks",
        "no packing `split`; there are blocks, planes",
    ] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
    let takes = "[takes]\nFOO = 3\nK = \"multiple of x\"\nWEIGHT = [\"f16\", \"q9\"]\n";
    folder.write("theirs.toml", format!("tolerance = \"x\"\n{takes}"));
    let said = stderr(&check(&folder, &[]));
    for fault in [
        "[takes] FOO is no parameter of gemv; it has ROWS, K, ",
        "[takes] K = \"multiple of x\": expected",
        "[takes] WEIGHT=q9: expected one of f32, f16, bf16",
        "tolerance: no variant `x`; there are naive, ",
    ] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
}

#[test]
fn what_is_wrong_at_one_shape_fails_that_case_alone() {
    // No workgroup at one row, and a division by zero at two.
    let mapped =
        MAPPED.replace("\"ROWS\"\n[b", "[\"ROWS - 1 + 1 / (ROWS - 2) * 0 + 1 * (ROWS > 1)\"]\n[b");
    let Some(folder) = folder(&format!("{TAKES}{mapped}")) else { return };
    for (rows, fault) in [(1, "0 workgroups of gemv_main"), (2, "divides by zero")] {
        let shape = format!("ROWS={rows},K=8,WEIGHT=f16");
        let output = check(&folder, &["--shape", &shape]);
        assert_eq!(code(&output), 1, "{}", stderr(&output));
        let said = stdout(&output);
        assert!(said.contains(fault) && said.contains("repeat: lathe check gemv"), "{said}");
    }
    let output = check(&folder, &["--json"]);
    assert_eq!(code(&output), 1);
    let report = json(&output);
    assert!(report["passed"].as_u64().unwrap() > 10, "{report}");
    assert!(report["failed"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_tolerance_of_its_own_holds_and_is_said() {
    let off = MAPPED.replace("? 1.0 :", "? 1.0001 :");
    let Some(folder) = folder(&format!("{TAKES}{off}")) else { return };
    let shape = ["--shape", "ROWS=70,K=128,WEIGHT=f16"];
    assert_eq!(code(&check(&folder, &shape)), 1);
    let own = "tolerance = { nmse = 1e-6, k = 20000 }\n";
    folder.write("theirs.toml", format!("{own}{TAKES}{off}"));
    let said = printed(&check(&folder, &shape));
    assert!(said.contains("held to the tolerance of its mapping"), "{said}");
    let report = document(&check(&folder, &[&shape[..], &["--json"]].concat()));
    assert_eq!(report["own_tolerance"], true);
    // As far as a variant may be, which is nearer.
    let naive = "tolerance = \"naive\"\n";
    folder.write("theirs.toml", format!("{naive}{TAKES}{off}"));
    assert_eq!(code(&check(&folder, &shape)), 1);
}

/// What says that it takes nothing else cannot be told from a file for the one shape.
#[test]
fn a_file_that_takes_one_shape_is_marked() {
    let flags = |takes: &str| -> Option<Vec<String>> {
        let folder = folder(&format!("{takes}{MAPPED}"))?;
        let shape = "ROWS=64,K=64,WEIGHT=f16";
        let bench = ["bench", "gemv", "--wgsl", "theirs.wgsl", "--shape", shape, "--json"];
        let flags = document(&lathe_in(&folder, &bench))["cases"][0]["flags"].clone();
        Some(serde_json::from_value(flags).unwrap())
    };
    let one = TAKES.replace("K = \"multiple of 4\"", "K = 64\nROWS = 64");
    let (Some(one), Some(all)) = (flags(&one), flags(TAKES)) else { return };
    assert!(one.iter().any(|flag| flag == "one shape"), "{one:?}");
    assert!(!all.iter().any(|flag| flag == "one shape"), "{all:?}");
}

#[test]
fn an_override_without_a_value_is_a_fault_among_others() {
    let Some(folder) = folder(&format!("{TAKES}{MAPPED}").replace("alpha = ", "alpah = ")) else {
        return;
    };
    let text = THEIRS.replace("var<workgroup>", "override TILE: u32;\nvar<workgroup>");
    folder.write("theirs.wgsl", text);
    let said = stderr(&check(&folder, &[]));
    for fault in ["theirs.wgsl: 3 faults", "override `TILE` has no value", "no field `alpah`"] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
}

#[test]
fn an_input_that_is_written_is_refused() {
    let Some(folder) = folder(&format!("{TAKES}{MAPPED}")) else { return };
    let text = THEIRS.replace("let row = group.x;", "let row = group.x; input[0].x = 1.0;");
    folder.write("theirs.wgsl", text);
    assert_ends(&check(&folder, &[]), 2, "writes `input`, which is the input x");
}

#[test]
fn a_template_is_named_as_one() {
    let folder = Folder::new();
    let text = format!("{THEIRS}\n  # ifdef USE_SUBGROUPS\nconst LANES = 32u;\n#endif\n");
    folder.write("theirs.wgsl", text);
    for args in [&["map", "theirs.wgsl", "gemv"][..], &["validate", "theirs.wgsl"]] {
        let said = ended(&lathe_in(&folder, args), 2);
        let line = THEIRS.lines().count() + 2;
        assert!(said.contains(&format!("line {line}: `# ifdef USE_SUBGROUPS` is for")), "{said}");
        assert!(said.contains("instantiate.py text FILE"), "{said}");
    }
}

#[test]
fn a_skeleton_is_written_once_and_asks_for_the_rest() {
    let folder = Folder::new();
    folder.write("theirs.wgsl", THEIRS);
    let lathe = |args: &[&str]| lathe_in(&folder, args);
    assert!(printed(&lathe(&["map", "theirs.wgsl", "gemv"])).starts_with("theirs.toml: "));
    let text = folder.read("theirs.toml");
    for line in ["entry = \"gemv_main\"", "result = \"?\"", "[uniforms.params]", "[takes]"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // What is not filled in is asked for by name.
    let output = lathe(&["check", "gemv", "--wgsl", "theirs.wgsl", "--shape", "ROWS=4"]);
    if common::gpu().is_some() {
        assert_ends(&output, 2, "workgroups of gemv_main: `?`: expected a number or a name");
        assert_ends(&output, 2, "[takes] WEIGHT=?: expected one of");
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
    folder.write("theirs.wgsl", THEIRS);
    let validate = |args: &[&str]| lathe_in(&folder, &[&["validate"], args].concat());
    let report = document(&validate(&["theirs.wgsl", "--json", "--page", "page.html"]));
    assert_eq!(report["needs"], serde_json::json!(["shader-f16"]));
    let entry = &report["entries"][0];
    assert_eq!(
        (entry["entry"].as_str(), &entry["workgroup_bytes"]),
        (Some("gemv_main"), &256.into())
    );
    assert_eq!(entry["back_ends"], serde_json::json!(["SPIR-V", "MSL", "HLSL", "WGSL"]));
    let page = folder.read("page.html");
    assert!(page.contains("gemv_main") && page.contains("theirs.wgsl"));

    let tile = "override TILE: u32;\n@compute @workgroup_size(TILE)\nfn main() {}\n";
    folder.write("tile.wgsl", tile);
    assert_ends(&validate(&["tile.wgsl"]), 2, "--set NAME=VALUE");
    assert!(printed(&validate(&["tile.wgsl", "--set", "TILE=96"])).contains("96×1×1"));
    for (set, fault) in
        [("TILE=x", "expected NAME=NUMBER"), ("WG=3", "no override `WG`; there are TILE")]
    {
        assert_ends(&validate(&["tile.wgsl", "--set", set]), 2, fault);
    }
    folder.write("bad.wgsl", "fn main() { let a = b; }\n");
    assert_ends(&validate(&["bad.wgsl"]), 2, "bad.wgsl:1:21");
}

/// Products of a part of each row, with its buffers in three groups.
const PARTS: &str = "
struct Params { stride: u32, k: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> src: array<f32>;
@group(1) @binding(0) var<storage, read_write> input: array<f32>;
@group(2) @binding(3) var<storage, read_write> dst: array<f32>;
override PARTS: u32 = 2;
override WIDTH: u32;
@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = 0.0;
    for (var c = group.y; c < params.k; c += PARTS) {
        sum += src[group.x * params.stride + c] * input[c];
    }
    dst[group.x * PARTS + group.y] = sum;
}
";

/// Their sums, under the same names for other buffers; the groups between are unused.
const REDUCE: &str = "
struct Params { parts: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> src: array<f32>;
@group(3) @binding(1) var<storage, read_write> dst: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = 0.0;
    for (var p = 0u; p < params.parts; p++) { sum += src[group.x * params.parts + p]; }
    dst[group.x] = sum;
}
";

const SPLIT: &str = r#"
file = "parts.wgsl"
[takes]
WEIGHT = "f32"
ACT_FORMAT = "f32"
N_VECTORS = 1
Y_OFFSET = 0
Y_AFTER = 0
BETA = 0
when = "ROWS <= 65535"
[scratch]
partial = "ROWS * 4 * 3"
[bindings]
src = "weights"
input = "x"
dst = "partial"
[uniforms.params]
stride = "ceil(K / 4) * 4"
k = "K"
[overrides]
PARTS = 3
WIDTH = 1
[[stage]]
entry = "main"
workgroups = ["ROWS", "PARTS"]
[[stage]]
file = "reduce.wgsl"
entry = "main"
workgroups = "ROWS"
[stage.bindings]
src = "partial"
dst = "y"
[stage.uniforms.params]
parts = 3
"#;

/// A folder with those files, and what `lathe` says there.
fn split(mapping: &str, args: &[&str]) -> Option<Output> {
    common::gpu()?;
    let folder = Folder::new();
    let files = [("parts.wgsl", PARTS), ("reduce.wgsl", REDUCE), ("split.toml", mapping)];
    // Two parts: another mapping of the same files.
    let other = SPLIT.replace("4 * 3", "8").replace("PARTS = 3", "PARTS = 2");
    let other = other.replace("parts = 3", "parts = 2");
    for (name, text) in files.into_iter().chain([("two.toml", other.as_str())]) {
        folder.write(name, text);
    }
    Some(lathe_in(&folder, args))
}

const CHECK_SPLIT: &[&str] = &["check", "gemv", "--mapping", "split.toml"];

#[test]
fn stages_have_files_scratch_memory_and_groups_of_their_own() {
    let Some(output) = split(SPLIT, CHECK_SPLIT) else { return };
    let said = printed(&output);
    assert!(said.contains(", 0 failed, 0 unavailable"), "{said}");
    // Without a mapping nobody knows what its buffers are.
    ended(&split(SPLIT, &["check", "gemv", "--wgsl", "parts.wgsl"]).unwrap(), 2);
    // What is too small, or bound elsewhere, is found.
    for (from, to) in [
        ("ROWS * 4 * 3", "ROWS * 4"),
        ("parts = 3", "parts = 2"),
        ("stride = \"ceil(K / 4) * 4\"", "stride = \"K\""),
    ] {
        let output = split(&SPLIT.replace(from, to), CHECK_SPLIT).unwrap();
        assert_eq!(code(&output), 1, "{to}: {}", stderr(&output));
    }
}

#[test]
fn mappings_of_one_file_are_compared() {
    let shape = ["--shape", "ROWS=70,K=130,WEIGHT=f32", "--allow-software", "--time-out", "1"];
    let ab = ["ab", "gemv", "--a", "split.toml", "--b", "naive=two.toml", "--json"];
    let Some(output) = split(SPLIT, &[&ab[..], &shape].concat()) else { return };
    assert!(matches!(output.status.code(), Some(0 | 6)), "{}", stderr(&output));
    let report = json(&output);
    assert_ne!(report["a_side"]["source"], report["b_side"]["source"]);
    for entry in ["fn main", "params.parts", "params.stride"] {
        assert!(report["a_side"]["wgsl"].as_str().unwrap().contains(entry), "{report}");
    }
    // Invocations that overlap have scratch memory each.
    let bench = ["bench", "gemv", "--wgsl", "split.toml", "--overlapped", "--json"];
    let output = split(SPLIT, &[&bench[..], &shape[..2]].concat()).unwrap();
    assert_eq!(document(&output)["cases"].as_array().unwrap().len(), 1);
}

#[test]
fn faults_of_stages_and_scratch_memory_are_said() {
    let check = |mapping: &str| split(mapping, CHECK_SPLIT);
    let wrong = SPLIT
        .replace("[scratch]", "[scratch]\nspare = 4\ny = 4\nbad = \"FOO\"")
        .replace("[stage.bindings]", "[stage.bindings]\nnobody = \"x\"")
        .replace("dst = \"y\"", "dst = \"z\"")
        .replace("parts = 3\n", "parts = 3\nmore = 1\n[stage.overrides]\nPARTS = 3\n");
    let Some(output) = check(&wrong) else { return };
    let said = ended(&output, 2);
    for fault in [
        "split.toml: 10 faults",
        "nothing is bound to `y`, which gemv changes",
        "[scratch] gemv has a binding `y`: take another name",
        "[scratch] bad: `FOO`: no `FOO`",
        "[scratch] no stage uses `spare`",
        "reduce.wgsl: [[stage]] main names `nobody`, which it lacks",
        "reduce.wgsl: buffer `dst` is mapped to `z`, which is no binding of gemv",
        "reduce.wgsl: has no override `PARTS`",
        "reduce.wgsl: [[stage]] main: uniform `params` has no field `more`",
    ] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
    // A size that is none at one shape fails that case; one that no adapter has is unavailable.
    for (size, expected, fault) in [
        ("ROWS / 3", 1, "[scratch] partial: 23.333333333333332 bytes"),
        ("ROWS - 70", 1, "[scratch] partial: 0 bytes"),
        ("ROWS * 1099511627776", 3, "the largest binding is"),
    ] {
        let shape = &["--shape", "ROWS=70,K=8,WEIGHT=f32"][..];
        let output =
            split(&SPLIT.replace("ROWS * 4 * 3", size), &[CHECK_SPLIT, shape].concat()).unwrap();
        assert_eq!(code(&output), expected, "{}", stderr(&output));
        let said = stdout(&output);
        assert!(said.contains(fault), "{said}");
    }
    for (mapping, fault) in [
        (SPLIT.replace("reduce.wgsl", "gone.wgsl"), "gone.wgsl"),
        (SPLIT.replace("file = \"parts.wgsl\"\n", ""), "split.wgsl"),
        (SPLIT.replace("[scratch]", "[scrap]"), "unknown field `scrap`"),
    ] {
        assert_ends(&check(&mapping).unwrap(), 2, fault);
    }
    // A group that no adapter has.
    let Some(folder) = folder(&format!("{TAKES}{MAPPED}")) else { return };
    let far = THEIRS.replacen("@group(0) @binding(3)", "@group(77) @binding(3)", 1);
    folder.write("theirs.wgsl", far);
    let output = self::check(&folder, &["--shape", "ROWS=4,K=8,WEIGHT=f16"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert!(stdout(&output).contains("uses @group(77), the adapter has"));
    // A mapping that names its WGSL is named itself.
    let named = format!("file = \"theirs.wgsl\"\n{TAKES}{MAPPED}");
    folder.write("theirs.toml", named);
    let output = self::check(&folder, &["--shape", "ROWS=4,K=8,WEIGHT=f16"]);
    assert_ends(&output, 2, "name the mapping itself");
}

/// Products whose sizes and factors lie in vectors, a matrix, arrays and structs within structs,
/// each wanted where WGSL lays it: three numbers in the room of four.
const VECTORS: &str = "
struct Size { rows: u32, @size(12) k: u32 }
struct Inner { before: f32, _pad: f32, pad0: u32, pad_left: u32, factors: vec3<f32>, @align(16) size: Size }
struct Params { inner: Inner, m: mat2x3<f32>, @align(16) sizes: array<Size, 2>, strides: array<vec4<i32>, 2> }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> stride: u32;
@group(0) @binding(2) var<uniform> ones: vec2<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read> x: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
override TWICE: bool = true;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    if (group.x >= params.inner.size.rows) { return; }
    var sum = 0.0;
    for (var c = 0u; c < params.sizes[1].k; c++) { sum += weights[group.x * stride + c] * x[c]; }
    let one = dot(params.inner.factors, vec3f(1.0, 10.0, 100.0)) - 320.0 + ones.y - ones.x
        + params.m[1].z - params.m[0].y + f32(params.strides[1].w + params.strides[0].z);
    y[group.x] = select(1.0, 2.0, TWICE) * one * sum;
}
";

const OF_VECTORS: &str = r#"
[takes]
WEIGHT = "f32"
ACT_FORMAT = "f32"
N_VECTORS = 1
Y_OFFSET = 0
Y_AFTER = 0
BETA = 0
when = "ROWS <= 65535"
[[stage]]
entry = "main"
workgroups = "ROWS"
[uniforms]
stride = "ceil(K / 4) * 4"
ones = [1, 2]
[uniforms.params]
"inner.before" = -7
"inner.pad_left" = 0
"inner.factors" = [1, 2, 3]
"inner.size.rows" = "ROWS"
"inner.size.k" = 0
m = [0, 5, 0, 0, 0, 6]
"sizes[0].rows" = 0
"sizes[0].k" = 0
"sizes[1].rows" = 0
"sizes[1].k" = "K"
strides = [0, 0, 3, 0, 0, 0, 0, -5]
[overrides]
TWICE = false
"#;

#[test]
fn uniforms_hold_vectors_structs_and_plain_numbers_and_overrides_are_true_or_false() {
    let Some(folder) = folder("") else { return };
    let write = |mapping: &str| {
        folder.write("theirs.toml", mapping);
        check(&folder, &[])
    };
    folder.write("theirs.wgsl", VECTORS);
    // 1 + 20 + 300 - 320 + 2 - 1 + 6 - 5 - 5 + 3 is 1.
    let output = write(OF_VECTORS);
    let said = printed(&output);
    assert!(said.contains(", 0 failed, 0 unavailable"), "{said}");
    // Each number counts where it stands.
    for (from, to) in [
        ("TWICE = false", "TWICE = true"),
        ("[1, 2, 3]", "[3, 2, 1]"),
        ("[0, 5, 0, 0, 0, 6]", "[0, 0, 5, 0, 6, 0]"),
        ("0, 0, 0, 0, -5]", "0, 0, 0, -5, 0]"),
        ("ones = [1, 2]", "ones = [2, 1]"),
    ] {
        let output = write(&OF_VECTORS.replace(from, to));
        assert_eq!(code(&output), 1, "{to}: {}", stderr(&output));
    }
    for (from, to, fault) in [
        ("[1, 2, 3]", "2", "uniform field `inner.factors` has 3 numbers, the mapping gives 1"),
        ("\"K\"", "[\"K\"]\n\"sizes[2].k\" = 1", "uniform `params` has no field `sizes[2].k`"),
        ("ones = [1, 2]\n", "", "uniform `ones` needs a value: [uniforms] ones = …"),
        ("ones = [1, 2]\n", "ones.x = 1\n", "uniform `ones` is no struct: [uniforms] ones = …"),
        ("\"inner.pad_left\" = 0\n", "", "uniform field `inner.pad_left` has no value"),
        ("-5]", "-5.5]", "uniform field `strides` cannot hold -5.5"),
        (
            "[0, 5, 0, 0, 0, 6]",
            "[[0, 5, 0], [0, 0, 6]]",
            "uniform field `m`: [[0,5,0],[0,0,6]] is no number",
        ),
        (
            "workgroups = \"ROWS\"",
            "workgroups = true",
            "main: workgroups are a number, an expression",
        ),
        (
            "\"inner.size.k\" = 0",
            "\"inner.size.k\" = [0, 0]",
            "has one number, the mapping gives 2",
        ),
        ("TWICE = false", "TWICE = \"false\"", "override TWICE: `false`: no `false`"),
        ("[takes]", "packing = \"planes\"\n[takes]", "is of quantised rows, gemv has none"),
    ] {
        let output = write(&OF_VECTORS.replace(from, to));
        let said = common::said(&output);
        assert_ne!(code(&output), 0, "{to}");
        assert!(said.contains(fault), "{fault}: {said}");
    }
    let (start, _) = OF_VECTORS.split_once("[uniforms]").unwrap();
    let (_, end) = OF_VECTORS.split_once("[overrides]").unwrap();
    let output = write(&format!("{start}[uniforms]\nparams = 1\n[overrides]{end}"));
    let fault = "uniform `params` has fields: [uniforms.params] gives them (inner.before, ";
    assert!(stderr(&output).contains(fault), "{}", stderr(&output));
}

/// Attention whose length and grid come from the host: a score a workgroup, then an element.
const ATTENTION: &str = "
struct Params { length: u32, head_dim: u32, slots: u32, heads_per_kv: u32, scale: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<f32>;
@group(0) @binding(3) var<storage, read> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
@group(0) @binding(5) var<storage, read_write> result: array<f32>;
@compute @workgroup_size(1)
fn score(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) num: vec3<u32>) {
    let row = (wg.x / params.heads_per_kv * params.slots + wg.y) * params.head_dim;
    var sum = 0.0;
    for (var d = 0u; d < params.head_dim; d++) {
        sum += q[wg.x * params.head_dim + d] * keys[row + d];
    }
    scores[wg.x * num.y + wg.y] = sum * params.scale;
}
@compute @workgroup_size(1)
fn mix(@builtin(workgroup_id) wg: vec3<u32>) {
    let first = wg.x * params.length;
    var largest = -3.0e38;
    for (var t = 0u; t < params.length; t++) { largest = max(largest, scores[first + t]); }
    var sum = 0.0;
    for (var t = 0u; t < params.length; t++) { sum += exp(scores[first + t] - largest); }
    var mixed = 0.0;
    for (var t = 0u; t < params.length; t++) {
        let row = (wg.x / params.heads_per_kv * params.slots + t) * params.head_dim;
        mixed += exp(scores[first + t] - largest) * values[row + wg.y];
    }
    result[wg.x * params.head_dim + wg.y] = mixed / sum;
}
";

const ATTENTION_MAPPED: &str = r#"
[takes]
KV_FORMAT = "f32"
ACT_FORMAT = "f32"
[[stage]]
entry = "score"
workgroups = ["Q_PER_KV * KV_HEADS", "min(N_KV, KV_SIZE)"]
[[stage]]
entry = "mix"
workgroups = ["Q_PER_KV * KV_HEADS", "HEAD_DIM"]
[scratch]
products = "4 * Q_PER_KV * KV_HEADS * KV_SIZE"
[bindings]
keys = "k_cache"
values = "v_cache"
scores = "products"
result = "y"
[uniforms.params]
length = "min(N_KV, KV_SIZE)"
head_dim = "HEAD_DIM"
slots = "KV_SIZE"
heads_per_kv = "Q_PER_KV"
scale = "SCALE"
"#;

#[test]
fn the_state_of_a_sequence_is_a_name_where_a_problem_has_one() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    folder.write("theirs.wgsl", ATTENTION);
    let write = |mapping: &str| folder.write("theirs.toml", mapping);
    let lathe = |args: &[&str]| lathe_in(&folder, args);
    write(ATTENTION_MAPPED);
    let mine = ["attention_decode", "--wgsl", "theirs.wgsl"];
    // The sweep draws positions before and after a ring is full.
    let report = document(&lathe(&[&["check"], &mine[..], &["--json", "--cases", "12"]].concat()));
    let cases = report["cases"].as_array().unwrap();
    let sizes = cases.iter().map(|case| {
        let shape = case["shape"].as_str().unwrap();
        let value = |name: &str| {
            let rest = shape.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
            rest.parse::<usize>().unwrap()
        };
        (value("N_KV="), value("KV_SIZE="))
    });
    let sizes: Vec<_> = sizes.collect();
    assert!(sizes.iter().any(|(seen, size)| seen < size), "{sizes:?}");
    assert!(sizes.iter().any(|(seen, size)| seen > size), "{sizes:?}");

    // A condition on the state is met by states up to its end, not by the first position alone.
    let condition = format!("[takes]\nwhen = \"N_KV <= 40\"\n{ATTENTION_MAPPED}");
    write(&condition.replace("[takes]\nKV", "KV"));
    let report = document(&lathe(&[&["check"], &mine[..], &["--json", "--cases", "12"]].concat()));
    let states = report["cases"].as_array().unwrap().iter().map(|case| {
        let (_, state) = case["shape"].as_str().unwrap().rsplit_once("N_KV=").unwrap();
        state.parse::<usize>().unwrap()
    });
    let states: BTreeSet<_> = states.collect();
    assert_eq!(states.last(), Some(&40), "{states:?}");
    assert!(states.len() > 4, "{states:?}");

    write(ATTENTION_MAPPED);

    // Timed at the position that is asked for, and said so.
    let sources = [100, 200].map(|n_kv| {
        let shape = format!(
            "Q_PER_KV=2,KV_HEADS=1,HEAD_DIM=32,KV_SIZE=256,KV_FORMAT=f32,SCALE=0.5,N_KV={n_kv}"
        );
        let output = lathe(&[&["bench"], &mine[..], &["--json", "--shape", &shape]].concat());
        let case = document(&output)["cases"][0].clone();
        assert!(case["shape"].as_str().unwrap().ends_with(&format!("N_KV={n_kv}")), "{case}");
        case["source"].clone()
    });
    assert_ne!(sources[0], sources[1], "another length is other code");

    // A length of another position is wrong.
    write(&ATTENTION_MAPPED.replace("length = \"min(N_KV, KV_SIZE)\"", "length = 1"));
    assert_eq!(code(&lathe(&[&["check"], &mine[..]].concat())), 1);
    // Only what the operation reads is a name.
    write(&ATTENTION_MAPPED.replace("length = \"min(N_KV", "length = \"min(PROMPT_LEN"));
    let output = lathe(&[&["check"], &mine[..]].concat());
    assert_ends(&output, 2, "no `PROMPT_LEN`; there are");
    assert!(stderr(&output).contains("N_KV"), "{}", stderr(&output));

    // A recorded step is the same for all positions.
    write(ATTENTION_MAPPED);
    let model = golden_name("llama-tiny-f16.gguf");
    let decode = ["decode", "--model", &model, "--prompt-tokens", "2,5", "-n", "2", "--kv", "f32"];
    let output = lathe(&[&decode[..], &["--hint", "attention_decode=theirs.wgsl"]].concat());
    assert_ends(&output, 2, "`N_KV` changes from step to step");
    assert!(stderr(&output).contains("uniform field `length`"), "{}", stderr(&output));
}
