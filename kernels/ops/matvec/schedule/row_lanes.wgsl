// LANES invocations a row: eight of them add up the row's sums, and one adds up the eight. No
// subgroups.
// import: grid, matvec/schedule/share
// requires: override Y_OFFSET, ROWS: u32
// requires: type Partial
// requires: fn epilogue(total: Partial) -> f32
// requires: fn old_y(at: u32) -> f32
// requires: fn ready_x(at: u32, size: u32, group: u32, groups: u32)
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override LANES: u32 = 32u; // any number up to WG

var<workgroup> row_lane_sums: array<Partial, WG>;

const LANES_FAN_IN: u32 = 8u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    ready_x(lid, 1u, group_index(workgroup, groups), groups.x * groups.y);
    let lane = lid % LANES;
    // Invocations beyond the last whole row of a workgroup have none.
    let row = group_index(workgroup, groups) * (WG / LANES) + lid / LANES;
    let mine = row < ROWS && lid / LANES < WG / LANES;
    var sum = Partial();
    if (mine) { sum = share(row, lane, LANES); }
    row_lane_sums[lid] = sum;
    workgroupBarrier();
    if (mine && lane < LANES_FAN_IN) {
        for (var i = LANES_FAN_IN; lane + i < LANES; i += LANES_FAN_IN) { sum += row_lane_sums[lid + i]; }
        row_lane_sums[lid] = sum;
    }
    workgroupBarrier();
    if (mine && lane == 0u) {
        for (var i = 1u; i < min(LANES_FAN_IN, LANES); i++) { sum += row_lane_sums[lid + i]; }
        store_y(Y_OFFSET + row, epilogue(sum), old_y(Y_OFFSET + row));
    }
}
