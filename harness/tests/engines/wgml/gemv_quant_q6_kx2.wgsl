// wrong gemv_q6_kx2: packing = "file" =>
struct Shape { nrows: u32, ncols: u32, nmats: u32, stride: u32, stride_mat: u32, offset: u32 }
@group(0) @binding(0) var<uniform> shape_out: Shape;
@group(0) @binding(1) var<uniform> shape_m: Shape;
@group(0) @binding(2) var<uniform> shape_v: Shape;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read> m: array<u32>;
@group(0) @binding(5) var<storage, read> v: array<f32>;
fn byte(at: u32) -> u32 { return (m[at / 4u] >> (at % 4u * 8u)) & 255u; }
fn half(at: u32) -> f32 { return unpack2x16float(byte(at) | (byte(at + 1u) << 8u)).x; }
fn weight(blocks: u32, i: u32) -> f32 {
    let at = (blocks * 2u + i / 256u) * 210u;
    let half_of_block = i / 128u % 2u;
    let part = i / 32u % 4u;
    let low = byte(at + half_of_block * 64u + i % 64u) >> (part / 2u * 4u);
    let high = byte(at + 128u + half_of_block * 32u + i % 32u) >> (part * 2u);
    let code = i32((low & 15u) | ((high & 3u) << 4u)) - 32;
    let scale = extractBits(i32(byte(at + 192u + i % 256u / 16u)), 0u, 8u);
    return half(at + 208u) * f32(scale) * f32(code);
}
@compute @workgroup_size(4)
fn gemv(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let row = shape_m.offset + (wg.x * 4u + i) * shape_m.stride;
    var sum = 0.0;
    for (var k = 0u; k < shape_m.ncols * 512u; k++) {
        sum += weight(row + k / 512u, k % 512u) * v[shape_v.offset * 4u + k];
    }
    out[(shape_out.offset + wg.x) * 4u + i] = sum;
}
