// Sums of 64-bit integers over a workgroup of WG (a power of two) invocations.
// import: math/u64
// requires: override WG: u32
var<workgroup> sum64_slots: array<vec2<u32>, WG>;

fn workgroup_sum64(lid: u32, value: vec2<u32>) -> vec2<u32> {
    sum64_slots[lid] = value;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step /= 2u) {
        if (lid < step) { sum64_slots[lid] = add64(sum64_slots[lid], sum64_slots[lid + step]); }
        workgroupBarrier();
    }
    let total = sum64_slots[0];
    workgroupBarrier();
    return total;
}
