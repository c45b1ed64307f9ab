// A thread group of LANES invocations over TILE_ROWS rows at once.
// import: matvec/schedule/row_group, matvec/schedule/team
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    split_k(take_place(workgroup, groups, lid, subgroup, size, lane));
}
