// Heads normed and rotated where they lie.
// import: rope/head_norm
// requires: var qkv: array<f32>
// requires: var rope: array<vec2<f32>>
// requires: var state: array<u32>
override ROPE_STYLE: u32;

fn qkv_element(head: u32, e: u32) -> f32 { return qkv[head * HEAD_DIM + e]; }

// Norms and rotates one pair of a head.
fn rotate_pair(head: u32, pair: u32, scale: f32) {
    let half = HEAD_DIM / 2u;
    let i = select(2u * pair, pair, ROPE_STYLE == ROPE_NEOX);
    let j = select(2u * pair + 1u, pair + half, ROPE_STYLE == ROPE_NEOX);
    let base = head * HEAD_DIM;
    let a = qkv[base + i] * scale * head_norm_weight(head, i);
    let b = qkv[base + j] * scale * head_norm_weight(head, j);
    let turn = rope[state[POSITION] * half + pair];
    qkv[base + i] = a * turn.x - b * turn.y;
    qkv[base + j] = a * turn.y + b * turn.x;
}
