// width 8, grid 2, in x 15, out y 16
// The loop takes one element too many.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    for (var i = lid; i <= 4u; i += 4u) {
        y[8u * group.x + lid] = x[10u * group.x + i + 1u]; // <- out_of_bounds
    }
}
