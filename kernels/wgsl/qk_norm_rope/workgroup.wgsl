// qk_norm_rope/workgroup: one workgroup a head, a tree in workgroup memory.
//
// Idea: an invocation owns whole pairs, so rotating in place needs no second buffer.
//
//   h' = rms_norm(h) * w          (NORM 1; w is q_norm for query heads, k_norm for key heads)
//   (a, b) -> (a cos - b sin, a sin + b cos)  for each pair of h', angles from the rope table
//   qkv: [q (KV_HEADS*GROUP heads) | k (KV_HEADS) | v (KV_HEADS)] x HEAD_DIM, q and k in place
//   STYLE 0: pairs (2i, 2i+1), interleaved; 1: pairs (i, i + HEAD_DIM/2), NeoX
//   rope: (positions, HEAD_DIM/2) of (cos, sin)
// uses: state, reduce_workgroup
override GROUP: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override NORM: u32;
override STYLE: u32;
override EPS: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read> rope: array<vec2<f32>>;

fn norm_weight(head: u32, i: u32) -> f32 {
    if (NORM == 0u) { return 1.0; }
    if (head < KV_HEADS * GROUP) { return q_norm[i]; }
    return k_norm[i];
}

// Normalises and rotates one pair of a head.
fn rotate(head: u32, pair: u32, scale: f32) {
    let half = HEAD_DIM / 2u;
    let i = select(2u * pair, pair, STYLE == 1u);
    let j = select(2u * pair + 1u, pair + half, STYLE == 1u);
    let base = head * HEAD_DIM;
    let a = qkv[base + i] * scale * norm_weight(head, i);
    let b = qkv[base + j] * scale * norm_weight(head, j);
    let turn = rope[state[POSITION] * half + pair];
    qkv[base + i] = a * turn.x - b * turn.y;
    qkv[base + j] = a * turn.y + b * turn.x;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let head = workgroup.x;
    var scale = 1.0;
    if (NORM == 1u) {
        var sum = 0.0;
        for (var i = lid; i < HEAD_DIM; i += WG) {
            sum += qkv[head * HEAD_DIM + i] * qkv[head * HEAD_DIM + i];
        }
        scale = inverseSqrt(workgroup_sum(lid, sum) / f32(HEAD_DIM) + EPS);
    }
    for (var pair = lid; pair < HEAD_DIM / 2u; pair += WG) { rotate(head, pair, scale); }
}
