override RMS_NORM_OFFSET: bool = false;
override OUTPUT_PRENORM: bool = false;
struct Uniforms {
    size: u32, num_tokens: u32, eps: f32, has_residual: u32, token_stride: u32, output_scale: f32,
    _pad1: u32, _pad2: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
@group(0) @binding(4) var<storage, read> residual: array<f32>;
@group(0) @binding(5) var<storage, read_write> residual_sum_output: array<f32>;
fn row(token: u32) {
    if (token >= u.num_tokens) { return; }
    var squares = 0.0;
    for (var i = token * u.size; i < (token + 1u) * u.size; i++) { squares += input[i] * input[i]; }
    let scale = u.output_scale / sqrt(squares / f32(u.size) + u.eps);
    for (var i = 0u; i < u.size; i++) {
        let at = token * u.size + i;
        let w = bitcast<f32>(weight[i]) + select(0.0, 1.0, RMS_NORM_OFFSET);
        output[at] = input[at] * scale * w;
        if (u.has_residual != 0u) { output[at] += residual[at]; }
        if (OUTPUT_PRENORM) { residual_sum_output[at] = input[at]; }
    }
}
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) wg: vec3<u32>) { row(wg.y * u.token_stride + wg.x); }
@compute @workgroup_size(1)
fn main_cached(@builtin(workgroup_id) wg: vec3<u32>) { row(wg.y * u.token_stride + wg.x); }
@compute @workgroup_size(1)
fn main_subgroup(@builtin(workgroup_id) wg: vec3<u32>) { row(wg.y * u.token_stride + wg.x); }
