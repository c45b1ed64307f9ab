// rope/naive: one invocation a pair.
//
//   (a, b) -> (a cos - b sin, a sin + b cos)  for each pair of each head, angles from the rope table
//   x: HEADS heads of HEAD_DIM, in place, max(STRIDE, HEAD_DIM) elements from one to the next
//   ROPE_INTERLEAVED: pairs (2i, 2i+1); ROPE_NEOX: pairs (i, i + HEAD_DIM/2)
//   rope: (positions, HEAD_DIM/2) of (cos, sin)
//
// Idea: a pair rotates on its own, so in place needs no second buffer and no barrier.
// import: grid
override HEADS: u32;
override HEAD_DIM: u32;
override STRIDE: u32;
override ROPE_STYLE: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> rope: array<vec2<f32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let half = HEAD_DIM / 2u;
    let at = group_index(workgroup, groups) * WG + lid;
    if (at >= HEADS * half) { return; }
    let pair = at % half;
    let base = at / half * max(STRIDE, HEAD_DIM);
    let i = base + select(2u * pair, pair, ROPE_STYLE == ROPE_NEOX);
    let j = base + select(2u * pair + 1u, pair + half, ROPE_STYLE == ROPE_NEOX);
    let a = x[i];
    let b = x[j];
    let turn = rope[state[POSITION] * half + pair];
    x[i] = a * turn.x - b * turn.y;
    x[j] = a * turn.y + b * turn.x;
}
