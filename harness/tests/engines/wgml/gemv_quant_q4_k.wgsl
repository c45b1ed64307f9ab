// wrong gemv_q4_k: stride = "K / 256" => stride = 1
struct Shape { nrows: u32, ncols: u32, nmats: u32, stride: u32, stride_mat: u32, offset: u32 }
@group(0) @binding(0) var<uniform> shape_out: Shape;
@group(0) @binding(1) var<uniform> shape_m: Shape;
@group(0) @binding(2) var<uniform> shape_v: Shape;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read> m: array<u32>;
@group(0) @binding(5) var<storage, read> v: array<f32>;
fn byte(block: u32, i: u32) -> u32 { return m[block * 36u + 1u + i / 4u] >> (i % 4u * 8u); }
fn weight(block: u32, i: u32) -> f32 {
    let j = i / 32u;
    var scale = byte(block, j) & 63u;
    var low = byte(block, j + 4u) & 63u;
    if (j >= 4u) {
        scale = (byte(block, j + 4u) & 15u) | ((byte(block, j - 4u) >> 2u) & 48u);
        low = ((byte(block, j + 4u) >> 4u) & 15u) | ((byte(block, j) >> 2u) & 48u);
    }
    let code = (byte(block, 12u + j / 2u * 32u + i % 32u) >> (j % 2u * 4u)) & 15u;
    let d = unpack2x16float(m[block * 36u]);
    return d.x * f32(scale) * f32(code) - d.y * f32(low);
}
@compute @workgroup_size(4)
fn gemv(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let row = shape_m.offset + (wg.x * 4u + i) * shape_m.stride;
    var sum = 0.0;
    for (var k = 0u; k < shape_m.ncols * 256u; k++) {
        sum += weight(row + k / 256u, k % 256u) * v[shape_v.offset * 4u + k];
    }
    out[(shape_out.offset + wg.x) * 4u + i] = sum;
}
