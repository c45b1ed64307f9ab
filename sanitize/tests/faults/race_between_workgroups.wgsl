// width 8, grid 4, in x 64, zeros y 4
// Workgroups add to one word.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    if (lid == 0u) {
        y[group.x / 2u] += x[group.x]; // <- race
    }
}
