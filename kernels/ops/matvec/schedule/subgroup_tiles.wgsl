// schedule/subgroup_row as a kernel.
// import: grid, matvec/schedule/subgroup_row
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    soa_row(group_index(workgroup, groups), lid, subgroup, size, lane);
}
