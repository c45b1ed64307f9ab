// A subgroup a row, the lane's whole slice in flight at once.
// import: grid, matvec/schedule/share
// requires: type Partial
// requires: override Y_OFFSET, ROWS: u32
// requires: fn epilogue(total: Partial) -> f32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 8u;
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let count = (ROWS - 1u) / ROWS_PER_WG + 1u;
    let first = flat_index(workgroup, groups, count) * ROWS_PER_WG;
    let at_once = select(WG / max(SG, 1u), subgroups, SG == 0u);
    // Every subgroup runs as many iterations: subgroup operations need uniform control flow. Rows past
    // the end repeat the last one, and what they make is dropped.
    for (var turn = 0u; turn < ROWS_PER_WG; turn += at_once) {
        let r = turn + subgroup;
        let row = min(first + r, ROWS - 1u);
        let total = subgroupAdd(share(row, lane, sg));
        if (lane == 0u && r < ROWS_PER_WG && first + r < ROWS) {
            store_y(Y_OFFSET + row, epilogue(total), old_y(Y_OFFSET + row));
        }
    }
}
