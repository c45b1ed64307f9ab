// wrong mul_mat_reg_tile_q8_0: packing = "file" =>
struct Params {
    offset_src0: u32, offset_src1: u32, offset_dst: u32, m: u32, n: u32, k: u32,
    stride_01: u32, stride_11: u32, stride_02: u32, stride_12: u32, stride_03: u32, stride_13: u32,
    bs02: u32, bs03: u32, broadcast2: u32, broadcast3: u32,
}
@group(0) @binding(0) var<storage, read_write> src0: array<u32>;
@group(0) @binding(1) var<storage, read_write> src1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
fn byte(at: u32) -> u32 { return (src0[at / 4u] >> (8u * (at % 4u))) & 255u; }
fn half(at: u32) -> f32 { return unpack2x16float(src0[at / 4u] >> (8u * (at % 4u))).x; }
fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 32u) * 34u;
    return half(block) * f32(i32(byte(block + 2u + c % 32u) << 24u) >> 24u);
}
@compute @workgroup_size(32)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) num: vec3<u32>,
    @builtin(local_invocation_index) i: u32,
) {
    let tiles = (params.m + 31u) / 32u;
    let row = (wg.y * num.x + wg.x) % tiles * 32u + i;
    let first = (wg.y * num.x + wg.x) / tiles * 32u;
    if (row >= params.m || first >= params.n) { return; }
    let tokens = min(32u, params.n - first);
    let at = params.offset_src0 + row * params.stride_01;
    var sums: array<f32, 32>;
    for (var c = 0u; c < params.k; c += 4u) {
        let w = vec4(load(at, c), load(at, c + 1u), load(at, c + 2u), load(at, c + 3u));
        let x = (params.offset_src1 + first * params.stride_11 + c) / 4u;
        for (var t = 0u; t < tokens; t++) {
            sums[t] += dot(w, src1[x + t * params.stride_11 / 4u]);
        }
    }
    for (var t = 0u; t < tokens; t++) {
        dst[params.offset_dst + (first + t) * params.m + row] = sums[t];
    }
}
