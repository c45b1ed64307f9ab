// schedule/tree for one vector.
// import: grid, matvec/schedule/tree
// requires: fn ready_x(at: u32, size: u32, group: u32, groups: u32)
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    ready_x(lid, 1u, group_index(workgroup, groups), groups.x * groups.y);
    soa_tree(group_index(workgroup, groups), lid, 0u);
}
