// qkv_rope_append/workgroup: one workgroup a token's head, a tree in workgroup memory.
//
// Idea: rotation and append of a token touch a few kilobytes: one dispatch instead of two saves a
// launch and a barrier. Keys and values go from the product into the cache and nowhere else. An
// invocation keeps its four elements in registers; all loads are issued before the sum.
// import: grid, reduce/tree, rope/append, rope/heads, rope/slot
override WG: u32 = 64u; // a power of two, at least HEAD_DIM/4

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
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
        let sum = workgroup_sum(lid, select(0.0, quad_squares(v), mine));
        scale = inverseSqrt(sum / f32(HEAD_DIM) + EPS);
    }
    if (mine) { place(token, head, i, v, scale, w, t); }
    place_quants(token, head, lid);
}
