// Sum over a workgroup: one subgroup operation, then one slot a subgroup in workgroup memory.
// Subgroups have at least four lanes, so WG/4 slots suffice for any size.
// requires: override WG: u32
override REDUCE_SLOTS: u32 = WG / 4u;
var<workgroup> subgroup_sums: array<f32, REDUCE_SLOTS>;

fn sum_of_subgroups(lane: u32, subgroup: u32, subgroups: u32, value: f32) -> f32 {
    let sum = subgroupAdd(value);
    if (lane == 0u) { subgroup_sums[subgroup] = sum; }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < subgroups; i++) { total += subgroup_sums[i]; }
    workgroupBarrier();
    return total;
}
