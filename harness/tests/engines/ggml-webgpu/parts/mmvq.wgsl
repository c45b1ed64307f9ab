enable f16;
struct q8_1 { d: f16, s: f16, qs: array<u32, 8> }
@group(0) @binding(1) var<storage, read_write> src1q: array<q8_1>;
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
