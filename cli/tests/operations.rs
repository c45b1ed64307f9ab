//! Operations of the user's own: what a golden file holds is what judges, what is wrong with it is
//! said by tensor and offset, and results name the file.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use lathe_harness::data::record::Record;
use lathe_harness::plan::user::Operation;
use serde_json::{Value, json};

use crate::common::{
    self, Folder, Watch, assert_ends, code, document, ended, lathe_in, printed, said, stderr,
    stdout,
};

/// y = x + BY.
const KERNEL: &str = "
override N: u32;
override BY: f32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < N) { y[id.x] = x[id.x] + BY; }
}
";

const MAPPING: &str = r#"
[operation]
name = "shift"
golden = "shift.safetensors"
params = ["N", "BY"]
inputs = { x = { type = "f32", len = "N" } }
outputs = { y = "f32" }
bytes = "4 * (x.len + y.len)"
flops = "N"
tolerance = { k = 4, nmse = 1e-12 }
[[stage]]
entry = "main"
workgroups = "ceil(N / 64)"
"#;

/// A tensor of a golden file.
struct Tensor {
    name: String,
    dtype: &'static str,
    len: usize,
    bytes: Vec<u8>,
}

fn tensor<T: Copy, const N: usize>(
    name: &str,
    dtype: &'static str,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> Tensor {
    let bytes = values.iter().flat_map(|v| bytes(*v)).collect();
    Tensor { name: name.into(), dtype, len: values.len(), bytes }
}

fn f32s(name: &str, values: &[f32]) -> Tensor {
    tensor(name, "F32", values, f32::to_le_bytes)
}

/// The bytes of a safetensors file.
fn file(metadata: Value, tensors: &[Tensor]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    header.insert("__metadata__".into(), metadata);
    for Tensor { name, dtype, len, bytes } in tensors {
        let ends = [data.len(), data.len() + bytes.len()];
        header
            .insert(name.clone(), json!({ "dtype": dtype, "shape": [len], "data_offsets": ends }));
        data.extend(bytes);
    }
    let mut text = Value::Object(header).to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    [&(text.len() as u64).to_le_bytes(), text.as_bytes(), &data].concat()
}

fn inputs(len: usize, first: f32) -> Vec<f32> {
    (0..len).map(|i| first + i as f32 * 0.25).collect()
}

fn shifted(values: &[f32], by: f32) -> Vec<f32> {
    values.iter().map(|v| v + by).collect()
}

/// Two cases of 70 elements and one of 3.
fn golden() -> (Value, Vec<Tensor>) {
    let mut tensors = Vec::new();
    for (case, len, first, by) in [("a", 70, -4.0, 0.5), ("b", 70, 3.0, 0.5), ("c", 3, 1.0, -2.0)] {
        let x = inputs(len, first);
        tensors.push(f32s(&format!("{case}.x"), &x));
        tensors.push(f32s(&format!("{case}.y.expected"), &shifted(&x, by)));
        // What was added, which rounding is of.
        let magnitude: Vec<_> = x.iter().map(|v| v.abs() + by.abs()).collect();
        tensors.push(f32s(&format!("{case}.y.magnitude"), &magnitude));
    }
    (json!({ "a": "N=70,BY=0.5", "b": "N=70, BY=0.5", "c": "N=3,BY=-2", "by": "hand" }), tensors)
}

/// A folder with the mapping, its WGSL and its golden file.
fn folder() -> Folder {
    let folder = Folder::new();
    let (metadata, tensors) = golden();
    folder.write("shift.toml", MAPPING);
    folder.write("shift.wgsl", KERNEL);
    folder.write("shift.safetensors", file(metadata, &tensors));
    folder
}

#[test]
fn a_right_kernel_passes_every_case() {
    let Some(_) = common::gpu() else { return };
    let folder = folder();
    let report = document(&lathe_in(&folder, &["check", "shift.toml", "--json"]));
    assert_eq!((&report["passed"], &report["failed"]), (&json!(2), &json!(0)));
    assert_eq!(report["golden"]["cases"], 3);
    assert_eq!(report["golden"]["hash"].as_str().unwrap().len(), 16);
    assert_eq!(report["cases"][1]["shape"], "N=3,BY=-2");
    // Some of them, and a file of another name without a section of its own in its place.
    let stage = MAPPING.split_once("[[stage]]").unwrap().1;
    folder.write("other.toml", format!("[[stage]]{stage}"));
    folder.write("other.wgsl", KERNEL);
    let chosen = ["check", "shift.toml", "--wgsl", "other.toml", "--shape", "N=70"];
    let said = printed(&lathe_in(&folder, &chosen));
    assert!(said.contains("other.toml") && said.contains(", 2 cases"), "{said}");
    let output = lathe_in(&folder, &["check", "shift.toml", "--shape", "N=71"]);
    assert_ends(&output, 2, "no such case; it has N=70,BY=0.5; N=3,BY=-2");
}

#[test]
fn a_wrong_kernel_fails_with_its_worst_element() {
    let Some(_) = common::gpu() else { return };
    let folder = folder();
    for (wrong, words) in [
        // By a little, in one case of a shape alone.
        ("x[id.x] * select(1.0, 1.001, x[1] > 0.0) + BY", "worst [69] is 2.07"),
        (
            "x[id.x] + BY + select(0.0, 1.0, id.x == 66u)",
            "y: 1 of 70 elements out of bound, worst [66] is",
        ),
        ("x[0] * 0.0 / 0.0", "not finite"),
        // What it left before is not what the next inputs want.
        (
            "select(y[id.x], x[id.x] + BY, (bitcast<u32>(y[id.x]) & 0x7fc00000u) == 0x7fc00000u)",
            "when it ran over what",
        ),
    ] {
        folder.write("shift.wgsl", KERNEL.replace("x[id.x] + BY", wrong));
        let output = lathe_in(&folder, &["check", "shift.toml"]);
        assert_eq!(code(&output), 1, "{wrong}: {}", said(&output));
        let repeat = "repeat: lathe check shift.toml --shape N=70,BY=0.5";
        for words in [words, repeat, "in case `"] {
            assert!(stdout(&output).contains(words), "{wrong}: {}", stdout(&output));
        }
        for timed in
            [&["bench", "shift.toml"][..], &["ab", "shift.toml", "shift.toml", "--allow-software"]]
        {
            let output = lathe_in(&folder, timed);
            assert_eq!(code(&output), 1, "{wrong}: {}", stderr(&output));
            assert!(!stdout(&output).contains("µs"), "{}", stdout(&output));
        }
    }
}

/// A change to what a golden file holds.
type Change = fn(&mut Value, &mut Vec<Tensor>);

#[test]
fn a_golden_file_that_is_not_whole_says_where() {
    let changes: [(Change, &str); 18] = [
        (|_, t| drop(t.remove(1)), "tensor `a.y.expected`: the file does not have it"),
        (|_, t| drop(t.remove(0)), "tensor `a.x`: the file does not have it"),
        (|_, t| t[0].dtype = "U32", "tensor `a.x`: its type is U32, and the operation says f32"),
        (|_, t| t[1].dtype = "I32", "tensor `a.y.expected`: its type is I32"),
        (
            |_, t| t[6] = f32s("c.x", &inputs(2, 1.0)),
            "x: `c.x` of shift.safetensors has 2 elements, and by `len` and the parameters of the \
             case it should have 3",
        ),
        (
            |_, t| t[2] = f32s("a.y.magnitude", &inputs(69, 1.0)),
            "tensor `a.y.magnitude`: 69 elements, and 70 are expected",
        ),
        (
            |_, t| t[4] = f32s("b.y.expected", &inputs(71, 1.0)),
            "tensor `b.y.magnitude`: 70 elements, and 71 are expected",
        ),
        (
            |_, t| {
                t[4] = f32s("b.y.expected", &inputs(71, 1.0));
                t.remove(5);
            },
            "tensor `b.y`: 71 elements, and `a.y` of the same parameters has 70",
        ),
        (
            |_, t| t[0].name = "a.z".into(),
            "tensor `a.z`: the operation has no binding `z`; it has x, y",
        ),
        (|_, t| t[0].name = "x".into(), "tensor `x`: a name is CASE.BINDING"),
        (|_, t| t[0].name = "a.y".into(), "tensor `a.y`: `y` is an output"),
        (|_, t| t[0].name = "a.x.expected".into(), "tensor `a.x.expected`: `x` is an input"),
        (
            |_, t| t[1] = f32s("a.y.expected", &[f32::NAN; 70]),
            "tensor `a.y.expected`: element 0, at byte ",
        ),
        (
            |_, t| t[2].bytes[8..12].copy_from_slice(&(-1f32).to_le_bytes()),
            "tensor `a.y.magnitude`: element 2, at byte ",
        ),
        (|m, _| m["a"] = "N=70".into(), "metadata `a` = `N=70`: lacks `BY`"),
        (
            |m, _| m["a"] = "N=70,BY=x".into(),
            "metadata `a` = `N=70,BY=x`: `BY=x` is no NAME=NUMBER",
        ),
        (|m, _| m["d"] = "N=9,BY=1".into(), "metadata `d`: the file has no tensor of this case"),
        (
            |m, _| drop(m.as_object_mut().unwrap().remove("c")),
            "metadata `c`: lacks the parameters of this case, `N=…,BY=…`",
        ),
    ];
    let folder = folder();
    let path = folder.join("shift.toml");
    for (change, words) in changes {
        let (mut metadata, mut tensors) = golden();
        change(&mut metadata, &mut tensors);
        folder.write("shift.safetensors", file(metadata, &tensors));
        let why = Operation::read(&path).unwrap_err().to_string();
        let why = why.replace(&folder.path(""), "");
        assert!(why.contains(words), "{words}\n{why}");
        assert!(why.contains("shift.safetensors"), "{why}");
    }
    // And so through the command, with its exit code.
    let said = ended(&lathe_in(&folder, &["check", "shift.toml"]), 2);
    assert!(said.starts_with("lathe: shift.safetensors: metadata `c`"), "{said}");
}

#[test]
fn a_golden_file_that_is_none_is_refused_and_nothing_panics() {
    let folder = folder();
    let path = folder.join("shift.toml");
    let (metadata, tensors) = golden();
    let whole = file(metadata, &tensors);
    let refused = |bytes: &[u8]| {
        folder.write("shift.safetensors", bytes);
        Operation::read(&path).map(|_| ()).map_err(|e| e.to_string())
    };
    for len in 0..whole.len() {
        assert!(refused(&whole[..len]).is_err(), "the first {len} bytes are taken");
    }
    let cut = refused(&whole[..whole.len() - 1]).unwrap_err();
    assert!(cut.contains("the file is cut"), "{cut}");
    let huge = [&u64::MAX.to_le_bytes(), &whole[8..]].concat();
    let why = refused(&huge).unwrap_err();
    assert!(why.contains("header: 18446744073709551615 bytes are more than"), "{why}");
    let beyond = [&90_000_000u64.to_le_bytes(), &whole[8..]].concat();
    assert!(refused(&beyond).unwrap_err().contains("are beyond the file"));
    let many: Vec<_> = (0..1001).map(|case| f32s(&format!("{case}.x"), &[1.0])).collect();
    let why = refused(&file(json!({}), &many)).unwrap_err();
    assert!(why.contains("1001 cases, at most 1000 are read"), "{why}");
    // What a header says may be changed to anything.
    let end = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut taken = 0;
    for at in 8..end {
        for byte in *b"0\"}[-" {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            taken += usize::from(refused(&bytes).is_ok());
        }
    }
    assert!(taken < end, "{taken} changes of a byte make no difference");
    let golden = folder.path("shift.safetensors");
    fs::remove_file(&golden).unwrap();
    assert!(Operation::read(&path).unwrap_err().to_string().contains("shift.safetensors: "));
    fs::create_dir(&golden).unwrap();
    let why = Operation::read(&path).unwrap_err().to_string();
    assert!(why.ends_with("shift.safetensors: is a directory"), "{why}");
}

#[test]
fn a_section_that_says_what_cannot_be_is_refused() {
    let folder = folder();
    for (from, to, words) in [
        // Twice the buffers would be twice the bandwidth.
        (
            "4 * (x.len",
            "8 * (x.len",
            "bytes in case `a` are 1120, and all buffers together have 560",
        ),
        ("\"4 * (x.len + y.len)\"", "-1", "bytes in case `a`: -1"),
        (
            "\"N\"\ntol",
            "\"M\"\ntol",
            "flops in case `a`: `M`: no `M`; there are BY, N, x.len, y.len",
        ),
        (
            "y = \"f32\"",
            "y = \"f8\"",
            "y: no type `f8`; there are f32, f16, bf16, u32, i32, u8, i8",
        ),
        ("y = \"f32\"", "x = \"f32\"", "two bindings `x`"),
        ("\"shift\"", "\"rope\"", "Lathe has this one; `lathe check rope --wgsl FILE`"),
        ("\"shift\"", "\"My Op\"", "lower-case letters"),
        ("\"BY\"]", "\"N_KV\"]", "params: `N_KV`: take another name"),
        ("\"BY\"]", "\"N\"]", "params: `N` twice"),
        ("nmse = 1e-12", "", "tolerance lacks `nmse`"),
        ("nmse = 1e-12", "nmse = -1.0", "tolerance: nmse = -1"),
        ("outputs", "inouts", "unknown field `inouts`"),
        ("[operation]", "[elsewhere]", "unknown field `elsewhere`"),
        ("[[stage]]\nentry", "[takes]\nN", "has no [[stage]]"),
    ] {
        let text = MAPPING.replace(from, to);
        assert_ne!(text, MAPPING, "{from}");
        folder.write("shift.toml", text);
        let said = ended(&lathe_in(&folder, &["validate", "shift.toml"]), 2);
        assert!(said.contains("lathe: shift.toml: ") && said.contains(words), "{words}\n{said}");
    }
}

/// Integers of every size, 16-bit floats, and a buffer that is read and written.
const TYPES: &str = "
enable f16;
override N: u32;
@group(0) @binding(0) var<storage, read> bytes: array<u32>;
@group(0) @binding(1) var<storage, read> signs: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<f16>;
@group(0) @binding(3) var<storage, read_write> twice: array<u32>;
@group(0) @binding(4) var<storage, read_write> negated: array<i32>;
@group(0) @binding(5) var<storage, read_write> half: array<f16>;
@group(0) @binding(6) var<storage, read_write> brain: array<u32>;
@group(0) @binding(7) var<storage, read_write> count: array<i32>;
@compute @workgroup_size(1)
fn main() {
    for (var i = 0u; i < (N + 3u) / 4u; i++) { twice[i] = pack4xU8(unpack4xU8(bytes[i]) * 2u); }
    for (var i = 0u; i < N; i++) {
        negated[i] = -unpack4xI8(signs[i / 4u])[i % 4u];
        half[i] = x[i] * 3.0h;
        count[i] += i32(i) - 2;
    }
    for (var i = 0u; i < (N + 1u) / 2u; i++) {
        let low = bitcast<u32>(f32(x[2u * i])) >> 16u;
        let high = bitcast<u32>(f32(x[min(2u * i + 1u, N - 1u)])) & 0xffff0000u;
        brain[i] = low | high;
    }
}
";

const TYPES_MAPPING: &str = r#"
[operation]
golden = "types.safetensors"
params = ["N"]
inputs = { bytes = "u8", signs = "i8", x = "f16" }
outputs = { twice = "u8", negated = "i32", half = "f16", brain = "bf16" }
in_out = { count = "i32" }
bytes = 1
flops = 0
tolerance = { k = 1, nmse = 0 }
[[stage]]
entry = "main"
workgroups = 1
"#;

/// Cases of seven elements.
fn types(cases: usize) -> Vec<u8> {
    let (mut metadata, mut tensors) = (serde_json::Map::new(), Vec::new());
    for nth in 0..cases {
        let name = |binding: &str| format!("{nth}.{binding}");
        let numbers: Vec<i32> = (0..7).map(|i| 5 * nth as i32 + 7 * i - 20).collect();
        let of =
            |change: &dyn Fn(i32) -> i32| numbers.iter().map(|n| change(*n)).collect::<Vec<_>>();
        let bytes: Vec<u8> = numbers.iter().map(|n| n.unsigned_abs() as u8).collect();
        let signs: Vec<i8> = numbers.iter().map(|n| *n as i8).collect();
        let x: Vec<f32> = numbers.iter().map(|n| *n as f32 / 16.0).collect();
        let thrice: Vec<f32> = x.iter().map(|v| v * 3.0).collect();
        let after: Vec<i32> = (0..).zip(&numbers).map(|(i, n)| 100 * n + i - 2).collect();
        metadata.insert(nth.to_string(), "N=7".into());
        tensors.push(tensor(&name("bytes"), "U8", &bytes, |v| [v]));
        let twice: Vec<u8> = bytes.iter().map(|v| v * 2).collect();
        tensors.push(tensor(&name("twice.expected"), "U8", &twice, |v| [v]));
        tensors.push(tensor(&name("signs"), "I8", &signs, i8::to_le_bytes));
        tensors.push(tensor(&name("negated.expected"), "I32", &of(&|n| -n), i32::to_le_bytes));
        tensors.push(tensor(&name("x"), "F16", &x, |v| f16::from_f32(v).to_le_bytes()));
        tensors
            .push(tensor(&name("half.expected"), "F64", &thrice, |v| f64::from(v).to_le_bytes()));
        tensors
            .push(tensor(&name("brain.expected"), "BF16", &x, |v| bf16::from_f32(v).to_le_bytes()));
        tensors.push(tensor(&name("count"), "I32", &of(&|n| 100 * n), i32::to_le_bytes));
        tensors.push(tensor(&name("count.expected"), "I32", &after, i32::to_le_bytes));
    }
    // Of equal alignment: the widest first.
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes.len() / tensor.len));
    file(Value::Object(metadata), &tensors)
}

#[test]
fn every_type_is_judged_and_timed() {
    if !common::gpu().is_some_and(|gpu| gpu.caps.f16) {
        return;
    }
    let folder = Folder::new();
    folder.write("types.toml", TYPES_MAPPING);
    folder.write("types.wgsl", TYPES);
    // One case, those that there are copies for, and more.
    for cases in [1, 3, 6] {
        folder.write("types.safetensors", types(cases));
        ended(&lathe_in(&folder, &["check", "types.toml"]), 0);
        let bench = ["bench", "types.toml", "--overlapped", "--json"];
        let case = &document(&lathe_in(&folder, &bench))["cases"][0];
        assert_eq!(case["golden"]["cases"], cases);
        let flags = case["flags"].as_array().unwrap();
        assert!(flags.contains(&"golden cases alone".into()), "{flags:?}");
        assert_eq!(flags.contains(&"same inputs".into()), cases == 1, "{flags:?}");
    }
    for (from, to, words) in [
        ("* 2u)", "* 3u)", "twice: 7 of 7 integers differ, first [0] is 60, expected 40"),
        ("= -unpack", "= unpack", "negated: 7 of 7 integers differ, first [0] is -20, expected 20"),
        (
            "i32(i) - 2",
            "i32(i) - 3",
            "count: 7 of 7 integers differ, first [0] is -2003, expected -2002",
        ),
        ("3.0h", "3.01h", "half: "),
        ("& 0xffff0000u", "& 0xfff00000u", "brain: "),
    ] {
        assert!(TYPES.contains(from), "{from}");
        folder.write("types.wgsl", TYPES.replace(from, to));
        let output = lathe_in(&folder, &["check", "types.toml"]);
        assert_eq!(code(&output), 1, "{}", stderr(&output));
        assert!(stdout(&output).contains(words), "{words}\n{}", stdout(&output));
    }
}

#[test]
fn records_say_what_judged() {
    let Some(_) = common::gpu() else { return };
    let folder = folder();
    let save = ["--save", "run.json", "--allow-software"];
    let output = lathe_in(&folder, &[&["bench", "shift.toml"][..], &save].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let record = folder.read("run.json");
    let saved: Value = serde_json::from_str(&record).unwrap();
    let [first, second] = &saved["cases"].as_array().unwrap()[..] else { panic!("{saved}") };
    let hash = first["golden"]["hash"].as_str().unwrap();
    assert!(stdout(&output).contains(&format!("judged by golden file {hash}, 3 cases")));
    assert_eq!((&first["kernel"], &first["variant"]), (&json!("shift"), &json!("shift.toml")));
    assert_eq!((&first["bytes"], &first["flops"]), (&json!(560.0), &json!(70.0)));
    let flags = |case: &Value| case["flags"].to_string();
    assert!(flags(first).contains("golden cases alone") && !flags(first).contains("same inputs"));
    assert!(flags(second).contains("same inputs"), "{}", flags(second));
    assert!(!flags(first).contains("one shape"));
    assert!(Record::parse(&record, Path::new("run.json")).is_ok());
    // What is known at one shape alone says so.
    let shape = ["bench", "shift.toml", "--shape", "N=3", "--one-shape", "--json"];
    let case = &document(&lathe_in(&folder, &shape))["cases"][0];
    assert!(flags(case).contains("one shape"), "{}", flags(case));
    assert_eq!(case["golden"]["cases"], 1);
    // Another file has another hash.
    let (metadata, mut tensors) = golden();
    tensors.truncate(6);
    let metadata = json!({ "a": metadata["a"], "b": metadata["b"] });
    folder.write("shift.safetensors", file(metadata, &tensors));
    let ab = ["ab", "shift.toml", "shift.toml", "--allow-software", "--time-out", "1", "--json"];
    let ab = common::json(&lathe_in(&folder, &ab));
    assert_eq!((&ab["kernel"], &ab["golden"]["cases"]), (&json!("shift"), &json!(2)), "{ab}");
    assert_ne!(ab["golden"]["hash"], hash);
    assert!(flags(&ab).contains("golden cases alone") && flags(&ab).contains("one shape"));
}

#[test]
fn two_files_are_compared_over_one_operation() {
    let Some(_) = common::gpu() else { return };
    let folder = folder();
    let rest = ["--allow-software", "--time-out", "1"];
    let ab = |args: &[&str]| lathe_in(&folder, &[&["ab", "shift.toml"], args, &rest].concat());
    // The same section, and none.
    folder.write("other.wgsl", KERNEL);
    let stage = format!("[[stage]]{}", MAPPING.split_once("[[stage]]").unwrap().1);
    for mapping in [MAPPING, &stage] {
        folder.write("other.toml", mapping);
        for sides in [
            &["other.toml"][..],
            &["--b", "other.toml"],
            &["--a", "other.toml", "--b", "shift.toml"],
        ] {
            let output = ab(sides);
            assert!([Some(0), Some(6)].contains(&output.status.code()), "{}", stderr(&output));
            assert!(stdout(&output).contains("outputs judged"), "{}", stdout(&output));
        }
    }
    for (mapping, words) in [
        (MAPPING.replace("k = 4", "k = 400"), "[operation] is not that of shift.toml"),
        (
            MAPPING.replace("shift.saf", "more.saf"),
            "its golden file is another than shift.safetensors",
        ),
    ] {
        folder.write("other.toml", mapping);
        assert_ends(&ab(&["other.toml"]), 2, words);
    }
    assert!(stderr(&ab(&[])).contains("shift.toml against what?"));
}

#[test]
fn other_commands_say_which_takes_it() {
    let folder = folder();
    let refused = |args: &[&str], words: &str| assert_ends(&lathe_in(&folder, args), 2, words);
    refused(&["show", "shift.toml"], "`lathe check shift.toml`");
    refused(&["list", "shift.toml"], "`lathe check shift.toml`");
    refused(&["tune", "shift.toml", "--allow-software"], "`lathe ab shift.toml OTHER.toml`");
    folder.write("plain.toml", "[overrides]\n");
    folder.write("plain.wgsl", KERNEL);
    refused(&["validate", "plain.toml"], "has no section [operation]");
    if common::gpu().is_some() {
        refused(&["check", "gemv", "--wgsl", "shift.toml"], "`lathe check shift.toml` checks it");
        refused(&["check", "plain.toml"], "has no section [operation]");
        refused(&["check", "plain.wgsl"], "name the TOML that has its [operation]");
        refused(&["check", "gemv", "--watch"], "--watch needs a file");
        refused(&["bench", "shift.toml", "--selected"], "--selected");
    }
    let report = document(&lathe_in(&folder, &["validate", "shift.toml", "--json"]));
    assert_eq!((&report["shapes"], &report["golden"]["cases"]), (&json!(2), &json!(3)));
    assert_eq!(report["entries"][0]["back_ends"].as_array().unwrap().len(), 4);
    ended(&lathe_in(&folder, &["validate", "shift.toml", "--limits", "minimal"]), 0);
}

#[test]
fn watch_runs_again_when_the_golden_file_is_written() {
    let Some(_) = common::gpu() else { return };
    let folder = folder();
    let watch = Watch::new(common::command_in(&folder, &["check", "shift.toml", "--watch"]));
    assert!(watch.verdict().contains("2 passed, 0 failed"));
    let (metadata, mut tensors) = golden();
    tensors[1].bytes[3] ^= 0x80;
    folder.write_later("shift.safetensors", file(metadata, &tensors));
    assert!(watch.verdict().contains("1 passed, 1 failed"));
}

#[test]
fn the_example_is_as_its_script_writes_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/softcap");
    let golden = fs::read(folder.join("golden.safetensors")).unwrap();
    assert!(golden.len() < 12 << 10, "{} bytes", golden.len());
    let operation = Operation::read(&folder.join("softcap.toml")).unwrap();
    let mut known = String::new();
    for problem in operation.kernel.cases() {
        let draws = operation.golden.draws(&problem.shape);
        writeln!(known, "{} {draws}", operation.kernel.show(&problem)).unwrap();
    }
    assert_eq!(known, "N=100,CAP=30 2\nN=257,CAP=50 1\nN=1,CAP=5 1\n");
    if common::gpu().is_some() {
        ended(&lathe_in(&folder, &["check", "softcap.toml"]), 0);
    }
}
