struct Uniforms {
    batch_count: u32, M: u32, N: u32, K: u32, K_of_a: u32, K_of_b: u32, block_size: u32,
    blocks_per_col: u32, num_N_tile: u32, zero_blocks_per_col: u32, weight_idx: u32, dispatch_M: u32,
}
@group(0) @binding(0) var<storage, read> input_a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> input_b: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales_b: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
@group(0) @binding(4) var<uniform> uniforms: Uniforms;
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let col = wg.x * 8u + i;
    if (col >= uniforms.N || wg.x >= uniforms.num_N_tile) { return; }
    var sum = 0.0;
    for (var k = 0u; k < uniforms.K_of_a * 4u; k++) {
        let scale = scales_b[col * uniforms.blocks_per_col + k / uniforms.block_size];
        let word = input_b[col * uniforms.K_of_b + k / 32u][(k / 8u) % 4u];
        sum += input_a[k / 4u][k % 4u] * scale * (f32((word >> (4u * (k % 8u))) & 15u) - 8.0);
    }
    output[col] = sum;
}
