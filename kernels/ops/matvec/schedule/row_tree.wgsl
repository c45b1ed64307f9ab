// LANES invocations a row, summed through a tree in workgroup memory; no subgroups.
// import: grid, matvec/schedule/share, reduce/tree
// requires: override Y_OFFSET, ROWS: u32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u; // a power of two
override LANES: u32 = 32u; // invocations a row, a power of two

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % LANES;
    let row = group_index(workgroup, groups) * (WG / LANES) + lid / LANES;
    var sum = 0.0;
    if (row < ROWS) { sum = share(row, lane, LANES); }
    reduce_slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { reduce_slots[lid] += reduce_slots[lid + step]; }
        workgroupBarrier();
    }
    if (lane == 0u && row < ROWS) { store_y(Y_OFFSET + row, reduce_slots[lid], old_y(Y_OFFSET + row)); }
}
