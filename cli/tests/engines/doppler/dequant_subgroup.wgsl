// with q4_k
override WORKGROUP_SIZE: u32 = 64u;
struct Uniforms { num_blocks: u32, output_offset: u32, _pad0: u32, _pad1: u32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> quantized: array<u32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
fn word(at: u32) -> u32 { return quantized[at]; }
fn put(i: u32) {
    if (i / 256u < u.num_blocks) { output[u.output_offset + i] = weight(i / 256u, i % 256u); }
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    put(id.x + id.y * n.x * WORKGROUP_SIZE);
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_vec4(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    for (var i = 0u; i < 4u; i++) { put((id.x + id.y * n.x * 64u) * 4u + i); }
}
