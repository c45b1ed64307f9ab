//! The mappings of the folder `mappings`, each over a kernel of our own that has the buffers, the
//! uniforms and the entry points of the engine's and computes the same in the dullest way.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GGML: &str = "
enable f16;
struct Params {
    offset_src0: u32, offset_src1: u32, offset_dst: u32, m: u32, n: u32, k: u32,
    stride_01: u32, stride_11: u32, stride_02: u32, stride_12: u32, stride_03: u32, stride_13: u32,
    bs02: u32, bs03: u32, broadcast2: u32, broadcast3: u32,
}
@group(0) @binding(0) var<storage, read_write> src0: array<TYPE>;
@group(0) @binding(1) var<storage, read_write> src1: array<f32>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
LOAD
@compute @workgroup_size(4)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) num: vec3<u32>,
    @builtin(local_invocation_index) i: u32,
) {
    let row = (wg.y * num.x + wg.x) * 4u + i;
    let batches = params.bs02 * params.broadcast2 * params.bs03 * params.broadcast3;
    if (row >= params.m || batches != 1u || params.n != 1u) { return; }
    var sum = 0.0;
    for (var c = 0u; c < params.k; c++) {
        sum += load(params.offset_src0 + row * params.stride_01, c) * src1[params.offset_src1 + c];
    }
    dst[params.offset_dst + row] = sum;
}
";

const LOAD_F16: &str = "fn load(at: u32, c: u32) -> f32 { return f32(src0[at + c]); }";

const LOAD_Q4_0: &str = "
fn byte(at: u32) -> u32 { return (src0[at / 4u] >> (8u * (at % 4u))) & 255u; }
fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 32u) * 18u;
    let d = unpack2x16float(byte(block) | (byte(block + 1u) << 8u)).x;
    let code = (byte(block + 2u + c % 16u) >> (4u * ((c % 32u) / 16u))) & 15u;
    return d * (f32(code) - 8.0);
}";

const DOPPLER: &str = "
enable f16;
override WORKGROUP_SIZE: u32 = 64u;
struct Uniforms {
    M: u32, N: u32, K: u32, alpha: f32, transpose_b: u32, workgroups_x: u32, _pad0: u32, _pad1: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> A: array<f32>;
@group(0) @binding(2) var<storage, read> B: array<f16>;
@group(0) @binding(3) var<storage, read_write> C: array<f32>;
fn column(col: u32) {
    if (col >= u.N) { return; }
    var sum = 0.0;
    for (var k = 0u; k < u.K; k++) {
        sum += A[k] * f32(B[select(k * u.N + col, col * u.K + k, u.transpose_b == 1u)]);
    }
    C[col] = sum * u.alpha;
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (i < 4u) { column((wg.y * u.workgroups_x + wg.x) * 4u + i); }
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_vec4(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (i < 4u && u.K % 4u == 0u) { column((wg.y * u.workgroups_x + wg.x) * 4u + i); }
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_multicol(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (i < 32u && u.K % 4u == 0u) { column((wg.y * u.workgroups_x + wg.x) * 32u + i); }
}
";

const DOPPLER_ATTENTION: &str = "
enable f16;
enable subgroups;
struct Uniforms {
    num_heads: u32, num_kv_heads: u32, head_dim: u32, kv_len: u32, seq_len: u32, scale: f32,
    is_causal: u32, start_pos: u32, attn_softcap: f32, sliding_window: u32, kv_len_source: u32,
    kv_start: u32, page_size: u32, kv_layout: u32, _pad: u32,
}
const WORKGROUP_SIZE = 256u;
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> Q: array<f32>;
@group(0) @binding(2) var<storage, read> K: array<f16>;
@group(0) @binding(3) var<storage, read> V: array<f16>;
@group(0) @binding(4) var<storage, read_write> output: array<f32>;
@group(0) @binding(5) var<storage, read> kv_len_buffer: array<u32>;
@group(0) @binding(6) var<storage, read> page_table: array<u32>;
fn score(head: u32, slot: u32) -> f32 {
    let row = (slot * u.num_kv_heads + head / (u.num_heads / u.num_kv_heads)) * u.head_dim;
    var sum = 0.0;
    for (var d = 0u; d < u.head_dim; d++) { sum += Q[head * u.head_dim + d] * f32(K[row + d]); }
    return sum * u.scale;
}
var<workgroup> scores: array<f32, 256>;
@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (u.head_dim > WORKGROUP_SIZE) { return; }
    let d = min(i, u.head_dim - 1u);
    let kv_head = wg.x / (u.num_heads / u.num_kv_heads);
    var length = u.kv_len;
    if (u.kv_len_source != 0u) { length = kv_len_buffer[0] + page_table[0]; }
    if (u.is_causal != 0u) { length = min(length, u.start_pos + 1u); }
    var largest = -3.0e38;
    var sum = 0.0;
    var mixed = 0.0;
    for (var first = 0u; first < length; first += 256u) {
        if (first + i < length) { scores[i] = score(wg.x, first + i); }
        workgroupBarrier();
        for (var j = 0u; j < min(256u, length - first); j++) {
            let top = max(largest, scores[j]);
            let fade = exp(largest - top);
            let p = exp(scores[j] - top);
            let row = (first + j) * u.num_kv_heads + kv_head;
            sum = sum * fade + p;
            mixed = mixed * fade + p * f32(V[row * u.head_dim + d]);
            largest = top;
        }
        workgroupBarrier();
    }
    if (i < u.head_dim) { output[wg.x * u.head_dim + i] = mixed / sum; }
}
";

const ONNX: &str = "
struct Uniforms {
    batch_count: u32, M: u32, N: u32, K: u32, K_of_a: u32, K_of_b: u32, block_size: u32,
    blocks_per_col: u32, num_N_tile: u32, zero_blocks_per_col: u32, weight_idx: u32, dispatch_M: u32,
}
@group(0) @binding(0) var<storage, read> input_a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> input_b: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales_b: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
@group(0) @binding(4) var<uniform> uniforms: Uniforms;
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let col = wg.x * 8u + i;
    if (col >= uniforms.N || wg.x >= uniforms.num_N_tile) { return; }
    var sum = 0.0;
    for (var k = 0u; k < uniforms.K_of_a * 4u; k++) {
        let scale = scales_b[col * uniforms.blocks_per_col + k / uniforms.block_size];
        let word = input_b[col * uniforms.K_of_b + k / 32u][(k / 8u) % 4u];
        sum += input_a[k / 4u][k % 4u] * scale * (f32((word >> (4u * (k % 8u))) & 15u) - 8.0);
    }
    output[col] = sum;
}
";

const WGML: &str = "
struct Shape { nrows: u32, ncols: u32, nmats: u32, stride: u32, stride_mat: u32, offset: u32 }
@group(0) @binding(0) var<uniform> shape_v: Shape;
@group(0) @binding(1) var<uniform> shape_w: Shape;
@group(0) @binding(2) var<uniform> shape_out: Shape;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> w: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
@group(0) @binding(6) var<uniform> config: Config;
struct Config { nudge_factor: f32 }
@compute @workgroup_size(1)
fn main() {
    var squares = 0.0;
    for (var i = 0u; i < shape_v.nrows; i++) { let x = v[shape_v.offset + i]; squares += x * x; }
    let scale = 1.0 / sqrt(squares / f32(shape_v.nrows) + config.nudge_factor);
    for (var i = 0u; i < shape_v.nrows; i++) {
        out[shape_out.offset + i] = v[shape_v.offset + i] * scale * w[shape_w.offset + i];
    }
}
";

/// Each mapping: the kernel it is for, the text that stands for the engine's, and what of the
/// mapping makes it wrong when it is changed.
fn cases() -> Vec<(&'static str, &'static str, String, [&'static str; 2])> {
    let ggml = |element: &str, load: &str| GGML.replace("TYPE", element).replace("LOAD", load);
    let tight = ["packing = \"file\"", ""];
    vec![
        ("ggml-webgpu/mul_mat_vec_f16", "gemv", ggml("f16", LOAD_F16), tight),
        ("ggml-webgpu/mul_mat_vec_q4_0", "gemv_q", ggml("u32", LOAD_Q4_0), tight),
        ("doppler/gemv_main", "gemv", DOPPLER.into(), tight),
        ("doppler/gemv_vec4", "gemv", DOPPLER.into(), tight),
        ("doppler/gemv_multicol", "gemv", DOPPLER.into(), tight),
        ("doppler/gemv_transposed", "gemv", DOPPLER.into(), ["\"columns\"", "\"rows\""]),
        (
            "doppler/attention_decode_online",
            "attention_decode",
            DOPPLER_ATTENTION.into(),
            ["\"N_KV - 1\"", "0"],
        ),
        (
            "onnxruntime-web/matmul_nbits",
            "gemv_q",
            ONNX.into(),
            ["\"weights.codes\"", "\"weights\""],
        ),
        (
            "wgml/rms_norm",
            "rms_norm",
            WGML.into(),
            ["v = \"x\"\nw = \"weight\"", "w = \"x\"\nv = \"weight\""],
        ),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../mappings")
}

fn check(kernel: &str, text: &str, mapping: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let table: toml::Table = toml::from_str(mapping).unwrap();
    fs::write(folder.path().join(table["file"].as_str().unwrap()), text).unwrap();
    fs::write(folder.path().join("theirs.toml"), mapping).unwrap();
    Command::new(env!("CARGO_BIN_EXE_lathe"))
        .args(["check", kernel, "--mapping", "theirs.toml", "--cases", "12"])
        .current_dir(folder.path())
        .output()
        .unwrap()
}

#[test]
fn every_mapping_is_tried() {
    let mut all = BTreeSet::new();
    for engine in fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        for file in engine.is_dir().then(|| fs::read_dir(&engine).unwrap()).into_iter().flatten() {
            let path = file.unwrap().path();
            let path = path.strip_prefix(folder()).unwrap().with_extension("");
            all.insert(path.to_string_lossy().replace('\\', "/"));
        }
    }
    let tried = cases().into_iter().map(|(name, ..)| name.to_owned()).collect();
    assert_eq!(all, tried);
    for (name, kernel, ..) in cases() {
        let text = fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap();
        let own = name.split('/').next_back().unwrap();
        assert!(
            text.starts_with(&format!("# lathe check {kernel} --mapping {own}.toml\n")),
            "{name}"
        );
    }
}

#[test]
fn mappings_pass_the_sweep_and_wrong_ones_fail() {
    let Some(gpu) = common::gpu() else { return };
    for (name, kernel, text, [from, to]) in cases() {
        if text.contains("enable f16;") && !gpu.caps.f16 {
            continue;
        }
        let mapping = fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap();
        let output = check(kernel, &text, &mapping);
        let (said, faults) = (String::from_utf8_lossy(&output.stdout), &output.stderr);
        let faults = String::from_utf8_lossy(faults);
        assert_eq!(output.status.code(), Some(0), "{name}: {said}{faults}");
        assert!(said.contains(", 0 failed, 0 unavailable"), "{name}: {said}");
        assert!(mapping.contains(from), "{name}: {from}");
        let output = check(kernel, &text, &mapping.replace(from, to));
        assert_eq!(output.status.code(), Some(1), "{name}: {to}");
    }
}
