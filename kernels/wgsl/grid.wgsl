// More than 65535 workgroups fold into two dimensions; this unfolds them.
fn group_index(workgroup: vec3<u32>, groups: vec3<u32>) -> u32 {
    return workgroup.y * groups.x + workgroup.x;
}

// As group_index; a grid known to fit one dimension needs no unfolding.
fn flat_index(workgroup: vec3<u32>, groups: vec3<u32>, count: u32) -> u32 {
    if (count <= 65535u) { return workgroup.x; }
    return group_index(workgroup, groups);
}
