override RMS_NORM_OFFSET: bool = false;
struct Uniforms {
    N: u32, K: u32, eps: f32, has_residual: u32, transpose_b: u32, _pad0: u32, _pad1: u32,
    _pad2: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<u32>;
@group(0) @binding(4) var<storage, read_write> output: array<f32>;
@group(0) @binding(5) var<storage, read> residual: array<f32>;
@compute @workgroup_size(256)
fn gemv_rmsnorm_medium(@builtin(local_invocation_index) i: u32) {
    for (var col = i; col < u.N; col += 256u) {
        var sum = 0.0;
        for (var k = 0u; k < u.K; k++) {
            sum += input[k] * weight[select(k * u.N + col, col * u.K + k, u.transpose_b == 1u)];
        }
        output[col] = sum;
    }
    storageBarrier();
    var squares = 0.0;
    for (var col = 0u; col < u.N; col++) { squares += output[col] * output[col]; }
    storageBarrier();
    let scale = 1.0 / sqrt(squares / f32(u.N) + u.eps);
    for (var col = i; col < u.N; col += 256u) {
        let w = bitcast<f32>(norm_weight[col]) + select(0.0, 1.0, RMS_NORM_OFFSET);
        output[col] *= scale * w;
        if (u.has_residual == 1u) { output[col] += residual[col]; }
    }
}
