// Sums over LANES (a power of two) neighbouring invocations, without subgroup operations.
// requires: override LANES, WG: u32
var<workgroup> lane_sums: array<f32, WG>;

// The sum in the first lane.
fn lane_sum(lid: u32, value: f32) -> f32 {
    lane_sums[lid] = value;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lid % LANES < step) { lane_sums[lid] += lane_sums[lid + step]; }
        workgroupBarrier();
    }
    let sum = lane_sums[lid];
    workgroupBarrier();
    return sum;
}
