// LANES invocations a row of a head, one row after another; no subgroups. One invocation calls push_logit for
// a row, with the row's place in the workgroup.
// import: grid, reduce/lanes
// requires: override ROWS: u32
// requires: fn begin_rows(lid: u32)
// requires: fn end_rows(lid: u32, group: u32)
// requires: fn lane_product(row: u32, lane: u32) -> f32
// requires: fn push_logit(row: u32, at: u32, logit: f32)
override WG: u32 = 256u;
override LANES: u32 = 32u;
override ROWS_PER_WG: u32 = 64u; // a multiple of WG / LANES

fn group_rows() -> u32 { return ROWS_PER_WG; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, grid);
    let lane = lid % LANES;
    begin_rows(lid);
    for (var r = 0u; r < ROWS_PER_WG; r += WG / LANES) {
        let at = r + lid / LANES;
        let row = group * ROWS_PER_WG + at;
        var sum = 0.0;
        if (row < ROWS) { sum = lane_product(row, lane); }
        sum = lane_sum(lid, sum);
        if (lane == 0u && row < ROWS) { push_logit(row, at, sum); }
    }
    end_rows(lid, group);
}
