// width 32, in x 64, out y 1
// A slot for each 8 invocations: larger subgroups leave most of them.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 8>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32, @builtin(subgroup_invocation_id) lane: u32) {
    let sum = subgroupAdd(x[lid]);
    if (lane == 0u) { slots[lid / 8u] = sum; }
    workgroupBarrier();
    var all = 0.0;
    if (lid == 0u) {
        for (var i = 0u; i < 8u; i++) { all += slots[i]; } // <- uninitialised
        y[0] = all;
    }
}
