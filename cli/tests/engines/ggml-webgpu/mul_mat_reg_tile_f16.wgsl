enable f16;
struct Params {
    offset_src0: u32, offset_src1: u32, offset_dst: u32, m: u32, n: u32, k: u32,
    stride_01: u32, stride_11: u32, stride_02: u32, stride_12: u32, stride_03: u32, stride_13: u32,
    bs02: u32, bs03: u32, broadcast2: u32, broadcast3: u32,
}
@group(0) @binding(0) var<storage, read_write> src0: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read_write> src1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> dst: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> params: Params;
fn load(at: u32) -> vec4<f32> { return vec4<f32>(src0[at / 4u]); }
@compute @workgroup_size(8, 4)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) num: vec3<u32>,
    @builtin(local_invocation_id) id: vec3<u32>,
) {
    let tiles = (params.m + 31u) / 32u;
    let row = (wg.y * num.x + wg.x) % tiles * 32u + id.x * 4u;
    let first = (wg.y * num.x + wg.x) / tiles * 32u + id.y * 8u;
    if (row >= params.m || first >= params.n) { return; }
    let tokens = min(8u, params.n - first);
    let s = params.stride_01;
    var sums: array<vec4<f32>, 8>;
    for (var c = 0u; c < params.k; c += 4u) {
        let at = params.offset_src0 + row * s + c;
        let w = mat4x4(load(at), load(at + s), load(at + 2u * s), load(at + 3u * s));
        let x = (params.offset_src1 + first * params.stride_11 + c) / 4u;
        for (var t = 0u; t < tokens; t++) { sums[t] += src1[x + t * params.stride_11 / 4u] * w; }
    }
    for (var t = 0u; t < tokens; t++) {
        dst[(params.offset_dst + (first + t) * params.m + row) / 4u] = sums[t];
    }
}
