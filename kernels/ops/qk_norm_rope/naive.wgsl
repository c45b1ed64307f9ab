// qk_norm_rope/naive: one invocation a head.
//
// Idea: the formula, serially.
//
//   h' = rms_norm(h) * w          (NORM_RMS; w is q_norm for query heads, k_norm for key heads)
//   (a, b) -> (a cos - b sin, a sin + b cos)  for each pair of h', angles from the rope table
//   qkv: [q (KV_HEADS*Q_PER_KV heads) | k (KV_HEADS) | v (KV_HEADS)] x HEAD_DIM, q and k in place
//   ROPE_INTERLEAVED: pairs (2i, 2i+1); ROPE_NEOX: pairs (i, i + HEAD_DIM/2)
//   rope: (positions, HEAD_DIM/2) of (cos, sin)
// import: rope/head_norm, rope/head_scale, rope/in_place, rope/two_norms

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read> rope: array<vec2<f32>>;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) {
    let head = workgroup.x;
    var scale = 1.0;
    if (QK_NORM == NORM_RMS) { scale = head_scale(head_squares(head, 0u, 1u)); }
    for (var pair = 0u; pair < HEAD_DIM / 2u; pair++) { rotate_pair(head, pair, scale); }
}
