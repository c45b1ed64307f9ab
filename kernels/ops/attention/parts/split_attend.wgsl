// The stage of split decode attention that attends: a workgroup a split, or some heads of one.
// import: attention/parts/split, attention/parts/split_subgroup

@compute @workgroup_size(WG)
fn attend(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    attend_share(split_part(workgroup.x), subgroup, lane, size);
}
