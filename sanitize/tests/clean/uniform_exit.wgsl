// width 16, grid 3, in x 64, out y 3
// All leave together: by a value that one of them has put there, and by the number of the workgroup.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> least: u32;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    if (group.x == 2u) { if (lid == 0u) { y[2] = 7u; } return; }
    for (var i = 0u; ; i++) {
        if (lid == i % 32u) { least = x[i] + i; }
        if (workgroupUniformLoad(&least) > 20u + group.x) { break; }
    }
    if (lid == 0u) { y[group.x] = least; }
}
