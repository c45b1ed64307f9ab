//! Files with layouts of other engines: tight and transposed rows, rows and fields of blocks in
//! buffers of their own, caches in the order of tokens.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Output;

use lathe_harness::plan::select::{Hint, Hints, select};
use lathe_kernels::Capabilities;

use crate::common::{self, Folder, assert_ends, code, json, said, stderr};

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

const VECTOR: &str = r#"
ACT_FORMAT = "f32"
N_VECTORS = 1
Y_OFFSET = 0
Y_AFTER = 0
BETA = 0
when = "ROWS <= 65535"
"#;

/// What is replaced by what.
type Changes = &'static [(&'static str, &'static str)];

/// A kernel, a text, its mapping, and changes to that which make it wrong.
struct Case {
    kernel: &'static str,
    text: &'static str,
    mapping: String,
    wrong: Changes,
    shape: &'static str,
}

fn cases() -> Vec<Case> {
    let stage = "[[stage]]\nentry = \"main\"\nworkgroups = \"ROWS\"\n";
    let gemv = |text, begin: &str, rest: &str, wrong: Changes| {
        let mapping = format!("{begin}\n[takes]\nWEIGHT = \"f32\"\n{VECTOR}{stage}{rest}");
        Case { kernel: "gemv", text, mapping, wrong, shape: "ROWS=70,K=131,WEIGHT=f32" }
    };
    let fields = |rest: &str, wrong: Changes| {
        let takes = "[takes]\nWEIGHT = \"q4_0\"\nORDER = \"row_wise\"\n";
        let mapping = format!("{takes}{VECTOR}{stage}{rest}");
        Case { kernel: "gemv_q", text: FIELDS, mapping, wrong, shape: "ROWS=70,K=131,WEIGHT=q4_0" }
    };
    let attention = |takes: &str, heads: &str, rest: &str| {
        let (stage, when) = (stage.replace("ROWS", heads), "when = \"KV_HEADS > 1\"\n");
        format!("[takes]\nKV_FORMAT = \"f32\"\nHEAD_DIM = [32, 64]\n{when}{takes}{stage}{rest}")
    };
    let mut halves = gemv(
        HALVES,
        "",
        "[overrides]\nROW = \"ceil(K / 4) * 4\"\nHALF = \"floor(ROWS / 2)\"\n[bindings]\n\
         low = { of = \"weights\", to = \"floor(ROWS / 2)\" }\n\
         high = { of = \"weights\", from = \"floor(ROWS / 2)\" }\n",
        &[("from = \"floor(ROWS / 2)\"", "from = \"floor(ROWS / 2) - 1\"")],
    );
    let when = "[\"ROWS <= 65535\", \"ROWS >= 2\"]";
    halves.mapping = halves.mapping.replace("\"ROWS <= 65535\"", when);
    vec![
        gemv(
            GEMV,
            "packing = \"file\"",
            "[overrides]\nROW = \"K\"\nCOLUMN = 1\n[bindings]\nW = \"weights\"\n",
            &[("packing = \"file\"", "")],
        ),
        gemv(
            GEMV,
            "",
            "[overrides]\nROW = 1\nCOLUMN = \"ROWS\"\n\
             [bindings]\nW = { of = \"weights\", order = \"columns\" }\n",
            &[("\"columns\"", "\"rows\"")],
        ),
        halves,
        fields(
            "[overrides]\nWORD_ROW = \"ceil(K / 32) * 4\"\nWORD_COLUMN = 1\n\
             SCALE_ROW = \"ceil(K / 32)\"\nSCALE_COLUMN = 1\n\
             [bindings]\nqweight = \"weights.codes\"\n\
             scales = { of = \"weights\", field = \"d\", type = \"f32\" }\n",
            &[(", type = \"f32\"", ""), ("weights.codes", "weights")],
        ),
        fields(
            "[overrides]\nWORD_ROW = 1\nWORD_COLUMN = \"ROWS\"\nSCALE_ROW = 1\n\
             SCALE_COLUMN = \"ROWS\"\n[bindings]\n\
             qweight = { of = \"weights\", field = \"codes\", order = \"columns\" }\n\
             scales = { of = \"weights\", field = \"d\", type = \"f32\", order = \"columns\" }\n",
            &[("\"codes\", order = \"columns\"", "\"codes\", order = \"rows\"")],
        ),
        Case {
            kernel: "attention_decode",
            text: ATTENTION,
            mapping: attention(
                "ACT_FORMAT = \"f32\"\n",
                "KV_HEADS * Q_PER_KV",
                "[bindings]\nkeys = { of = \"k_cache\", order = \"tokens\" }\n\
                 values = { of = \"v_cache\", order = \"tokens\" }\n",
            ),
            wrong: &[("keys = { of = \"k_cache\", order = \"tokens\" }", "keys = \"k_cache\"")],
            shape: "KV_HEADS=3,Q_PER_KV=2,HEAD_DIM=32,KV_SIZE=40,N_KV=33,KV_FORMAT=f32",
        },
        Case {
            kernel: "kv_window",
            text: WINDOW,
            mapping: attention(
                "",
                "KV_HEADS",
                "[bindings]\nk_cache = { of = \"k_cache\", order = \"tokens\" }\n\
                 v_cache = { of = \"v_cache\", order = \"tokens\" }\n",
            ),
            wrong: &[("k_cache\", order = \"tokens\"", "k_cache\", order = \"heads\"")],
            shape: "KV_HEADS=3,HEAD_DIM=32,KV_SIZE=12,N_TOKENS=5,N_KV=9,PROMPT_LEN=20,KV_FORMAT=f32",
        },
        gemv(
            BESIDE,
            "",
            "[uniforms.x]\nk = \"K\"\nrow = \"ceil(K / 4) * 4\"\nhalf = \"floor(ROWS / 2)\"\n\
             [bindings]\nW = \"weights\"\ninput = \"x\"\n\
             high = { of = \"weights\", from = \"floor(ROWS / 2)\" }\n",
            &[("from = \"floor(ROWS / 2)\"", "to = \"ROWS\"")],
        ),
    ]
}

fn lathe(text: &str, mapping: &str, args: &[&str]) -> Output {
    let folder = Folder::new();
    folder.write("theirs.wgsl", text);
    folder.write("theirs.toml", mapping);
    common::lathe_in(&folder, args)
}

#[test]
fn layouts_of_other_engines_pass_the_sweep_and_wrong_ones_fail() {
    let Some(_) = common::gpu() else { return };
    for Case { kernel, text, mapping, wrong, .. } in cases() {
        let check = ["check", kernel, "--wgsl", "theirs.wgsl", "--cases", "6"];
        let output = lathe(text, &mapping, &check);
        let said = said(&output);
        assert_eq!(code(&output), 0, "{mapping}{said}");
        assert!(said.contains(", 0 failed, 0 unavailable"), "{said}");
        for (from, to) in wrong {
            assert!(mapping.contains(from), "{from}: {mapping}");
            let output = lathe(text, &mapping.replace(from, to), &check);
            assert_eq!(code(&output), 1, "{to} {mapping}{}", stderr(&output));
        }
    }
}

/// What is timed, cold, overlapping and against a variant over the same inputs, is judged too.
#[test]
fn layouts_of_other_engines_are_timed_and_compared() {
    let Some(_) = common::gpu() else { return };
    let all = cases().into_iter().enumerate();
    for (i, Case { kernel, text, mapping, shape, .. }) in all {
        let shape = ["--shape", shape, "--json"];
        let bench = ["bench", kernel, "--wgsl", "theirs.wgsl", "--overlapped"];
        let output = lathe(text, &mapping, &[&bench[..], &shape].concat());
        assert_eq!(code(&output), 0, "{mapping}{}", stderr(&output));
        // Theirs is A and B in turns.
        let mut sides = ["naive", "theirs.wgsl"];
        sides.rotate_left(i % 2);
        let ab = ["ab", kernel, "--a", sides[0], "--b", sides[1], "--allow-software"];
        let output = lathe(text, &mapping, &[&ab[..], &["--time-out", "1"], &shape].concat());
        assert!(matches!(output.status.code(), Some(0 | 6)), "{mapping}{}", stderr(&output));
        let report = json(&output);
        for side in ["a_side", "b_side"] {
            assert!(report[side]["nmse"].as_f64().unwrap() < 1e-6, "{report}");
        }
    }
}

#[test]
fn faults_of_layouts_name_the_variable() {
    let Some(_) = common::gpu() else { return };
    let all = cases();
    for (case, from, to, expected, fault) in [
        (1, "\"columns\"", "\"diagonal\"", 2, "W: no order `diagonal` of weights; there are rows"),
        (1, "order = ", "ordre = ", 2, "expected a binding's name, or a table"),
        (1, "order = \"columns\"", "packing = \"planes\"", 2, "W: no packing `planes`"),
        (1, "order = \"columns\"", "field = \"d\"", 1, "W: f32 has no fields"),
        (1, "\"weights\", order", "\"x\", order", 2, "W: x is neither weights nor a cache"),
        (2, "from = \"floor(ROWS / 2)\"", "from = \"ROWS + 1\"", 1, "high: row 71 of 70"),
        (2, "to = \"floor(ROWS / 2)\"", "to = 0", 1, "low: no row from 0 to 0"),
        (3, "weights.codes", "weights.high", 1, "q4_0 has no field `high`; it has codes, d"),
        (3, "\"f32\" }", "\"f64\" }", 2, "scales: type `f64`"),
        (5, "\"tokens\" }\nvalues", "\"slots\" }\nvalues", 2, "no order `slots` of a cache"),
        (5, "\"tokens\" }\nvalues", "\"tokens\", from = 1 }\nvalues", 2, "a cache has an `order`"),
    ] {
        let Case { kernel, text, mapping, shape, .. } = &all[case];
        assert!(mapping.contains(from), "{from}: {mapping}");
        let mapping = mapping.replacen(from, to, 1);
        let check = ["check", kernel, "--wgsl", "theirs.wgsl", "--shape", shape];
        let output = lathe(text, &mapping, &check);
        let said = said(&output);
        assert_eq!(code(&output), expected, "{to}: {said}");
        assert!(said.contains(fault), "{fault}: {said}");
    }
    // What is written is an output, whatever lies where.
    let text = GEMV.replace("<storage, read> W", "<storage, read_write> W");
    let text = text.replace("var sum = 0.0;", "var sum = 0.0; W[0] = 1.0;");
    let check = ["check", "gemv", "--wgsl", "theirs.wgsl", "--shape", all[1].shape];
    let output = lathe(&text, &all[1].mapping, &check);
    assert_ends(&output, 2, "writes `W`, which is the input weights");
}

/// The weights of a whole step are other operations' too.
#[test]
fn whole_steps_refuse_layouts() {
    let folder = Folder::new();
    let Case { text, mapping, .. } = cases().swap_remove(1);
    folder.write("theirs.toml", mapping);
    let path = folder.write("theirs.wgsl", text);
    let (name, hint) = Hint::parse(&format!("gemv={path}")).unwrap();
    let kernel = lathe_kernels::kernel("gemv").unwrap();
    let base = kernel.default_problem();
    let problem = kernel.parse_over(&base, "WEIGHT=f32,ROWS=64,K=64").unwrap();
    let hints: Hints = [(name, hint)].into_iter().collect();
    let refused = select(kernel, &problem.shape, &Capabilities::minimal(), &hints, None);
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("its mapping lays weights or caches out"), "{refused}");
}
