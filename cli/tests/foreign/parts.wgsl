// Products of a part of each row, with its buffers in three groups.
struct Params { stride: u32, k: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> src: array<f32>;
@group(1) @binding(0) var<storage, read_write> input: array<f32>;
@group(2) @binding(3) var<storage, read_write> dst: array<f32>;
override PARTS: u32 = 2;
override WIDTH: u32;
@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = 0.0;
    for (var c = group.y; c < params.k; c += PARTS) {
        sum += src[group.x * params.stride + c] * input[c];
    }
    dst[group.x * PARTS + group.y] = sum;
}
