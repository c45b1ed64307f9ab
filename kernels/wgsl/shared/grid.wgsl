// More than 65535 workgroups fold into two dimensions; this unfolds them.
fn group_index(workgroup: vec3<u32>, groups: vec3<u32>) -> u32 {
    return workgroup.y * groups.x + workgroup.x;
}
