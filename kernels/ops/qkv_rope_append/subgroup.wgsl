// qkv_rope_append/subgroup: one workgroup a token's head, subgroup sums.
//
// Idea: as workgroup, with two barriers instead of the tree's log2(WG).
// import: grid, reduce/subgroups, rope/append, rope/heads, rope/slot
override WG: u32 = 64u; // at least HEAD_DIM/4

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let heads = KV_HEADS * (Q_PER_KV + 2u);
    let row = group_index(workgroup, groups);
    if (row >= N_TOKENS * heads) { return; }
    let token = row / heads;
    let head = row % heads;
    let mine = lid < HEAD_DIM / 4u;
    // An invocation beyond the head repeats the first quad and drops it.
    let i = select(0u, lid, mine);
    let v = load_quad(row, i);
    let w = norm_quad(head, i);
    let t = rotations(head, i, position_of(token));
    var scale = 1.0;
    if (QK_NORM == NORM_RMS) {
        let sum = sum_of_subgroups(lane, subgroup, subgroups, select(0.0, quad_squares(v), mine));
        scale = inverseSqrt(sum / f32(HEAD_DIM) + EPS);
    }
    if (mine) { place(token, head, i, v, scale, w, t); }
    place_quants(token, head, lid);
}
