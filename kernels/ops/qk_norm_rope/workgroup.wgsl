// qk_norm_rope/workgroup: one workgroup a head, a tree in workgroup memory.
//
// Idea: an invocation owns whole pairs, so rotating in place needs no second buffer.
//
// import: reduce/tree, rope/head_norm, rope/head_scale, rope/in_place, rope/two_norms
override WG: u32 = 64u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let head = workgroup.x;
    var scale = 1.0;
    if (QK_NORM == NORM_RMS) {
        let squares = head_squares(head, lid, WG);
        scale = head_scale(workgroup_sum(lid, squares));
    }
    for (var pair = lid; pair < HEAD_DIM / 2u; pair += WG) { rotate_pair(head, pair, scale); }
}
