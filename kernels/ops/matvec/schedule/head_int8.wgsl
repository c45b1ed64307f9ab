// Rows of a head by schedule/soa_int8: a workgroup quantises x once and takes rows in many grid-stride
// iterations.
// import: grid, matvec/schedule/product, matvec/schedule/soa_int8
// requires: fn begin_rows(lid: u32)
// requires: fn end_rows(lid: u32, group: u32)
// requires: fn push_logit(row: u32, at: u32, logit: f32)
const PAIRED: bool = false;

fn stored_row(row: u32) -> u32 { return row; }

fn old_of_row(row: u32) -> f32 { return 0.0; }

fn store_product(product: Product, lanes: u32) {
    if (product.live) { push_logit(product.row, product.at, product.value); }
}

fn group_rows() -> u32 { return TURNS * TURN_ROWS; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let group = group_index(workgroup, grid);
    begin_rows(lid);
    walk_rows(group, subgroup, size, lane);
    end_rows(lid, group);
}
