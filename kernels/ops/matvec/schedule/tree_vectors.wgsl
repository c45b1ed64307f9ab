// schedule/tree for several vectors, one after another: the weights of the later ones come from the
// cache.
// import: grid, matvec/schedule/tree
override N_VECTORS: u32;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    for (var vector = 0u; vector < N_VECTORS; vector++) {
        soa_tree(group_index(workgroup, groups), lid, vector);
    }
}
