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
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_cols64(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (i < 64u) { column((wg.y * u.workgroups_x + wg.x) * 64u + i); }
}
