//! Files of other engines through their mappings: right ones pass the sweep, are timed and compared,
//! wrong ones fail, and faults of a mapping are said with what they concern.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::process::Output;

use lathe_harness::plan::backend_text::generous;
use lathe_harness::plan::select::{Hint, Hints, select};
use lathe_harness::plan::{Plan, PlanError, Subject};
use lathe_kernels::Capabilities;

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

/// Attention whose length and grid come from the host: a score a workgroup, then an element.
const SCORES: &str = "
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

/// A matrix of f32 whose rows are `ROW` and whose columns are `COLUMN` values apart.
const GEMV: &str = "
override ROWS: u32;
override K: u32;
override ROW: u32;
override COLUMN: u32;
@group(0) @binding(0) var<storage, read> W: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = 0.0;
    for (var c = 0u; c < K; c++) { sum += W[group.x * ROW + c * COLUMN] * x[c]; }
    y[group.x] = sum;
}
";

/// The same with the lower and the upper half of the rows in buffers of their own.
const HALVES: &str = "
override ROWS: u32;
override K: u32;
override ROW: u32;
override HALF: u32;
@group(0) @binding(0) var<storage, read> low: array<f32>;
@group(0) @binding(1) var<storage, read> high: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    var sum = 0.0;
    for (var c = 0u; c < K; c++) {
        if (row < HALF) { sum += low[row * ROW + c] * x[c]; }
        else { sum += high[(row - HALF) * ROW + c] * x[c]; }
    }
    y[row] = sum;
}
";

/// The same with the upper half beside the whole, and a uniform that has a binding's name.
const BESIDE: &str = "
struct Sizes { k: u32, row: u32, half: u32 }
@group(0) @binding(0) var<storage, read> W: array<f32>;
@group(0) @binding(1) var<storage, read> high: array<f32>;
@group(0) @binding(2) var<storage, read> input: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> x: Sizes;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    var sum = 0.0;
    for (var c = 0u; c < x.k; c++) {
        if (row < x.half) { sum += W[row * x.row + c] * input[c]; }
        else { sum += high[(row - x.half) * x.row + c] * input[c]; }
    }
    y[row] = sum;
}
";

/// 4-bit codes less 8 times a scale, both in buffers of their own.
const FIELDS: &str = "
override K: u32;
override WORD_ROW: u32;
override WORD_COLUMN: u32;
override SCALE_ROW: u32;
override SCALE_COLUMN: u32;
@group(0) @binding(0) var<storage, read> qweight: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    var sum = 0.0;
    for (var c = 0u; c < K; c++) {
        let word = qweight[row * WORD_ROW + (c / 8u) * WORD_COLUMN];
        let code = f32((word >> (4u * (c % 8u))) & 15u) - 8.0;
        sum += scales[row * SCALE_ROW + (c / 32u) * SCALE_COLUMN] * code * x[c];
    }
    y[row] = sum;
}
";

/// Attention over caches (KV_SIZE, KV_HEADS, HEAD_DIM).
const ATTENTION: &str = "
override KV_HEADS: u32;
override Q_PER_KV: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override SCALE: f32;
@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<f32>;
@group(0) @binding(3) var<storage, read> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let head = group.x;
    let slots = min(state[0] + 1u, KV_SIZE);
    for (var d = i; d < HEAD_DIM; d += 32u) {
        var most = -1e30;
        var norm = 0.0;
        var sum = 0.0;
        for (var t = 0u; t < slots; t++) {
            let at = (t * KV_HEADS + head / Q_PER_KV) * HEAD_DIM;
            var score = 0.0;
            for (var c = 0u; c < HEAD_DIM; c++) { score += q[head * HEAD_DIM + c] * keys[at + c]; }
            score *= SCALE;
            let next = max(most, score);
            let p = exp(score - next);
            norm = norm * exp(most - next) + p;
            sum = sum * exp(most - next) + p * values[at + d];
            most = next;
        }
        y[head * HEAD_DIM + d] = sum / norm;
    }
}
";

/// Moves between rows of heads and a ring (KV_SIZE, KV_HEADS, HEAD_DIM), which it writes.
const WINDOW: &str = "
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override N_TOKENS: u32;
override WAY: u32;
@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read_write> k_cache: array<f32>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<f32>;
@group(0) @binding(3) var<storage, read_write> k_rows: array<f32>;
@group(0) @binding(4) var<storage, read_write> v_rows: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let head = group.x;
    let rows = head * (KV_SIZE + N_TOKENS) + KV_SIZE;
    let position = state[0];
    for (var d = i; d < HEAD_DIM; d += 32u) {
        if (WAY == 0u) {
            for (var j = 1u; j <= min(KV_SIZE, position); j++) {
                let slot = (((position - j) % KV_SIZE) * KV_HEADS + head) * HEAD_DIM + d;
                k_rows[(rows - j) * HEAD_DIM + d] = k_cache[slot];
                v_rows[(rows - j) * HEAD_DIM + d] = v_cache[slot];
            }
        } else if (state[1] > position) {
            for (var j = 0u; j < min(N_TOKENS, state[1] - position); j++) {
                let slot = (((position + j) % KV_SIZE) * KV_HEADS + head) * HEAD_DIM + d;
                k_cache[slot] = k_rows[(rows + j) * HEAD_DIM + d];
                v_cache[slot] = v_rows[(rows + j) * HEAD_DIM + d];
            }
        }
    }
}
";

/// The stage of [`THEIRS`].
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
alpha = "WEIGHT == f16"
"#;

/// Sections for [`PARTS`] and [`REDUCE`], after the line before `[takes]`.
const SPLIT: &str = r#"file = "parts.wgsl"
|[scratch]
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
file = "reduce.wgsl"
entry = "main"
workgroups = "ROWS"
[stage.bindings]
src = "partial"
dst = "y"
[stage.uniforms.params]
parts = 3
"#;

const OF_VECTORS: &str = r#"[uniforms]
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

const OF_STATE: &str = r#"
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

const OF_HALVES: &str = r#"[overrides]
ROW = "ceil(K / 4) * 4"
HALF = "floor(ROWS / 2)"
[bindings]
low = { of = "weights", to = "floor(ROWS / 2)" }
high = { of = "weights", from = "floor(ROWS / 2)" }
"#;

const OF_CACHES: &str = r#"[takes]
KV_FORMAT = "f32"
HEAD_DIM = [32, 64]
when = "KV_HEADS > 1"
[[stage]]
entry = "main"
workgroups = "KV_HEADS"
[bindings]
k_cache = { of = "k_cache", order = "tokens" }
v_cache = { of = "v_cache", order = "tokens" }
"#;

/// What all mappings of gemv take.
const VECTOR: &str = "ACT_FORMAT = \"f32\"\nN_VECTORS = 1\nY_OFFSET = 0\nY_AFTER = 0\nBETA = 0\n";

/// What is replaced by what.
type Change = (&'static str, &'static str);

/// A user's files for a kernel: `theirs.toml`, and the WGSL beside it or that it names.
struct Files {
    name: &'static str,
    kernel: &'static str,
    shape: &'static str,
    texts: Vec<(&'static str, &'static str)>,
    mapping: String,
    /// Changes that make them wrong.
    wrong: Vec<Change>,
}

impl Files {
    /// The files in a folder, after a change to the one that it concerns.
    fn folder(&self, (from, to): Change) -> Folder {
        let folder = Folder::new();
        let mut found = false;
        for (name, text) in self.texts.iter().chain([&("theirs.toml", self.mapping.as_str())]) {
            found |= text.contains(from);
            folder.write(name, text.replacen(from, to, 1));
        }
        assert!(found, "{}: no `{from}`", self.name);
        folder
    }

    fn lathe(&self, change: Change, args: &[&str]) -> Output {
        lathe_in(self.folder(change), args)
    }

    fn check(&self, change: Change, args: &[&str]) -> Output {
        self.lathe(change, &[&["check", self.kernel, "--mapping", "theirs.toml"], args].concat())
    }

    fn plan(&self, change: Change, shape: &str) -> Result<Plan, PlanError> {
        let folder = self.folder(change);
        let kernel = lathe_kernels::kernel(self.kernel).unwrap();
        let problem = common::problem(kernel, self.shape);
        let problem = kernel.parse_over(&problem, shape).unwrap();
        let subject = Subject::compile(&folder.join("theirs.toml"), kernel, &kernel.variants[0]);
        subject?.plan(&problem, &generous())
    }
}

/// No change.
const AS_IT_IS: Change = ("", "");

/// A mapping of gemv in f32 whose first dispatch is `main`.
fn gemv(
    name: &'static str,
    text: &'static str,
    rest: &str,
    wrong: impl Into<Vec<Change>>,
) -> Files {
    let (before, rest) = rest.split_once('|').unwrap_or(("", rest));
    let takes = format!("WEIGHT = \"f32\"\n{VECTOR}when = \"ROWS <= 65535\"\n");
    let stage = "[[stage]]\nentry = \"main\"\nworkgroups = \"ROWS\"\n";
    Files {
        name,
        kernel: "gemv",
        shape: "ROWS=70,K=131,WEIGHT=f32",
        texts: vec![("theirs.wgsl", text)],
        mapping: format!("{before}[takes]\n{takes}{stage}{rest}"),
        wrong: wrong.into(),
    }
}

/// A mapping of gemv_q for codes and scales in buffers of their own.
fn fields(name: &'static str, rest: &str, wrong: impl Into<Vec<Change>>) -> Files {
    let mut files = gemv(name, FIELDS, rest, wrong);
    files.mapping =
        files.mapping.replace("WEIGHT = \"f32\"", "WEIGHT = \"q4_0\"\nORDER = \"row_wise\"");
    Files { kernel: "gemv_q", shape: "ROWS=70,K=131,WEIGHT=q4_0", ..files }
}

/// Two dispatches of two files with scratch memory between them.
fn split() -> Files {
    let wrong = [
        ("ROWS * 4 * 3", "ROWS * 4"),
        ("parts = 3", "parts = 2"),
        ("stride = \"ceil(K / 4) * 4\"", "stride = \"K\""),
    ];
    let files = gemv("split", "", SPLIT, wrong);
    let mapping = files.mapping.replacen("= \"ROWS\"\n", "= [\"ROWS\", \"PARTS\"]\n", 1);
    Files { texts: vec![("parts.wgsl", PARTS), ("reduce.wgsl", REDUCE)], mapping, ..files }
}

fn all() -> Vec<Files> {
    vec![
        Files {
            shape: "ROWS=70,K=128,WEIGHT=f16",
            mapping: theirs(),
            wrong: vec![("alpha = \"WEIGHT == f16\"", "alpha = 1.0001")],
            ..gemv("theirs", THEIRS, "", [])
        },
        split(),
        gemv(
            "vectors",
            VECTORS,
            OF_VECTORS,
            [
                ("TWICE = false", "TWICE = true"),
                ("[1, 2, 3]", "[3, 2, 1]"),
                ("[0, 5, 0, 0, 0, 6]", "[0, 0, 5, 0, 6, 0]"),
                ("0, 0, 0, 0, -5]", "0, 0, 0, -5, 0]"),
                ("ones = [1, 2]", "ones = [2, 1]"),
            ],
        ),
        gemv(
            "tight",
            GEMV,
            "packing = \"file\"\n|[overrides]\nROW = \"K\"\nCOLUMN = 1\n\
             [bindings]\nW = \"weights\"\n",
            [("packing = \"file\"", "")],
        ),
        gemv(
            "columns",
            GEMV,
            "[overrides]\nROW = 1\nCOLUMN = \"ROWS\"\n\
             [bindings]\nW = { of = \"weights\", order = \"columns\" }\n",
            [("\"columns\"", "\"rows\"")],
        ),
        Files {
            mapping: gemv("", "", OF_HALVES, [])
                .mapping
                .replace("\"ROWS <= 65535\"", "[\"ROWS <= 65535\", \"ROWS >= 2\"]"),
            ..gemv(
                "halves",
                HALVES,
                "",
                [("from = \"floor(ROWS / 2)\"", "from = \"floor(ROWS / 2) - 1\"")],
            )
        },
        gemv(
            "beside",
            BESIDE,
            "[uniforms.x]\nk = \"K\"\nrow = \"ceil(K / 4) * 4\"\nhalf = \"floor(ROWS / 2)\"\n\
             [bindings]\nW = \"weights\"\ninput = \"x\"\n\
             high = { of = \"weights\", from = \"floor(ROWS / 2)\" }\n",
            [("from = \"floor(ROWS / 2)\"", "to = \"ROWS\"")],
        ),
        fields(
            "fields",
            "[overrides]\nWORD_ROW = \"ceil(K / 32) * 4\"\nWORD_COLUMN = 1\n\
             SCALE_ROW = \"ceil(K / 32)\"\nSCALE_COLUMN = 1\n\
             [bindings]\nqweight = { of = \"weights\", field = \"codes\" }\n\
             scales = { of = \"weights\", field = \"d\", type = \"f32\" }\n",
            [(", type = \"f32\"", ""), ("{ of = \"weights\", field = \"codes\" }", "\"weights\"")],
        ),
        fields(
            "columns of fields",
            "[overrides]\nWORD_ROW = 1\nWORD_COLUMN = \"ROWS\"\nSCALE_ROW = 1\n\
             SCALE_COLUMN = \"ROWS\"\n[bindings]\n\
             qweight = { of = \"weights\", field = \"codes\", order = \"columns\" }\n\
             scales = { of = \"weights\", field = \"d\", type = \"f32\", order = \"columns\" }\n",
            [("\"codes\", order = \"columns\"", "\"codes\", order = \"rows\"")],
        ),
        Files {
            name: "caches",
            kernel: "attention_decode",
            shape: "KV_HEADS=3,Q_PER_KV=2,HEAD_DIM=32,KV_SIZE=40,N_KV=33,KV_FORMAT=f32",
            texts: vec![("theirs.wgsl", ATTENTION)],
            mapping: OF_CACHES
                .replace("[takes]", "[takes]\nACT_FORMAT = \"f32\"")
                .replace("KV_HEADS\"\n[b", "KV_HEADS * Q_PER_KV\"\n[b")
                .replace("k_cache =", "keys =")
                .replace("v_cache =", "values ="),
            wrong: vec![("keys = { of = \"k_cache\", order = \"tokens\" }", "keys = \"k_cache\"")],
        },
        Files {
            name: "written caches",
            kernel: "kv_window",
            shape: "KV_HEADS=3,HEAD_DIM=32,KV_SIZE=12,N_TOKENS=5,N_KV=9,PROMPT_LEN=20,KV_FORMAT=f32",
            texts: vec![("theirs.wgsl", WINDOW)],
            mapping: OF_CACHES.into(),
            wrong: vec![("k_cache\", order = \"tokens\"", "k_cache\", order = \"heads\"")],
        },
        Files {
            name: "state",
            kernel: "attention_decode",
            shape: "Q_PER_KV=2,KV_HEADS=1,HEAD_DIM=32,KV_SIZE=256,KV_FORMAT=f32,SCALE=0.5",
            texts: vec![("theirs.wgsl", SCORES)],
            mapping: OF_STATE.into(),
            wrong: vec![("length = \"min(N_KV, KV_SIZE)\"", "length = 1")],
        },
    ]
}

fn named(name: &str) -> Files {
    all().into_iter().find(|files| files.name == name).unwrap()
}

/// The mapping of [`THEIRS`].
fn theirs() -> String {
    format!(
        "[takes]\nWEIGHT = \"f16\"\nK = \"multiple of 4\"\nwhen = \"ROWS <= 65535\"\n{VECTOR}{MAPPED}"
    )
}

/// Those that an adapter can run, where there is one.
fn here() -> Vec<Files> {
    let Some(gpu) = common::gpu() else { return Vec::new() };
    let runs = |files: &Files| gpu.caps.f16 || files.name != "theirs";
    all().into_iter().filter(runs).collect()
}

#[test]
fn right_files_pass_the_sweep_and_wrong_ones_fail() {
    for files in here() {
        let said = printed(&files.check(AS_IT_IS, &["--cases", "4"]));
        assert!(said.contains(", 0 failed, 0 unavailable"), "{}: {said}", files.name);
        for change in &files.wrong {
            let output = files.check(*change, &["--cases", "4", "--fail-fast"]);
            assert_eq!(code(&output), 1, "{}: {change:?} {}", files.name, stderr(&output));
        }
    }
}

/// Outputs are judged after they are timed: cold, overlapping, and against a variant or another file
/// over the same inputs.
#[test]
fn files_are_timed_and_compared() {
    for (i, files) in here().into_iter().enumerate().filter(|(_, files)| files.name != "state") {
        let shape = ["--shape", files.shape, "--json"];
        let bench = ["bench", files.kernel, "--wgsl", "theirs.toml", "--overlapped", "--stages"];
        let case =
            document(&files.lathe(AS_IT_IS, &[&bench[..], &shape].concat()))["cases"][0].clone();
        let stages = case["stages"].as_array().map_or(0, Vec::len);
        assert_eq!(stages, if files.name == "split" { 2 } else { 0 }, "{case}");
        // A file is A and B in turns.
        let mut sides = ["naive", "theirs.toml"];
        sides.rotate_left(i % 2);
        let ab = ["ab", files.kernel, "--a", sides[0], "--b", sides[1], "--allow-software"];
        let output = files.lathe(AS_IT_IS, &[&ab[..], &["--time-out", "1"], &shape].concat());
        assert!(matches!(output.status.code(), Some(0 | 6)), "{}: {}", files.name, stderr(&output));
        let report = json(&output);
        for side in ["a_side", "b_side"] {
            assert!(report[side]["nmse"].as_f64().unwrap() < 1e-6, "{report}");
        }
        let theirs = if i % 2 == 0 { "b_side" } else { "a_side" };
        let text = report[theirs]["wgsl"].as_str().unwrap();
        for (_, own) in &files.texts {
            assert!(text.contains(own.lines().last().unwrap()), "{report}");
        }
    }
}

/// Plans that cannot be made: files, what else the shape has, a change, the exit code, and words.
#[test]
fn faults_are_said_with_what_they_concern() {
    const UNFIT: i32 = 2;
    let rows: &[(&str, &str, Change, i32, &[&str])] = &[
        // All that a mapping does not take of parameters.
        (
            "theirs",
            "K=6,WEIGHT=bf16",
            AS_IT_IS,
            3,
            &["K=6: it takes a multiple of 4; WEIGHT=bf16: it takes f16"],
        ),
        ("theirs", "ROWS=65536", AS_IT_IS, 3, &["it takes shapes where ROWS <= 65535"]),
        (
            "theirs",
            "",
            ("K = \"multiple of 4\"", "FOO = 3\nK = \"multiple of x\""),
            UNFIT,
            &[
                "[takes] FOO is no parameter of gemv; it has ROWS, K, ",
                "[takes] K = \"multiple of x\": expected",
            ],
        ),
        (
            "theirs",
            "",
            ("WEIGHT = \"f16\"", "WEIGHT = [\"f16\", \"q9\"]"),
            UNFIT,
            &["[takes] WEIGHT=q9: expected one of f32, f16, bf16"],
        ),
        (
            "theirs",
            "",
            ("[takes]", "tolerance = \"x\"\n[takes]"),
            UNFIT,
            &["tolerance: no variant `x`; there are naive, "],
        ),
        (
            "theirs",
            "",
            ("[takes]", "tolerance = { k = -1 }\n[takes]"),
            UNFIT,
            &["tolerance: k = -1"],
        ),
        (
            "theirs",
            "",
            ("[takes]", "packing = \"split\"\n[takes]"),
            UNFIT,
            &["no packing `split`; there are blocks, planes"],
        ),
        (
            "vectors",
            "",
            ("[takes]", "packing = \"planes\"\n[takes]"),
            UNFIT,
            &["is of quantised rows, gemv has none"],
        ),
        // A grid.
        (
            "theirs",
            "ROWS=2",
            ("= \"ROWS\"\n[b", "= \"ROWS / (ROWS - 2)\"\n[b"),
            1,
            &["workgroups of gemv_main: ", "divides by zero"],
        ),
        (
            "theirs",
            "",
            ("= \"ROWS\"\n[b", "= [\"ROWS - ROWS\"]\n[b"),
            1,
            &["0 workgroups of gemv_main"],
        ),
        (
            "theirs",
            "",
            ("= \"ROWS\"\n[b", "= []\n[b"),
            UNFIT,
            &["gemv_main: 0 workgroups, not one to three"],
        ),
        (
            "theirs",
            "",
            ("= \"ROWS\"\n[b", "= \"?\"\n[b"),
            UNFIT,
            &["workgroups of gemv_main: `?`: expected a number or a name"],
        ),
        // Buffers.
        (
            "theirs",
            "",
            ("let row = group.x;", "let row = group.x; input[0].x = 1.0;"),
            UNFIT,
            &["writes `input`, which is the input x"],
        ),
        (
            "theirs",
            "",
            ("@group(0) @binding(3)", "@group(77) @binding(3)"),
            3,
            &["uses @group(77), the adapter has"],
        ),
        (
            "theirs",
            "",
            ("input = \"x\"", "input = \"weights\""),
            UNFIT,
            &["`W` and `input` are both weights", "read_write"],
        ),
        // Uniforms and overrides, each fault beside the others.
        (
            "theirs",
            "",
            ("alpha = ", "alpah = "),
            UNFIT,
            &["2 faults", "no field `alpah`", "field `alpha` has no value"],
        ),
        (
            "theirs",
            "",
            ("var<workgroup>", "override TILE: u32;\nvar<workgroup>"),
            UNFIT,
            &["override `TILE` has no value"],
        ),
        (
            "vectors",
            "",
            ("[1, 2, 3]", "2"),
            UNFIT,
            &["uniform field `inner.factors` has 3 numbers, the mapping gives 1"],
        ),
        (
            "vectors",
            "",
            ("\"K\"", "[\"K\"]\n\"sizes[2].k\" = 1"),
            UNFIT,
            &["uniform `params` has no field `sizes[2].k`"],
        ),
        (
            "vectors",
            "",
            ("ones = [1, 2]\n", ""),
            UNFIT,
            &["uniform `ones` needs a value: [uniforms] ones = …"],
        ),
        (
            "vectors",
            "",
            ("ones = [1, 2]\n", "ones.x = 1\n"),
            UNFIT,
            &["uniform `ones` is no struct: [uniforms] ones = …"],
        ),
        (
            "vectors",
            "",
            (
                "[uniforms.params]\n\"inner.before\"",
                "params = 1\n[overrides]\nTWICE = true\n[scratch]\na",
            ),
            UNFIT,
            &["unknown field"],
        ),
        (
            "vectors",
            "",
            ("\"inner.pad_left\" = 0\n", ""),
            UNFIT,
            &["uniform field `inner.pad_left` has no value"],
        ),
        ("vectors", "", ("-5]", "-5.5]"), 1, &["uniform field `strides` cannot hold -5.5"]),
        ("vectors", "", ("[0, 5, 0, 0, 0, 6]", "[[0, 5, 0], [0, 0, 6]]"), UNFIT, &["a flat list"]),
        (
            "vectors",
            "",
            ("\"inner.size.k\" = 0", "\"inner.size.k\" = [0, 0]"),
            UNFIT,
            &["has one number, the mapping gives 2"],
        ),
        (
            "vectors",
            "",
            ("TWICE = false", "TWICE = \"false\""),
            UNFIT,
            &["override TWICE: `false`: no `false`"],
        ),
        // Stages and scratch memory.
        (
            "split",
            "",
            ("[scratch]", "[scratch]\nspare = 4\ny = 4\nbad = \"FOO\""),
            UNFIT,
            &[
                "[scratch] gemv has a binding `y`: take another name",
                "[scratch] bad: `FOO`: no `FOO`",
                "[scratch] no stage uses `spare`",
            ],
        ),
        (
            "split",
            "",
            ("dst = \"y\"", "dst = \"z\"\nnobody = \"x\""),
            UNFIT,
            &[
                "nothing is bound to `y`, which gemv changes",
                "reduce.wgsl: [[stage]] main names `nobody`, which it lacks",
                "reduce.wgsl: buffer `dst` is mapped to `z`, which is no binding of gemv",
            ],
        ),
        (
            "split",
            "",
            ("parts = 3\n", "parts = 3\nmore = 1\n[stage.overrides]\nPARTS = 3\n"),
            UNFIT,
            &[
                "reduce.wgsl: has no override `PARTS`",
                "reduce.wgsl: [[stage]] main: uniform `params` has no field `more`",
            ],
        ),
        (
            "split",
            "",
            ("ROWS * 4 * 3", "ROWS / 3"),
            1,
            &["[scratch] partial: 23.333333333333332 bytes"],
        ),
        ("split", "", ("ROWS * 4 * 3", "ROWS - 70"), 1, &["[scratch] partial: 0 bytes"]),
        ("split", "", ("ROWS * 4 * 3", "ROWS * 1099511627776"), 3, &["the largest binding is"]),
        ("split", "", ("file = \"reduce.wgsl\"", "file = \"gone.wgsl\""), UNFIT, &["gone.wgsl"]),
        ("split", "", ("file = \"parts.wgsl\"\n", ""), UNFIT, &["theirs.wgsl"]),
        ("split", "", ("[scratch]", "[scrap]"), UNFIT, &["unknown field `scrap`"]),
        // Layouts.
        (
            "columns",
            "",
            ("\"columns\"", "\"diagonal\""),
            UNFIT,
            &["W: no order `diagonal` of weights; there are rows"],
        ),
        (
            "columns",
            "",
            ("order = ", "ordre = "),
            UNFIT,
            &["expected a binding's name, or a table"],
        ),
        ("columns", "", ("order = \"columns\"", "field = \"d\""), 1, &["W: f32 has no fields"]),
        (
            "columns",
            "",
            ("\"weights\", order", "\"x\", order"),
            UNFIT,
            &["W: x is neither weights nor a cache"],
        ),
        (
            "halves",
            "",
            ("from = \"floor(ROWS / 2)\"", "from = \"ROWS + 1\""),
            1,
            &["high: row 71 of 70"],
        ),
        ("halves", "", ("to = \"floor(ROWS / 2)\"", "to = 0"), 1, &["low: no row from 0 to 0"]),
        (
            "fields",
            "",
            ("\"codes\"", "\"high\""),
            1,
            &["q4_0 has no field `high`; it has codes, d"],
        ),
        ("fields", "", ("\"f32\" }", "\"f64\" }"), UNFIT, &["scales: type `f64`"]),
        (
            "caches",
            "",
            ("\"tokens\" }\nvalues", "\"slots\" }\nvalues"),
            UNFIT,
            &["no order `slots` of a cache"],
        ),
        (
            "caches",
            "",
            ("\"tokens\" }\nvalues", "\"tokens\", from = 1 }\nvalues"),
            UNFIT,
            &["a cache has an `order`"],
        ),
        // Only the state that an operation reads is a name.
        (
            "state",
            "",
            ("length = \"min(N_KV", "length = \"min(PROMPT_LEN"),
            UNFIT,
            &["no `PROMPT_LEN`; there are", "N_KV"],
        ),
    ];
    for (name, shape, change, expected, words) in rows {
        let outcome = named(name).plan(*change, shape);
        let (found, said) = match &outcome {
            Ok(_) => (0, String::new()),
            Err(e @ PlanError::Shape(_)) => (1, e.to_string()),
            Err(e @ PlanError::Reflect(_)) => (UNFIT, e.to_string()),
            Err(e @ PlanError::Unavailable(_)) => (3, e.to_string()),
        };
        assert_eq!(found, *expected, "{name}: {change:?}: {said}");
        for word in *words {
            assert!(said.contains(word), "{name}: {change:?}: `{word}` is not in: {said}");
        }
    }
}

#[test]
fn faults_are_said_all_at_once() {
    let mapping = r#"
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
    let said = files.plan(AS_IT_IS, "").unwrap_err().to_string();
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
        let output = files.check(("ROWS * 4 * 3", size), &["--shape", files.shape]);
        assert_eq!(code(&output), expected, "{}", stderr(&output));
    }
    let output = files.check(("= [\"ROWS\",", "= [\"ROWS - 1\","), &["--json"]);
    assert_eq!(code(&output), 1);
    let report = json(&output);
    assert!(report["failed"].as_u64().unwrap() > 0, "{report}");
    let lone = report["cases"].as_array().unwrap().iter();
    let lone = lone.filter(|case| case["reason"] == "theirs.toml: 0 workgroups of main");
    assert!(lone.count() > 0, "{report}");
    // Without a mapping nobody knows what its buffers are; one that names its WGSL is named itself.
    ended(&files.lathe(AS_IT_IS, &["check", "gemv", "--wgsl", "parts.wgsl"]), 2);
    let folder = files.folder(AS_IT_IS);
    folder.write("theirs.wgsl", PARTS);
    let output = lathe_in(&folder, &["check", "gemv", "--wgsl", "theirs.wgsl"]);
    assert_ends(&output, 2, "name the mapping itself");
}

#[test]
fn the_sweep_draws_inside_what_a_file_takes() {
    for files in here().iter().filter(|files| files.name == "theirs") {
        let report = document(&files.check(AS_IT_IS, &["--json", "--cases", "24"]));
        let cases = report["cases"].as_array().unwrap();
        assert!(cases.len() > 30, "{}", cases.len());
        let shapes: Vec<_> = cases.iter().map(|case| case["shape"].as_str().unwrap()).collect();
        assert!(shapes.iter().all(|shape| shape.contains("WEIGHT=f16,ACT_FORMAT=f32")));
        // Sizes still vary, at the edges of tiles too.
        let sizes = shapes.iter().map(|shape| shape.split(",WEIGHT").next().unwrap());
        let sizes: BTreeSet<_> = sizes.collect();
        assert!(sizes.len() > 20, "{sizes:?}");
        // What a shape does not name is what the file takes.
        let report = document(&files.check(AS_IT_IS, &["--json", "--shape", "ROWS=[5,9]"]));
        for (nth, rows) in ["ROWS=5,", "ROWS=9,"].into_iter().enumerate() {
            let shape = report["cases"][nth]["shape"].as_str().unwrap();
            assert!(shape.starts_with(rows) && shape.contains("WEIGHT=f16"), "{report}");
        }
    }
}

#[test]
fn a_tolerance_of_its_own_holds_and_is_said() {
    for files in here().iter().filter(|files| files.name == "theirs") {
        let off = Files {
            mapping: files.mapping.replace("\"WEIGHT == f16\"", "1.0001"),
            texts: files.texts.clone(),
            wrong: Vec::new(),
            ..*files
        };
        let check = |own: &'static str, args: &[&str]| {
            off.check(("[takes]", own), &[&["--shape", files.shape], args].concat())
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

/// A file that is wrong by a little is timed where that is asked for, and marked; one that is wrong
/// by more is not, and neither is ever a tuned choice.
#[test]
fn what_is_wrong_by_a_little_is_timed_on_request_and_never_stored() {
    for files in here().iter().filter(|files| files.name == "theirs") {
        let ab = |alpha: &'static str, more: &[&str]| {
            let sides =
                ["ab", "gemv", "--a", "naive", "--b", "theirs.toml", "--shape", files.shape];
            let rest = ["--time-out", "1", "--allow-software"];
            files.lathe(("\"WEIGHT == f16\"", alpha), &[&sides[..], &rest, more].concat())
        };
        // 4 % is an NMSE of 1.6e-3: more than a little.
        for (alpha, more) in [("1.0001", &[][..]), ("1.04", &["--tolerate"])] {
            assert_ends(&ab(alpha, more), 1, "is wrong");
        }
        let said = stdout(&ab("1.0001", &["--tolerate"]));
        for words in ["B is WRONG by a little: y: ", "; B is wrong by a little)", "doubtful: "] {
            assert!(said.contains(words), "{words}: {said}");
        }
        for (alpha, is_marked) in [("1.0001", true), ("1.0", false)] {
            let report = json(&ab(alpha, &["--tolerate", "--json"]));
            assert_eq!(report["b_side"]["outside"].is_string(), is_marked, "{report}");
            assert!(report["a_side"]["outside"].is_null(), "{report}");
            let flags = report["flags"].to_string();
            assert_eq!(flags.contains("wrong by a little"), is_marked, "{report}");
        }
        let folder = files.folder(("\"WEIGHT == f16\"", "1.0001"));
        let tune = ["tune", "gemv/naive", "--candidate", "theirs.toml", "--store", "tuned.json"];
        let rest = ["--shape", files.shape, "--allow-software"];
        let said = common::said(&lathe_in(&folder, &[&tune[..], &rest].concat()));
        assert!(said.contains("rejected theirs.toml"), "{said}");
        let stored = std::fs::read_to_string(folder.path("tuned.json")).unwrap_or_default();
        assert!(!stored.contains("theirs"), "{stored}");
    }
}

/// A file that takes nothing else cannot be told from one for the one shape.
#[test]
fn a_file_that_takes_one_shape_is_marked() {
    for files in here().iter().filter(|files| files.name == "theirs") {
        let change = ("K = \"multiple of 4\"", "K = 128\nROWS = 70");
        for (change, is_marked) in [(change, true), (AS_IT_IS, false)] {
            let bench =
                ["bench", "gemv", "--wgsl", "theirs.toml", "--shape", files.shape, "--json"];
            let flags = document(&files.lathe(change, &bench))["cases"][0]["flags"].to_string();
            assert_eq!(flags.contains("one shape"), is_marked, "{flags}");
        }
    }
}

#[test]
fn the_state_of_a_sequence_is_a_name_where_a_problem_has_one() {
    for files in here().iter().filter(|files| files.name == "state") {
        let states = |change: Change| -> Vec<(usize, usize)> {
            let report = document(&files.check(change, &["--json", "--cases", "12"]));
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
        let sizes = states(AS_IT_IS);
        assert!(sizes.iter().any(|(seen, size)| seen < size), "{sizes:?}");
        assert!(sizes.iter().any(|(seen, size)| seen > size), "{sizes:?}");
        // A condition on the state is met by states up to its end, not by the first alone.
        let met = states(("[takes]", "[takes]\nwhen = \"N_KV <= 40\""));
        let met: BTreeSet<_> = met.into_iter().map(|(seen, _)| seen).collect();
        assert!(met.last() == Some(&40) && met.len() > 4, "{met:?}");
        // It is timed at the position that is asked for; another length is other code.
        let sources = ["N_KV=100", "N_KV=200"].map(|state| {
            let shape = format!("{},{state}", files.shape);
            let bench =
                ["bench", files.kernel, "--wgsl", "theirs.toml", "--json", "--shape", &shape];
            let case = document(&files.lathe(AS_IT_IS, &bench))["cases"][0].clone();
            assert!(case["shape"].as_str().unwrap().ends_with(state), "{case}");
            case["source"].clone()
        });
        assert_ne!(sources[0], sources[1]);
        // A recorded step is the same for all positions.
        let model = golden_name("llama-tiny-f16.gguf");
        let decode = ["decode", "--model", &model, "--prompt-tokens", "2,5", "-n", "2"];
        let hint = ["--kv", "f32", "--hint", "attention_decode=theirs.toml"];
        let output = files.lathe(AS_IT_IS, &[&decode[..], &hint].concat());
        assert_ends(&output, 2, "`N_KV` changes from step to step");
        assert!(stderr(&output).contains("uniform field `length`"), "{}", stderr(&output));
    }
}

/// The weights of a whole step are other operations' too.
#[test]
fn whole_steps_refuse_layouts() {
    let folder = named("columns").folder(AS_IT_IS);
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
    // Values that are not filled in are asked for by name.
    let files = Files { mapping: text.clone(), ..named("theirs") };
    let said = files.plan(AS_IT_IS, "").unwrap_err().to_string();
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
    folder.write("theirs.wgsl", THEIRS);
    folder.write("bad.wgsl", "fn main() { let a = b; }\n");
    folder.write("none.wgsl", "fn main() {}\n");
    let tile = "override TILE: u32;\n@compute @workgroup_size(TILE)\nfn main() {}\n";
    folder.write("tile.wgsl", tile);
    let validate = |args: &[&str]| lathe_in(&folder, &[&["validate"], args].concat());
    let report = document(&validate(&["theirs.wgsl", "--json"]));
    assert_eq!(report["needs"], serde_json::json!(["shader-f16"]));
    let entry = &report["entries"][0];
    assert_eq!((&entry["entry"], &entry["workgroup_bytes"]), (&"gemv_main".into(), &256.into()));
    assert_eq!(entry["back_ends"], serde_json::json!(["SPIR-V", "MSL", "HLSL", "WGSL"]));
    assert!(printed(&validate(&["tile.wgsl", "--set", "TILE=96"])).contains("96×1×1"));
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
