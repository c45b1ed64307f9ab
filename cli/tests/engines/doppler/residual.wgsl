override WORKGROUP_SIZE: u32 = 256u;
struct Uniforms { size: u32, scale: f32, _pad1: u32, _pad2: u32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn add_inplace(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < u.size) { output[id.x] += b[id.x]; }
}
