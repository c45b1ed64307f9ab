// width 8, grid 4, in x 4, zeros y 4
// A running sum over workgroups by plain loads.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = x[group.x];
    if (group.x > 0u) {
        sum += y[group.x - 1u]; // <- race
    }
    y[group.x] = sum;
}
