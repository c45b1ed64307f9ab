// schedule/soa_int8 as a kernel.
// import: grid, matvec/schedule/soa_int8
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
