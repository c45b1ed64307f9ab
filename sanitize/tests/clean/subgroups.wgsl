// width 16, in x 64, out y 64
// Whole subgroups take a branch; a subgroup barrier orders its invocations.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> slots: array<u32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    slots[lid] = x[lid];
    subgroupBarrier();
    var sum = slots[lid ^ 1u];
    if (lid < 16u) { sum = subgroupAdd(x[lid]); }
    y[lid] = sum;
}
