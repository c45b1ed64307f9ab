// wrong matmul_q4_multicol: alpha = 1.0 => alpha = 2.0
// wrong matmul_q4_gemv: "ceil(K / 256)" => 1
override WORKGROUP_SIZE: u32 = 256u;
override COLS_PER_WG: u32 = 32u;
struct Uniforms {
    M: u32, N: u32, K: u32, alpha: f32, num_blocks_per_row: u32, _pad0: u32, _pad1: u32, _pad2: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> A: array<f32>;
@group(0) @binding(2) var<storage, read> B_q4k: array<u32>;
@group(0) @binding(3) var<storage, read_write> C: array<f32>;
fn byte(block: u32, i: u32) -> u32 { return B_q4k[block * 36u + 1u + i / 4u] >> (i % 4u * 8u); }
fn weight(block: u32, i: u32) -> f32 {
    let j = i / 32u;
    var scale = byte(block, j) & 63u;
    var low = byte(block, j + 4u) & 63u;
    if (j >= 4u) {
        scale = (byte(block, j + 4u) & 15u) | ((byte(block, j - 4u) >> 2u) & 48u);
        low = ((byte(block, j + 4u) >> 4u) & 15u) | ((byte(block, j) >> 2u) & 48u);
    }
    let code = byte(block, 12u + j / 2u * 32u + i % 32u) >> (j % 2u * 4u);
    let d = unpack2x16float(B_q4k[block * 36u]);
    return d.x * f32(scale) * f32(code & 15u) - d.y * f32(low);
}
fn column(group: u32, i: u32) {
    let col = group * COLS_PER_WG + i;
    if (i >= COLS_PER_WG || col >= u.N) { return; }
    var sum = 0.0;
    for (var k = 0u; k < u.K; k++) {
        sum += A[k] * weight(col * u.num_blocks_per_row + k / 256u, k % 256u);
    }
    C[col] = sum * u.alpha;
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_multicol(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    column(wg.x, i);
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_gemv(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    column(wg.x, i);
}
