// width 8, in x 64, out y 64
// Shuffles stay within the subgroup, whatever its size, or drop what lies outside.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 16>;
@compute @workgroup_size(64)
fn main(
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    var sum = x[lid];
    for (var by = size / 2u; by > 0u; by /= 2u) { sum += subgroupShuffleXor(sum, by); }
    let above = subgroupShuffleUp(sum, 1u);
    if (lane == 0u) { slots[subgroup] = sum; }
    workgroupBarrier();
    var all = select(0.0, above, lane > 0u);
    for (var i = 0u; i < subgroups; i++) { all += slots[i]; }
    y[lid] = all;
}
