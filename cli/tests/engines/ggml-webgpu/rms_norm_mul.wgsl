struct Params {
    offset_rn_src: u32, offset_mul_src: u32, offset_dst: u32,
    stride_rn_src1: u32, stride_rn_src2: u32, stride_rn_src3: u32,
    stride_mul_src1: u32, stride_mul_src2: u32, stride_mul_src3: u32,
    stride_dst1: u32, stride_dst2: u32, stride_dst3: u32,
    mul_src_ne0: u32, mul_src_ne1: u32, mul_src_ne2: u32, mul_src_ne3: u32,
    ne0: u32, ne1: u32, ne2: u32, eps: f32,
}
@group(0) @binding(0) var<storage, read_write> rn_src: array<f32>;
@group(0) @binding(1) var<storage, read_write> mul_src: array<f32>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) wg: vec3<u32>) {
    if (wg.x >= params.ne1 * params.ne2) { return; }
    let source = params.offset_rn_src + wg.x * params.stride_rn_src1;
    let weight = params.offset_mul_src + (wg.x % params.mul_src_ne1) * params.stride_mul_src1;
    let to = params.offset_dst + wg.x * params.stride_dst1;
    var sum = 0.0;
    for (var c = 0u; c < params.ne0; c++) { sum += rn_src[source + c] * rn_src[source + c]; }
    let scale = inverseSqrt(sum / f32(params.ne0) + params.eps);
    for (var c = 0u; c < params.ne0; c++) {
        dst[to + c] = scale * rn_src[source + c] * mul_src[weight + c % params.mul_src_ne0];
    }
}
