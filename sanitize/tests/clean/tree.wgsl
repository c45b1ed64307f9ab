// width 32, grid 2, in x 512, out y 2
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    slots[lid] = x[256u * group.x + lid];
    for (var step = 128u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lid < step) { slots[lid] += slots[lid + step]; }
    }
    if (lid == 0u) { y[group.x] = slots[0]; }
}
