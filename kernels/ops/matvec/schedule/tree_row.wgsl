// schedule/tree for one vector.
// import: grid, matvec/schedule/tree
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    planes_tree(group_index(workgroup, groups), lid, 0u);
}
