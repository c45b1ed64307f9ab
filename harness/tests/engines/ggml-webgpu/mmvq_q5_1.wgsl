// wrong mmvq_q5_1: packing = "file" =>
enable f16;
struct q8_1 { d: f16, s: f16, qs: array<u32, 8> }
struct Params {
    offset_src0: u32, offset_src1: u32, offset_dst: u32, m: u32, n: u32, k: u32,
    stride_01: u32, stride_11: u32, stride_02: u32, stride_12: u32, stride_03: u32, stride_13: u32,
    bs02: u32, bs03: u32, broadcast2: u32, broadcast3: u32,
}
@group(0) @binding(0) var<storage, read_write> src0: array<u32>;
@group(0) @binding(1) var<storage, read_write> src1q: array<q8_1>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
fn byte(at: u32) -> u32 { return (src0[at / 4u] >> (8u * (at % 4u))) & 255u; }
fn half(at: u32) -> f32 { return unpack2x16float(src0[at / 4u] >> (8u * (at % 4u))).x; }
fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 32u) * 24u;
    let low = (byte(block + 8u + c % 16u) >> (4u * (c % 32u / 16u))) & 15u;
    let high = (byte(block + 4u + c % 32u / 8u) >> (c % 8u)) & 1u;
    return half(block) * f32(low + 16u * high) + half(block + 2u);
}
fn quantised(c: u32) -> f32 {
    let block = src1q[c / 32u];
    let byte = (block.qs[c % 32u / 4u] >> (8u * (c % 4u))) & 255u;
    return f32(block.d) * f32(i32(byte << 24u) >> 24u);
}
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
        sum += load(params.offset_src0 + row * params.stride_01, c) * quantised(c);
    }
    dst[params.offset_dst + row] = sum;
}
