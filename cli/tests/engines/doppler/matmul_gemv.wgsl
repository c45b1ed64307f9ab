enable f16;
struct Uniforms {
    M: u32, N: u32, K: u32, alpha: f32, transpose_b: u32, _pad0: u32, _pad1: u32, _pad2: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> A: array<f32>;
@group(0) @binding(2) var<storage, read> B: array<f16>;
@group(0) @binding(3) var<storage, read_write> C: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) wg: vec3<u32>) {
    var sum = 0.0;
    for (var k = 0u; k < u.K; k++) { sum += A[k] * f32(B[wg.x * u.K + k]); }
    C[wg.x] = sum * u.alpha;
}
