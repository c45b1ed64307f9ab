// A plain product of schedule/soa_int8: row r of W makes y[Y_OFFSET + r].
// import: grid, matvec/epilogue/store, matvec/schedule/soa_int8
override Y_OFFSET: u32;
const PAIRED: bool = false;

fn stored_row(row: u32) -> u32 { return row; }

fn old_of_row(row: u32) -> f32 { return old_y(Y_OFFSET + row); }

fn store_product(product: Product, lanes: u32) {
    if (product.live) { store_y(Y_OFFSET + product.row, product.value, product.held); }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    walk_rows(flat_index(workgroup, groups, GRID), subgroup, size, lane);
}
