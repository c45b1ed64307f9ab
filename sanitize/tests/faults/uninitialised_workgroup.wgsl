// width 8, in x 8, out y 8
// Half of the slots are written, all are read.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 8>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid < 4u) { slots[lid] = x[lid]; }
    workgroupBarrier();
    y[lid] = slots[7u - lid]; // <- uninitialised
}
