// Sums over a workgroup of WG (a power of two) invocations without subgroup operations.
// requires: override WG: u32
var<workgroup> reduce_slots: array<f32, WG>;

fn workgroup_sum(lid: u32, value: f32) -> f32 {
    reduce_slots[lid] = value;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step /= 2u) {
        if (lid < step) { reduce_slots[lid] += reduce_slots[lid + step]; }
        workgroupBarrier();
    }
    let total = reduce_slots[0];
    workgroupBarrier();
    return total;
}

fn workgroup_max(lid: u32, value: f32) -> f32 {
    reduce_slots[lid] = value;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step /= 2u) {
        if (lid < step) { reduce_slots[lid] = max(reduce_slots[lid], reduce_slots[lid + step]); }
        workgroupBarrier();
    }
    let most = reduce_slots[0];
    workgroupBarrier();
    return most;
}
