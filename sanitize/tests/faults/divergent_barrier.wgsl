// width 8, in x 64, out y 64
// Invocations past the end return before the barrier.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> slots: array<u32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid >= 60u) { return; }
    slots[lid] = x[lid];
    workgroupBarrier(); // <- divergence
    y[lid] = slots[59u - lid];
}
