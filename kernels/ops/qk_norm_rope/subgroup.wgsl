// qk_norm_rope/subgroup: one workgroup a head, subgroup sums.
//
// Idea: as workgroup, with two barriers instead of the tree's log2(WG).
//
// import: reduce/subgroups, rope/head_norm, rope/head_scale, rope/in_place, rope/two_norms
override WG: u32 = 64u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let head = workgroup.x;
    var scale = 1.0;
    if (QK_NORM == NORM_RMS) {
        let squares = head_squares(head, lid, WG);
        scale = head_scale(sum_of_subgroups(lane, subgroup, subgroups, squares));
    }
    for (var pair = lid; pair < HEAD_DIM / 2u; pair += WG) { rotate_pair(head, pair, scale); }
}
