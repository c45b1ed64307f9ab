// width 8, in x 64, out y 1
// A slot for each 32 invocations: smaller subgroups share one.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 2>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32, @builtin(subgroup_invocation_id) lane: u32) {
    let sum = subgroupAdd(x[lid]);
    if (lane == 0u) {
        slots[lid / 32u] = sum; // <- race
    }
    workgroupBarrier();
    if (lid == 0u) { y[0] = slots[0] + slots[1]; }
}
