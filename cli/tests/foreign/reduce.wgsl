// Their sums, under the same names for other buffers; the groups between are unused.
struct Params { parts: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> src: array<f32>;
@group(3) @binding(1) var<storage, read_write> dst: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = 0.0;
    for (var p = 0u; p < params.parts; p++) { sum += src[group.x * params.parts + p]; }
    dst[group.x] = sum;
}
