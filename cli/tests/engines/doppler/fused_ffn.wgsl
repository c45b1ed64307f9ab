struct Uniforms {
    M: u32, hidden_size: u32, intermediate_size: u32, alpha: f32, activation: u32, clamp_max: f32,
    _pad0: u32, _pad1: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read> W_gate: array<u32>;
@group(0) @binding(3) var<storage, read> W_up: array<u32>;
@group(0) @binding(4) var<storage, read_write> output: array<f32>;
@compute @workgroup_size(1)
fn main_f16(@builtin(workgroup_id) wg: vec3<u32>) {
    var gate = 0.0;
    var up = 0.0;
    for (var k = 0u; k < u.hidden_size; k++) {
        let i = wg.x * u.hidden_size + k;
        gate += input[k] * unpack2x16float(W_gate[i / 2u])[i % 2u];
        up += input[k] * unpack2x16float(W_up[i / 2u])[i % 2u];
    }
    var slope = 1.0;
    if (u.activation != 0u) { slope = 1.5957691 * (1.0 + 0.044715 * gate * gate); }
    output[wg.x] = gate / (1.0 + exp(-slope * gate)) * up * u.alpha;
}
