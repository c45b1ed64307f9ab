// qk_norm_rope/workgroup: one workgroup a head, a tree in workgroup memory.
//
// Idea: an invocation owns whole pairs, so rotating in place needs no second buffer.
//
//   h' = rms_norm(h) * w          (NORM_RMS; w is q_norm for query heads, k_norm for key heads)
//   (a, b) -> (a cos - b sin, a sin + b cos)  for each pair of h', angles from the rope table
//   qkv: [q (KV_HEADS*Q_PER_KV heads) | k (KV_HEADS) | v (KV_HEADS)] x HEAD_DIM, q and k in place
//   ROPE_INTERLEAVED: pairs (2i, 2i+1); ROPE_NEOX: pairs (i, i + HEAD_DIM/2)
//   rope: (positions, HEAD_DIM/2) of (cos, sin)
// import: reduce/tree, rope/head_norm, rope/head_scale, rope/in_place, rope/two_norms
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read> rope: array<vec2<f32>>;

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
