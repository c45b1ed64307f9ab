// width 8, in x 60, out y 1
// Invocations without an element leave their slots as they were, and the tree sums all.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid < arrayLength(&x)) { slots[lid] = x[lid]; }
    for (var step = 32u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lid < step) {
            slots[lid] += slots[lid + step]; // <- uninitialised
        }
    }
    if (lid == 0u) { y[0] = slots[0]; }
}
